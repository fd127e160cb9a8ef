"""Decides rounds, cohort and clipping norm where ``planning.free`` names them.

- The cohort: at equal budgets sigma(q) / q falls with q, and so does the variance of sampling,
  so more clients per round never hurt; a free cohort is the largest that the limits allow
  (max_cohort, max_uploads / rounds, max_local_steps, max_device_seconds, the ceilings of the
  groups, all clients).
- Rounds: progress 2 (f(theta^0) - f*) eta tau / T falls with T while noise grows, so there is
  a best T between 1 and max_rounds.
- Rounds of the default recipe, without constants: its steps have one length, so T rounds move the
  model by sqrt(T) times as much signal as noise over sqrt(N^2 + o), N the noise of the mean update
  over C and o the part of a step that goes past the optimum (``PAST``). T has the largest ratio
  T / (N^2 + o), within the limits.
- The clipping norm: noise grows with C^2, and updates longer than C are shortened: their mean
  moves by the mean excess over C of a pilot's update norms times how far updates point the
  same way (1 at most), whose square is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from privplan.errors import InfeasibleError
from privplan.planning.allocate import estimated
from privplan.planning.objectives import objective_of
from privplan.planning.objectives.balanced import heterogeneity_of
from privplan.planning.optimised import task_of
from privplan.planning.problem import problem_of, provisioned_noise_multiplier
from privplan.spec.spec import Spec

_COARSE = 9
_FAR = 1.5
"""Cost over the least one at which a grid of candidates is not followed any further."""
_GOLDEN = (math.sqrt(5) - 1) / 2
PAST = 3.0
"""Squared length of a step past the optimum over that of its signal (o): 1.9 on MNIST and 4 on
digits, as the curve of ``privplan.forecast`` fits it to runs there."""
_EXTRA = ("rounds", "cohort", "clipping_norm")


def decide_free_choices(spec: Spec) -> tuple[Spec, tuple[str, ...]]:
    """Returns the spec with its free rounds, cohort and clipping norm decided, and notes on them.

    The result names none of them as free, so solving it again changes nothing.

    Raises:
        InfeasibleError: when a budget cannot be met at a candidate.
    """
    free = [name for name in _EXTRA if name in spec.planning.free]
    if not free:
        _check_limits(spec)
        return spec, ()
    decided = _start(spec)
    if "rounds" not in free:
        _check_limits(decided)
    if "clipping_norm" in free:
        decided = _decide_clipping_norm(decided)
    if "rounds" in free:
        decided = _decide_rounds(spec, decided)
        decided = _decide_clipping_norm(decided) if "clipping_norm" in free else decided
        _check_limits(decided)  # the fewest rounds and clients can be too many
    notes = tuple(f"planning.free: {name} is {getattr(decided, name):g}" for name in free)
    return decided, notes


def _check_limits(spec: Spec) -> None:
    """Raises InfeasibleError for a cohort or rounds beyond their limits."""
    planning, cohort = spec.planning, spec.expected_cohort
    if planning.max_cohort is not None and cohort > planning.max_cohort * (1 + 1e-12):
        raise InfeasibleError(
            f"planning.max_cohort: {planning.max_cohort:g} is below the cohort of {cohort:g}; the "
            f"nearest feasible value is {cohort:g}"
        )
    if planning.max_rounds is not None and spec.rounds > planning.max_rounds:
        raise InfeasibleError(
            f"planning.max_rounds: {planning.max_rounds} is below the {spec.rounds} rounds; the "
            f"nearest feasible value is {spec.rounds}"
        )
    uploads = spec.rounds * cohort
    if planning.max_uploads is not None and uploads > planning.max_uploads * (1 + 1e-12):
        raise InfeasibleError(
            f"planning.max_uploads: {planning.max_uploads:g} is below the {uploads:g} uploads of "
            f"{spec.rounds} rounds with {cohort:g} clients; the nearest feasible value is "
            f"{uploads:g}, or {planning.max_uploads / spec.rounds:.4g} clients per round"
        )
    steps = uploads * spec.local.steps
    if planning.max_local_steps is not None and steps > planning.max_local_steps * (1 + 1e-12):
        raise InfeasibleError(
            f"planning.max_local_steps: {planning.max_local_steps:g} is below the {steps:g} steps "
            f"of {uploads:g} uploads, {spec.local.steps} each; the nearest feasible value is "
            f"{steps:g}"
        )
    if planning.max_device_seconds is not None and planning.step_seconds is not None:
        seconds = steps * planning.step_seconds
        if seconds > planning.max_device_seconds * (1 + 1e-12):
            raise InfeasibleError(
                f"planning.max_device_seconds: {planning.max_device_seconds:g} is below the "
                f"{seconds:g} seconds of {steps:g} steps, {planning.step_seconds:g} each; the "
                f"nearest feasible value is {seconds:g}"
            )


def most_uploads(spec: Spec) -> float:
    """Most uploads over the whole run by the limits on uploads, local steps and device time."""
    planning = spec.planning
    by_time = (planning.max_device_seconds or math.inf) / (planning.step_seconds or 1.0)
    steps = min(planning.max_local_steps or math.inf, by_time)
    return min(planning.max_uploads or math.inf, steps / spec.local.steps)


def total_error(spec: Spec) -> float:
    """The error of a whole run, which the free variables minimise; see ``Objective.run_error``.

    With the noise of interpolated curves: what is chosen is then calibrated and certified.
    """
    problem = problem_of(spec)
    return objective_of(spec).run_error(spec, problem, estimated(task_of(spec, problem)))


def lost_signal(spec: Spec) -> float:
    """Squared ratio of noise to signal after all rounds of the default recipe."""
    found = estimated(task_of(spec, problem_of(spec)))
    multiplier = provisioned_noise_multiplier(spec, found)
    return (multiplier**2 * spec.model.parameters + PAST) / spec.rounds


def _start(spec: Spec) -> Spec:
    """The spec with only ratios and weights free; h follows the spec's own clipping norm."""
    free = [name for name in spec.planning.free if name not in _EXTRA]
    fixed = {"free": free, "heterogeneity": heterogeneity_of(spec)}
    return _with_cohort(spec, _with(spec, planning=fixed))


