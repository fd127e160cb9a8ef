"""Readers: one module per file format, with the rows of the data sets in it."""
