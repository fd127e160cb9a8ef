"""Server optimisers: registered functions that make the server of a plan.

A module registers its optimisers on import, as in ``momentum.py``; names and hyperparameters
stand in ``privplan.spec.server``. May import components, the server's neutral step, and values.
"""
