"""Partitions of the training records over clients: one module per topic, one registry."""
