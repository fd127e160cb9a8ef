"""Gaussian differential privacy: the exact Gaussian formulas and the central limit.

A mechanism is mu-GDP when telling neighbours apart is as hard as telling N(0, 1) from N(mu, 1)
(Dong, Roth and Su 2022). Many rounds of a sampled Gaussian approach such a mechanism (Bu, Dong,
Long and Su 2020, "Deep learning with Gaussian differential privacy", Corollary 4). The limit may
lie on either side of the truth: it is an approximation and never a guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import log_ndtr

from privplan.accounting.accountant import (
    ACCOUNTANTS,
    Interval,
    check_supported,
    checked_delta,
)
from privplan.accounting.families import not_gaussian
from privplan.accounting.release import History, Relation, Release
from privplan.errors import InputError

# --- Bracketing searches: the largest argument within a budget, and the root of a function. ------
# Own code where SciPy has ``brentq``: evaluations of an accountant are expensive, a cost may be 0
# or infinite, and the result must lie on the side that keeps the budget. Importing
# ``scipy.optimize`` takes as long as all of ``privplan account``, so that command takes its roots
# from here, too.

_MAX_EVALUATIONS = 200
_MAX_STEPS = 400
_INTEGER_RTOL = 1e-4  # an integer is exact up to 10,000; beyond, bounds hardly differ


def largest_affordable(
    cost: Callable[[float], float],
    budget: float,
    *,
    start: float,
    low: float,
    high: float,
    tolerance: float,
    integer: bool = False,
    slope: float = 1.0,
    enough: float = 0.0,
) -> float | None:
    """The largest argument in [low, high] whose cost is at most the budget; None without one.

    Secant steps on ``log(cost / budget)``; once the predicted zero is close, one evaluation on
    each side of it, 0.4 tolerances away, closes the bracket. Falls back to bisection when the
    prediction leaves the bracket or convergence is slow.

    The cost must not decrease and may be 0 or ``inf``; that of the result was computed
    and is within the budget. With ``integer`` arguments are logarithms of integers, and
    the bracket is closed when these differ by one, or relatively by ``_INTEGER_RTOL``. ``slope`` is
    that of log cost, assumed until two evaluations determine it. A cost so relatively close below
    the budget, ``enough``, ends the search.
    """
    feasible: float | None = None
    infeasible: float | None = None
    points: list[
        tuple[float, float]
    ] = []  # arguments in order, with log(cost / budget)

    def clipped(argument: float) -> float:
        """The argument, moved strictly into the bracket; an integer's logarithm if required."""
        if integer:
            least = round(math.exp(low if feasible is None else feasible))
            most = round(math.exp(high if infeasible is None else infeasible))
            least += feasible is not None
            most -= infeasible is not None
            return math.log(min(max(round(math.exp(argument)), least), most))
        if feasible is None or infeasible is None:
            return min(max(argument, low), high)
        return (
            argument
            if feasible < argument < infeasible
            else (feasible + infeasible) / 2
        )

    def closed() -> bool:
        """Whether the bracket is as narrow as required, or ends at an end of the range."""
        if feasible is None:
            return infeasible is not None and infeasible <= low
        if infeasible is None:
            return feasible >= high
        if integer:
            least, most = round(math.exp(feasible)), round(math.exp(infeasible))
            return most - least <= max(1, _INTEGER_RTOL * least)
        return infeasible - feasible <= tolerance

    argument = clipped(start)
    for count in range(1, _MAX_EVALUATIONS + 1):
        found = cost(argument)
        log_ratio = -math.inf if found <= 0 else math.inf
        if 0 < found < math.inf:
            log_ratio = math.log(found / budget)
        points.append((argument, log_ratio))
        feasible = argument if log_ratio <= 0 else feasible
        infeasible = argument if log_ratio > 0 else infeasible
        if closed() or -enough <= log_ratio < 0:
            break
        zero = _secant_zero(points, slope)
        if (
            feasible is not None
            and infeasible is not None
            and (zero is None or (count > 8 and count % 3 == 0))
        ):
            argument = (feasible + infeasible) / 2
        elif zero is None:  # no slope: double the steps towards the other end
            step = min(2.0 ** (count - 1), 16.0)
            argument += -step if log_ratio > 0 else step
        else:
            if feasible is None or infeasible is None:
                zero = argument + min(max(zero - argument, -3.0 * count), 3.0 * count)
            # next to the predicted zero, on the side where the bracket is open
            offset = -0.4 * tolerance if log_ratio > 0 else 0.4 * tolerance
            if feasible is not None and 0 <= zero - feasible <= tolerance * 0.9:
                zero, offset = feasible, 0.95 * tolerance
            elif infeasible is not None and 0 <= infeasible - zero <= tolerance * 0.9:
                zero, offset = infeasible, -0.95 * tolerance
            argument = zero + offset
        argument = clipped(argument)
    return feasible


