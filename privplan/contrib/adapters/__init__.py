"""Adapters to other libraries; a module per library, imported by its name.

A module here imports its library, so nothing else in ``privplan`` imports this package.
"""
