"""Audits by Gaussians: a bound from error rates as mu-GDP, and the one-shot estimate.

The bound converts upper bounds on the false-positive and false-negative rates to mu of Gaussian
DP: M. Nasr, J. Hayes, T. Steinke, B. Balle, F. Tramer, M. Jagielski, N. Carlini, A. Terzis, Tight
Auditing of Differentially Private Machine Learning, USENIX Security 2023. The estimate fits two
Gaussians to the scores and is never a bound: G. Andrew, P. Kairouz, S. Oh, A. Oprea,
H. B. McMahan, V. M. Suriyakumar, One-shot Empirical Privacy Estimation for Federated Learning,
ICLR 2024 (arXiv 2302.03098, 2023).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betaincinv, ndtri

from privplan.accounting.gdp import epsilon_of, root
from privplan.auditing import register

PILOT = 5
"""Every fifth canary is only used to choose thresholds, which the others then test."""
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.85, 0.95)
LARGEST = 200.0
"""Largest estimate of epsilon."""
POINTS = 20_001
REACH = 14.0
"""Densities are summed over this many standard deviations on both sides."""


def upper_rate(hits: int, trials: int, level: float) -> float:
    """Upper bound on a rate, at confidence 1 - ``level`` (Clopper and Pearson, 1934)."""
    if hits >= trials:
        return 1.0
    return float(betaincinv(hits + 1, trials - hits, 1 - level))


def mu_lower_bound(scores: np.ndarray, included: np.ndarray, confidence: float) -> float:
    """Lower bound on mu if the trade-off curve is that of a Gaussian mechanism.

    The scores of different canaries are assumed to be independent, as they are for orthogonal
    directions under Gaussian noise.
    """
    pilot = np.arange(len(scores)) % PILOT == 0
    tested, truth = scores[~pilot], included[~pilot].astype(bool)
    if len(tested) == 0 or truth.all() or not truth.any():
        return 0.0
    level = (1 - confidence) / (2 * len(QUANTILES))
    best = 0.0
    for threshold in np.quantile(scores[pilot], QUANTILES):
        positive = tested > threshold
        false_positive = upper_rate(int(positive[~truth].sum()), int((~truth).sum()), level)
        false_negative = upper_rate(int((~positive[truth]).sum()), int(truth.sum()), level)
        if false_positive < 1 and false_negative < 1:
            best = max(best, float(-ndtri(false_positive) - ndtri(false_negative)))
    return best


@register("Gaussian", "bound if Gaussian", order=40)
def lower_bound(scores: np.ndarray, included: np.ndarray, delta: float, confidence: float) -> float:
    """Lower bound on epsilon at delta if the trade-off curve is that of a Gaussian mechanism."""
    mu = mu_lower_bound(scores, included, confidence)
    return epsilon_of(mu, delta) if mu > 0 else 0.0


@register("one-shot", "estimate", order=50)
def estimate(
    scores: np.ndarray, included: np.ndarray, delta: float, confidence: float = 0.0
) -> float:
    """Epsilon at delta between Gaussians fitted to the scores of included and excluded canaries."""
    inside, outside = scores[included.astype(bool)], scores[~included.astype(bool)]
    if min(len(inside), len(outside)) < 2 or min(inside.std(), outside.std()) == 0:
        return 0.0
    one = (inside.mean(), inside.std(ddof=1))
    two = (outside.mean(), outside.std(ddof=1))
    return max(_epsilon(one, two, delta), _epsilon(two, one, delta))


def _epsilon(one: tuple[float, float], two: tuple[float, float], delta: float) -> float:
    """Epsilon at delta of the first Gaussian (mean, std) against the second, by quadrature."""
    low = min(mean - REACH * std for mean, std in (one, two))
    high = max(mean + REACH * std for mean, std in (one, two))
    x = np.linspace(low, high, POINTS)
    logs = [-((x - mean) ** 2) / (2 * std**2) - math.log(std) for mean, std in (one, two)]
    loss, mass = logs[0] - logs[1], np.exp(logs[0]) * (x[1] - x[0]) / math.sqrt(2 * math.pi)

    def excess(epsilon: float) -> float:
        return float(mass @ np.maximum(0.0, -np.expm1(np.minimum(0.0, epsilon - loss)))) - delta

    if excess(0.0) <= 0:
        return 0.0
    return root(excess, 0.0, LARGEST) if excess(LARGEST) < 0 else LARGEST
