"""Decides rounds, cohort, local steps and clipping norm where ``planning.free`` names them.

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
- Local steps of the default recipe: fewer of them leave more uploads within the limits on steps or
  device time, but each update's direction holds less signal, ``worth``. With the T of each tau as
  above, tau has the largest T worth(tau) / (N^2 + o), where T counts as T / (1 + T / LASTING).
- The clipping norm: noise grows with C^2, and updates longer than C are shortened: their mean
  moves by the mean excess over C of a pilot's update norms times how far updates point the
  same way (1 at most), whose square is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from privplan.planning.allocate import estimated
from privplan.planning.budget_nodes import lagrange
from privplan.planning.objectives import clip_bias, objective_of
from privplan.planning.objectives.balanced import heterogeneity_of
from privplan.planning.optimised import task_of
from privplan.planning.problem import problem_of, provisioned_noise_multiplier
from privplan.planning.recipe import FEW_ROUNDS, LASTING, MOST_LOCAL_STEPS, worth
from privplan.planning.run_limits import (
    ROUNDING,
    check_limits,
    fewest_clients,
    largest_cohort,
    most_steps,
    most_uploads,
)
from privplan.spec.spec import Spec

_COARSE = 9
_NODES = 5
"""Cohorts whose noise is planned at each number of rounds while local steps are decided."""
_FACTOR = 1.35
"""Between such numbers of rounds."""
_FAR = 1.5
"""Cost over the least one at which a grid of candidates is not followed any further."""
_GOLDEN = (math.sqrt(5) - 1) / 2
PAST = 3.0
"""Squared length of a step past the optimum over that of its signal (o): 1.9 on MNIST and 4 on
digits, as the curve of ``privplan.forecast`` fits it to runs there."""
_EXTRA = ("rounds", "cohort", "local_steps", "clipping_norm")


def decide_free_choices(spec: Spec) -> tuple[Spec, tuple[str, ...]]:
    """Returns the spec with its free rounds, cohort and clipping norm decided, and notes on them.

    The result names none of them as free, so solving it again changes nothing.

    Raises:
        InfeasibleError: when a budget cannot be met at a candidate.
    """
    free = [name for name in _EXTRA if name in spec.planning.free]
    if not free:
        check_limits(spec)
        return spec, ()
    decided = _start(spec)
    if "local_steps" in free:
        decided = _decide_steps(spec, decided)
        check_limits(decided)
        notes = [_note(name, spec, decided) for name in free]
        if "rounds" in free and decided.rounds <= FEW_ROUNDS and decided.local.steps > 1:
            notes.append(
                f"planning.free: {decided.local.steps} local steps are likely too many for "
                f"{decided.rounds} rounds, too few for steps of one length to arrive; try fewer as "
                "local.steps, or a larger limit"
            )
        return decided, tuple(notes)
    if "rounds" not in free:
        check_limits(decided)
    if "clipping_norm" in free:
        decided = _decide_clipping_norm(decided)
    if "rounds" in free:
        decided = _decide_rounds(spec, decided)
        decided = _decide_clipping_norm(decided) if "clipping_norm" in free else decided
        check_limits(decided)  # the fewest rounds and clients can be too many
    return decided, tuple(_note(name, spec, decided) for name in free)


def _note(name: str, spec: Spec, decided: Spec) -> str:
    """What was decided on a free choice, and why."""
    if name == "clipping_norm":
        paid = clip_bias(decided) ** 2
        return (
            f"planning.free: clipping_norm is {decided.clipping_norm:g}, of the least error with "
            f"that of clipping, {paid:.4g}, which is not part of the objective at a given norm"
        )
    if name == "cohort":
        text = f"planning.free: cohort is {decided.expected_cohort:g}"
        return f"{text}, the largest that limits and clients allow: it has the least noise"
    steps = decided.local.steps
    if name == "rounds":
        most = _most_rounds(spec, decided, steps)
        why = "of the largest ratio of signal to noise after all rounds"
        if spec.planning.constants is not None:
            why = "of the least error of the whole run"
        ten = "" if spec.planning.max_rounds or most < 10 * spec.rounds else ", ten times rounds"
        return f"planning.free: rounds is {decided.rounds}, {why}, from 1 to {most}{ten}"
    used = decided.rounds * decided.expected_cohort * steps
    return (
        f"planning.free: local_steps is {steps}: an update then holds {worth(steps):.0%} of the "
        f"signal that more steps can give; {decided.rounds} rounds of "
        f"{decided.expected_cohort:.4g} clients take {used:.6g} of {most_steps(decided):.6g} steps"
    )


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


def lost_with_steps(spec: Spec) -> float:
    """The same where local steps are free, too: many rounds count less, few steps hold less."""
    return lost_signal(spec) * (1 + spec.rounds / LASTING) / worth(spec.local.steps)


def _start(spec: Spec) -> Spec:
    """The spec with only ratios and weights free; h follows the spec's own clipping norm."""
    free = [name for name in spec.planning.free if name not in _EXTRA]
    fixed = {"free": free, "heterogeneity": heterogeneity_of(spec)}
    return _with_cohort(spec, _with(spec, planning=fixed))


