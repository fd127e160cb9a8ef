"""Every term of the convergence bounds and objectives of a plan, as a formula and a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from privplan.accounting.accountant import at_most
from privplan.accounting.calibrate import MOST_ROUNDS, least_certified
from privplan.accounting.release import History
from privplan.accounting.tradeoff import (
    TradeOff,
    limit_of,
    profile_of,
    tightest_budget,
    tradeoff,
)
from privplan.errors import (
    InfeasibleError,
    PrivplanError,
    UnsupportedError,
)
from privplan.plan import Forecast, GroupPlan, Plan
from privplan.planning.bounds import BOUNDS, Bound, missing, number
from privplan.planning.choices import relative_noise, task_of
from privplan.planning.error import Allocation
from privplan.planning.noise_jumps import covered_ratio
from privplan.planning.objectives import all_objectives, objective_of
from privplan.planning.problem import (
    Problem,
    noise_provision,
    problem_of,
    provisioned_noise_multiplier,
)
from privplan.planning.records import client_weights, noise_variances
from privplan.planning.search import allocate, estimated
from privplan.planning.solver import solve
from privplan.planning.task import Task
from privplan.spec.planning import LEAST_SHARE, is_objective
from privplan.spec.spec import Spec
from privplan.spec.training import DECIDED

RECORDS = (
    "robust_hdp"  # name of the rows of plans that protect records, which have no bound
)


@dataclass(frozen=True)
class Explained:
    """One term of a bound."""

    bound: str
    source: str  # paper and theorem
    term: str
    formula: str  # groups counted from 1
    value: float | None  # its number for the plan
    needs: tuple[str, ...]  # constants that have no value, when there is no number


def explain(plan: Plan) -> list[Explained]:
    """Every term of every bound for a plan, as a formula and, where known, as a number.

    For a plan that protects records: the noise variance and the weight of each client. The bounds
    of the literature are left out for plans with correlated noise: they assume that the noise of
    different rounds is independent.
    """
    if plan.unit == "record":
        return explain_records(plan)
    values = values_of(plan)
    rows = []
    correlated = len(plan.spec.mixture) > 1
    for name, one in symbolic_bounds(len(plan.groups), plan.release == "joint").items():
        if correlated and name in BOUNDS:
            continue
        for term, expression in one.terms.items():
            needs = tuple(missing(expression, values))
            value = None if needs else number(expression, values)
            rows.append(
                Explained(name, one.source, term, str(expression), value, needs)
            )
    return rows


def symbolic_bounds(groups: int = 1, joint: bool = False) -> dict[str, Bound]:
    """All bounds by name: those of the registered objectives, then those of the literature."""
    own = {name: one.bound(groups, joint) for name, one in all_objectives().items()}
    found = {name: one for name, one in own.items() if one is not None}
    return {**found, **{name: make(groups, joint) for name, make in BOUNDS.items()}}


def explain_records(plan: Plan) -> list[Explained]:
    """Noise variance and weight of a single client of each group, in a plan of records."""
    source = "Malekmohammadi, Yu, Cao (ICML 2024), Section 3; unit record"
    weighting = {
        "inverse_variance": "(1 / sigma_i^2) / sum_j (1 / sigma_j^2)",
        "epsilon": "epsilon_i / sum_j epsilon_j",
        "population": "N_i / sum_j N_j",
        "uniform": "1 / n",
    }[plan.spec.weighting]
    variance = "E_i eta^2 p c^2 z_i^2 / b_i^2"
    rows = []
    for group, value in zip(plan.groups, noise_variances(plan), strict=True):
        term = f"{group.name}: noise variance of an update (Eq. 3, 7)"
        rows.append(Explained(RECORDS, source, term, variance, float(value), ()))
    for group, value in zip(plan.groups, client_weights(plan), strict=True):
        term = f"{group.name}: weight of a client (Eq. 8)"
        rows.append(Explained(RECORDS, source, term, weighting, float(value), ()))
    return rows


def values_of(plan: Plan) -> dict[str, float]:
    """Values of the bounds' symbols in a plan, by name."""
    spec = plan.spec
    clip = spec.clipping_norm
    values = {
        "eta": spec.local.learning_rate,
        "eta_phi": spec.local.learning_rate,
        "tau": float(spec.local.steps),
        "tau_min": float(spec.local.steps),
        "T": float(spec.rounds),
        "d": float(spec.model.parameters),
        "C": clip,
        "N": float(spec.population),
        "R": sum(group.expected_cohort for group in plan.groups),
        "q": sum(group.expected_cohort for group in plan.groups) / spec.population,
        "v": noise_provision(spec),
    }
    for objective in all_objectives().values():
        values |= objective.symbols(spec)
    constants = spec.planning.constants
    if constants is not None:
        values["L"] = constants.smoothness
        values["Delta"] = constants.initial_gap
        values["kappa"] = constants.dissimilarity**0.5
    for m, group in enumerate(plan.groups, start=1):
        values[f"w_{m}"] = group.weight
        values[f"sigma_{m}"] = group.noise_multiplier
        values[f"r_{m}"] = group.expected_cohort
        values[f"k_{m}"] = group.kept_fraction
        values[f"p_{m}"] = group.clients / spec.population
        if constants is not None:
            values[f"zeta_{m}"] = constants.local_variance**0.5
    values["sigma"] = plan.mean_noise_std / clip * values["R"]
    return values


