"""Empirical lower bounds on epsilon, from canaries in a run."""