def _with_cohort(spec: Spec, decided: Spec) -> Spec:
    """The cohort that the limits allow at the decided rounds and local steps."""
    if "cohort" not in spec.planning.free:
        return decided
    return _with(decided, cohort=largest_cohort(spec, decided.rounds, decided.local.steps))


def _decide_clipping_norm(decided: Spec) -> Spec:
    norms = np.asarray(decided.planning.update_norms, dtype=float)

    def clipped(log_clip: float) -> Spec:
        return _with(decided, clipping_norm=math.exp(log_clip))

    low, high = math.log(norms.max() / 30), math.log(norms.max())
    best = minimiser(lambda x: total_error(clipped(x)), low, high)
    return clipped(best)


def _decide_steps(spec: Spec, decided: Spec) -> Spec:
    """Local steps, then rounds and cohort as for these steps where they are free."""
    if "rounds" not in spec.planning.free:
        at = _lost_by_steps(spec, decided, decided.rounds)
        steps = min(at, key=lambda n: at[n] / worth(n), default=1)
        decided = _with_steps(decided, steps)
        return _with_cohort(_with_steps(spec, steps), decided)
    known: dict[int, list[tuple[float, float]]] = {}  # log T and log of what is lost, by steps
    for rounds in _grid(_most_rounds(spec, decided, 1)):
        for steps, lost in _lost_by_steps(spec, decided, rounds).items():
            known.setdefault(steps, []).append((math.log(rounds), math.log(lost)))
    cost = {}
    for steps, places in known.items():
        log_rounds, log_lost = _lowest(places)
        cost[steps] = math.exp(log_lost) * (1 + math.exp(log_rounds) / LASTING) / worth(steps)
    chosen = min(cost, key=lambda n: cost[n], default=1)
    return _decide_rounds(_with_steps(spec, chosen), _with_steps(decided, chosen))


def _lowest(places: list[tuple[float, float]]) -> tuple[float, float]:
    """The lowest point of a curve: of the parabola through the lowest place and its neighbours."""
    best = min(range(len(places)), key=lambda i: places[i][1])
    if not 0 < best < len(places) - 1:
        return places[best]
    (a, at_a), (b, at_b), (c, at_c) = places[best - 1 : best + 2]
    left, right = (at_b - at_a) / (b - a), (at_c - at_b) / (c - b)
    bend = (right - left) / (c - a)
    if bend <= 0:
        return b, at_b
    x = (a + b - left / bend) / 2
    return x, at_a + left * (x - a) + bend * (x - a) * (x - b)


def _grid(most: int) -> list[int]:
    """Rounds from 1 to ``most``, by factors of about ``_FACTOR``."""
    count = 2 + int(math.log(most) / math.log(_FACTOR))
    return sorted({round(x) for x in np.geomspace(1, most, count)})


def _with_steps(spec: Spec, steps: int) -> Spec:
    return _with(spec, local={**spec.model_dump(mode="json")["local"], "steps": steps})


def _lost_by_steps(spec: Spec, decided: Spec, rounds: int) -> dict[int, float]:
    """``lost_signal`` at given rounds by the local steps that the limits allow, up to the most.

    Where the cohort is given, all lose the same.
    """
    free = "cohort" in spec.planning.free
    least = fewest_clients(spec, rounds) if free else decided.expected_cohort
    if rounds * least > (spec.planning.max_uploads or math.inf) * (1 + ROUNDING):
        return {}
    most = int(min(most_steps(spec) / (rounds * least) * (1 + ROUNDING), MOST_LOCAL_STEPS))
    if not free:
        lost = lost_signal(_with(decided, rounds=rounds)) if most else math.inf
        return dict.fromkeys(range(1, most + 1), lost)
    cohorts = {n: largest_cohort(spec, rounds, n) for n in range(1, most + 1)}
    if not cohorts:
        return {}
    at = _lost_by_cohort(_with(decided, rounds=rounds), sorted(set(cohorts.values())))
    return {n: at(cohort) for n, cohort in cohorts.items()}


def _lost_by_cohort(decided: Spec, cohorts: list[float]) -> Callable[[float], float]:
    """``lost_signal`` as a function of the cohort: a polynomial through few of the cohorts.

    Args:
        decided: the spec with its rounds.
        cohorts: the cohorts that are asked for, ascending.
    """
    ends = math.log(cohorts[0]), math.log(cohorts[-1])
    wanted = np.linspace(*ends, _NODES)
    nodes = sorted({min(cohorts, key=lambda one: abs(math.log(one) - x)) for x in wanted})
    values = [math.log(lost_signal(_with(decided, cohort=one))) for one in nodes]
    places = [math.log(one) for one in nodes]
    return lambda cohort: math.exp(lagrange(places, values, math.log(cohort)))


def _most_rounds(spec: Spec, decided: Spec, steps: int) -> int:
    """Most rounds by their limit and by uploads of the fewest clients with given local steps."""
    most = spec.planning.max_rounds or 10 * spec.rounds
    free = "cohort" in spec.planning.free
    least = fewest_clients(spec, 1) if free else decided.expected_cohort
    uploads = most_uploads(spec, steps)
    return min(most, max(int(uploads / least), 1)) if uploads < math.inf else most


def _decide_rounds(spec: Spec, decided: Spec) -> Spec:
    most = _most_rounds(spec, decided, spec.local.steps)

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
