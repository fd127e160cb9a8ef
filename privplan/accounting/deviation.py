"""What deviations within the tolerance of a replay could carry, in epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import log_ndtr

DELTA_SHARE = 0.01
"""Share of delta that the bound may use: a smaller one raises epsilon by a logarithm only."""
_LARGEST_EXPONENT = 700.0  # exp of more overflows
STEPS = 200  # bisections: more than a float64 has binary digits


@dataclass(frozen=True)
class Carried:
    """What is to be added to a guarantee (epsilon, delta).

    Attributes:
        epsilon: at most this much is added to epsilon.
        delta_share: at most this share of delta is added to delta.
    """

    epsilon: float
    delta_share: float


def carried(deviation: float, rounds: int, epsilon: float, delta: float) -> Carried:
    """What releases that are off by so much could carry beside a guarantee.

    Lemma. Let M be the mechanism of the plan, (epsilon, delta)-private, and M' one
    whose releases in round t are those of M shifted by s_t, where s_t is a function of
    the data and of earlier releases, as the rounding of other kernels is, with an L2
    norm of at most m standard deviations of the round's noise. Given the earlier
    releases, both have Gaussian noise with means at most m deviations apart, so over T
    rounds M' and M are mu-GDP apart with mu = m sqrt(T) (J. Dong, A. Roth, W. Su,
    Gaussian Differential Privacy, JRSS B 2022, Corollary 3.3), that is (e1, d1)-close
    for

        d1 = Phi(mu / 2 - e1 / mu) - exp(e1) Phi(-mu / 2 - e1 / mu).

    Hence, for neighbours D and D' and every event, M'(D) <= exp(e1) M(D) + d1,
    M(D) <= exp(epsilon) M(D') + delta and M(D') <= exp(e1) M'(D') + d1. Inserted:

        epsilon' = epsilon + 2 e1,
        delta' = exp(e1) delta + d1 (1 + exp(e1 + epsilon)).

    The lemma is about deviations that do not depend on the noise of their own round. A
    trainer who knows the noise could write into the last digits of a release; for that
    there is no such bound, and only releases drawn by the verifier exclude it.

    Args:
        deviation: m, the largest L2 deviation of a round, in deviations of its noise.
        rounds: T.
        epsilon: of the guarantee.
        delta: of the guarantee.

    Returns:
        The least 2 e1 with d1 (1 + exp(e1 + epsilon)) <= ``DELTA_SHARE`` delta.
    """
    mu = deviation * math.sqrt(rounds)
    if mu == 0:
        return Carried(0.0, 0.0)
    allowed = math.log(DELTA_SHARE * delta)
    low = 0.0
    high = mu
    while _log_cost(high, mu, epsilon) > allowed:
        high *= 2
    for _ in range(STEPS):
        middle = (low + high) / 2
        if _log_cost(middle, mu, epsilon) > allowed:
            low = middle
        else:
            high = middle
    if high > _LARGEST_EXPONENT:
        return Carried(math.inf, math.inf)
    return Carried(2 * high, math.expm1(high) + DELTA_SHARE)


def _log_cost(e1: float, mu: float, epsilon: float) -> float:
    """Logarithm of d1 (1 + exp(e1 + epsilon)), accurate for small mu, too."""
    above = float(log_ndtr(mu / 2 - e1 / mu))
    below = e1 + float(log_ndtr(-mu / 2 - e1 / mu))
    log_d1 = above + math.log(-math.expm1(min(below - above, -1e-300)))
    return log_d1 + max(0.0, e1 + epsilon) + math.log1p(math.exp(-abs(e1 + epsilon)))
