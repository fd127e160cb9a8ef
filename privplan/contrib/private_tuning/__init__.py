"""What it costs to choose the best of several runs by a score on private data."""
