"""Horizons: several models that are trained on the same people within one budget.

A spec with an additional ``horizon`` block says how many models there will be, or which; the
epsilons of its groups are then budgets over all of them. See docs/horizons.md.
"""
