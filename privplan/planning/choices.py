"""Decides rounds, cohort and clipping norm where ``planning.free`` names them.

- The cohort: at equal budgets sigma(q) / q falls with q, and so does the variance of sampling,
  so more clients per round never hurt; a free cohort is the largest that the limits allow
  (max_uploads / rounds, the ceilings of the groups, all clients).
- Rounds: progress 2 (f(theta^0) - f*) eta tau / T falls with T while noise grows, so there is
  a best T between 1 and max_rounds.
- Rounds of the default recipe, without constants: its steps have one length, so T rounds move the
  model by sqrt(T) times as much signal as noise over sqrt(N^2 + o), N the noise of the mean update
  over C and o the part of a step that goes past the optimum (``PAST``). T has the largest ratio
  T / (N^2 + o), within the limits.
- The clipping norm: noise grows with C^2, and updates longer than C are shortened: their mean
  moves by the mean excess over C of a pilot's update norms at most, whose square is added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from privplan.accounting.calibrate import PLD
from privplan.errors import InputError, PrivplanError
from privplan.laws.correlated import mean_square
from privplan.plan import ObjectiveValue, Plan
from privplan.planning import problem as problems
from privplan.planning.assemble import Decisions, failed_conditions
from privplan.planning.error import WEIGHTS, weights
from privplan.planning.objectives import clip_bias, heterogeneity_of, objective_of
from privplan.planning.published import kept_fractions
from privplan.planning.search import allocate, estimated
from privplan.planning.task import Task
from privplan.spec.spec import Spec
from privplan.spec.training import (
    LOCAL_RATE,
    UNIT,
    Averaging,
    ServerOptimiser,
    local_rate,
    unit,
    walk,
)

# --- The default training recipe: how the server uses the noisy mean, decided without any data. --
# With the recipe's clipping norm C (``privplan.spec.training``) nearly all updates are clipped: a
# release is C (m + n): m the mean of unit vectors, |m| at most 1, and n noise of norm
# N = nu sqrt(d), known from the plan. The server moves by eta_s C (m + n) / 1 per round.
#
# Step: eta_s = L / (C sqrt(1 + N^2)), so that the step of a round, with its noise, has length at
# most about L = STEP_LENGTH eta whatever the noise, the cohort and the model's size. Longer steps
# lose accuracy to noise that random steps cannot undo, shorter ones do not arrive within the
# rounds. In units of the local learning rate eta, because that is what the spec says of the
# model's scale.
#
# Average: an exponential moving average of the models takes out noise that the step leaves; it
# costs nothing. Server momentum beta is a step longer by 1 / (1 - beta) and was no better at
# equal length.
#
# Local momentum changes neither: of a clipped update only the direction is left. It makes local
# training go far, which turns that direction towards the client's own records, so
# ``privplan.spec.training`` decides a shorter local learning rate where the spec names none.
#
# STEP_LENGTH and the decay are measured on MNIST and scikit-learn's digits: docs/recipe.md.

STEP_LENGTH = 22.0  # length of the server's step in a round over the local learning rate (L / eta)
CORRELATED_STEP = (
    28.0  # with correlated noise and its momentum: docs/correlated-noise.md
)
NOT_TUNED = "not tuned on private data; a choice made by accuracy on them costs privacy"
"""Line of every plan whose certificate does not pay for tuning."""
DECAY = 0.8  # decay of the average of the models per round


def relative_noise(plan: Plan) -> float:
    """Norm of the mean's noise over the clipping norm (N); of independent noise as harmful."""
    raw = (
        plan.mean_noise_std
        / plan.spec.clipping_norm
        * math.sqrt(plan.spec.model.parameters)
    )
    return raw * plan.spec.noise_left


def step_length(spec: Spec) -> float:
    """Length of the server's step without noise over the local learning rate."""
    return STEP_LENGTH if len(spec.mixture) == 1 else CORRELATED_STEP


def default_rate(spec: Spec, noise: float) -> float:
    """The same for a spec whose plan has a relative noise (N)."""
    length = step_length(spec) * unit(spec.local.learning_rate, spec.recipe)
    length *= 1 - spec.server_momentum
    return float(f"{length / (spec.clipping_norm * math.hypot(1.0, noise)):.4g}")


