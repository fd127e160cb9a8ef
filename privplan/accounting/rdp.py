"""Rényi differential privacy of the subsampled Gaussian, and its conversion to epsilon.

Sources: Mironov, Talwar and Zhang 2019 (arXiv:1908.10530) for Poisson sampling; Wang, Balle
and Kasiviswanathan 2019 (AISTATS, Theorem 9) for fixed-size cohorts under replace-one;
Balle et al. 2020 (arXiv:1905.09982, Theorem 21) and Canonne, Kamath and Steinke 2020 for the
conversion to (epsilon, delta).

Every divergence is kept as ``A - 1``, where ``A`` is the moment of order alpha, so that
small losses lose no digits; it becomes ``log A`` at the end.
"""

from __future__ import annotations

import math
from functools import lru_cache

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
from privplan.laws.law import DiscretePair, Moments, RenyiBound

Floats = NDArray[np.float64]

FRACTIONAL = np.array([1 + tenth / 10 for tenth in range(1, 100) if tenth % 10])
INTEGER = np.array(
    [*range(2, 65), 72, 80, 96, 112, 128, 160, 192, 256], dtype=np.float64
)
LARGE = np.round(256 * 2.0 ** (np.arange(1, 49) / 4))
ORDERS: Floats = np.concatenate([FRACTIONAL, INTEGER, LARGE])
"""Orders alpha > 1 that are tried; a superset of Opacus' default orders, up to a million."""

# Orders above this many noise standard deviations (plus 64) are left out for sampled
# releases: their moments need a wide integral and never give the smallest epsilon unless
# epsilon is far below one thousandth.
_REACH = 40.0
# Below this noise multiplier a fractional order takes the next whole order's bound.
_LEAST_NOISE = 0.009


class RdpAccountant:
    """Upper bounds on epsilon by Rényi differential privacy, the lower bound is 0."""

    name = "rdp"
    version = "privplan-rdp 1"
    kind = "upper bound"
    guarantee = False

    def why_not(self, history: History, relation: Relation) -> str | None:
        """Gaussian noise under every law that has moment bounds, and other noise on counts."""
        for release, _ in history:
            if not NOISE_FAMILIES.get(release.family).normal:
                try:
                    rdp_of_release(release, relation)
                except UnsupportedError as error:
                    return str(error).removeprefix("rdp: ")
            elif release.sampling_ratio > 0 and 0 < release.noise_multiplier < math.inf:
                law, ratio = release.sampling.law, release.sampling_ratio
                if law.renyi(relation, release.noise_multiplier, ratio) is None:
                    return f"no moment bound for {law.phrase} under {relation}"
        return None

    def epsilon(self, history: History, delta: float, relation: Relation) -> Interval:
        """Upper bound on epsilon at ``delta``."""
        checked_delta(delta)
        total = np.zeros_like(ORDERS)
        if len(history) == 1:
            [(release, count)] = history
            bound = _sampled_bound(release, checked_relation(relation))
            if bound is not None and NOISE_FAMILIES.get(release.family).normal:
                spent = _epsilon_near_the_best(
                    bound.ratio, bound.noise_multiplier, count, delta
                )
                return Interval(0.0, spent)
        for release, count in history:
            total = total + count * rdp_of_release(release, checked_relation(relation))
        return Interval(0.0, epsilon_of_rdp(total, delta))


def epsilon_of_rdp(rdp: Floats, delta: float, orders: Floats = ORDERS) -> float:
    """Smallest epsilon over the orders (Balle et al. 2020, Theorem 21); a divergence may be inf."""
    if not np.any(rdp):
        return 0.0
    loss = (
        rdp + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    )
    return max(0.0, float(np.min(loss)))


_CONVERSION_GAIN = np.log1p(-1 / ORDERS)
_FRACTIONS, _INTEGERS = (
    len(FRACTIONAL),
    slice(len(FRACTIONAL), len(FRACTIONAL) + len(INTEGER)),
)


def _sampled_bound(release: Release, relation: Relation) -> RenyiBound | None:
    """The bound of a release by the moments of the sampled Gaussian only; None for all others."""
    q, sigma = release.sampling_ratio, release.noise_multiplier
    if not (1e-30 <= q < 1 and _LEAST_NOISE <= sigma <= 1e9):
        return None
    bounds = release.sampling.law.renyi(relation, sigma, q)
    if bounds is None or len(bounds) != 1 or bounds[0].moments is not Moments.SAMPLED:
        return None
    sampled = bounds[0].ratio < 1 and bounds[0].noise_multiplier >= _LEAST_NOISE
    return bounds[0] if sampled else None


