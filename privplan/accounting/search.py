"""The edge of a budget: the largest argument whose cost still fits, in few evaluations.

A root in a bracket, to rounding: small enough not to load a solver for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

_MOST_EVALUATIONS = 200


@dataclass(frozen=True)
class SearchResult:
    """Where the budget ends.

    Attributes:
        inside: largest argument known to fit; None when none in the range does.
        outside: smallest argument known not to fit; None when all in the range do.
        evaluations: how often the cost was computed.
        slope: of log cost near the edge, as far as two evaluations tell it.
    """

    inside: float | None
    outside: float | None
    evaluations: int
    slope: float = 1.0


@dataclass
class _Search:
    """What is known so far about the zero of ``log(cost / budget)``."""

    low: float
    high: float
    whole: bool
    inside: float | None = None
    outside: float | None = None

    def settled(self, tolerance: float) -> bool:
        if self.inside is None:
            return self.outside is not None and self.outside <= self.low
        if self.outside is None:
            return self.inside >= self.high
        if self.whole and round(math.exp(self.outside)) - round(math.exp(self.inside)) <= 1:
            return True
        return not self.whole and self.outside - self.inside <= tolerance

    def bounded(self, guess: float) -> float:
        """The guess, kept strictly within what is unknown."""
        inside, outside = self.inside, self.outside
        if self.whole:
            return self._bounded_whole(guess)
        if inside is not None and outside is not None:
            if not inside < guess < outside:
                guess = (inside + outside) / 2
            return guess
        return min(max(guess, self.low), self.high)

    def _bounded_whole(self, guess: float) -> float:
        least = round(math.exp(self.low if self.inside is None else self.inside))
        most = round(math.exp(self.high if self.outside is None else self.outside))
        least += self.inside is not None
        most -= self.outside is not None
        return math.log(min(max(round(math.exp(guess)), least), most))


def largest_affordable(
    cost: Callable[[float], float],
    budget: float,
    *,
    start: float,
    low: float,
    high: float,
    tolerance: float,
    whole: bool = False,
    slope: float = 1.0,
) -> SearchResult:
    """Find the largest argument in [low, high] whose cost is at most the budget.

    Secant steps on ``log(cost / budget)``; once the predicted zero is trusted, one
    evaluation on each side of it, 0.4 tolerances away, closes the bracket. Falls back to
    bisection when the prediction leaves the bracket or stops helping.

    Args:
        cost: not decreasing; may be 0 or ``inf``.
        budget: positive.
        start: first argument to try, clipped to the range.
        low: smallest argument.
        high: largest argument.
        tolerance: the bracket is closed when its ends differ by at most this.
        whole: arguments are logarithms of whole numbers, and the bracket is closed when
            those differ by one.
        slope: of log cost at the start, until two evaluations tell it.

    Returns:
        Both ends of the bracket; ``inside`` always fits.
    """
    search = _Search(low, high, whole)
    points: list[tuple[float, float]] = []
    guess = search.bounded(start)
    for evaluation in range(1, _MOST_EVALUATIONS + 1):
        value = _log_ratio(cost(guess), budget)
        if value <= 0:
            search.inside = guess
        else:
            search.outside = guess
        points.append((guess, value))
        if search.settled(tolerance):
            return SearchResult(search.inside, search.outside, evaluation, _slope(points, slope))
        guess = search.bounded(_next(points, search, tolerance, slope))
    return SearchResult(search.inside, search.outside, _MOST_EVALUATIONS, _slope(points, slope))


def _log_ratio(cost: float, budget: float) -> float:
    if cost <= 0:
        return -math.inf
    return math.inf if math.isinf(cost) else math.log(cost / budget)


def _next(
    points: list[tuple[float, float]], search: _Search, tolerance: float, slope: float
) -> float:
    """Where to look next."""
    inside, outside = search.inside, search.outside
    bracketed = inside is not None and outside is not None
    stalled = len(points) > 8 and len(points) % 3 == 0
    if inside is not None and outside is not None and stalled:
        return (inside + outside) / 2
    zero = _secant(points, slope)
    if zero is None:
        if inside is not None and outside is not None:
            return (inside + outside) / 2
        return _march(points, search)
    if not bracketed:
        step = zero - points[-1][0]
        limit = 3.0 * len(points)
        zero = points[-1][0] + min(max(step, -limit), limit)
    return _straddle(zero, search, points[-1], tolerance)


def _straddle(zero: float, search: _Search, last: tuple[float, float], tolerance: float) -> float:
    """Aim beside the predicted zero, on the side that is still open."""
    aside = 0.4 * tolerance
    inside, outside = search.inside, search.outside
    if inside is not None and zero - inside <= tolerance * 0.9 and zero >= inside:
        return inside + 0.95 * tolerance
    if outside is not None and outside - zero <= tolerance * 0.9 and zero <= outside:
        return outside - 0.95 * tolerance
    return zero - aside if last[1] > 0 else zero + aside


def _secant(points: list[tuple[float, float]], slope: float) -> float | None:
    """Zero predicted from the last point; None without one that is finite."""
    place, value = points[-1]
    if not math.isfinite(value):
        return None
    found = _slope(points, slope)
    return place - value / found if 0.02 < found < 1e4 else None


def _slope(points: list[tuple[float, float]], otherwise: float) -> float:
    """Slope between the last two finite points that are not too close to tell."""
    finite = [point for point in points if math.isfinite(point[1])]
    if len(finite) < 2:
        return otherwise
    (first, low), (second, high) = finite[-2:]
    return (high - low) / (second - first) if second != first else otherwise


def _march(points: list[tuple[float, float]], search: _Search) -> float:
    """Without a bracket or a slope: step towards the side that is open, doubling."""
    last, value = points[-1]
    stride = min(2.0 ** (len(points) - 1), 16.0)
    return last - stride if value > 0 else last + stride


_MOST = 400


def root(function: Callable[[float], float], low: float, high: float, rtol: float = 1e-13) -> float:
    """Where a continuous function changes sign.

    Secants across the bracket, the value at an end that stays twice halved (the Illinois
    method), and a bisection after three steps that did not halve the bracket. Infinite values
    only tell the side.

    Args:
        function: of opposite signs at both ends, or 0 at one.
        low: lower end.
        high: upper end.
        rtol: how far the answer may be from a change of sign, relatively.
    """
    left, right = function(low), function(high)
    if left == 0 or right == 0:
        return low if left == 0 else high
    stayed, slow, last = 0, 0, high - low
    for _ in range(_MOST):
        tolerance = rtol * max(abs(low), abs(high))
        if high - low <= 2 * tolerance:
            break
        if slow >= 3 or not (math.isfinite(left) and math.isfinite(right)):
            middle = (low + high) / 2
            slow = 0
        else:  # a little inside, so that the last steps close the bracket from both ends
            middle = high - right * (high - low) / (right - left)
            middle = min(max(middle, low + tolerance), high - tolerance)
        value = function(middle)
        if value == 0:
            return middle
        side = 1 if (value > 0) == (left > 0) else -1
        if side > 0:
            low, left = middle, value
            right = right / 2 if stayed > 0 else right
        else:
            high, right = middle, value
            left = left / 2 if stayed < 0 else left
        stayed = side
        slow = slow + 1 if high - low > last / 2 else 0
        last = high - low
    return (low + high) / 2
