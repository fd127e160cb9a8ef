"""Epsilon of the best of a random number of runs.

Source: N. Papernot, T. Steinke, Hyperparameter Tuning with Renyi Differential Privacy,
ICLR 2022 (arXiv:2110.03620). A run, its score included, is (lambda,
epsilon(lambda))-RDP; it is repeated K times with recipes drawn independently, and the
best by score is released. The result is (lambda, epsilon')-RDP with

- K truncated negative binomial with parameters eta, gamma (Theorem 2; eta = 1 is
  geometric):
  epsilon' = epsilon + (1 + eta) (1 - 1/l) epsilon(l) + (1 + eta) log(1/gamma) / l
  + log E[K] / (lambda - 1), for every order l;
- K Poisson with mean mu (Theorem 6): epsilon' = epsilon + mu d + log(mu) / (lambda -
  1), where the run is (e, d)-DP with exp(e) = 1 + 1 / (lambda - 1).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.accountant import checked_delta
from privplan.accounting.rdp import ORDERS, epsilon_of_rdp, rdp_of_release
from privplan.accounting.release import History, Relation

Floats = NDArray[np.float64]


def epsilon_of_selection(
    history: History, delta: float, relation: Relation, *, mean: float, shape: float
) -> float:
    """Upper bound on the epsilon of releasing the best of K runs."""
    checked_delta(delta)
    run = np.zeros_like(ORDERS)
    for release, count in history:
        run = run + count * rdp_of_release(release, relation)
    return epsilon_of_rdp(rdp_of_selection(run, mean, shape), delta)


def rdp_of_selection(run: Floats, mean: float, shape: float) -> Floats:
    """Renyi divergence of the best of K runs at ``ORDERS``, shape (orders,)."""
    if math.isinf(shape):
        close = np.log1p(1 / (ORDERS - 1))
        extra = mean * np.array([_delta(run, float(epsilon)) for epsilon in close])
    else:
        gamma = negative_binomial_gamma(mean, shape)
        terms = (1 - 1 / ORDERS) * run + math.log(1 / gamma) / ORDERS
        extra = np.full_like(run, (1 + shape) * float(np.min(terms)))
    return run + extra + math.log(mean) / (ORDERS - 1)


def negative_binomial_gamma(mean: float, shape: float) -> float:
    """Gamma of the truncated negative binomial law whose mean is given.

    E[K] = eta (1 - gamma) / (gamma (1 - gamma^eta)), which falls from infinity to 1 in
    gamma.
    """
    from scipy.optimize import brentq  # takes longer to load than most plans to solve

    def excess(log_gamma: float) -> float:
        powers = -math.expm1(shape * log_gamma)
        return (
            math.log(shape * -math.expm1(log_gamma) / powers)
            - log_gamma
            - math.log(mean)
        )

    return math.exp(float(brentq(excess, -700 / max(shape, 1.0), -1e-12)))


def _delta(run: Floats, epsilon: float) -> float:
    """Smallest delta at epsilon over the orders, at most 1.

    Balle et al. 2020, Theorem 21.
    """
    with np.errstate(invalid="ignore"):
        logs = (ORDERS - 1) * (run + np.log1p(-1 / ORDERS) - epsilon) - np.log(ORDERS)
    return math.exp(min(0.0, float(np.nanmin(logs))))
