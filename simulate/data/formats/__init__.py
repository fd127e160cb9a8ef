"""Readers: one module per file format, each with the rows of the data sets in that format."""
