"""The audit by error rates of a test whether a canary was included.

Upper bounds on the false-positive and false-negative rates are converted to mu of
Gaussian DP: M. Nasr, J. Hayes, T. Steinke, B. Balle, F. Tramer, M. Jagielski, N.
Carlini, A. Terzis, Tight Auditing of Differentially Private Machine Learning, USENIX
Security 2023.
"""

from __future__ import annotations

import numpy as np
from scipy.special import betaincinv, ndtri

# Every fifth canary is only used to choose thresholds, which the others then test.
PILOT = 5
# Thresholds are these quantiles of the pilot's scores.
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.85, 0.95)


def upper_rate(hits: int, trials: int, level: float) -> float:
    """Upper bound on a rate, at confidence 1 - level (Clopper and Pearson, 1934)."""
    if hits >= trials:
        return 1.0
    return float(betaincinv(hits + 1, trials - hits, 1 - level))


def mu_lower_bound(
    scores: np.ndarray, included: np.ndarray, confidence: float
) -> float:
    """Lower bound on mu of a Gaussian trade-off curve, for independent scores."""
    is_pilot = np.arange(len(scores)) % PILOT == 0
    tested = scores[~is_pilot]
    truth = included[~is_pilot].astype(bool)
    if len(tested) == 0 or truth.all() or not truth.any():
        return 0.0

    # Two rates per threshold share the error rate (union bound).
    level = (1 - confidence) / (2 * len(QUANTILES))
    mu = 0.0
    for threshold in np.quantile(scores[is_pilot], QUANTILES):
        positive = tested > threshold
        false_positive = upper_rate(
            int(positive[~truth].sum()), int((~truth).sum()), level
        )
        false_negative = upper_rate(
            int((~positive[truth]).sum()), int(truth.sum()), level
        )
        if false_positive < 1 and false_negative < 1:
            mu = max(mu, float(-ndtri(false_positive) - ndtri(false_negative)))
    return mu


def gaussian(
    scores: np.ndarray, included: np.ndarray, delta: float, confidence: float
) -> float:
    """Lower bound on epsilon at delta if the trade-off curve is that of a Gaussian."""
    return epsilon_of_mu(mu_lower_bound(scores, included, confidence), delta)


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Epsilon at delta of mu-GDP; 0 without a bound on mu."""
    from privplan.accounting.gdp import epsilon_of  # only runs with canaries need it

    if mu > 0:
        return epsilon_of(mu, delta)
    return 0.0
