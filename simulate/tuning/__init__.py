"""Tuning of training recipes on public or proxy data: trials with the plan's noise injected.

May import the engine, the algorithms and the planner; nothing imports it but the command.
"""
