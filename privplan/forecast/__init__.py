"""Forecasts of accuracy before training, from a table of runs on proxy data.

May import plans and planning; imports no simulator, so that a forecast needs the table only.
"""
