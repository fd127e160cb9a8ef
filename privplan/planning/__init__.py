"""Planning: ratios, noise multipliers, weights and a certificate from budgets.

May import spec, accounting and convergence; never simulate, verification, report or
cli.
"""
