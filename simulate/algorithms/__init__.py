"""Algorithms, one module per paper, and their registry."""
