"""Multi-start search for the cohorts, noise multipliers and weights of least error.

One road, in ``allocate``: the task's limits are drawn together and its noise curves
made once, which gives an ``ErrorModel``; local searches from several starts end at an
optimum, whose model has curves refined around it; a lower bound says how far that may
be from the least error; and the noise of the cohorts that are left is calibrated
exactly. Where the task has a slack, the cohorts are moved first to those that spend
least within it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privplan.planning.descent import local_minimum
from privplan.planning.dual_bound import relative_gap
from privplan.planning.error import Allocation, mean_noise_multiplier, terms
from privplan.planning.frugal import CheaperCohorts, allowed_noise
from privplan.planning.noise import GUARANTEE, least_noise
from privplan.planning.noise_curves import NoiseCurve, NoiseCurves, curves_of
from privplan.planning.noise_jumps import on_one_side
from privplan.planning.problem import whole_cohorts
from privplan.planning.task import ErrorModel, Task, project

Floats = NDArray[np.float64]

_STARTS = 8
# Where the first searches are proven optimal, no others are needed.
_FEW_STARTS = 2
_REFINEMENTS = 6
# How far an optimum may move after its curve was refined, over the parabola's reach.
_MOVED = 0.6
# Gap to the dual bound below which a plan is called optimal.
_PROVEN = 1e-3
# Gap below which there are no further searches.
_SETTLED = 1e-4
# Searches whose errors are relatively closer than this agree.
_AGREEING = 1e-4
# Limits whose range is below this part of the cohort leave one choice.
_NO_RANGE = 1e-9
# Weight over population share below which a group has a negligible weight.
NEGLIGIBLE = 0.02
# How far below its budget epsilon may be; bounds of very rare participation are costly,
# and nothing depends on a negligible group.
_RTOL = 1e-4
_RTOL_OF_NEGLIGIBLE = 1e-2
# So much noise over what the curves say, which are within 1e-3, is enough.
_CLEARLY_MORE = 1.003
# Groups that may give a client, and that may take one, when whole cohorts are improved.
_MOVES = 8
# An improvement of the error that is relatively smaller is rounding.
_ROUNDING = 1e-12


def allocate(task: Task) -> Allocation:
    """The cohorts, noise and weights of least error, with exactly calibrated noise.

    Within the task's slack of that error, those that spend least of the budgets.
    """
    model = error_model(task)
    starts = starts_of(model.task)
    searched = starts[:_FEW_STARTS]
    optimum = _optimum(model, searched)
    gap = relative_gap(optimum.model, optimum.cohorts, _SETTLED)
    if len(starts) > 1 and gap.relative > _SETTLED:
        # Cohorts that meet the bound are where a better optimum is most likely.
        searched = [*searched, *gap.hints, *starts[_FEW_STARTS:]][:_STARTS]
        optimum = _optimum(optimum.model, searched)
        gap = relative_gap(optimum.model, optimum.cohorts, _SETTLED)

    kind = "optimal" if gap.relative <= _PROVEN else "multi-start"
    status = f"{kind}: within {gap.relative:.2g} of the dual bound; "
    status += f"best of {len(searched)} searches"
    if optimum.agreeing > 0:
        status += f", {optimum.agreeing} of them agree"
    cohorts = optimum.cohorts
    if task.problem.sampling.law.whole_cohorts:
        cohorts = _whole(optimum.model, cohorts)
        status += "; then rounded to whole cohorts"
    if task.slack > 0:
        frugal = _frugal(optimum.model, cohorts, status)
        if frugal is not None:
            return frugal
    noise = _calibrated_noise(optimum.model, cohorts)
    return optimum.model.allocation(cohorts, noise, status)


def _frugal(model: ErrorModel, cohorts: Floats, status: str) -> Allocation | None:
    """The allocation that spends least within the slack; None where none is found.

    Args:
        model: with curves refined around the best cohorts.
        cohorts: the best ones, shape (groups,).
        status: how far these are certified to be from the optimum.
    """
    task = model.task
    best = model.allocation(cohorts, model.noise(cohorts), status)
    model, cohorts = _cheaper(model, best)
    if task.problem.sampling.law.whole_cohorts:
        cohorts = whole_cohorts(
            cohorts,
            np.minimum(task.limits.max_cohorts, task.clients),
            round(task.problem.cohort),
        )

    # All groups have the noise that the slack leaves, or what their budget needs.
    error_by_curves = _error(task, best)
    tightest, exact = _exact_noise_of_tightest(model, best, cohorts)
    best = replace(best, noise=best.noise * exact / model.noise(cohorts)[tightest])
    allowed = allowed_noise(model, best, cohorts) * cohorts / best.weights
    noise = _calibrated_noise(model, cohorts, allowed, {tightest: exact})
    status += f"; then the least spending within {task.slack:g} of it"
    frugal = replace(best, cohorts=cohorts, noise=noise, status=status)
    # Which of the two is exact depends on the group, within the error of the curves.
    limit = (1 + task.slack) * max(error_by_curves, _error(task, best))
    return frugal if _error(task, frugal) <= limit else None


def _cheaper(model: ErrorModel, best: Allocation) -> tuple[ErrorModel, Floats]:
    """The cohorts that spend least within the slack, and curves refined around them."""
    places = _RefinedPlaces(model.task, model.curves)
    cheaper = CheaperCohorts(best)
    cohorts = best.cohorts
    for _ in range(_REFINEMENTS):
        cohorts = cheaper.search(model)
        refined_model = places.refine(model, cohorts)
        if refined_model is model:
            break
        model = refined_model
    return model, cohorts


def _error(task: Task, allocation: Allocation) -> float:
    """The error of an allocation by its own weights, in squared update norm."""
    return terms(
        allocation.weights,
        allocation.cohorts,
        allocation.noise,
        task.coefficients,
        task.release,
    ).total


def _exact_noise_of_tightest(
    model: ErrorModel, best: Allocation, cohorts: Floats
) -> tuple[int, float]:
    """The group that one noise of the mean suffices least, and what it needs.

    Estimates, of which curves are made, are up to some percent above what the
    accountant certifies, where budgets are small and rounds few: no less than the
    slack. They are so for all groups, and the tightest one says by how much.

    Args:
        model: with curves refined around the cohorts.
        best: the allocation of least error.
        cohorts: those that spend less, shape (groups,).
    """
    by_curves = model.noise(cohorts)
    surplus = cohorts / best.weights / by_curves
    surplus[_is_negligible(model, cohorts)] = np.inf
    group = int(surplus.argmin())
    problem = model.task.problem
    ratio = float(problem.ratios(cohorts)[group])
    near = float(by_curves[group])
    return group, least_noise(problem, group, ratio, model.task.accountant, near)


def estimated(task: Task) -> Allocation:
    """``allocate`` with the noise of the curves, within 1e-3: to compare many tasks.

    With a task's slack, groups have the noise that it leaves, at the best cohorts.
    """
    model = error_model(task)
    optimum = _optimum(model, starts_of(model.task)[:_FEW_STARTS])
    cohorts = optimum.cohorts
    if task.problem.sampling.law.whole_cohorts:
        cohorts = _whole(optimum.model, cohorts)
    model = optimum.model
    best = model.allocation(cohorts, model.noise(cohorts), "estimated")
    if task.slack == 0:
        return best
    nu = mean_noise_multiplier(best.weights, cohorts, best.noise, task.release)
    raised = best.noise * (allowed_noise(model, best, cohorts) / nu)
    return replace(best, noise=raised)


def error_model(task: Task) -> ErrorModel:
    """The error of a task by coarse noise curves, within limits that can be reached.

    Upper limits leave the other groups their lower ones, and where the accountant is
    that of the guarantee, each group stays on one side of the jump of its noise.
    """
    limits = task.limits
    total = task.problem.cohort
    lower = limits.min_cohorts
    reachable = total - (float(lower.sum()) - lower)
    upper = np.maximum(np.minimum(limits.max_cohorts, reachable), lower)
    limits = replace(limits, max_cohorts=upper)
    if task.accountant == GUARANTEE:
        equal = total * task.clients / task.clients.sum()
        limits = on_one_side(task.problem, limits, project(equal, lower, upper, total))
    task = replace(task, limits=limits)
    return ErrorModel(task, curves_of(task.problem, limits, task.accountant))


def starts_of(task: Task) -> list[Floats]:
    """Cohorts within the limits from which searches start.

    Equal ratios; ratios by the closed form of Theorem 1; and those of few groups alone,
    since the best plan may leave groups out.
    """
    shapes = list(islice(_shapes(task), _STARTS))
    total = task.problem.cohort
    return [task.nearest(total * shape / shape.sum()) for shape in shapes]


def _shapes(task: Task) -> Iterator[Floats]:
    """Cohorts up to a factor, in the order in which they are tried."""
    clients = task.clients
    yield clients
    published = clients / np.sqrt(np.asarray(task.problem.closed_form_factors))
    yield published
    for size in (1, 2):
        for groups in combinations(range(len(clients)), size):
            shape = np.zeros_like(clients)
            shape[list(groups)] = published[list(groups)]
            yield shape


class _Optimum(NamedTuple):
    """Where searches ended.

    Attributes:
        model: the error by curves that are refined there.
        cohorts: the best cohorts, shape (groups,).
        agreeing: how many searches reached them.
    """

    model: ErrorModel
    cohorts: Floats
    agreeing: int


def _optimum(model: ErrorModel, starts: Sequence[Floats]) -> _Optimum:
    """The optimum of searches from several starts, on curves refined around it."""
    places = _RefinedPlaces(model.task, model.curves)
    if _leaves_no_choice(model.task):
        cohorts = starts[0]
        return _Optimum(places.refine(model, cohorts), cohorts, len(starts))
    cohorts, agreeing = _search(model, starts)
    best = _Optimum(model, cohorts, agreeing)
    least_error = np.inf
    for _ in range(_REFINEMENTS):
        refined_model = places.refine(model, cohorts)
        is_settled = refined_model is model
        model = refined_model

        # Only refined curves tell the error of cohorts well enough to compare.
        error = model.error(cohorts)
        if error < least_error:
            least_error = error
            best = _Optimum(model, cohorts, agreeing)

        # Where searches did not agree, others may end lower on the refined curves.
        if is_settled and agreeing == len(starts):
            break
        tried = [cohorts, *starts] if is_settled else [cohorts]
        following, _ = _search(model, tried)
        if is_settled and places.stays(cohorts, following):
            break
        cohorts = following
    return best


def _leaves_no_choice(task: Task) -> bool:
    """Whether the limits leave one choice of cohorts.

    Either each group's bounds meet, or the total leaves no room between them.
    """
    lower = task.limits.min_cohorts
    upper = task.limits.max_cohorts
    total = task.problem.cohort
    room = min(np.max(upper - lower), total - lower.sum(), upper.sum() - total)
    return bool(room <= _NO_RANGE * total)


class _RefinedPlaces:
    """Where each group's curve was last refined, in log q."""

    def __init__(self, task: Task, curves: NoiseCurves) -> None:
        self._log_ratios = np.full(len(task.clients), np.inf)
        reaches = [curve.reach for curve in curves.curves]
        self._reaches = _MOVED * np.array(reaches)

    def refine(self, model: ErrorModel, cohorts: Floats) -> ErrorModel:
        """The model with curves refined where cohorts left the reach of a parabola.

        The model itself, where none has to be. Groups of negligible weight keep theirs.
        """
        log_ratios = np.log(model.task.problem.ratios(cohorts))
        is_outside = np.abs(log_ratios - self._log_ratios) > self._reaches
        is_outside &= ~_is_negligible(model, cohorts)
        if not is_outside.any():
            return model
        self._log_ratios = np.where(is_outside, log_ratios, self._log_ratios)
        curves: list[NoiseCurve] = []
        for group, curve in enumerate(model.curves.curves):
            if is_outside[group]:
                curve = curve.refined(float(np.exp(log_ratios[group])))
            curves.append(curve)
        return ErrorModel(model.task, NoiseCurves(curves))

    def stays(self, cohorts: Floats, following: Floats) -> bool:
        """Whether cohorts moved less than parabolas reach."""
        return bool(np.all(np.abs(np.log(following / cohorts)) <= self._reaches))


