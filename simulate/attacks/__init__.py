"""Attacks on releases of a plan or a run: reconstruction of records, and membership.

An attack receives a ``View``: the released vector and everything public about the
round, nothing else. Scores compare its result with the records, and with attacks that
see nothing (null rows). May import the engine, the algorithms, the models and the data;
only the command line imports it.
"""
