"""Faults by kind, one module per kind or per fault: each defines a tuple ``FAULTS``."""
