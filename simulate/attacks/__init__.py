"""Attacks on what a plan or a run releases: reconstruction of records, membership of the unit.

An attack receives a ``View``: the released vector and everything public about the round, nothing
else. Scores compare its result with the records, and with attacks that see nothing (null rows).
May import the engine, the algorithms, the models and the data; only the command line imports it.
"""
