"""Delta tables that hold records and positions in the same commit: files, windows, positions, dead letters, and the log."""
