"""Gaussian differential privacy: the exact Gaussian formulas and the central limit.

A mechanism is mu-GDP when telling neighbours apart is as hard as telling N(0, 1) from
N(mu, 1) (Dong, Roth and Su 2022). Many rounds of a sampled Gaussian approach such a
mechanism (Bu, Dong, Long and Su 2020, "Deep learning with Gaussian differential
privacy", Corollary 4). The limit may lie on either side of the truth: it is an
approximation and never a guarantee.
"""

from __future__ import annotations

import math

from scipy.special import log_ndtr

from privplan.accounting.accountant import (
    ACCOUNTANTS,
    Interval,
    check_supported,
    checked_delta,
)
from privplan.accounting.bracketing import root
from privplan.accounting.families import not_gaussian
from privplan.accounting.release import History, Relation, Release
from privplan.errors import InputError

# A smaller noise multiplier has an infinite 1 / sigma^2, or e^(1 / sigma^2).
_LEAST_NOISE = 1e-100
_LEAST_SAMPLED_NOISE = 0.04


class GdpAccountant:
    """Central-limit approximation; lower and upper bound are the same number."""

    name = "gdp"
    version = "privplan-gdp 1"
    kind = "approximation"
    guarantee = False

    def why_not(self, history: History, relation: Relation) -> str | None:
        """Gaussian noise under the laws and relations that have a central limit."""
        for release, _ in history:
            if not release.sampling.law.has_central_limit(relation):
                return (
                    f"no central limit for {release.sampling} sampling under {relation}"
                )
        return not_gaussian(history)

    def epsilon(self, history: History, delta: float, relation: Relation) -> Interval:
        """The approximate epsilon at ``delta``, as an interval of width 0."""
        check_supported(self, history, delta, relation)
        value = epsilon_of(central_limit(history, relation), delta)
        return Interval(value, value)


def central_limit(history: History, relation: Relation = Relation.ADD_REMOVE) -> float:
    """The mu of the limit: the root of the summed chi-square divergences.

    For T equal Poisson releases this is ``q sqrt(T (exp(1/sigma^2) - 1))`` (Bu et al.
    2020); full participation is exact, ``sqrt(T) / sigma``. Fixed size under add/remove
    is Poisson at sigma / 2; full participation under replace-one doubles the distance.
    """
    squares = [count * _square(release, relation) for release, count in history]
    return math.sqrt(sum(squares))


def _square(release: Release, relation: Relation) -> float:
    """Of mu, of one release."""
    q = release.sampling_ratio
    if q == 0 or math.isinf(release.noise_multiplier):
        return 0.0
    sigma = release.noise_multiplier / release.sampling.law.sensitivity(relation)
    if sigma < _LEAST_NOISE:
        return math.inf
    if q == 1:
        return sigma**-2
    if sigma <= _LEAST_SAMPLED_NOISE:
        return math.inf
    return q * q * math.expm1(sigma**-2)


def log_delta_of(mu: float, epsilon: float) -> float:
    """Natural logarithm of the smallest delta of a mu-GDP mechanism at ``epsilon``.

    ``delta = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)``
    (Balle and Wang 2018, Theorem 5), computed in logarithms.
    """
    if mu == 0:
        return -math.inf
    if math.isinf(mu):
        return 0.0
    log_mass_of_p = float(log_ndtr(mu / 2 - epsilon / mu))
    log_mass_of_q = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    if log_mass_of_q >= log_mass_of_p:
        return -math.inf
    return log_mass_of_p + math.log(-math.expm1(log_mass_of_q - log_mass_of_p))


def epsilon_of(mu: float, delta: float) -> float:
    """Smallest epsilon of a mu-GDP mechanism at ``delta``; inf for infinite mu."""
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return math.inf
    target = math.log(delta)
    if log_delta_of(mu, 0.0) <= target:
        return 0.0

    # The tail bound of the loss N(mu^2/2, mu^2).
    high = mu * mu / 2 + mu * math.sqrt(-2 * target)
    if log_delta_of(mu, high) > target:
        high += mu
    # From mu = 1e15 on, mu is less than a rounding of its square.
    while log_delta_of(mu, high) > target:
        high *= 2
    return root(lambda epsilon: log_delta_of(mu, epsilon) - target, 0.0, high)


def mu_of(epsilon: float, delta: float) -> float:
    """The largest mu whose mechanism is (epsilon, delta)-private."""
    checked_delta(delta)
    if not 0 < epsilon < math.inf:
        raise InputError.one("epsilon", "must be positive and finite", epsilon)
    target = math.log(delta)

    # mu^2/2 + mu sqrt(2 L) >= epsilon bounds mu from below, with L = log(1 / delta);
    # from above the first power of two times that which exceeds delta.
    low = math.sqrt(-2 * target + 2 * epsilon) - math.sqrt(-2 * target)
    high = max(low, 1e-12)
    while log_delta_of(high, epsilon) < target:
        low = high
        high = 2 * high
    while log_delta_of(low, epsilon) > target:
        low /= 2
    return root(lambda mu: log_delta_of(mu, epsilon) - target, low, high)


ACCOUNTANTS.register(GdpAccountant.name, GdpAccountant())
