"""Decides rounds, cohort and clipping norm where they are free.

- The cohort: at equal budgets sigma(q) / q falls with q, and so does the variance of
  sampling, so more clients per round never hurt; a free cohort is the largest that the
  limits allow (max_uploads / rounds, the ceilings of the groups, all clients).
- Rounds: progress 2 (f(theta^0) - f*) eta tau / T falls with T while noise grows, so
there
  is a best T between 1 and max_rounds.
- Rounds of the default recipe, without constants: its steps have one length, so T
rounds
  move the model by sqrt(T) times as much signal as noise over sqrt(N^2 + o), N the
  noise of the mean update over C and o the part of a step that goes past the optimum
  (``PAST``). T has the largest ratio T / (N^2 + o), within the limits.
- The clipping norm: noise grows with C^2, and updates longer than C are shortened:
their
  mean moves by the mean excess over C of a pilot's update norms at most, whose square
  is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from privplan.errors import InfeasibleError, InputError
from privplan.plan import ObjectiveValue
from privplan.planning import problem as problems
from privplan.planning.assemble import Decisions, failed_conditions
from privplan.planning.error import WEIGHTS, weights
from privplan.planning.objectives import clip_bias, heterogeneity_of, objective_of
from privplan.planning.published import kept_fractions
from privplan.planning.search import allocate, estimated
from privplan.planning.task import Task
from privplan.spec.planning import SLACK, is_objective
from privplan.spec.spec import Spec

# Weights that a rule gives miss a group's least weight by less only by rounding.
_ROUNDING = 1e-9


def task_of(spec: Spec, problem: problems.Problem) -> Task:
    """The search task of a spec; weights by a rule are floors that leave no choice.

    Raises:
        InputError: for weights that follow cohorts, since nothing in them pays for
            leaving groups out.
    """
    limits = problems.limits_of(spec, problem)
    if spec.weighting in WEIGHTS and spec.weighting != "uniform":
        ratios = spec.planning.ratios
        text = f"must be optimal, population or uniform with ratios: {ratios}"
        raise InputError.one("planning.weights", text, spec.weighting)
    if spec.weighting != "optimal":
        cohorts = limits.min_cohorts  # these rules do not depend on them
        fixed = weights(spec.weighting, cohorts, cohorts, problem.members)
        limits = replace(limits, min_weights=fixed)
    if "ratios" not in spec.planning.free or problem.cohort == problem.population:
        equal = problems.drawable(problem, problems.uniform_cohorts(problem))
        limits = problems.Limits(equal, equal, limits.min_weights)
    coefficients = objective_of(spec).coefficients(spec, problem)
    accountant = spec.planning.accountant
    return Task(problem, limits, coefficients, spec.release, accountant, slack_of(spec))


def slack_of(spec: Spec) -> float:
    """By how much the objective may exceed the least one; 0 with a sum per group."""
    if spec.release != "joint":
        return 0.0
    if spec.planning.slack is None:
        return SLACK
    return spec.planning.slack


def optimised(spec: Spec, problem: problems.Problem) -> Decisions:
    """The decisions that minimise the spec's objective.

    Raises:
        InfeasibleError: when least weights leave a group of one noisy sum none.
    """
    task = task_of(spec, problem)
    floors = task.limits.min_weights
    if task.release == "joint" and floors.sum() > 1 - _ROUNDING and not floors.all():
        name = problem.names[int(floors.argmin())]
        raise InfeasibleError(
            f"groups.{name}: the least weights of the other groups leave it none; lower "
            "their min_weight or least_share, or leave it out"
        )
    allocation = allocate(task)
    terms = objective_of(spec).terms(spec, problem, allocation)
    cohorts = allocation.cohorts
    noise = allocation.noise
    lines: list[str] = []
    if spec.planning.accountant == "closed_form":
        lines = failed_conditions(problem, cohorts, noise)
    for group, weight in zip(spec.groups, allocation.weights, strict=True):
        if weight < (group.min_weight or 0.0) - _ROUNDING:
            lines.append(
                f"groups.{group.name}.min_weight: {group.min_weight:g} does not hold, the "
                f"rule {spec.weighting} gives {weight:.4g}"
            )
    return Decisions(
        cohorts=cohorts,
        noise=noise,
        weights=allocation.weights,
        kept_fractions=kept_fractions(
            spec, problem, cohorts, noise, allocation.weights
        ),
        release=spec.release,
        objective=ObjectiveValue(name=spec.planning.ratios, value=sum(terms.values())),
        bound=terms,
        status=allocation.status,
        warnings=tuple(lines),
    )


# Squared length of a step past the optimum over that of its signal (o): 1.9 on MNIST
# and 4 on digits, as the curve of ``privplan.forecast`` fits it to runs there.
PAST = 3.0
# Choices besides ratios and weights, which a search makes together.
_EXTRA = ("rounds", "cohort", "clipping_norm")
# Without a limit, rounds are tried up to so many times those of the spec.
_MOST_TIMES_ROUNDS = 10
# Clipping norms are tried from the largest update norm down to this part of it.
_LARGEST_OVER_SMALLEST_NORM = 30


def decide_free_choices(spec: Spec) -> tuple[Spec, tuple[str, ...]]:
    """The spec with rounds, cohort and norm decided and no longer free, and notes."""
    free = [name for name in _EXTRA if name in spec.planning.free]
    if not free:
        problems.check_limits(spec)
        return spec, ()
    searched = [name for name in spec.planning.free if name not in _EXTRA]
    planning: dict[str, Any] = {"free": searched}
    if "clipping_norm" in free:  # h follows the spec's own
        planning["heterogeneity"] = heterogeneity_of(spec)
    decided = _with_cohort(spec, problems.respecified(spec, planning=planning))
    if "rounds" not in free:
        problems.check_limits(decided)
    if "clipping_norm" in free:
        decided = _decide_clipping_norm(decided)
    if "rounds" in free:
        decided = _decide_rounds(spec, decided)
        if "clipping_norm" in free:
            decided = _decide_clipping_norm(decided)
        problems.check_limits(decided)  # the fewest rounds and clients can be too many
    notes = [_note(name, spec, decided) for name in free]
    if "ratios" not in searched and is_objective(spec.planning.ratios):
        all_free = ", ".join(["ratios", "weights", *free])
        notes.append(
            "planning.free: leaves out ratios, so every group has the same sampling "
            f"ratio; [{all_free}] chooses the ratios, too"
        )
    return decided, tuple(notes)


def _note(name: str, spec: Spec, decided: Spec) -> str:
    """What was decided on a free choice, and why."""
    if name == "clipping_norm":
        paid = clip_bias(decided) ** 2
        return (
            f"planning.free: clipping_norm is {decided.clipping_norm:g}, of the least "
            f"error with that of clipping, {paid:.4g}, which is not part of the objective "
            "at a given norm"
        )
    if name == "cohort":
        return (
            f"planning.free: cohort is {decided.expected_cohort:g}, the largest that limits "
            "and clients allow: it has the least noise"
        )
    return _note_on_rounds(spec, decided)


def _note_on_rounds(spec: Spec, decided: Spec) -> str:
    """What the plan says of rounds that the planner chose, and within which limits."""
    largest = _largest_rounds(spec, decided)
    reason = "of the least error of the whole run"
    if _by_recipe(spec):
        reason = "of the largest ratio of signal to noise after all rounds"
    note = f"planning.free: rounds is {decided.rounds}, {reason}, from 1 to {largest}"
    is_limited = spec.planning.max_rounds or largest < _MOST_TIMES_ROUNDS * spec.rounds
    if not is_limited:
        note += ", ten times rounds"
    return note


def total_error(spec: Spec) -> float:
    """``Objective.run_error`` with the noise of curves, which free choices minimise."""
    problem = problems.problem_of(spec)
    allocation = estimated(task_of(spec, problem))
    return objective_of(spec).run_error(spec, problem, allocation)


def lost_signal(spec: Spec) -> float:
    """Squared ratio of noise to signal after all rounds of the default recipe."""
    allocation = estimated(task_of(spec, problems.problem_of(spec)))
    multiplier = problems.provisioned_noise_multiplier(spec, allocation)
    return (multiplier**2 * spec.model.parameters + PAST) / spec.rounds


def _with_cohort(spec: Spec, decided: Spec) -> Spec:
    """The cohort that the limits allow at the decided rounds."""
    if "cohort" not in spec.planning.free:
        return decided
    cohort = problems.largest_cohort(spec, decided.rounds)
    return problems.respecified(decided, cohort=cohort)


def _decide_clipping_norm(decided: Spec) -> Spec:
    """The spec with the clipping norm of least error."""
    norms = np.asarray(decided.planning.update_norms, dtype=float)

    def with_norm(log_clip: float) -> Spec:
        """The spec at a clipping norm of which the logarithm is given."""
        return problems.respecified(decided, clipping_norm=math.exp(log_clip))

    low = math.log(norms.max() / _LARGEST_OVER_SMALLEST_NORM)
    high = math.log(norms.max())
    return with_norm(minimiser(lambda x: total_error(with_norm(x)), low, high))


def _largest_rounds(spec: Spec, decided: Spec) -> int:
    """Most rounds by their limit and by uploads of the fewest clients."""
    largest = spec.planning.max_rounds or _MOST_TIMES_ROUNDS * spec.rounds
    uploads = spec.planning.max_uploads
    if uploads is None:
        return largest
    clients = decided.expected_cohort
    if "cohort" in spec.planning.free:
        clients = problems.fewest_clients(spec, 1)
    return min(largest, max(int(uploads / clients), 1))


def _by_recipe(spec: Spec) -> bool:
    """Whether the default recipe decides the server's steps, of fixed length."""
    recipe = spec.recipe
    if recipe is None or recipe.source != "default":
        return False
    return "server" in recipe.decides