# --- Budgets that a plan leaves unspent, and why. ------------------------------------------------

_SAME = 1.001
MOST_GROUPS = 12  # that are explained one by one
ENOUGH = 0.9  # share of a budget below which a plan says why the rest stays unspent


def unspent_lines(plan: Plan) -> list[str]:
    """One line per group that spends less than 90% of its epsilon, with the reason.

    With fixed noise the epsilon that states a risk is not a budget of its own.
    """
    lines = []
    for group, stated in zip(plan.groups, plan.spec.groups, strict=True):
        if stated.risk is not None and stated.noise_multiplier is not None:
            continue
        rows = [row for row in plan.certificate if row.group == group.name]
        spent = max((row.epsilon_upper for row in rows if row.guarantee), default=0.0)
        if spent < ENOUGH * group.epsilon:
            by = {row.accountant: row.epsilon_upper for row in rows}
            lines.append(
                f"groups.{group.name}.epsilon: {at_most(spent, 4)} of {group.epsilon:.4g} is "
                f"spent, {1 - spent / group.epsilon:.0%} is left: "
                f"{_reason(plan, group, stated.noise_multiplier, by)}"
            )
    more = len(lines) - MOST_GROUPS
    return lines[:MOST_GROUPS] + [f"groups: {more} more leave epsilon, too"] * (
        more > 0
    )


def _reason(
    plan: Plan, group: GroupPlan, fixed: float | None, spent: dict[str, float]
) -> str:
    """Why a group leaves budget; ``spent`` is its epsilon by each accountant."""
    planning, rounds = plan.spec.planning, plan.spec.rounds
    if fixed is not None:
        most = f", and more than {MOST_ROUNDS} rounds are not planned"
        return f"its noise multiplier is fixed at {fixed:g}{most * (rounds == MOST_ROUNDS)}"
    own = spent.get(planning.accountant, 0.0)
    if planning.accountant != "pld" and (own >= ENOUGH * group.epsilon or own == 0):
        tables = ", as the published tables are" * (planning.calibration == "published")
        return (
            f"the noise is calibrated by {planning.accountant}{tables}, whose bound is looser "
            "than pld's; planning.accountant: pld spends it"
        )
    times = plan.law_of(group).law.rounds_of_client(rounds) * group.contributions
    if group.sampling_ratio <= covered_ratio(group.delta, times):
        return (
            f"delta {group.delta:.3g} covers the chance that a client ever takes part, so any "
            "noise keeps the budget, and less than this is not certified"
        )
    if group.noise_multiplier <= _SAME * least_certified(
        plan.law_of(group), plan.spec.relation
    ):
        return f"less noise than {group.noise_multiplier:.4g} is neither certified nor planned"
    share = group.clients / plan.spec.population
    if plan.release == "joint":
        return (
            f"it has a weight of {group.weight:.3g} for {share:.3g} of the clients, and in one sum "
            "of all groups less noise would mean more weight"
        )
    return "no smaller noise multiplier keeps the budget under this sampling law"


# --- Why a plan is as it is, in sentences: who decides, what groups cost, what budgets buy. ------
# Every number comes from plans that are solved with one budget changed, so explaining takes about
# two searches per group.

STEP = 1.1  # factor on a budget for what more of it buys
_BIAS = "groups that count more or less than their share of the clients"
_TERMS = {
    "noise": "privacy noise",
    "privacy_noise": "privacy noise",
    "sampling": "the draw of the clients",
    "bias": _BIAS,
    "leaning": _BIAS,  # its name in plans of version 0.1
    "progress": "too few rounds",
    "dissimilarity": "differences between the clients",
    "local_variance": "the scatter of local gradients",
}


