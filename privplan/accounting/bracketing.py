"""Bracketing searches: the largest argument within a budget, and a function's root.

Own code where SciPy has ``brentq``: evaluations of an accountant are expensive, a cost
may be 0 or infinite, and the result must lie on the side that keeps the budget.
Importing ``scipy.optimize`` takes as long as all of ``privplan account``, so that
command takes its roots from here, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

_MAX_EVALUATIONS = 200
_MAX_STEPS = 400
# An integer is exact up to 10,000; beyond, bounds hardly differ.
_INTEGER_RTOL = 1e-4
# From this evaluation on every third one halves the bracket, against slow convergence.
_PATIENCE = 8
# Steps double while no slope is known, up to this one.
_LARGEST_STEP = 16.0
# How far a prediction may leave an open bracket, for each evaluation so far.
_REACH = 3.0
# Distance from a predicted zero of what is evaluated, in tolerances.
_BESIDE_ZERO = 0.4
# The same from the end of the bracket next to it, where the zero is closer than _NEXT.
_BESIDE_END = 0.95
_NEXT = 0.9
# Slopes of log cost outside of these tell nothing.
_LEAST_SLOPE = 0.02
_MOST_SLOPE = 1e4
# Steps of ``root`` that do not halve the bracket before it is halved.
_SLOW_STEPS = 3


class _Point(NamedTuple):
    """An argument, and log(cost / budget) there."""

    argument: float
    log_ratio: float


class _Search:
    """The bracket of ``largest_affordable``, and what was evaluated.

    Attributes:
        feasible: largest argument that keeps the budget, so far.
        infeasible: smallest that does not.
    """

    def __init__(
        self, low: float, high: float, tolerance: float, slope: float, *, integer: bool
    ) -> None:
        self._low = low
        self._high = high
        self._tolerance = tolerance
        self._slope = slope
        self._integer = integer
        self._points: list[_Point] = []
        self.feasible: float | None = None
        self.infeasible: float | None = None

    def take(self, argument: float, log_ratio: float) -> None:
        """Narrow the bracket by an evaluation."""
        self._points.append(_Point(argument, log_ratio))
        if log_ratio <= 0:
            self.feasible = argument
        else:
            self.infeasible = argument

    def clipped(self, argument: float) -> float:
        """The argument, moved strictly into the bracket; of integers their logs."""
        if self._integer:
            return self._clipped_integer(argument)
        if self.feasible is None or self.infeasible is None:
            return min(max(argument, self._low), self._high)
        if self.feasible < argument < self.infeasible:
            return argument
        return (self.feasible + self.infeasible) / 2

    def _clipped_integer(self, argument: float) -> float:
        smallest = round(math.exp(self._low))
        if self.feasible is not None:
            smallest = round(math.exp(self.feasible)) + 1
        largest = round(math.exp(self._high))
        if self.infeasible is not None:
            largest = round(math.exp(self.infeasible)) - 1
        return math.log(min(max(round(math.exp(argument)), smallest), largest))

    @property
    def is_closed(self) -> bool:
        """Whether the bracket is narrow enough, or ends at an end of the range."""
        if self.feasible is None:
            return self.infeasible is not None and self.infeasible <= self._low
        if self.infeasible is None:
            return self.feasible >= self._high
        if self._integer:
            smallest = round(math.exp(self.feasible))
            largest = round(math.exp(self.infeasible))
            return largest - smallest <= max(1, _INTEGER_RTOL * smallest)
        return self.infeasible - self.feasible <= self._tolerance

    def following(self) -> float:
        """What to evaluate next."""
        argument, log_ratio = self._points[-1]
        count = len(self._points)
        zero = self._secant_zero()
        is_slow = count > _PATIENCE and count % 3 == 0
        if self.feasible is not None and self.infeasible is not None:
            if zero is None or is_slow:
                return (self.feasible + self.infeasible) / 2
        elif zero is None:
            # No slope: double the steps towards the end that is open.
            step = min(2.0 ** (count - 1), _LARGEST_STEP)
            if log_ratio > 0:
                return argument - step
            return argument + step
        else:
            reach = _REACH * count
            zero = argument + min(max(zero - argument, -reach), reach)
        return self._next_to_zero(zero, log_ratio)

    def _next_to_zero(self, zero: float, log_ratio: float) -> float:
        """Next to a predicted zero, on the side where the bracket is open."""
        next_to = self._tolerance * _NEXT
        if self.feasible is not None and 0 <= zero - self.feasible <= next_to:
            return self.feasible + _BESIDE_END * self._tolerance
        if self.infeasible is not None and 0 <= self.infeasible - zero <= next_to:
            return self.infeasible + -_BESIDE_END * self._tolerance
        offset = _BESIDE_ZERO * self._tolerance
        if log_ratio > 0:
            return zero - offset
        return zero + offset

    def _secant_zero(self) -> float | None:
        """Zero predicted from the last two finite points, or by the slope."""
        argument, log_ratio = self._points[-1]
        if not math.isfinite(log_ratio):
            return None
        finite = [point for point in self._points if math.isfinite(point.log_ratio)]
        slope = self._slope
        if len(finite) > 1 and finite[-1].argument != finite[-2].argument:
            rise = finite[-1].log_ratio - finite[-2].log_ratio
            slope = rise / (finite[-1].argument - finite[-2].argument)
        if not _LEAST_SLOPE < slope < _MOST_SLOPE:
            return None
        return argument - log_ratio / slope


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
    """The largest argument in [low, high] whose cost is at most the budget.

    Secant steps on ``log(cost / budget)``; once the predicted zero is close, one
    evaluation on each side of it, 0.4 tolerances away, closes the bracket. Falls back
    to bisection when the prediction leaves the bracket or convergence is slow.

    Args:
        cost: must not decrease, and may be 0 or ``inf``.
        budget: positive.
        start: what is evaluated first.
        low: smallest argument.
        high: largest argument.
        tolerance: width of the bracket that ends the search.
        integer: whether arguments are logarithms of integers: the bracket is closed
            when these differ by one, or relatively by ``_INTEGER_RTOL``.
        slope: of log cost, assumed until two evaluations determine it.
        enough: relative distance below the budget of a cost that ends the search.

    Returns:
        The argument, whose cost was computed and is within the budget; None without
        one.
    """
    search = _Search(low, high, tolerance, slope, integer=integer)
    argument = search.clipped(start)
    for _ in range(_MAX_EVALUATIONS):
        spent = cost(argument)
        log_ratio = -math.inf if spent <= 0 else math.inf
        if 0 < spent < math.inf:
            log_ratio = math.log(spent / budget)
        search.take(argument, log_ratio)
        if search.is_closed or -enough <= log_ratio < 0:
            break
        argument = search.clipped(search.following())
    return search.feasible


def root(
    function: Callable[[float], float], low: float, high: float, rtol: float = 1e-13
) -> float:
    """Argument at which a continuous function changes sign, by the Illinois method.

    Bisects after three steps that did not halve the bracket, and while a value at one
    of its ends is infinite.

    Args:
        function: has opposite signs at both ends, or is 0 at one.
        low: lower end.
        high: upper end.
        rtol: relative tolerance of the argument.
    """
    low_value = function(low)
    high_value = function(high)
    if low_value == 0 or high_value == 0:
        if low_value == 0:
            return low
        return high
    last_side = 0
    slow_steps = 0
    last_width = high - low
    for _ in range(_MAX_STEPS):
        tolerance = rtol * max(abs(low), abs(high))
        if high - low <= 2 * tolerance:
            break
        if slow_steps >= _SLOW_STEPS or not (
            math.isfinite(low_value) and math.isfinite(high_value)
        ):
            middle = (low + high) / 2
            slow_steps = 0
        else:
            # At least a tolerance inside, so that the last steps close the bracket at
            # both ends.
            middle = high - high_value * (high - low) / (high_value - low_value)
            middle = min(max(middle, low + tolerance), high - tolerance)
        value = function(middle)
        if value == 0:
            return middle

        # Illinois: the value at an end that stays twice counts half.
        side = 1 if (value > 0) == (low_value > 0) else -1
        if side > 0:
            low = middle
            low_value = value
            high_value = high_value / 2 if last_side > 0 else high_value
        else:
            high = middle
            high_value = value
            low_value = low_value / 2 if last_side < 0 else low_value
        last_side = side
        slow_steps = slow_steps + 1 if high - low > last_width / 2 else 0
        last_width = high - low
    return (low + high) / 2
