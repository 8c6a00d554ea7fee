"""What is done with record batches, one strategy a file."""
