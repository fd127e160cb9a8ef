"""Adapters to the accountants of other libraries; one module per library, imported by name.

A module here imports its library, so nothing else in ``privplan`` imports this package.
"""
