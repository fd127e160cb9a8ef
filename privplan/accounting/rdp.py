"""Rényi differential privacy of the subsampled Gaussian, and its conversion to epsilon.

Sources: Mironov, Talwar and Zhang 2019 (arXiv:1908.10530) for Poisson sampling; Wang,
Balle and Kasiviswanathan 2019 (AISTATS, Theorem 9) for fixed-size cohorts under
replace-one; Balle et al. 2020 (arXiv:1905.09982, Theorem 21) and Canonne, Kamath and
Steinke 2020 for the conversion to (epsilon, delta).

Every divergence is kept as ``A - 1``, where ``A`` is the moment of order alpha, so that
small losses lose no digits; it becomes ``log A`` at the end.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from privplan.accounting.accountant import (
    ACCOUNTANTS,
    Interval,
    checked_delta,
    checked_relation,
)
from privplan.accounting.families import NOISE_FAMILIES, Count, dominating_pairs
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.errors import UnsupportedError
from privplan.laws.law import AnyPair, DiscretePair, Moments, RenyiBound

Floats = NDArray[np.float64]

FRACTIONAL = np.array([1 + tenth / 10 for tenth in range(1, 100) if tenth % 10])
INTEGER = np.array(
    [*range(2, 65), 72, 80, 96, 112, 128, 160, 192, 256], dtype=np.float64
)
LARGE = np.round(256 * 2.0 ** (np.arange(1, 49) / 4))
ORDERS: Floats = np.concatenate([FRACTIONAL, INTEGER, LARGE])
"""Orders alpha > 1 that are tried: those of Opacus and more, up to a million."""

# Orders above this many noise standard deviations (plus 64) are left out for sampled
# releases: their moments need a wide integral and never give the smallest epsilon
# unless epsilon is far below one thousandth.
_REACH = 40.0
# Below this noise multiplier a fractional order takes the next whole order's bound.
_LEAST_NOISE = 0.009
# Noise multipliers and ratios outside of these count as these: less noise or more
# sampling never costs less. Below the first one every divergence counts as infinite.
_NO_NOISE = 1e-9
_MOST_NOISE = 1e9
_LEAST_RATIO = 1e-30
# Exponents above it have e^x - 1 = e^x but for less than a unit of rounding.
_LARGE_EXPONENT = 30.0
# The same, with room for the terms of a sum.
_LARGE_GROWTH = 40
# Deviations of noise beyond which an integrand is below any rounding of its peak.
_DEVIATIONS = 13
# Numbers in memory at once, 16 MB.
_BLOCK = 2_000_000


class RdpAccountant:
    """Upper bounds on epsilon by Rényi differential privacy, the lower bound is 0."""

    name = "rdp"
    version = "privplan-rdp 1"
    kind = "upper bound"
    guarantee = False

    def why_not(self, history: History, relation: Relation) -> str | None:
        """Gaussian noise under laws with moment bounds, and other noise on counts."""
        for release, _ in history:
            if not NOISE_FAMILIES.get(release.family).normal:
                try:
                    rdp_of_release(release, relation)
                except UnsupportedError as error:
                    return str(error).removeprefix("rdp: ")
            elif release.sampling_ratio > 0 and 0 < release.noise_multiplier < math.inf:
                law = release.sampling.law
                ratio = release.sampling_ratio
                if law.renyi(relation, release.noise_multiplier, ratio) is None:
                    return f"no moment bound for {law.phrase} under {relation}"
        return None

    def epsilon(self, history: History, delta: float, relation: Relation) -> Interval:
        """Upper bound on epsilon at ``delta``."""
        checked_delta(delta)
        total = np.zeros_like(ORDERS)
        for release, count in history:
            total = total + count * rdp_of_release(release, checked_relation(relation))
        return Interval(0.0, epsilon_of_rdp(total, delta))


def epsilon_of_rdp(rdp: Floats, delta: float, orders: Floats = ORDERS) -> float:
    """Smallest epsilon over the orders (Balle et al. 2020, Theorem 21).

    Args:
        rdp: Rényi divergence at each order, perhaps infinite.
        delta: failure probability.
        orders: alpha of each.
    """
    if not np.any(rdp):
        return 0.0
    conversion = np.log1p(-1 / orders)
    price_of_delta = (math.log(delta) + np.log(orders)) / (orders - 1)
    loss = rdp + conversion - price_of_delta
    return max(0.0, float(np.min(loss)))


def rdp_of_release(release: Release, relation: Relation) -> Floats:
    """Rényi divergence bounds at ``ORDERS``, the largest over a law's moments.

    Args:
        release: of any family of noise.
        relation: which data sets are neighbours.

    Raises:
        UnsupportedError: where no bound is known.
    """
    if relation not in tuple(Relation):
        raise UnsupportedError(f"rdp: does not know the relation {relation!r}")
    if not NOISE_FAMILIES.get(release.family).normal:
        return _rdp_of_pairs(release, relation)
    return _rdp(
        release.sampling, relation, release.sampling_ratio, release.noise_multiplier
    )


@lru_cache(maxsize=64)
def _rdp_of_pairs(release: Release, relation: Relation) -> Floats:
    """The divergence of the pairs that dominate a release: its own is no larger."""
    result = np.zeros_like(ORDERS)
    if release.sampling_ratio > 0 and release.noise_multiplier < math.inf:
        for pair in dominating_pairs(release, relation).upper:
            result = np.maximum(result, _rdp_of_pair(release, pair))
    result.setflags(write=False)
    return result


def _rdp_of_pair(release: Release, pair: AnyPair) -> Floats:
    """The divergence of one pair of a release whose noise is not Gaussian."""
    family = NOISE_FAMILIES.get(release.family)
    if isinstance(family, Count) and family.normal_divergence:
        return _gaussian(release.noise_multiplier / family.moved(release))
    if isinstance(pair, DiscretePair):
        return _rdp_of_discrete(pair)
    if pair.ratio == 1:
        return _gaussian(1 / pair.shift)
    raise UnsupportedError(f"rdp: does not cover {release.family} noise with sampling")


def _rdp_of_discrete(pair: DiscretePair) -> Floats:
    """``log E_P[exp((alpha - 1) loss)] / (alpha - 1)``, or infinite as the loss is."""
    if pair.infinite:
        return np.full_like(ORDERS, math.inf)
    table = np.array([pair.losses, pair.masses])
    losses, masses = table[:, np.array(pair.masses) > 0]
    top = losses.max()
    below = np.exp(np.multiply.outer(ORDERS - 1, losses - top))
    return np.asarray(top + np.log(below @ masses) / (ORDERS - 1))


@lru_cache(maxsize=4096)
def _rdp(law: SamplingLaw, relation: Relation, q: float, sigma: float) -> Floats:
    """Of Gaussian noise under a law."""
    if q == 0 or math.isinf(sigma):
        result = np.zeros_like(ORDERS)
    elif sigma < _NO_NOISE:
        result = np.full_like(ORDERS, math.inf)
    else:
        noise = min(sigma, _MOST_NOISE)
        bounds = law.law.renyi(relation, noise, max(q, _LEAST_RATIO))
        if bounds is None:
            raise UnsupportedError(
                f"rdp: no moment bound for {law.law.phrase} under {relation}"
            )
        result = np.maximum.reduce([_rdp_of_bound(bound) for bound in bounds])
    result.setflags(write=False)
    return result


def _rdp_of_bound(bound: RenyiBound) -> Floats:
    q = bound.ratio
    sigma = bound.noise_multiplier
    if q == 1:
        return _gaussian(sigma)
    if bound.moments is Moments.SWAP:
        return _poisson_replace_one(q, sigma)
    if bound.moments is Moments.WITHOUT_REPLACEMENT:
        return _without_replacement(q, sigma)
    return _sampled_gaussian(q, sigma)


def _gaussian(sigma: float) -> Floats:
    """Gaussian mechanism of sensitivity 1: alpha / (2 sigma^2)."""
    return ORDERS / (2 * sigma**2)


def _sampled_gaussian(q: float, sigma: float) -> Floats:
    """Mironov et al. 2019, Section 3.3: fractions by quadrature, integers by sums."""
    integer = _moments_by_binomials(q, sigma)
    if sigma < _LEAST_NOISE:
        return _by_next_integer(integer / (INTEGER - 1))
    large = LARGE[sigma * _REACH + 64 >= LARGE]
    moments = [
        _moments_by_quadrature(FRACTIONAL, q, sigma),
        integer,
        _moments_by_quadrature(large, q, sigma) if large.size else large,
        np.full(LARGE.size - large.size, math.inf),
    ]
    return np.concatenate(moments) / (ORDERS - 1)


def _moments_by_quadrature(
    orders: Floats,
    q: float,
    sigma: float,
    other_mean: float = 0.0,
) -> Floats:
    """``log A`` where A is the moment of P/Q under Q at any order, shape (orders,).

    P = (1-q)N(0) + qN(1) and Q = (1-q)N(0) + qN(other_mean), all with standard
    deviation sigma. The trapezoidal rule converges geometrically, because the integrand
    is analytic in a strip of half width pi sigma^2 around the real line.

    Args:
        orders: alpha.
        q: sampling ratio.
        sigma: noise multiplier.
        other_mean: 0 for add/remove, -1 for replace-one.
    """
    step = sigma * min(max(sigma / 2, 0.05), 0.25)

    # The integrand peaks below alpha, or, where Q is its shifted part, below
    # 2 alpha - 1.
    low = other_mean - _DEVIATIONS * sigma
    high = (1 - other_mean) * float(orders.max()) + _DEVIATIONS * sigma
    count = math.ceil((high - low) / step) + 1
    points: Floats = low + step * np.arange(count, dtype=np.float64)

    # Log densities of N(0), N(1) and N(other_mean), times the step.
    log_norm = math.log(sigma * math.sqrt(2 * math.pi) / step)
    at_zero = -0.5 * (points / sigma) ** 2 - log_norm
    at_one = at_zero + (points - 0.5) / sigma**2
    log_q_density: Floats = at_zero
    at_other = at_zero
    if other_mean != 0:
        at_other = at_zero + (points * other_mean - other_mean**2 / 2) / sigma**2
        log_q_density = np.logaddexp(math.log1p(-q) + at_zero, math.log(q) + at_other)
    loss = _loss(points, q, sigma, other_mean)
    change = q * (np.exp(at_one) - np.exp(at_other))
    rows = max(1, _BLOCK // points.size)
    logs: list[Floats] = [
        _log_moment(orders[start : start + rows], loss, log_q_density, change)
        for start in range(0, orders.size, rows)
    ]
    return np.concatenate(logs)


def _loss(points: Floats, q: float, sigma: float, other_mean: float) -> Floats:
    """Log P/Q at each point, keeping the digits of small losses."""

    def tilt(exponent: Floats) -> Floats:
        """log(1 - q + q exp(exponent))."""
        growth = np.expm1(np.minimum(exponent, _LARGE_EXPONENT))
        small: Floats = np.log1p(q * growth)
        fading = np.exp(-np.maximum(exponent, _LARGE_EXPONENT))
        large = math.log(q) + exponent + np.log1p((1 - q) / q * fading)
        return np.where(exponent < _LARGE_EXPONENT, small, large)

    loss = tilt((points - 0.5) / sigma**2)
    if other_mean:
        loss = loss - tilt((points * other_mean - other_mean**2 / 2) / sigma**2)
    return loss


def _log_moment(
    orders: Floats, loss: Floats, log_density: Floats, change: Floats
) -> Floats:
    """Log of the integral of exp(alpha loss) against a density, by its excess over 1.

    The excess is the integral of ``exp(alpha L) - 1 - alpha (exp(L) - 1)``, which is
    never negative; ``change`` is ``(exp(L) - 1) * density`` given without cancellation.
    """
    density = np.exp(log_density)
    exponent = orders[:, None] * loss
    scaled = exponent + log_density
    top = np.maximum(scaled.max(axis=1), 0.0)
    shrink = np.exp(-top)[:, None]
    small = np.expm1(np.minimum(exponent, 1.0)) * density * shrink
    large = np.exp(scaled - top[:, None]) - density * shrink
    excess = np.where(exponent < 1.0, small, large)
    total = (excess - orders[:, None] * change * shrink).sum(axis=1)
    return _log_one_plus(np.maximum(total, 0.0), top)


def _log_one_plus(total: Floats, top: Floats) -> Floats:
    """log(1 + total * exp(top)), shape (orders,)."""
    with np.errstate(divide="ignore"):
        large = np.logaddexp(0.0, np.log(total) + top)
    return np.where(top == 0, np.log1p(total), large)


class _Binomials(NamedTuple):
    """Terms i = 2..alpha of every order in INTEGER, laid end to end.

    Attributes:
        order: alpha of each term.
        term: i.
        logs: log of the binomial coefficient.
        starts: where the terms of each order start.
    """

    order: Floats
    term: Floats
    logs: Floats
    starts: NDArray[np.intp]


def _binomial_table() -> _Binomials:
    index = np.concatenate([np.arange(2, order + 1) for order in INTEGER])
    order = np.repeat(INTEGER, (INTEGER - 1).astype(int))
    logs = gammaln(order + 1) - gammaln(index + 1) - gammaln(order - index + 1)
    starts = np.concatenate([[0], np.cumsum(INTEGER - 1)[:-1]]).astype(np.intp)
    return _Binomials(order, index, logs, starts)


_TERMS = _binomial_table()


def _sum_terms(logs: Floats) -> Floats:
    """log(1 + sum of exp of the terms) for each order in INTEGER."""
    top = np.maximum(np.maximum.reduceat(logs, _TERMS.starts), 0.0)
    spread = np.repeat(top, (INTEGER - 1).astype(int))
    return _log_one_plus(np.add.reduceat(np.exp(logs - spread), _TERMS.starts), top)


@lru_cache(maxsize=4096)
def _moments_by_binomials(q: float, sigma: float) -> Floats:
    """``log A`` of Poisson add/remove at INTEGER: A - 1 is a sum of positive terms."""
    growth = _TERMS.term * (_TERMS.term - 1) / (2 * sigma**2)
    small = np.log(np.expm1(np.minimum(growth, _LARGE_GROWTH)))
    excess = np.where(growth < _LARGE_GROWTH, small, growth)
    not_drawn = (_TERMS.order - _TERMS.term) * math.log1p(-q)
    return _sum_terms(_TERMS.logs + _TERMS.term * math.log(q) + not_drawn + excess)


def _poisson_replace_one(q: float, sigma: float) -> Floats:
    """The dominating pair of Poisson sampling under replace-one, by quadrature."""
    if sigma < _LEAST_NOISE:
        return _gaussian(sigma / 2)
    within = sigma * _REACH + 64 >= ORDERS
    result = np.full_like(ORDERS, math.inf)
    result[within] = _moments_by_quadrature(ORDERS[within], q, sigma, other_mean=-1.0)
    return result / (ORDERS - 1)


def _without_replacement(q: float, sigma: float) -> Floats:
    """Wang et al. 2019, Theorem 9, for a Gaussian of sensitivity 1 and noise sigma.

    ``A <= 1 + sum over j >= 2 of q^j binom(alpha, j) z_j``, where z_j bounds the j-th
    moment of ``|p - p'| / r`` under r for three outputs at most 1 apart. Their bounds
    on it are ``2 exp(j (j-1) / 2 sigma^2)`` and, for j = 2,
    ``4 (exp(1/sigma^2) - 1)``. The triangle inequality gives ``2^j E|p/r - 1|^j`` as
    well, which for j = 2 is the latter; the smallest is taken, which matters for large
    sigma. Nor is it ever worse than full participation: Rényi divergence is
    quasi-convex, and given who is drawn, outputs are at most 1 apart.
    """
    if q == 1:
        return _gaussian(sigma)
    growth = math.log(2) + _TERMS.term * (_TERMS.term - 1) / (2 * sigma**2)
    deviations = _log_deviations(sigma)[_TERMS.term.astype(int)]
    distance = _TERMS.term * math.log(2) + deviations
    moment = np.minimum(growth, distance)
    at_integers = _sum_terms(_TERMS.logs + _TERMS.term * math.log(q) + moment)
    return np.minimum(_by_next_integer(at_integers / (INTEGER - 1)), _gaussian(sigma))


def _log_deviations(sigma: float) -> Floats:
    """Log of E|N(1)/N(0) - 1|^j at j up to 256, where that may be needed.

    Odd ones by Cauchy and Schwarz; infinite below a noise multiplier of 1.
    """
    top = int(INTEGER[-1])
    logs = np.full(top + 1, math.inf)
    if sigma < 1:
        return logs
    even = np.arange(2, top + 1, 2)
    step = sigma / 4
    points = np.arange(-_DEVIATIONS * sigma, top + _DEVIATIONS * sigma, step)
    log_norm = math.log(sigma * math.sqrt(2 * math.pi) / step)
    density = -0.5 * (points / sigma) ** 2 - log_norm
    with np.errstate(divide="ignore"):
        distance = np.log(np.abs(np.expm1((points - 0.5) / sigma**2)))
    scaled = even[:, None] * distance + density
    highest = scaled.max(axis=1)
    logs[even] = highest + np.log(np.exp(scaled - highest[:, None]).sum(axis=1))
    logs[even[:-1] + 1] = (logs[even[:-1]] + logs[even[1:]]) / 2
    return logs


def _by_next_integer(at_integers: Floats) -> Floats:
    """Bounds at all ORDERS from those at INTEGER: divergences grow with alpha."""
    place = np.searchsorted(INTEGER, ORDERS)
    result: Floats = np.append(at_integers, math.inf)[place]
    return result


ACCOUNTANTS.register(RdpAccountant.name, RdpAccountant())
