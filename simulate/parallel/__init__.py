"""Threads, processes, clusters and devices."""
