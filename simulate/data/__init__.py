"""Data sets, a reader per file format in ``formats``, and partitions over clients.

Imports ``privplan`` and the seed streams of ``simulate.engine`` only.
"""
