"""The engine: polls record batches, hands them to a strategy, and keeps rebalances, backpressure and shutdown out of its sight."""
