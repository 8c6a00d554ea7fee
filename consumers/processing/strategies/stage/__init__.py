"""Staging into Delta: the strategy, what waits for a commit, the commit, and the ownership that it rests on."""
