"""The Gaussian audit: bounds on false positive and false negative rates, read as mu-GDP.

M. Nasr, J. Hayes, T. Steinke, B. Balle, F. Tramer, M. Jagielski, N. Carlini, A. Terzis, Tight
Auditing of Differentially Private Machine Learning, USENIX Security 2023.

The one-shot estimate: two Gaussians fitted to the scores. An estimate, never a bound.

G. Andrew, P. Kairouz, S. Oh, A. Oprea, H. B. McMahan, V. M. Suriyakumar, One-shot Empirical
Privacy Estimation for Federated Learning, ICLR 2024 (arXiv 2302.03098, 2023).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, ndtri

from privplan.accounting.gdp import epsilon_of

PILOT = 5
"""Every fifth canary only serves to place the thresholds, so that the others may judge them."""
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.85, 0.95)


def upper_rate(hits: int, trials: int, level: float) -> float:
    """Clopper and Pearson's exact upper bound on a rate."""
    if hits >= trials:
        return 1.0
    return float(betaincinv(hits + 1, trials - hits, 1 - level))


def mu_lower_bound(scores: np.ndarray, included: np.ndarray, confidence: float) -> float:
    """The largest mu that is refuted, where the trade-off curve is a Gaussian's.

    Rates are counted over canaries, whose scores are taken for independent: so they are for
    orthogonal directions under Gaussian noise.

    Args:
        scores: how much each canary seems to be in [m].
        included: which of them were [m].
        confidence: chance that the bound holds, in (0, 1).
    """
    pilot = np.arange(len(scores)) % PILOT == 0
    judged, truth = scores[~pilot], included[~pilot].astype(bool)
    if len(judged) == 0 or truth.all() or not truth.any():
        return 0.0
    level = (1 - confidence) / (2 * len(QUANTILES))
    best = 0.0
    for threshold in np.quantile(scores[pilot], QUANTILES):
        positive = judged > threshold
        false_positive = upper_rate(int(positive[~truth].sum()), int((~truth).sum()), level)
        false_negative = upper_rate(int((~positive[truth]).sum()), int(truth.sum()), level)
        if false_positive < 1 and false_negative < 1:
            best = max(best, float(-ndtri(false_positive) - ndtri(false_negative)))
    return best


def lower_bound(scores: np.ndarray, included: np.ndarray, delta: float, confidence: float) -> float:
    """Epsilon at delta is at least this where the trade-off curve is a Gaussian's.

    Args:
        scores: how much each canary seems to be in [m].
        included: which of them were [m].
        delta: failure probability.
        confidence: chance that the bound holds, in (0, 1).
    """
    mu = mu_lower_bound(scores, included, confidence)
    return epsilon_of(mu, delta) if mu > 0 else 0.0


LARGEST = 200.0
POINTS = 20_001
REACH = 14.0
"""Standard deviations on either side over which densities are summed."""


def estimate(
    scores: np.ndarray, included: np.ndarray, delta: float, confidence: float = 0.0
) -> float:
    """Epsilon at delta between the Gaussians that fit the scores of those in and of those out.

    Args:
        scores: how much each canary seems to be in [m].
        included: which of them were [m].
        delta: failure probability.
        confidence: ignored; an estimate has none.

    Returns:
        The estimate; 0 where a side has fewer than two canaries or no spread.
    """
    there, away = scores[included.astype(bool)], scores[~included.astype(bool)]
    if min(len(there), len(away)) < 2 or min(there.std(), away.std()) == 0:
        return 0.0
    one, two = (there.mean(), there.std(ddof=1)), (away.mean(), away.std(ddof=1))
    return max(_epsilon(one, two, delta), _epsilon(two, one, delta))


def _epsilon(one: tuple[float, float], two: tuple[float, float], delta: float) -> float:
    """Epsilon at delta of the first Gaussian against the second, by summed densities."""
    low = min(mean - REACH * std for mean, std in (one, two))
    high = max(mean + REACH * std for mean, std in (one, two))
    x = np.linspace(low, high, POINTS)
    logs = [-((x - mean) ** 2) / (2 * std**2) - math.log(std) for mean, std in (one, two)]
    loss, mass = logs[0] - logs[1], np.exp(logs[0]) * (x[1] - x[0]) / math.sqrt(2 * math.pi)

    def excess(epsilon: float) -> float:
        return float(mass @ np.maximum(0.0, -np.expm1(np.minimum(0.0, epsilon - loss)))) - delta

    if excess(0.0) <= 0:
        return 0.0
    return float(brentq(excess, 0.0, LARGEST)) if excess(LARGEST) < 0 else LARGEST
