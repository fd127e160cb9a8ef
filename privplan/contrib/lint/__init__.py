"""Lint: what is wrong in a training configuration of another framework.

A framework module (``frameworks``) reads a script, a configuration or a log of its
framework into a ``Findings``: alarms, what was read, and what was not understood. Lint
never says that all is well: what a run did is shown by its guard and its ledger. An
epsilon is computed only where everything in the file is literal and understood, and is
stated under what was read. Scripts are parsed and never executed. Imports accounting,
errors, files and registry.
"""
