"""The engine: polls record batches, hands them to a strategy, and hides rebalances, backpressure and shutdown from it."""
