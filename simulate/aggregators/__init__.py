"""Aggregators: from the releases of a round to one step of the global model.

Means divide by a constant, the expected cohort, never by the realised cohort size.
"""