@dataclass(frozen=True)
class BudgetValue:
    """What the budget of a group is worth to the plan; changes are relative."""

    group: str
    objective_gain: float  # fall of the objective when its epsilon is 10% larger
    noise_gain: float  # fall of the noise of the mean update then
    cost: float  # fall of the objective if its epsilon were that of the loosest group
    noise_cost: float  # fall of the noise of the mean update then


def budget_values(plan: Plan, more_by: float | None = None) -> list[BudgetValue]:
    """What each group's budget is worth; empty for plans without an objective or of many groups.

    Groups whose budget is a risk are left out, since their epsilon is not a budget of its own.
    With ``more_by``, gains are those of so much more epsilon instead of 10%, of curves that are
    within 1e-3 of what is calibrated.
    """
    spec = plan.spec
    many = len(spec.groups) > MOST_GROUPS
    if many or spec.unit != "client" or not is_objective(spec.planning.ratios):
        return []
    search = allocate if more_by is None else estimated
    base = _found(spec, search)
    loosest = max(group.epsilon for group in spec.groups)
    values = []
    for m, group in enumerate(spec.groups):
        if group.risk is not None:
            continue
        try:
            step = group.epsilon * STEP if more_by is None else group.epsilon + more_by
            more = _found(_with_epsilon(spec, m, step), search)
            free = base
            if group.epsilon != loosest:
                free = _found(_with_epsilon(spec, m, loosest), search)
        except (
            PrivplanError
        ):  # a larger budget may ask for less noise than can be certified
            continue
        values.append(
            BudgetValue(
                group.name,
                objective_gain=1 - more[0] / base[0],
                noise_gain=1 - more[1] / base[1],
                cost=1 - free[0] / base[0],
                noise_cost=1 - free[1] / base[1],
            )
        )
    return values


def reasons(plan: Plan) -> list[str]:
    """The plan in sentences, most important first."""
    values, lines = budget_values(plan), []
    if not values:
        return unspent_lines(plan)
    total = sum(plan.bound.values())
    named = [
        (value / total, _TERMS[name])
        for name, value in plan.bound.items()
        if name in _TERMS
    ]
    if len(named) > 1:
        parts = [f"{share:.0%} {name}" for share, name in sorted(named, reverse=True)]
        lines.append(f"The expected error of a round's step is {', '.join(parts)}.")
    if len(plan.groups) > 1:
        most = max(values, key=lambda one: one.objective_gain)
        group = plan.group(most.group)
        lines.append(
            f"{most.group} decides: 10% more of its budget would lower the objective by "
            f"{most.objective_gain:.1%}, more than that of any other group; it has "
            f"{group.clients / plan.spec.population:.0%} of the clients and {group.weight:.0%} of "
            "the weight."
        )
        lines += [
            f"{one.group} costs the others: with the budget of the loosest group instead of "
            f"{plan.group(one.group).epsilon:g}, the objective would be {one.cost:.1%} lower and "
            f"the noise {_change(one.noise_cost)}."
            for one in sorted(values, key=lambda value: value.cost, reverse=True)
            if one.cost > 1e-3
        ]
    for one in values:
        step = (STEP - 1) * plan.group(one.group).epsilon
        if one.objective_gain < 1e-4:
            lines.append(
                f"{one.group}: more budget lowers the objective by less than 0.01%."
            )
        else:
            lines.append(
                f"{one.group}: {step:.3g} more epsilon lowers the objective by "
                f"{one.objective_gain:.1%}; the noise "
                f"is then {_change(one.noise_gain)}."
            )
    return [*lines, *unspent_lines(plan)]


def _change(fall: float) -> str:
    return f"{abs(fall):.1%} {'lower' if fall >= 0 else 'higher'}"


def _found(spec: Spec, search: Callable[[Task], Allocation]) -> tuple[float, float]:
    """Objective and noise multiplier of the mean of a spec's plan, before certification."""
    problem = problem_of(spec)
    found = search(task_of(spec, problem))
    value = sum(objective_of(spec).terms(spec, problem, found).values())
    return value, provisioned_noise_multiplier(spec, found)


def _with_epsilon(spec: Spec, index: int, epsilon: float) -> Spec:
    data = spec.model_dump(mode="json")
    data["groups"][index]["epsilon"] = epsilon
    return Spec.parse(data)


# --- What a plan does for each group, beside the plans that one might have made instead. ----------

MOST_COMPARED = 50  # groups of a plan that is compared; no reader looks through more
LOUD = 3.0  # norm of the noise over the clipping norm above which a plan says what would lower it
LOOSE = 20  # an epsilon above it is said to protect hardly
HARDLY = 0.1  # weight over the share of the clients below which they hardly count


