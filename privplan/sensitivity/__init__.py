"""How a plan changes with its spec: what-if sweeps and frontiers.

May import planning, spec and io.
"""
