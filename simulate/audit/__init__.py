"""Empirical privacy audit: canaries, their participation in rounds, and their scores."""