def _decide_rounds(spec: Spec, decided: Spec) -> Spec:
    """The spec with the rounds of least error, or of most signal by the recipe."""

    def with_rounds(log_rounds: float) -> Spec:
        """The spec at so many rounds, with the cohort that uploads then allow."""
        rounds = max(round(math.exp(log_rounds)), 1)
        return _with_cohort(spec, problems.respecified(decided, rounds=rounds))

    cost = lost_signal if _by_recipe(spec) else total_error
    # Many arguments are rounded to the same number of rounds.
    costs: dict[int, float] = {}

    def cost_of(log_rounds: float) -> float:
        """The error or lost signal at so many rounds, computed once for each number."""
        candidate = with_rounds(log_rounds)
        if candidate.rounds not in costs:
            costs[candidate.rounds] = cost(candidate)
        return costs[candidate.rounds]

    largest = math.log(_largest_rounds(spec, decided))
    return with_rounds(minimiser(cost_of, 0.0, largest))


# A minimum on an interval, for costs that may be infinite and take a search each.

_COARSE = 9  # points of the grid
# Cost over the least one at which a grid of candidates is not followed any further.
_MUCH_WORSE = 1.5
_GOLDEN = (math.sqrt(5) - 1) / 2
_TOLERANCE = 0.01  # width in logarithms: a percent of rounds or norm changes nothing