def _epsilon_near_the_best(q: float, sigma: float, count: int, delta: float) -> float:
    """``epsilon_of_rdp`` of equal sampled releases, with fractional orders near the best only.

    (alpha - 1) epsilon(alpha) is convex in alpha, since the log moment is, and so is
    (alpha - 1) log(alpha - 1) - alpha log alpha. So epsilon(alpha) is quasi-convex, and its
    minimum lies between the neighbours of the best whole order. Any order gives a bound.
    """
    moments = np.full_like(ORDERS, math.inf)
    moments[_INTEGERS] = _moments_by_binomials(q, sigma)
    large = int(np.count_nonzero(sigma * _REACH + 64 >= LARGE))
    if large:
        start = _INTEGERS.stop
        moments[start : start + large] = _kept_moments(q, sigma, start, start + large)
    if not np.any(moments[_FRACTIONS:]):
        return 0.0
    best = ORDERS[_FRACTIONS:][
        int(np.argmin(_losses(moments, count, delta)[_FRACTIONS:]))
    ]
    near = np.flatnonzero((best - 1 < FRACTIONAL) & (best + 1 > FRACTIONAL))
    if near.size:
        first, last = int(near[0]), int(near[-1]) + 1
        moments[first:last] = _kept_moments(q, sigma, first, last)
    return max(0.0, float(np.min(_losses(moments, count, delta))))


def _losses(moments: Floats, count: int, delta: float) -> Floats:
    """Epsilon at each order from the log moments of one release, shape (orders,)."""
    rdp = count * (moments / (ORDERS - 1))
    return np.asarray(
        rdp + _CONVERSION_GAIN - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    )


@lru_cache(maxsize=8192)
def _kept_moments(q: float, sigma: float, first: int, last: int) -> Floats:
    """Moments at the orders from ``first`` on, all fractional or all large."""
    most = FRACTIONAL[-1] if first < _FRACTIONS else None
    return _moments_by_quadrature(ORDERS[first:last], q, sigma, most=most)


def rdp_of_release(release: Release, relation: Relation) -> Floats:
    """Rényi divergence bounds at ``ORDERS``, the largest over the moments that the law states."""
    if relation not in tuple(Relation):
        raise UnsupportedError(f"rdp: does not know the relation {relation!r}")
    if not NOISE_FAMILIES.get(release.family).normal:
        return _rdp_of_pairs(release, relation)
    return _rdp(
        release.sampling, relation, release.sampling_ratio, release.noise_multiplier
    )


@lru_cache(maxsize=64)
def _rdp_of_pairs(release: Release, relation: Relation) -> Floats:
    """The divergence of the pairs that dominate a release: none of its own is larger."""
    result, family = np.zeros_like(ORDERS), NOISE_FAMILIES.get(release.family)
    if release.sampling_ratio > 0 and release.noise_multiplier < math.inf:
        for pair in dominating_pairs(release, relation).upper:
            if isinstance(family, Count) and family.normal_divergence:
                moved = family.moved(release)
                bound = _gaussian(release.noise_multiplier / moved)
            elif isinstance(pair, DiscretePair):
                losses, masses = np.array([pair.losses, pair.masses])[
                    :, np.array(pair.masses) > 0
                ]
                top = losses.max()
                below = np.exp(np.multiply.outer(ORDERS - 1, losses - top))
                bound = top + np.log(below @ masses) / (ORDERS - 1)
                bound = np.full_like(ORDERS, math.inf) if pair.infinite else bound
            elif pair.ratio == 1:
                bound = _gaussian(1 / pair.shift)
            else:
                raise UnsupportedError(
                    f"rdp: does not cover {release.family} noise with sampling"
                )
            result = np.maximum(result, bound)
    result.setflags(write=False)
    return result


@lru_cache(maxsize=4096)
def _rdp(law: SamplingLaw, relation: Relation, q: float, sigma: float) -> Floats:
    if q == 0 or math.isinf(sigma):
        result = np.zeros_like(ORDERS)
    elif sigma < 1e-9:
        result = np.full_like(ORDERS, math.inf)
    else:  # less noise or more sampling never costs less
        bounds = law.law.renyi(relation, min(sigma, 1e9), max(q, 1e-30))
        if bounds is None:
            raise UnsupportedError(
                f"rdp: no moment bound for {law.law.phrase} under {relation}"
            )
        result = np.maximum.reduce([_rdp_of_bound(bound) for bound in bounds])
    result.setflags(write=False)
    return result