def _is_negligible(model: ErrorModel, cohorts: Floats) -> NDArray[np.bool_]:
    """Which groups have next to no weight for their number, shape (groups,)."""
    shares = model.task.coefficients.shares
    return np.asarray(model.weights(cohorts) < NEGLIGIBLE * shares)


def _search(model: ErrorModel, starts: Sequence[Floats]) -> tuple[Floats, int]:
    """The best of several local searches, and how many of them reached it."""
    ends: list[Floats] = []
    for start in starts:
        minimum = local_minimum(model, start)
        ends.append(model.task.nearest(minimum.cohorts))
    # A start may be better than all ends, since these lie just inside of bounds.
    candidates = [*ends, *starts]
    errors = np.array([model.error(cohorts) for cohorts in candidates])
    index = int(errors.argmin())
    agrees = errors[: len(ends)] <= errors[index] * (1 + _AGREEING)
    return candidates[index], int(np.sum(agrees))


def _calibrated_noise(
    model: ErrorModel,
    cohorts: Floats,
    at_least: Floats | float = 0.0,
    calibrated: Mapping[int, float] | None = None,
) -> Floats:
    """The least noise of cohorts by the task's accountant, shape (groups,).

    Args:
        model: the task, with its noise curves.
        cohorts: r_m, shape (groups,).
        at_least: what groups have although their budgets need less, shape (groups,).
        calibrated: what is known already, by index of the group.
    """
    task = model.task
    ratios = task.problem.ratios(cohorts)
    guesses = model.noise(cohorts)
    negligible = _is_negligible(model, cohorts)
    noise = np.broadcast_to(at_least, cohorts.shape).astype(float)
    # What a budget clearly does not need is not calibrated: the certificate that
    # follows, of the same accountant, holds it against the budget in any case.
    needs_calibration = noise <= guesses * _CLEARLY_MORE
    if task.accountant != GUARANTEE:
        needs_calibration[:] = True
    for group, ratio in enumerate(ratios):
        if not needs_calibration[group]:
            continue
        near = float(guesses[group])
        rtol = _RTOL_OF_NEGLIGIBLE if negligible[group] else _RTOL
        needed_noise = (calibrated or {}).get(group) or least_noise(
            task.problem, group, ratio, task.accountant, near, rtol
        )
        noise[group] = max(needed_noise, noise[group])
    return noise


