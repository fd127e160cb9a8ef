"""What a plan does for each group, compared with plans that could replace it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from privplan.accounting.audibility import AUDIBLE
from privplan.errors import PrivplanError
from privplan.plan import Forecast, Plan
from privplan.planning.choices import task_of
from privplan.planning.problem import least_shares, problem_of
from privplan.planning.recipe import relative_noise, relative_noise_of
from privplan.planning.search import estimated
from privplan.planning.solver import solve
from privplan.spec.planning import LEAST_SHARE, is_objective
from privplan.spec.spec import Spec
from privplan.spec.training import DECIDED

# Groups of a plan that is compared; no reader looks through more.
MOST_COMPARED = 50
# Norm of the noise over the clipping norm above which a plan says what would lower it.
LOUD = 3.0
# An epsilon above it is said to protect hardly.
LOOSE = 20
# Weight over the share of the clients below which they hardly count.
HARDLY = 0.1
# A weight is at its least share when it is below this part more of it.
_AT_LEAST_SHARE = 0.99
_REMEDIES = 3  # changes that a plan proposes


@dataclass(frozen=True)
class Alternative:
    """A plan that could have been made: what each group counts, and the noise.

    Attributes:
        name: how the plan differs.
        counts: weight over the group's share of the clients, one for each group.
        noise: of the mean update over the clipping norm.
        forecast: where there are proxy runs.
    """

    name: str
    counts: tuple[float, ...]
    noise: float
    forecast: Forecast | None


def alternatives(
    plan: Plan, forecast: Callable[[Plan], Plan] | None = None
) -> tuple[Alternative, ...]:
    """Groups that are alike, the plan itself, and the strictest budget for everybody.

    Nothing where budgets or weights leave no choice. Without a forecast the noise of
    the others is that of curves, within 1e-3; with one they are plans of their own.

    Example:
        >>> [plan.name for plan in alternatives(privplan.solve("spec.yaml"))]
        ['groups alike', 'this plan', 'strictest for all']
    """
    spec = plan.spec
    budgets = {(group.epsilon, group.delta) for group in plan.groups}
    has_choice = spec.unit == "client" and spec.weighting == "optimal"
    if not has_choice or len(budgets) == 1 or len(plan.groups) > MOST_COMPARED:
        return ()

    strictest: dict[str, Any] = {
        "epsilon": min(group.epsilon for group in plan.groups),
        "delta": min(group.delta for group in plan.groups),
        "risk": None,
    }
    alike = spec.planning.model_copy(update={"least_share": 0.0})
    even = spec.planning.model_copy(update={"least_share": 1.0})
    no_floor = {"least_share": None}
    alike_groups = tuple(group.model_copy(update=no_floor) for group in spec.groups)
    strictest |= no_floor
    strict_groups = tuple(group.model_copy(update=strictest) for group in spec.groups)
    alike_change = {"groups": alike_groups, "planning": alike}
    strict_change = {"groups": strict_groups, "planning": even}
    population = spec.population
    counts = [group.weight * population / group.clients for group in plan.groups]
    noise = relative_noise(plan)
    return (
        _alternative("groups alike", spec, alike_change, forecast),
        Alternative("this plan", tuple(counts), noise, plan.forecast),
        _alternative("strictest for all", spec, strict_change, forecast),
    )


def _alternative(
    name: str,
    spec: Spec,
    change: dict[str, Any],
    forecast: Callable[[Plan], Plan] | None,
) -> Alternative:
    """The plan of a changed spec, by its estimated allocation."""
    changed = spec.model_copy(update=change)
    expected = None
    if forecast is not None:
        expected = forecast(solve(changed, second_opinion=False)).forecast
    problem = problem_of(changed)
    allocation = estimated(task_of(changed, problem))
    counts = tuple((allocation.weights / problem.shares).tolist())
    return Alternative(name, counts, relative_noise_of(changed, allocation), expected)


def attention_lines(plan: Plan) -> list[str]:
    """What deserves attention: loose budgets, clients that hardly count, loud noise.

    Where noise drowns the signal, a line says what would lower it.
    """
    spec = plan.spec
    lines: list[str] = []
    loose = [group.name for group in plan.groups if group.epsilon > LOOSE]
    if loose:
        lines.append(
            f"{', '.join(loose)}: an epsilon above {LOOSE} lets a guess's odds rise by "
            f"e^{LOOSE}: hardly a protection"
        )
    if spec.unit != "client":
        return lines
    lines += _recipe_lines(spec)
    lines += _weight_lines(plan)
    noise = relative_noise(plan)
    if noise > LOUD:
        line = (
            f"noise is {noise:.3g} times the clipping norm, the most that updates can "
            "agree on"
        )
        remedies = _remedies(spec) if is_objective(spec.planning.ratios) else []
        if remedies:
            line += f": {', '.join(remedies)}"
        lines.append(line)
    return lines


def _recipe_lines(spec: Spec) -> list[str]:
    """That a spec which states some of its training has no recipe for the rest."""
    stated = [name for name in DECIDED if getattr(spec, name) is not None]
    is_partial = 0 < len(stated) < len(DECIDED)
    is_planned = is_objective(spec.planning.ratios) and spec.planning.clipping is None
    if spec.recipe is not None or not is_planned or not is_partial:
        return []
    verb = "are" if len(stated) > 1 else "is"
    return [
        f"no recipe, since {' and '.join(stated)} {verb} stated; write recipe: default "
        "to have the rest decided, recipe: none to have it as it is without this line"
    ]


def _weight_lines(plan: Plan) -> list[str]:
    """The clients that hardly count, and the field that gives them more."""
    spec = plan.spec
    is_chosen = is_objective(spec.planning.ratios)
    least_share = spec.planning.least_share
    if least_share is None:
        least_share = LEAST_SHARE
    # Where some groups have a least weight, the others may have less than their share.
    is_limited = is_chosen and any(group.min_weight for group in spec.groups)
    threshold = HARDLY
    if is_limited:
        threshold = max(HARDLY, _AT_LEAST_SHARE * least_share)
    few = []
    for group, floor in zip(plan.groups, least_shares(spec), strict=True):
        # Of a group that no weight can help, ``floors.audibility_lines`` says so.
        if is_chosen and not floor and group.audibility < AUDIBLE:
            continue
        if group.weight < threshold * group.clients / spec.population:
            few.append(group)
    if not few:
        return []
    share = sum(group.clients for group in few) / spec.population
    weight = sum(group.weight for group in few)
    names = ", ".join(group.name for group in few)
    line = f"{names}: {share:.1%} of the clients have {weight:.2%} of the weight"
    if is_limited:
        line += f"; planning.least_share {least_share:g} comes after min_weight"
    elif is_chosen:
        line += "; planning.least_share gives them more"
    return [line]


def _remedies(spec: Spec) -> list[str]:
    """The three changes after which the noise is least, with that noise."""
    noise_by_change: list[tuple[float, str]] = []
    for name, change in _changes(spec).items():
        changed = spec.model_copy(update=change)
        if changed.expected_cohort <= changed.population:
            with suppress(PrivplanError):
                allocation = estimated(task_of(changed, problem_of(changed)))
                noise_by_change.append((relative_noise_of(changed, allocation), name))
    best = sorted(noise_by_change)[:_REMEDIES]
    return [f"{noise:.3g} with {name}" for noise, name in best]


def _changes(spec: Spec) -> dict[str, dict[str, Any]]:
    """Changes of a spec that may lower its noise, by what they say to a reader."""
    doubled = []
    looser = []
    for group in spec.groups:
        doubled.append(group.model_copy(update={"clients": 2 * group.clients}))
        looser.append(group.model_copy(update={"epsilon": 2 * group.epsilon}))
    quarter = max(spec.model.parameters // 4, 1)
    smaller = spec.model.model_copy(update={"parameters": quarter})
    no_share = spec.planning.model_copy(update={"least_share": 0})
    changes: dict[str, dict[str, Any]] = {
        "twice the clients per round": {"cohort": 2 * spec.expected_cohort},
        "twice the clients in each group": {"groups": tuple(doubled)},
        "twice each epsilon": {"groups": tuple(looser)},
        "a model of a quarter of the parameters": {"model": smaller},
        "planning.least_share 0": {"planning": no_share},
    }
    strictest = min(group.epsilon for group in spec.groups)
    looser_groups = tuple(group for group in spec.groups if group.epsilon > strictest)
    if looser_groups:
        changes[f"no group of epsilon {strictest:g}"] = {"groups": looser_groups}
    return changes