def _rdp_of_bound(bound: RenyiBound) -> Floats:
    q, sigma = bound.ratio, bound.noise_multiplier
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
    """Mironov et al. 2019, Section 3.3: fractional orders by quadrature, integers by sums."""
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
    other: float = 0.0,
    most: float | None = None,
) -> Floats:
    """``log A`` where A is the moment of P/Q under Q at any order, shape (orders,).

    P = (1-q)N(0) + qN(1) and Q = (1-q)N(0) + qN(other), all with standard deviation sigma;
    ``other`` is 0 for add/remove and -1 for replace-one. ``most`` is the order that decides how
    far the points reach; the largest when None.
    The trapezoidal rule converges geometrically, because the integrand is analytic in a
    strip of half width pi sigma^2 around the real line.
    """
    step = sigma * min(max(sigma / 2, 0.05), 0.25)
    # The integrand peaks below alpha, or, where Q is its shifted part, below 2 alpha - 1.
    low, high = (
        other - 13 * sigma,
        (1 - other) * float(most or orders.max()) + 13 * sigma,
    )
    points: Floats = low + step * np.arange(
        math.ceil((high - low) / step) + 1, dtype=np.float64
    )
    at_zero = -0.5 * (points / sigma) ** 2 - math.log(
        sigma * math.sqrt(2 * math.pi) / step
    )
    at_one = at_zero + (points - 0.5) / sigma**2
    if other == 0:
        log_q_density: Floats = at_zero
    else:
        at_other = at_zero + (points * other - other**2 / 2) / sigma**2
        log_q_density = np.logaddexp(math.log1p(-q) + at_zero, math.log(q) + at_other)
    loss = _loss(points, q, sigma, other)
    change = q * (np.exp(at_one) - np.exp(at_zero if other == 0 else at_other))
    logs: list[Floats] = [
        _log_moment(orders[start : start + rows], loss, log_q_density, change)
        for rows in [max(1, 2_000_000 // points.size)]
        for start in range(0, orders.size, rows)
    ]
    return np.concatenate(logs)


def _loss(points: Floats, q: float, sigma: float, other: float) -> Floats:
    """Log P/Q at each point, keeping the digits of small losses."""

    def tilt(exponent: Floats) -> Floats:
        small = np.minimum(exponent, 30.0)
        far = (
            math.log(q)
            + exponent
            + np.log1p((1 - q) / q * np.exp(-np.maximum(exponent, 30.0)))
        )
        near: Floats = np.log1p(q * np.expm1(small))
        return np.where(exponent < 30.0, near, far)

    loss = tilt((points - 0.5) / sigma**2)
    if other:
        loss = loss - tilt((points * other - other**2 / 2) / sigma**2)
    return loss


def _log_moment(
    orders: Floats, loss: Floats, log_density: Floats, change: Floats
) -> Floats:
    """Log of the integral of exp(alpha loss) against a density, by its excess over 1.

    The excess is the integral of ``exp(alpha L) - 1 - alpha (exp(L) - 1)``, which is never
    negative; ``change`` is ``(exp(L) - 1) * density`` given without cancellation.
    """
    density, exponent = np.exp(log_density), orders[:, None] * loss
    scaled = exponent + log_density
    top = np.maximum(scaled.max(axis=1), 0.0)
    near = np.expm1(np.minimum(exponent, 1.0)) * density
    far, shrink = np.exp(scaled - top[:, None]), np.exp(-top)[:, None]
    excess = np.where(exponent < 1.0, near * shrink, far - density * shrink)
    total = (excess - orders[:, None] * change * shrink).sum(axis=1)
    return _log_one_plus(np.maximum(total, 0.0), top)


def _log_one_plus(total: Floats, top: Floats) -> Floats:
    """log(1 + total * exp(top)), shape (orders,)."""
    with np.errstate(divide="ignore"):
        return np.where(
            top == 0, np.log1p(total), np.logaddexp(0.0, np.log(total) + top)
        )


def _binomial_table() -> tuple[Floats, Floats, Floats, NDArray[np.intp]]:
    """Terms i = 2..alpha of every order in INTEGER, laid end to end, with their starts."""
    index = np.concatenate([np.arange(2, order + 1) for order in INTEGER])
    order = np.repeat(INTEGER, (INTEGER - 1).astype(int))
    logs = gammaln(order + 1) - gammaln(index + 1) - gammaln(order - index + 1)
    starts = np.concatenate([[0], np.cumsum(INTEGER - 1)[:-1]]).astype(np.intp)
    return order, index, logs, starts


_TERM_ORDER, _TERM_INDEX, _TERM_LOG_BINOMIAL, _TERM_STARTS = _binomial_table()


def _sum_terms(logs: Floats) -> Floats:
    """log(1 + sum of exp of the terms) for each order in INTEGER."""
    top = np.maximum(np.maximum.reduceat(logs, _TERM_STARTS), 0.0)
    spread = np.repeat(top, (INTEGER - 1).astype(int))
    return _log_one_plus(np.add.reduceat(np.exp(logs - spread), _TERM_STARTS), top)


@lru_cache(maxsize=4096)
def _moments_by_binomials(q: float, sigma: float) -> Floats:
    """``log A`` of Poisson add/remove at INTEGER: A - 1 is a sum of positive terms."""
    growth = _TERM_INDEX * (_TERM_INDEX - 1) / (2 * sigma**2)
    excess = np.where(growth < 40, np.log(np.expm1(np.minimum(growth, 40))), growth)
    rest = (_TERM_ORDER - _TERM_INDEX) * math.log1p(-q)
    return _sum_terms(_TERM_LOG_BINOMIAL + _TERM_INDEX * math.log(q) + rest + excess)


def _poisson_replace_one(q: float, sigma: float) -> Floats:
    """The dominating pair of Poisson sampling under replace-one, by quadrature."""
    if sigma < _LEAST_NOISE:
        return _gaussian(sigma / 2)
    within = sigma * _REACH + 64 >= ORDERS
    result = np.full_like(ORDERS, math.inf)
    result[within] = _moments_by_quadrature(ORDERS[within], q, sigma, other=-1.0)
    return result / (ORDERS - 1)


def _without_replacement(q: float, sigma: float) -> Floats:
    """Wang et al. 2019, Theorem 9, for a Gaussian of sensitivity 1 and noise sigma.

    ``A <= 1 + sum over j >= 2 of q^j binom(alpha, j) z_j``, where z_j bounds the j-th moment
    of ``|p - p'| / r`` under r for three outputs at most 1 apart. Their bounds on it are
    ``2 exp(j (j-1) / 2 sigma^2)`` and, for j = 2, ``4 (exp(1/sigma^2) - 1)``. The triangle
    inequality gives ``2^j E|p/r - 1|^j`` as well, which for j = 2 is the latter; the
    smallest is taken, which matters for large sigma. Nor is it ever worse than full participation:
    Rényi divergence is quasi-convex, and given who is drawn, outputs are at most 1 apart.
    """
    if q == 1:
        return _gaussian(sigma)
    growth = math.log(2) + _TERM_INDEX * (_TERM_INDEX - 1) / (2 * sigma**2)
    distance = (
        _TERM_INDEX * math.log(2) + _log_deviations(sigma)[_TERM_INDEX.astype(int)]
    )
    moment = np.minimum(growth, distance)
    at_integers = _sum_terms(_TERM_LOG_BINOMIAL + _TERM_INDEX * math.log(q) + moment)
    return np.minimum(_by_next_integer(at_integers / (INTEGER - 1)), _gaussian(sigma))


def _log_deviations(sigma: float) -> Floats:
    """Log of E|N(1)/N(0) - 1|^j, j to 256, odd ones by Cauchy-Schwarz (inf if not needed)."""
    top = int(INTEGER[-1])
    logs = np.full(top + 1, math.inf)
    if sigma < 1:
        return logs
    even, step = np.arange(2, top + 1, 2), sigma / 4
    points = np.arange(-13 * sigma, top + 13 * sigma, step)
    density = -0.5 * (points / sigma) ** 2 - math.log(
        sigma * math.sqrt(2 * math.pi) / step
    )
    with np.errstate(divide="ignore"):
        distance = np.log(np.abs(np.expm1((points - 0.5) / sigma**2)))
    scaled = even[:, None] * distance + density
    highest = scaled.max(axis=1)
    logs[even] = highest + np.log(np.exp(scaled - highest[:, None]).sum(axis=1))
    logs[even[:-1] + 1] = (logs[even[:-1]] + logs[even[1:]]) / 2
    return logs


def _by_next_integer(at_integers: Floats) -> Floats:
    """Bounds at all ORDERS from bounds at INTEGER: divergences do not decrease in alpha."""
    place = np.searchsorted(INTEGER, ORDERS)
    result: Floats = np.append(at_integers, math.inf)[place]
    return result


ACCOUNTANTS.register(RdpAccountant.name, RdpAccountant())