def with_server(plan: Plan) -> Plan:
    """The plan with server and averaging of the default recipe where its spec leaves them out."""
    spec, recipe = plan.spec, plan.spec.recipe
    if recipe is None or recipe.source != "default":
        return plan
    decided: dict[str, ServerOptimiser | Averaging] = {}
    if "server" in recipe.decides:
        rate = default_rate(spec, relative_noise(plan))
        decided["server"] = ServerOptimiser(learning_rate=rate)
        if kept := spec.server_momentum:  # where the noise is correlated over rounds
            decided["server"] = ServerOptimiser(
                optimizer="momentum", momentum=kept, learning_rate=rate
            )
    if "averaging" in recipe.decides:
        decided["averaging"] = Averaging(decay=DECAY)
    return plan.model_copy(update={"spec": spec.model_copy(update=decided)})


def recipe_lines(plan: Plan) -> list[str]:
    """What the plan's recipe decided and why, and that nothing was tuned on private data."""
    initial = plan.spec.model.initial
    start = [] if initial is None else [initial.line]
    return [*_decided(plan), *start, *([NOT_TUNED] if plan.guarantee == PLD else [])]


def replaced_lines(data: Any, plan: Plan) -> list[str]:
    """Values in a spec, changed by hand, that its recipe decides and that have no effect."""
    recipe = plan.spec.recipe
    if not isinstance(data, dict) or recipe is None or recipe.source != "default":
        return []
    solved, lines = plan.spec.model_dump(mode="json"), []
    for field in recipe.decides:
        given, decided = (_leaves(_at(one, field), field) for one in (data, solved))
        lines += [
            f"{name}: {value} in the spec is replaced by {decided.get(name, 'nothing')}, which the "
            f"recipe decides; without {field} in recipe.decides it is kept"
            for name, value in given.items()
            if value is not None and value != decided.get(name)
        ]
    return lines


def _at(data: Any, path: str) -> Any:
    """The value of a field by its path; None where there is none."""
    for part in path.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data


def _leaves(value: Any, path: str) -> dict[str, Any]:
    """Values by their paths, of a value that may be a mapping."""
    if isinstance(value, dict):
        return {f"{path}.{name}": one for name, one in value.items()}
    return {path: value}


def _decided(plan: Plan) -> list[str]:
    """What the plan's recipe decided and why, one line each; empty without a recipe."""
    spec, recipe = plan.spec, plan.spec.recipe
    if recipe is None or recipe.source == "none":
        return []
    basis = (
        "by runs on public or proxy data"
        if recipe.source == "tuned"
        else "without data"
    )
    what = f"decided {', '.join(recipe.decides) or 'nothing'}"
    lines = [f"recipe {recipe.source}: {what}; {basis}"]
    if recipe.source != "default":
        return lines
    eta, of = unit(spec.local.learning_rate, recipe), ""
    if local := _local_line(spec):
        lines.append(local)
        of = f" of {eta:g}"
    if "clipping_norm" in recipe.decides:
        lines.append(
            f"clipping norm {spec.clipping_norm:g}: one local step{of} at a gradient of norm 1, so "
            "that nearly every update is clipped whatever its length"
        )
    if spec.server is not None and "server" in recipe.decides:
        kept = spec.server.momentum
        momentum = f" with momentum {kept:g}, for correlated noise" if kept else ""
        lines.append(
            f"server learning rate {spec.server.learning_rate:g}{momentum}: a step of "
            f"length {step_length(spec) * eta:.4g} = {step_length(spec):g} local learning rates"
            f"{of}, signal 1 and noise {relative_noise(plan):.3g} in clipping norms"
        )
    return lines


def _local_line(spec: Spec) -> str:
    """How far local momentum carries a client, where the recipe decides the rate or would."""
    local, decides = spec.local, () if spec.recipe is None else spec.recipe.decides
    length = walk(local.steps, local.momentum)
    far = f"{local.steps} steps with momentum {local.momentum:g} go as far as {length:.4g} without"
    rate = local_rate(local.steps, local.momentum)
    if LOCAL_RATE in decides:
        return f"local learning rate {local.learning_rate:g}: {far}"
    if local.learning_rate > rate * 1.0001 and rate < UNIT:
        given = f"local learning rate {local.learning_rate:g}, as given"
        return f"{given}: {far}; left out, it is {rate:g}"
    return ""


# --- Decisions that minimise an objective over sampling ratios, noise multipliers and weights. ---