@dataclass(frozen=True)
class Alternative:
    """A plan that could have been made: what each group counts, and the noise."""

    name: str
    counts: tuple[float, ...]  # weight over the group's share of the clients
    noise: float  # of the mean update over the clipping norm
    forecast: Forecast | None  # where there are proxy runs


def alternatives(
    plan: Plan, forecast: Callable[[Plan], Plan] | None = None
) -> tuple[Alternative, ...]:
    """Groups that are alike, the plan itself, and everybody at the strictest epsilon and delta.

    Nothing where budgets or weights leave no choice. Without a forecast the noise of the others is
    that of curves, within 1e-3; with one they are plans of their own.

    Example:
        >>> [one.name for one in alternatives(privplan.solve("spec.yaml"))]
        ['groups alike', 'this plan', 'strictest for all']
    """
    spec, budgets = plan.spec, {(one.epsilon, one.delta) for one in plan.groups}
    chosen = spec.unit == "client" and spec.weighting == "optimal"
    if not chosen or len(budgets) == 1 or len(plan.groups) > MOST_COMPARED:
        return ()
    strictest = {
        "epsilon": min(one.epsilon for one in plan.groups),
        "delta": min(one.delta for one in plan.groups),
        "risk": None,
    }
    groups = tuple(one.model_copy(update=strictest) for one in spec.groups)
    alike, even = (
        spec.planning.model_copy(update={"least_share": one}) for one in (0.0, 1.0)
    )
    own = tuple(group.weight * spec.population / group.clients for group in plan.groups)
    found = [Alternative("this plan", own, relative_noise(plan), plan.forecast)]
    for name, change in (
        ("groups alike", {"planning": alike}),
        ("strictest for all", {"groups": groups, "planning": even}),
    ):
        other, expected = spec.model_copy(update=change), None
        if forecast is not None:
            expected = forecast(solve(other, second_opinion=False)).forecast
        problem, allocation = _estimated(other)
        counts = allocation.weights / problem.shares
        noise = _relative(other, allocation)
        found.append(Alternative(name, tuple(counts.tolist()), noise, expected))
    return found[1], found[0], found[2]


def _estimated(spec: Spec) -> tuple[Problem, Allocation]:
    problem = problem_of(spec)
    return problem, estimated(task_of(spec, problem))


def _relative(spec: Spec, found: Allocation) -> float:
    """Norm of the noise of the mean update over the clipping norm, as ``relative_noise``."""
    multiplier = provisioned_noise_multiplier(spec, found)
    return multiplier * math.sqrt(spec.model.parameters) * spec.noise_left


def attention_lines(plan: Plan) -> list[str]:
    """Where noise drowns the signal, with what would lower it, and clients that hardly count."""
    spec, loose = plan.spec, [one.name for one in plan.groups if one.epsilon > LOOSE]
    means = f"an epsilon above {LOOSE} lets a guess's odds rise by e^{LOOSE}: hardly a protection"
    lines = [f"{', '.join(loose)}: {means}"] * bool(loose)
    if spec.unit != "client":
        return lines
    chosen = is_objective(spec.planning.ratios)
    stated = [name for name in DECIDED if getattr(spec, name) is not None]
    if (
        spec.recipe is None
        and chosen
        and spec.planning.clipping is None
        and 0 < len(stated) < 3
    ):
        lines.append(f"no recipe, since {' and '.join(stated)} {'are' if stated[1:] else 'is'} "
                     "stated; recipe: default decides the rest, none ends this line")  # fmt: skip
    least = (
        LEAST_SHARE if spec.planning.least_share is None else spec.planning.least_share
    )
    limited = chosen and any(one.min_weight for one in spec.groups)
    count = max(HARDLY, 0.99 * least) if limited else HARDLY
    few = [
        one for one in plan.groups if one.weight < count * one.clients / spec.population
    ]
    if few:
        share = sum(one.clients for one in few) / spec.population
        lines.append(
            f"{', '.join(one.name for one in few)}: {share:.1%} of the clients have "
            f"{sum(one.weight for one in few):.2%} of the weight"
            + f"; planning.least_share {least:g} comes after min_weight" * limited
            + "; planning.least_share gives them more" * (chosen and not limited)
        )
    if (noise := relative_noise(plan)) > LOUD:
        louder = f"noise is {noise:.3g} times the clipping norm, the most that updates can agree on"
        remedies = _remedies(spec) if chosen else []
        lines.append(louder + f": {', '.join(remedies)}" * bool(remedies))
    return lines