def _secant_zero(points: list[tuple[float, float]], slope: float) -> float | None:
    """Zero predicted from the last two finite points, or by ``slope``; None where unusable."""
    argument, log_ratio = points[-1]
    if not math.isfinite(log_ratio):
        return None
    finite = [point for point in points if math.isfinite(point[1])]
    if len(finite) > 1:
        (first, low), (second, high) = finite[-2:]
        slope = (high - low) / (second - first) if second != first else slope
    return argument - log_ratio / slope if 0.02 < slope < 1e4 else None


def root(
    function: Callable[[float], float], low: float, high: float, rtol: float = 1e-13
) -> float:
    """Argument at which a continuous function changes sign, by the Illinois method.

    The function has opposite signs at both ends, or is 0 at one. Bisects after three steps that did
    not halve the bracket, and while a value at one of its ends is infinite.
    """
    left, right = function(low), function(high)
    if left == 0 or right == 0:
        return low if left == 0 else high
    last_side, slow_steps, last_width = 0, 0, high - low
    for _ in range(_MAX_STEPS):
        tolerance = rtol * max(abs(low), abs(high))
        if high - low <= 2 * tolerance:
            break
        if slow_steps >= 3 or not (math.isfinite(left) and math.isfinite(right)):
            middle = (low + high) / 2
            slow_steps = 0
        else:  # at least a tolerance inside, so that the last steps close the bracket at both ends
            middle = high - right * (high - low) / (right - left)
            middle = min(max(middle, low + tolerance), high - tolerance)
        value = function(middle)
        if value == 0:
            return middle
        side = 1 if (value > 0) == (left > 0) else -1
        if side > 0:
            low, left = middle, value
            right = right / 2 if last_side > 0 else right
        else:
            high, right = middle, value
            left = left / 2 if last_side < 0 else left
        last_side = side
        slow_steps = slow_steps + 1 if high - low > last_width / 2 else 0
        last_width = high - low
    return (low + high) / 2


# --- Gaussian differential privacy: the exact Gaussian formulas and the central limit. -----------


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
    """The mu of the limit: the root of the summed chi-square divergences of the releases.

    For T equal Poisson releases this is ``q sqrt(T (exp(1/sigma^2) - 1))`` (Bu et al. 2020);
    full participation is exact, ``sqrt(T) / sigma``. Fixed size under add/remove is Poisson
    at sigma / 2; full participation under replace-one doubles the distance.
    """
    return math.sqrt(
        sum(count * _square(release, relation) for release, count in history)
    )


def _square(release: Release, relation: Relation) -> float:
    q, sigma = release.sampling_ratio, release.noise_multiplier
    if q == 0 or math.isinf(sigma):
        return 0.0
    sigma = sigma / release.sampling.law.sensitivity(relation)
    if sigma < 1e-100:
        return math.inf
    if q == 1:
        return sigma**-2
    return q * q * math.expm1(sigma**-2) if sigma > 0.04 else math.inf


def log_delta_of(mu: float, epsilon: float) -> float:
    """Natural logarithm of the smallest delta of a mu-GDP mechanism at ``epsilon``.

    ``delta = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)``
    (Balle and Wang 2018, Theorem 5), computed in logarithms.
    """
    if mu == 0:
        return -math.inf
    if math.isinf(mu):
        return 0.0
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return (
        -math.inf if second >= first else first + math.log(-math.expm1(second - first))
    )


def epsilon_of(mu: float, delta: float) -> float:
    """Smallest epsilon of a mu-GDP mechanism at ``delta``; inf for infinite mu."""
    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return math.inf
    target = math.log(delta)
    if log_delta_of(mu, 0.0) <= target:
        return 0.0
    high = mu * mu / 2 + mu * math.sqrt(
        -2 * target
    )  # the tail bound of the loss N(mu^2/2, mu^2)
    if log_delta_of(mu, high) > target:
        high += mu
    return root(lambda e: log_delta_of(mu, e) - target, 0.0, high)


def mu_of(epsilon: float, delta: float) -> float:
    """The largest mu whose mechanism is (epsilon, delta)-private."""
    checked_delta(delta)
    if not 0 < epsilon < math.inf:
        raise InputError.one("epsilon", "must be positive and finite", epsilon)
    target = math.log(delta)
    # mu^2/2 + mu sqrt(2 L) >= epsilon bounds mu from below; twice the total variation from above.
    low = math.sqrt(-2 * target + 2 * epsilon) - math.sqrt(-2 * target)
    high = max(low, 1e-12)
    while log_delta_of(high, epsilon) < target:
        low, high = high, 2 * high
    while log_delta_of(low, epsilon) > target:
        low /= 2
    return root(lambda mu: log_delta_of(mu, epsilon) - target, low, high)


ACCOUNTANTS.register(GdpAccountant.name, GdpAccountant())
