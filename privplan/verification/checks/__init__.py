"""Checks of a run, one module per topic, found through the registry of ``check``."""
