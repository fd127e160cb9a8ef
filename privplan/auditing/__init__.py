"""Empirical bounds on epsilon from canaries, one module per method, found through a registry."""