def _remedies(spec: Spec) -> list[str]:
    """The three changes after which the noise is least, with that noise."""
    doubled = tuple(
        one.model_copy(update={"clients": 2 * one.clients}) for one in spec.groups
    )
    looser = tuple(
        one.model_copy(update={"epsilon": 2 * one.epsilon}) for one in spec.groups
    )
    smaller = spec.model.model_copy(
        update={"parameters": max(spec.model.parameters // 4, 1)}
    )
    least = min(one.epsilon for one in spec.groups)
    changes: dict[str, dict[str, Any]] = {
        "twice the clients per round": {"cohort": 2 * spec.expected_cohort},
        "twice the clients in each group": {"groups": doubled},
        "twice each epsilon": {"groups": looser},
        "a model of a quarter of the parameters": {"model": smaller},
        "planning.least_share 0": {
            "planning": spec.planning.model_copy(update={"least_share": 0})
        },
    }
    if rest := tuple(one for one in spec.groups if one.epsilon > least):
        changes[f"no group of epsilon {least:g}"] = {"groups": rest}
    found = []
    for name, change in changes.items():
        other = spec.model_copy(update=change)
        if other.expected_cohort <= other.population:
            with suppress(PrivplanError):
                found.append((_relative(other, _estimated(other)[1]), name))
    return [f"{noise:.3g} with {name}" for noise, name in sorted(found)[:3]]


# --- What attackers may achieve under a plan, and budgets that are stated as such a risk. --------
# All risks are upper bounds from the trade-off curve of the composed history of a group, which is
# what the certificate composes: membership advantage, true positives at a false-positive rate, and
# the chance to reconstruct data that could be guessed with a baseline chance before, which is the
# true-positive rate at that chance.

_SLACK = 3e-3  # relative slack of a risk below which its budget is not stated anew
STATEMENTS = (
    4  # how often budgets are stated anew, at most; every statement implies the risks
)


@dataclass(frozen=True)
class GroupRisk:
    """Upper bounds on attacks on a group's clients (or their records)."""

    group: str
    asked: (
        str | None
    )  # the risk of the spec in words; None where the budget is an epsilon
    curve: TradeOff  # advantage, mu and true-positive rates at ``LEVELS``


def risks_of(
    plan: Plan, spent: Mapping[str, tuple[History, float]] | None = None
) -> list[GroupRisk]:
    """Upper bounds on what attackers achieve, one entry per group.

    From the plan, or from the releases of a run and the epsilon of each group that they ``spent``.
    """
    found = []
    for group, asked in zip(plan.groups, plan.spec.groups, strict=True):
        upper = (row.epsilon_upper for row in plan.certificate
                 if row.guarantee and row.group == group.name)  # fmt: skip
        history, epsilon = (
            spent[group.name] if spent else (plan.history(group), max(upper))
        )
        profile = profile_of(history, plan.spec.relation)
        words = None if asked.risk is None else str(asked.risk)
        found.append(
            GroupRisk(group.name, words, tradeoff(profile, group.delta, epsilon))
        )
    return found


def restated(plan: Plan) -> Spec | None:
    """The plan's spec with weaker budgets that imply the same risks, by the plan's own curves.

    The budget of a risk is the tangent of a Gaussian curve; where the plan's curve is another one,
    its own tangent allows less noise. None when every risk is used up.
    """
    changed = False
    groups = []
    for group, asked in zip(plan.groups, plan.spec.groups, strict=True):
        data = asked.model_dump(mode="json")
        groups.append(data)
        if asked.risk is None:
            continue
        point = asked.risk.point
        try:
            profile = profile_of(plan.history(group), plan.spec.relation)
        except UnsupportedError:
            continue
        found, (epsilon, delta) = tightest_budget(point, profile)
        if found < limit_of(point) * (1 - _SLACK) and 0 < delta < 1:
            changed |= abs(epsilon / group.epsilon - 1) > _SLACK
            data |= {"epsilon": epsilon, "delta": delta}
    if not changed:
        return None
    return Spec.parse({**plan.spec.model_dump(mode="json"), "groups": groups})


def of_risk(error: InfeasibleError, spec: Spec) -> InfeasibleError:
    """The error, naming the risk of the spec where it names an epsilon that states a risk."""
    text = str(error)
    for group in spec.groups:
        where = f"groups.{group.name}.epsilon: "
        if group.risk is not None and text.startswith(where):
            given = group.risk.model_dump(exclude_none=True).items()
            words = ", ".join(f"{name} {value!r}" for name, value in given)
            return InfeasibleError(
                f"groups.{group.name}.risk: {words} cannot be met, which as a budget is epsilon "
                f"{group.epsilon:g} at delta {spec.delta_of(group):.3g}: {text.removeprefix(where)}"
            )
    return error
