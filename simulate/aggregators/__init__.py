"""How releases become one step of the global model.

Averages divide by a constant, the expected cohort, never by the realised cohort size.
"""