def task_of(spec: Spec, problem: problems.Problem) -> Task:
    """The search task of a spec; weights by a rule are floors that leave no choice."""
    limits = problems.limits_of(spec, problem)
    if spec.weighting in WEIGHTS and spec.weighting != "uniform":
        text = f"must be optimal, population or uniform with ratios: {spec.planning.ratios}"
        raise InputError.one("planning.weights", text, spec.weighting)
    if spec.weighting != "optimal":
        fixed = weights(
            spec.weighting, limits.min_cohorts, limits.min_cohorts, problem.members
        )
        limits = replace(limits, min_weights=fixed)
    if "ratios" not in spec.planning.free or problem.cohort == problem.population:
        fixed = problems.drawable(problem, problems.uniform_cohorts(problem))
        limits = problems.Limits(fixed, fixed, limits.min_weights)
    return Task(
        problem,
        limits,
        objective_of(spec).coefficients(spec, problem),
        spec.release,
        spec.planning.accountant,
    )


def optimised(spec: Spec, problem: problems.Problem) -> Decisions:
    """Returns the decisions that minimise the spec's objective."""
    task = task_of(spec, problem)
    found = allocate(task)
    terms = objective_of(spec).terms(spec, problem, found)
    lines = []
    if spec.planning.accountant == "closed_form":
        lines = failed_conditions(problem, found.cohorts, found.noise)
    lines += [
        f"groups.{group.name}.min_weight: {group.min_weight:g} does not hold, the rule "
        f"{spec.weighting} gives {weight:.4g}"
        for group, weight in zip(spec.groups, found.weights, strict=True)
        if weight < (group.min_weight or 0.0) - 1e-9
    ]
    return Decisions(
        cohorts=found.cohorts,
        noise=found.noise,
        weights=found.weights,
        kept_fractions=kept_fractions(
            spec, problem, found.cohorts, found.noise, found.weights
        ),
        release=spec.release,
        objective=ObjectiveValue(name=spec.planning.ratios, value=sum(terms.values())),
        bound=terms,
        status=found.status,
        warnings=tuple(lines),
    )


# --- Decides rounds, cohort and clipping norm where ``planning.free`` names them. ----------------

_COARSE = 9
_FAR = 1.5  # cost over the least one at which a grid of candidates is not followed any further
_GOLDEN = (math.sqrt(5) - 1) / 2
PAST = 3.0
"""Squared length of a step past the optimum over that of its signal (o): 1.9 on MNIST and 4 on
digits, as the curve of ``privplan.forecast`` fits it to runs there."""
_EXTRA = ("sampling", "rounds", "cohort", "clipping_norm")


def decide_free_choices(spec: Spec) -> tuple[Spec, tuple[str, ...]]:
    """The spec with rounds, cohort and norm decided and no longer free, and notes on them."""
    free = [name for name in _EXTRA if name in spec.planning.free]
    if not free:
        problems.check_limits(spec)
        return spec, ()
    fixed: dict[str, Any] = {
        "free": [one for one in spec.planning.free if one not in _EXTRA]
    }
    if "clipping_norm" in free:  # h follows the spec's own
        fixed["heterogeneity"] = heterogeneity_of(spec)
    decided, costs = _with_cohort(spec, problems.respecified(spec, planning=fixed)), {}
    if "sampling" in free:
        costs = noise_of_laws(decided)
        decided = problems.respecified(
            decided, sampling=min(costs, key=lambda one: costs[one])
        )
    if "rounds" not in free:
        problems.check_limits(decided)
    if "clipping_norm" in free:
        decided = _decide_clipping_norm(decided)
    if "rounds" in free:
        decided = _decide_rounds(spec, decided)
        decided = _decide_clipping_norm(decided) if "clipping_norm" in free else decided
        problems.check_limits(decided)  # the fewest rounds and clients can be too many
    return decided, tuple(_note(name, spec, decided, costs) for name in free)


def _note(name: str, spec: Spec, decided: Spec, costs: Mapping[str, float]) -> str:
    """What was decided on a free choice, and why."""
    if name == "clipping_norm":
        paid = clip_bias(decided) ** 2
        return (
            f"planning.free: clipping_norm is {decided.clipping_norm:g}, of the least error with "
            f"that of clipping, {paid:.4g}, which is not part of the objective at a given norm"
        )
    if name == "sampling":
        found = ", ".join(
            f"{law} {cost:.4g}" for law, cost in costs.items() if cost < math.inf
        )
        return (
            f"planning.free: sampling is {decided.sampling}, of the least root mean square noise "
            f"in a coordinate of all models, over the clipping norm: {found}"
        )
    if name == "cohort":
        text = f"planning.free: cohort is {decided.expected_cohort:g}"
        return (
            f"{text}, the largest that limits and clients allow: it has the least noise"
        )
    most = _most_rounds(spec, decided)
    why = "of the largest ratio of signal to noise after all rounds"
    if not _by_recipe(spec):
        why = "of the least error of the whole run"
    ten = (
        ""
        if spec.planning.max_rounds or most < 10 * spec.rounds
        else ", ten times rounds"
    )
    return f"planning.free: rounds is {decided.rounds}, {why}, from 1 to {most}{ten}"


