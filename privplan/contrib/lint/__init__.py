"""Lint: the guarantee of a training configuration that was written for another framework.

A framework module (``frameworks``) reads a script, a configuration or a log of its framework into
a ``Reading``: mechanisms, claims, alarms and what is not determined. ``judge`` computes bounds on
the epsilon of each mechanism and compares them with the claims. Scripts are parsed and never
executed. Imports accounting, values, errors and io.
"""
