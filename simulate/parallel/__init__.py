"""Parallel execution: threads within a process, ranks of a distributed run, Ray clusters."""
