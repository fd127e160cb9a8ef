"""Partitions of training records over clients: a module per topic, one registry."""