def minimiser(cost: Callable[[float], float], low: float, high: float) -> float:
    """Minimiser on an interval: a grid from its middle, then golden section."""
    if high <= low:
        return high
    grid = np.linspace(low, high, _COARSE)
    costs = np.full(_COARSE, np.inf)
    middle = _COARSE // 2
    for places in (range(middle, _COARSE), range(middle - 1, -1, -1)):
        for place in places:
            costs[place] = cost(float(grid[place]))
            if costs[place] > _MUCH_WORSE * costs.min():
                break
    index = int(np.argmin(costs))
    left_end = float(grid[max(index - 1, 0)])
    right_end = float(grid[min(index + 1, _COARSE - 1)])
    inner, inner_cost = _golden_section(cost, left_end, right_end)
    # The grid's point is kept where golden section found nothing better.
    return min((inner_cost, inner), (costs[index], float(grid[index])))[1]


def _golden_section(
    cost: Callable[[float], float], left_end: float, right_end: float
) -> tuple[float, float]:
    """The better of the last two inner points, and its cost."""
    lower = right_end - _GOLDEN * (right_end - left_end)
    upper = left_end + _GOLDEN * (right_end - left_end)
    lower_cost = cost(lower)
    upper_cost = cost(upper)
    while right_end - left_end > _TOLERANCE:
        if lower_cost < upper_cost:
            right_end = upper
            upper = lower
            upper_cost = lower_cost
            lower = right_end - _GOLDEN * (right_end - left_end)
            lower_cost = cost(lower)
        else:
            left_end = lower
            lower = upper
            lower_cost = upper_cost
            upper = left_end + _GOLDEN * (right_end - left_end)
            upper_cost = cost(upper)
    if lower_cost <= upper_cost:
        return (lower, lower_cost)
    return (upper, upper_cost)