def _whole(model: ErrorModel, cohorts: Floats) -> Floats:
    """Whole cohorts close to given ones, improved by moves of single clients."""
    task = model.task
    lower = task.limits.min_cohorts
    upper = np.minimum(task.limits.max_cohorts, task.clients)
    best = whole_cohorts(cohorts, upper, round(task.problem.cohort))
    best = np.clip(best, lower, upper)
    least_error = model.error(best)
    while True:
        moves = _moves(model, best, lower, upper)
        errors = [model.error(move) for move in moves]
        if not moves or min(errors) >= least_error * (1 - _ROUNDING):
            return best
        least_error = min(errors)
        best = moves[int(np.argmin(errors))]


def _moves(
    model: ErrorModel, cohorts: Floats, lower: Floats, upper: Floats
) -> list[Floats]:
    """Whole cohorts with a client of one group less and of another one more.

    Of the groups that lose least by a client less, and those that gain most by one
    more.
    """
    units = np.eye(len(cohorts))
    giver_errors: list[float] = []
    taker_errors: list[float] = []
    for unit in units:
        can_give = np.all(cohorts - unit >= lower)
        giver_errors.append(model.error(cohorts - unit) if can_give else np.inf)
        can_take = np.all(cohorts + unit <= upper)
        taker_errors.append(model.error(cohorts + unit) if can_take else np.inf)

    moves: list[Floats] = []
    for giver in np.argsort(giver_errors)[:_MOVES]:
        for taker in np.argsort(taker_errors)[:_MOVES]:
            possible = np.isfinite(giver_errors[giver] + taker_errors[taker])
            if giver != taker and possible:
                moves.append(cohorts - units[giver] + units[taker])
    return moves