def total_error(spec: Spec) -> float:
    """``Objective.run_error`` with the noise of curves, which the free variables minimise."""
    problem = problems.problem_of(spec)
    return objective_of(spec).run_error(
        spec, problem, estimated(task_of(spec, problem))
    )


def noise_of_laws(spec: Spec) -> dict[str, float]:
    """Root mean square noise of the models after each round by law; inf without a plan.

    Laws are compared at the momentum of the spec's own, up to where three are worse than the best.
    """
    costs: dict[str, float] = {}
    for law in spec.sampling.law.alternatives(spec):
        try:
            one = problems.respecified(spec, sampling=law)
            found = estimated(task_of(one, problems.problem_of(one)))
        except PrivplanError:
            costs[law] = math.inf
            continue
        factors = tuple(np.array(one.mixture) / math.hypot(*one.mixture))
        models = math.sqrt(mean_square(factors, spec.server_momentum, spec.rounds))
        costs[law] = problems.provisioned_noise_multiplier(one, found) * models
        if min([*costs.values()][-3:]) > min(costs.values()):
            break
    return costs


def lost_signal(spec: Spec) -> float:
    """Squared ratio of noise to signal after all rounds of the default recipe."""
    found = estimated(task_of(spec, problems.problem_of(spec)))
    multiplier = problems.provisioned_noise_multiplier(spec, found)
    return (multiplier**2 * spec.model.parameters + PAST) / spec.rounds


def _with_cohort(spec: Spec, decided: Spec) -> Spec:
    """The cohort that the limits allow at the decided rounds."""
    if "cohort" not in spec.planning.free:
        return decided
    return problems.respecified(
        decided, cohort=problems.largest_cohort(spec, decided.rounds)
    )


def _decide_clipping_norm(decided: Spec) -> Spec:
    norms = np.asarray(decided.planning.update_norms, dtype=float)

    def clipped(log_clip: float) -> Spec:
        return problems.respecified(decided, clipping_norm=math.exp(log_clip))

    low, high = math.log(norms.max() / 30), math.log(norms.max())
    best = minimiser(lambda x: total_error(clipped(x)), low, high)
    return clipped(best)


def _most_rounds(spec: Spec, decided: Spec) -> int:
    """Most rounds by their limit and by uploads of the fewest clients."""
    most = spec.planning.max_rounds or 10 * spec.rounds
    free = "cohort" in spec.planning.free
    least = problems.fewest_clients(spec, 1) if free else decided.expected_cohort
    uploads = spec.planning.max_uploads
    return most if uploads is None else min(most, max(int(uploads / least), 1))


def _by_recipe(spec: Spec) -> bool:
    """Whether the default recipe decides the server's steps, whose length noise does not change."""
    recipe = spec.recipe
    return (
        recipe is not None and recipe.source == "default" and "server" in recipe.decides
    )


def _decide_rounds(spec: Spec, decided: Spec) -> Spec:
    most = _most_rounds(spec, decided)

    def at(log_rounds: float) -> Spec:
        return _with_cohort(
            spec,
            problems.respecified(decided, rounds=max(round(math.exp(log_rounds)), 1)),
        )

    cost = lost_signal if _by_recipe(spec) else total_error
    costs: dict[int, float] = {}  # many arguments are rounded to one number of rounds

    def cost_at(log_rounds: float) -> float:
        candidate = at(log_rounds)
        if candidate.rounds not in costs:
            costs[candidate.rounds] = cost(candidate)
        return costs[candidate.rounds]

    return at(minimiser(cost_at, 0.0, math.log(most)))


def minimiser(cost: Callable[[float], float], low: float, high: float) -> float:
    """Minimiser on an interval: a coarse grid from its middle outwards, then golden section."""
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
    candidates = [
        (min(values), inner[int(np.argmin(values))]),
        (costs[best], float(grid[best])),
    ]
    return min(candidates)[1]