def _with_cohort(spec: Spec, decided: Spec) -> Spec:
    """The cohort that the limits allow at the decided rounds."""
    planning = spec.planning
    if "cohort" not in planning.free:
        return decided
    ceilings = sum((group.max_sampling_ratio or 1.0) * group.clients for group in spec.groups)
    most = min(planning.max_cohort or math.inf, ceilings, float(spec.population))
    most = min(most, most_uploads(spec) / decided.rounds)
    if spec.sampling.law.whole_cohorts:
        most = math.floor(most)
    return _with(decided, cohort=max(most, len(spec.groups)))


def _decide_clipping_norm(decided: Spec) -> Spec:
    norms = np.asarray(decided.planning.update_norms, dtype=float)

    def clipped(log_clip: float) -> Spec:
        return _with(decided, clipping_norm=math.exp(log_clip))

    low, high = math.log(norms.max() / 30), math.log(norms.max())
    best = minimiser(lambda x: total_error(clipped(x)), low, high)
    return clipped(best)


def _decide_rounds(spec: Spec, decided: Spec) -> Spec:
    most = spec.planning.max_rounds or 10 * spec.rounds
    least = len(spec.groups) if "cohort" in spec.planning.free else decided.expected_cohort
    if most_uploads(spec) < math.inf:
        most = min(most, max(int(most_uploads(spec) / least), 1))

    def at(log_rounds: float) -> Spec:
        return _with_cohort(spec, _with(decided, rounds=max(round(math.exp(log_rounds)), 1)))

    cost = total_error if spec.planning.constants is not None else lost_signal
    costs: dict[int, float] = {}  # many arguments are rounded to one number of rounds

    def cost_at(log_rounds: float) -> float:
        candidate = at(log_rounds)
        if candidate.rounds not in costs:
            costs[candidate.rounds] = cost(candidate)
        return costs[candidate.rounds]

    return at(minimiser(cost_at, 0.0, math.log(most)))


def minimiser(cost: Callable[[float], float], low: float, high: float) -> float:
    """Minimiser of a cost on an interval: a coarse grid, then golden-section search.

    The grid is followed from its middle to both ends, until the cost is ``_FAR`` times the least.

    Args:
        cost: a function that does not fall below its least value again once it is ``_FAR`` times
            as large; evaluated about 20 times.
        low: lower end.
        high: upper end.
    """
    if high <= low:
        return high
    grid, costs = np.linspace(low, high, _COARSE), np.full(_COARSE, np.inf)
    middle = _COARSE // 2
    for way in (range(middle, _COARSE), range(middle - 1, -1, -1)):
        for place in way:
            costs[place] = cost(float(grid[place]))
            if costs[place] > _FAR * costs.min():
                break
    best = int(np.argmin(costs))
    left, right = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, _COARSE - 1)])
    inner = [right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)]
    values = [cost(inner[0]), cost(inner[1])]
    while right - left > 0.01:
        if values[0] < values[1]:
            right, inner[1], values[1] = inner[1], inner[0], values[0]
            inner[0] = right - _GOLDEN * (right - left)
            values[0] = cost(inner[0])
        else:
            left, inner[0], values[0] = inner[0], inner[1], values[1]
            inner[1] = left + _GOLDEN * (right - left)
            values[1] = cost(inner[1])
    candidates = [(min(values), inner[int(np.argmin(values))]), (costs[best], float(grid[best]))]
    return min(candidates)[1]


def _with(spec: Spec, planning: dict[str, Any] | None = None, **changes: Any) -> Spec:
    data = {**spec.model_dump(mode="json"), **changes}
    data["planning"] = {**data["planning"], **(planning or {})}
    return Spec.parse(data)
