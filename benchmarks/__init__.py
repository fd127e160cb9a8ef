"""Benchmarks: each compares two things in the same run."""
