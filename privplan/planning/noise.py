"""The noise multiplier of a group: calibrated to its budget at a sampling ratio.

``root`` finds quickly, by an estimate of epsilon, where a budget is spent.
``least_noise`` starts there and finds the noise multiplier of a plan, by the accountant
itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.accountant import at_most
from privplan.accounting.calibrate import (
    LEAST_RATIO,
    NOISE_RANGE,
    PLD,
    least_certified,
    noise_multiplier,
    noise_multiplier_by_bisection,
    quick_epsilon,
)
from privplan.accounting.pld.accountant import compose
from privplan.accounting.pld.direction import EvaluationPlan
from privplan.errors import InfeasibleError, InputError, TooLittleNoiseError
from privplan.planning.budget import Budget, budget_of
from privplan.planning.noise_jumps import covered_ratio
from privplan.planning.problem import Problem

Floats = NDArray[np.float64]

GUARANTEE = PLD
# Accountants of the composed privacy loss, whose epsilon has a quick estimate.
FROM_LOSSES = ("pld", "prv")

# A search ends when a Newton step in log sigma is smaller. By then the slope is known
# within some percent, so what is left is some percent of the step.
_LAST_STEP = 2e-3
# The same before a slope was measured, and where the result starts a calibration.
_EXACT_LAST_STEP = 5e-5
# Under full participation the guarantee is a closed form, without a lattice's error.
_CLOSED_FORM_LAST_STEP = 1e-8
# Nothing or everything is spent: there is no slope, and sigma changes by a factor of
# two.
_STEP_WITHOUT_SLOPE = 0.7
# Points that are closer in log sigma differ by rounding rather than by their noise.
_SMALLEST_DIFFERENCE = 1e-5
# A bracket in log sigma that is narrower ends the search, where epsilon has a jump.
_SMALLEST_BRACKET = 1e-4
# Distance of log epsilon from the budget within which a plan of evaluation serves
# again.
_PLAN_SERVES_WITHIN = 0.15
_MOST_STEPS = 40


class _Point(NamedTuple):
    """Log of the epsilon spent over the budget, at a log noise multiplier."""

    log_noise: float
    log_excess: float

    def differs(self, later: _Point, tolerance: float) -> bool:
        """Whether two points differ by their noise, not only by rounding."""
        return abs(later.log_noise - self.log_noise) > tolerance

    def steepness(self, later: _Point) -> float:
        """-d log epsilon / d log sigma between two points.

        Epsilon falls at least as fast as 1 / sigma, so a smaller slope is rounding.
        """
        rise = self.log_excess - later.log_excess
        return max(rise / (later.log_noise - self.log_noise), 1.0)


@dataclass
class _Bracket:
    """Log noise multipliers between which a budget is just spent.

    Attributes:
        lowest: the lower end of the allowed range.
        highest: its upper end.
        too_little: with this little noise more than the budget is spent.
        enough: with this much, the budget is kept.
    """

    lowest: float
    highest: float
    too_little: float = -math.inf
    enough: float = math.inf

    def clamp(self, log_noise: float) -> float:
        """The nearest log noise multiplier in the allowed range."""
        return min(max(log_noise, self.lowest), self.highest)

    def ends_at(self, point: _Point) -> bool:
        """Whether a budget cannot be used up, or not be kept, in the allowed range."""
        if point.log_excess > 0:
            return point.log_noise == self.highest
        return point.log_noise == self.lowest

    def narrow(self, point: _Point) -> None:
        """Take a point as the new end on its side."""
        if point.log_excess > 0:
            self.too_little = point.log_noise
        else:
            self.enough = point.log_noise


def root(
    budget: Budget,
    ratio: float,
    accountant: str = GUARANTEE,
    start: float | None = None,
    slope: float | None = None,
    last_step: float = _LAST_STEP,
) -> tuple[float, float]:
    """Find the noise multiplier at which a budget is just spent.

    Epsilon falls like a power of the noise multiplier, so log(spent / budget) is nearly
    a straight line in log sigma, and Newton's method needs two or three evaluations.
    Its slope is measured from the last two points; before there are two, it is that of
    the central limit theorem. Every evaluation also narrows a bracket, and a step that
    would leave the bracket becomes a bisection, so the search ends for any accountant.

    Args:
        budget: what may be spent, and under which sampling law and relation.
        ratio: sampling ratio of a round, in (0, 1].
        accountant: name of the accountant that says what is spent.
        start: first guess of log sigma; by default where the central limit spends the
            budget.
        slope: -d log epsilon / d log sigma near there, if it was measured.
        last_step: the search ends when a step in log sigma is at most this.

    Returns:
        log sigma where the budget is spent, or the end of the allowed range that is
        nearest to it, and the slope there.
    """
    bracket = _Bracket(budget.lowest_log_noise, math.log(NOISE_RANGE[1]))
    if start is None:
        start = budget.central_log_noise(ratio)
    log_noise = bracket.clamp(start)
    slope_is_measured = slope is not None
    if slope is None:
        slope = budget.steepness(log_noise)

    previous: _Point | None = None
    plan: EvaluationPlan | None = None
    for _ in range(_MOST_STEPS):
        excess, plan = log_excess(
            budget, ratio, log_noise, accountant, plan, rough=last_step >= _LAST_STEP
        )
        point = _Point(log_noise, excess)
        if bracket.ends_at(point):
            break
        bracket.narrow(point)

        if not math.isfinite(excess):
            following = log_noise + math.copysign(_STEP_WITHOUT_SLOPE, excess)
        else:
            if previous is not None and previous.differs(point, _SMALLEST_DIFFERENCE):
                slope = previous.steepness(point)
                slope_is_measured = True
            following = log_noise + excess / slope
            if abs(excess) >= _PLAN_SERVES_WITHIN:
                plan = None
            tolerance = last_step if slope_is_measured else _EXACT_LAST_STEP
            if abs(following - log_noise) <= tolerance:
                return bracket.clamp(following), slope
            previous = point

        following = bracket.clamp(following)
        if not bracket.too_little < following < bracket.enough:
            following = (bracket.too_little + bracket.enough) / 2
        if bracket.enough - bracket.too_little < _SMALLEST_BRACKET:
            return bracket.enough, slope
        log_noise = following
    return log_noise, slope


def log_excess(
    budget: Budget,
    ratio: float,
    log_noise: float,
    accountant: str,
    plan: EvaluationPlan | None,
    *,
    rough: bool = True,
) -> tuple[float, EvaluationPlan | None]:
    """Log of the epsilon spent over the budget, and the plan by which it was evaluated.

    It is infinite where no epsilon is finite, and minus infinity where nothing is
    spent.
    """
    history = budget.history(ratio, math.exp(log_noise))
    try:
        if accountant in FROM_LOSSES:
            quick = quick_epsilon(
                history, budget.delta, budget.relation, budget.epsilon, rough=rough
            )
            if quick is not None:
                spent = quick
            else:
                composed = compose(history, budget.relation)
                spent, plan = composed.estimate(budget.delta, plan)
        else:
            chosen = by_name(accountant)
            spent = chosen.epsilon(history, budget.delta, budget.relation).upper
    except TooLittleNoiseError:
        return math.inf, plan
    if spent <= 0:
        return -math.inf, plan
    if not math.isfinite(spent):
        return math.inf, plan
    return math.log(spent / budget.epsilon), plan


# The noise multiplier of a plan, by the accountant itself.

# How far below its budget epsilon may be, relatively.
_RTOL = 1e-4
# Part of that by which an estimate is aimed below the budget. Estimates are 0 to 1e-4
# above upper bounds, so nine of ten calibrations need one bound only.
_AIM = 0.1
# The same under full participation, where bounds are exact: only rounding is left.
_CLOSED_FORM_AIM = 1e-7
_TRIES = 4
# Two tries that are closer in log sigma differ by rounding.
_SAME_TRY = 1e-6


def least_noise(
    problem: Problem,
    group: int,
    ratio: float,
    accountant: str = GUARANTEE,
    near: float | None = None,
    rtol: float = _RTOL,
) -> float:
    """The smallest noise multiplier that keeps a group's budget, rounded up.

    The accountant's upper bound keeps the budget and is within ``rtol`` of it. Since
    epsilon falls at least as fast as 1 / sigma, sigma is as close to the smallest.

    Args:
        problem: the planning problem.
        group: index of the group.
        ratio: its sampling ratio, in (0, 1].
        accountant: name of the accountant by which the budget is kept.
        near: a first guess.
        rtol: how far below its budget epsilon may be, relatively.

    Returns:
        sigma with ten digits; the group's fixed noise multiplier, where it has one.

    Raises:
        InfeasibleError: naming the group and the nearest epsilon that can be kept.
    """
    fixed_noise = problem.fixed_noise[group] if problem.fixed_noise else None
    if fixed_noise is not None:
        return fixed_noise
    name = problem.names[group]
    ratio = float(ratio)
    budget = budget_of(problem, group)
    _check_ratio(problem, name, budget, ratio)
    if accountant == GUARANTEE:
        noise_by_estimate = _by_estimate(budget, ratio, near, rtol)
        if noise_by_estimate is not None:
            return noise_by_estimate

    try:
        if problem.calibration == "published" and accountant != GUARANTEE:
            noise = noise_multiplier_by_bisection(
                budget.epsilon,
                budget.delta,
                sampling_ratio=ratio,
                rounds=budget.rounds,
                accountant=accountant,
            )
        else:
            noise = noise_multiplier(
                budget.epsilon,
                budget.delta,
                sampling_ratio=ratio,
                rounds=budget.rounds,
                accountant=accountant,
                sampling=budget.sampling,
                relation=budget.relation,
                near=near,
            )
    except InfeasibleError as error:
        spent = _spent(budget, ratio, NOISE_RANGE[1], accountant)
        feasible = at_most(math.nextafter(spent, math.inf))
        raise InfeasibleError(
            f"groups.{name}.epsilon: {error}; the nearest feasible epsilon is {feasible}"
        ) from None
    except InputError as error:
        raise InfeasibleError(f"groups.{name}: {error}") from None
    return rounded_up(noise)


def _check_ratio(problem: Problem, name: str, budget: Budget, ratio: float) -> None:
    """Raise InfeasibleError where unlike budgets leave a group next to no client."""
    if ratio >= LEAST_RATIO or len(problem.names) == 1:
        return
    smallest = min(problem.epsilons)
    largest = max(problem.epsilons)
    raise InfeasibleError(
        f"groups.{name}.epsilon: {budget.epsilon:g} among budgets from {smallest:g} to "
        f"{largest:g} leaves the group a sampling ratio of {ratio:.3g}, below the least "
        f"of {LEAST_RATIO:g}; bring the budgets closer together"
    )


def _by_estimate(
    budget: Budget, ratio: float, near: float | None, rtol: float
) -> float | None:
    """The smallest noise by ``pld`` from the root of its estimate.

    None where that does not serve, and a calibration from scratch has to.
    """
    if ratio <= covered_ratio(budget.delta, budget.chances):
        noise = rounded_up(least_certified(budget.sampling, budget.relation))
        if _spent(budget, ratio, noise) <= budget.epsilon:
            return noise
        return None

    last_step = _EXACT_LAST_STEP
    aim = _AIM * rtol
    if ratio >= 1:
        last_step = _CLOSED_FORM_LAST_STEP
        aim = _CLOSED_FORM_AIM
    start = None if near is None else math.log(near)
    log_noise, slope = root(budget, ratio, start=start, last_step=last_step)
    noise = rounded_up(math.exp(log_noise + aim / slope))

    previous: _Point | None = None
    for _ in range(_TRIES):
        if not math.exp(budget.lowest_log_noise) < noise < NOISE_RANGE[1]:
            return None
        spent = _spent(budget, ratio, noise)
        if not 0 < spent < math.inf:
            return None
        point = _Point(math.log(noise), math.log(spent / budget.epsilon))
        if -rtol <= point.log_excess <= 0:
            return noise
        if previous is not None and previous.differs(point, _SAME_TRY):
            slope = previous.steepness(point)
        previous = point
        # The middle of what is allowed leaves most room for an error of the slope.
        step = (point.log_excess + rtol / 2) / slope
        noise = rounded_up(math.exp(point.log_noise + step))
    return None


def _spent(
    budget: Budget, ratio: float, noise: float, accountant: str = GUARANTEE
) -> float:
    """The epsilon that an accountant certifies, as an upper bound."""
    history = budget.history(ratio, noise)
    return by_name(accountant).epsilon(history, budget.delta, budget.relation).upper


def rounded_up(noise: float) -> float:
    """The noise multiplier rounded up to ten significant digits.

    A ledger records standard deviations. Ten digits survive the product with the
    clipping norm and the division by it exactly, so that the realised epsilon equals
    the planned one bit for bit. A multiplier of so few digits stays as it is.
    """
    if float(f"{noise:.10g}") == noise:
        return noise
    unit = 10.0 ** (math.floor(math.log10(noise)) - 9)
    return float(f"{math.ceil(noise / unit) * unit:.10g}")


def calibrated(problem: Problem, ratios: Floats, accountant: str) -> Floats:
    """``least_noise`` of all groups, shape (groups,)."""
    return np.array(
        [
            least_noise(problem, group, ratio, accountant)
            for group, ratio in enumerate(ratios)
        ]
    )
