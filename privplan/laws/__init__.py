"""Sampling laws: one file per law, with its dominating pairs, its draw and its tests.

A law states which pairs of distributions dominate a release whose cohort it draws, how
a cohort is drawn, and how the evidence of drawn cohorts is tested (``law``). ``pairs``
has the values of the first, ``sampling_law`` the name of a law as a value. This package
imports values, errors and the registry only: accounting, planning, simulation and
verification all build on it.
"""
