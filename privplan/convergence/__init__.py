"""Convergence bounds of federated learning under noise, sampling and sparsification.

Imports values and errors only.
"""
