"""Data sets (one reader per file format in ``formats``), and partitions of records over clients.

Imports ``privplan`` and the seed streams of ``simulate.engine`` only.
"""
