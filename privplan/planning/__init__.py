"""Planning: sampling ratios, noise multipliers, weights and a certificate from a spec's budgets.

May import spec, accounting and convergence; never simulate, verification, report or cli.
"""
