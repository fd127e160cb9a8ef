"""Every term of the convergence bounds and objectives of a plan, as a formula and a number."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.calibrate import MOST_ROUNDS, least_certified
from privplan.accounting.release import Relation
from privplan.accounting.tradeoff import (
    LEVELS,
    TradeOff,
    limit_of,
    profile_of,
    tightest_budget,
    tradeoff,
)
from privplan.errors import (
    InfeasibleError,
    InputError,
    PrivplanError,
    TooLittleNoiseError,
    UnsupportedError,
)
from privplan.plan import GroupPlan, Plan
from privplan.planning.bounds import BOUNDS, Bound, missing, number
from privplan.planning.choices import task_of
from privplan.planning.noise import CHEAPER, GUARANTEE, cheaper, covered_ratio, history_of
from privplan.planning.objectives import all_objectives, objective_of
from privplan.planning.problem import noise_provision, problem_of, provisioned_noise_multiplier
from privplan.planning.records import client_weights, noise_variances
from privplan.planning.search import NEGLIGIBLE, allocate
from privplan.spec.objectives import is_objective
from privplan.spec.spec import Spec

__all__ = ["LEVELS", "STATEMENTS", "GroupRisk", "of_risk", "restated", "risk_rows", "risks_of"]
RECORDS = "robust_hdp"
"""Name of the rows of plans that protect records, which have no bound."""


@dataclass(frozen=True)
class Explained:
    """One term of a bound.

    Attributes:
        bound: name of the bound.
        source: paper and theorem.
        term: name of the error term.
        formula: the expression, groups counted from 1.
        value: its number for the plan, or None.
        needs: constants that have no value, when there is no number.
    """

    bound: str
    source: str
    term: str
    formula: str
    value: float | None
    needs: tuple[str, ...]


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
            rows.append(Explained(name, one.source, term, str(expression), value, needs))
    return rows


def symbolic_bounds(groups: int = 1, joint: bool = False) -> dict[str, Bound]:
    """All bounds by name: those of the registered objectives, then those of the literature."""
    own = {name: one.bound(groups, joint) for name, one in all_objectives().items()}
    found = {name: one for name, one in own.items() if one is not None}
    return {**found, **{name: make(groups, joint) for name, make in BOUNDS.items()}}


def bound(name: str, groups: int = 1, joint: bool = False) -> Bound:
    """The bound of a name; see ``symbolic_bounds``."""
    bounds = symbolic_bounds(groups, joint)
    if name not in bounds:
        raise InputError.one("bound", f"must be one of {', '.join(bounds)}", name)
    return bounds[name]


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
    values["sigma"] = plan.noise_std / clip * values["R"]
    return values


# --- Budgets that a plan leaves unspent, and why. ------------------------------------------------

_SAME = 1.001
_AT_FLOOR = 1e-3
"""Relative distance of a weight from its least value that rounding of noise may leave."""
ENOUGH = 0.9
"""Share of a budget below which a plan says why the rest stays unspent."""


def unspent_lines(plan: Plan) -> list[str]:
    """One line per group that spends less than 90% of its epsilon, with the reason.

    With fixed noise the epsilon that states a risk is not a budget of its own.
    """
    lines = []
    for group, asked in zip(plan.groups, plan.spec.groups, strict=True):
        if asked.risk is not None and asked.noise_multiplier is not None:
            continue
        spent = _certified(plan, group.name, guarantee=True)
        if spent < ENOUGH * group.epsilon:
            lines.append(
                f"groups.{group.name}.epsilon: {spent:.4g} of {group.epsilon:.4g} is spent, "
                f"{1 - spent / group.epsilon:.0%} is left: {_reason(plan, group)}"
            )
    return lines


def _reason(plan: Plan, group: GroupPlan) -> str:
    planning, asked, rounds = plan.spec.planning, _asked(plan, group.name), plan.spec.rounds
    if asked is not None:
        most = f", and more than {MOST_ROUNDS} rounds are not planned"
        return f"its noise multiplier is fixed at {asked:g}{most * (rounds == MOST_ROUNDS)}"
    if planning.accountant != "pld":
        own = _certified(plan, group.name, guarantee=False, accountant=planning.accountant)
        as_published = planning.calibration == "published"
        tables = ", as the published tables are" if as_published else ""
        if own >= ENOUGH * group.epsilon or own == 0:
            return (
                f"the noise is calibrated by {planning.accountant}{tables}, whose bound is looser "
                "than pld's; planning.accountant: pld spends it"
            )
    less = _with_less(plan, group)
    if less > group.epsilon:
        if group.sampling_ratio <= covered_ratio(
            group.delta, plan.spec.sampling.law.rounds_of_client(rounds)
        ):
            return (
                f"delta {group.delta:.3g} covers the chance that a client ever takes part, so any "
                "noise keeps the budget, and less than this is not certified"
            )
        if _at_least(plan, group) or math.isinf(less):
            return f"less noise than {group.noise_multiplier:.4g} cannot be certified"
        return "no smaller noise multiplier keeps the budget at its sampling ratio"
    if _at_least(plan, group):
        return f"less noise than {group.noise_multiplier:.4g} is not planned"
    share = group.clients / plan.spec.population
    if (
        cheaper(planning.accountant, group.delta) != planning.accountant
        and group.weight < NEGLIGIBLE * share
        and _certified(plan, group.name, guarantee=False, accountant=CHEAPER)
        >= ENOUGH * group.epsilon
    ):
        return (
            f"its weight of {group.weight:.3g} is negligible, so its noise is calibrated by "
            f"{CHEAPER}, which is faster than {GUARANTEE} and looser"
        )
    if plan.release == "joint" and group.scale * group.noise_multiplier > 0:
        if "weights" not in planning.free or plan.spec.weighting != "optimal":
            return (
                f"planning.weights: {plan.spec.weighting} gives it a weight of {group.weight:.3g}, "
                "and in one sum of all groups less noise means more weight"
            )
        floors = _floors_of_others(plan, group.name)
        if floors and (group.weight <= share or not plan.bound.get("bias")):
            leave = "leaves" if len(floors) == 1 else "leave"
            return (
                f"{' and '.join(floors)} {leave} it a weight of {group.weight:.3g} for {share:.3g} "
                "of the clients, and in one sum of all groups less noise would mean more weight"
            )
        if group.weight < share * (1 - _AT_FLOOR):
            return (
                f"the search for ratios and weights ended at a weight of {group.weight:.3g} for "
                f"{share:.3g} of the clients, where less noise would keep the budget"
            )
        return (
            f"it has a weight of {group.weight:.3g} for {share:.3g} of the clients, and in one sum "
            "of all groups less noise would mean more weight, which costs more by bias "
            "(planning.heterogeneity) than it gains by noise"
        )
    return "no smaller noise multiplier keeps the budget under this sampling law"


def _at_least(plan: Plan, group: GroupPlan) -> bool:
    """Whether a group has the least noise multiplier that is planned."""
    least = least_certified(plan.spec.sampling, Relation(plan.spec.relation))
    return group.noise_multiplier <= _SAME * least


def _floors_of_others(plan: Plan, name: str) -> list[str]:
    """The least weights of other groups that are not exceeded, as fields with their values."""
    return [
        f"groups.{asked.name}.min_weight: {asked.min_weight:g}"
        for asked, group in zip(plan.spec.groups, plan.groups, strict=True)
        if asked.name != name
        and asked.min_weight
        and group.weight <= asked.min_weight * (1 + _AT_FLOOR)
    ]


def _with_less(plan: Plan, group: GroupPlan) -> float:
    """Certified epsilon with slightly less noise; inf where there is none, 0 where not asked.

    Epsilon falls by steps where delta covers almost all of the loss, as for rare participation.
    """
    if plan.spec.unit != "client" or group.segments:
        return 0.0
    problem = problem_of(plan.spec)
    less = history_of(problem, group.sampling_ratio, group.noise_multiplier / _SAME)
    try:
        return by_name(GUARANTEE).epsilon(less, group.delta, problem.relation).upper
    except TooLittleNoiseError:
        return math.inf


def _asked(plan: Plan, name: str) -> float | None:
    """The group's fixed noise multiplier in the spec."""
    for group in plan.spec.groups:
        if group.name == name:
            return group.noise_multiplier
    return None


def _certified(plan: Plan, name: str, *, guarantee: bool, accountant: str | None = None) -> float:
    """Largest upper bound among the group's rows; 0 without rows."""
    found = [
        row.epsilon_upper
        for row in plan.certificate
        if row.group == name and (row.guarantee if guarantee else row.accountant == accountant)
    ]
    return max(found, default=0.0)


# --- Why a plan is as it is, in sentences: who decides, what groups cost, what budgets buy. ------
#
# Every number comes from plans that are solved with one budget changed, so explaining takes about
# two searches per group.

STEP = 1.1
"""Factor on a budget for what more of it buys."""
MOST_GROUPS = 12
"""Largest number of groups whose budgets are varied; beyond it explaining takes too long."""
_LOOSE = 0.01
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
    """What the budget of a group is worth to the plan; changes are relative.

    Attributes:
        group: its name.
        objective_gain: fall of the objective when its epsilon is 10% larger.
        noise_gain: fall of the noise of the mean update then.
        cost: fall of the objective if its epsilon were that of the loosest group.
        noise_cost: fall of the noise of the mean update then.
    """

    group: str
    objective_gain: float
    noise_gain: float
    cost: float
    noise_cost: float


def budget_values(plan: Plan) -> list[BudgetValue]:
    """What each group's budget is worth; empty for plans without an objective or of many groups.

    Groups whose budget is a risk are left out, since their epsilon is not a budget of its own.
    """
    spec = plan.spec
    if spec.unit != "client" or not is_objective(spec.planning.ratios):
        return []
    if len(spec.groups) > MOST_GROUPS:
        return []
    base = _found(spec)
    loosest = max(group.epsilon for group in spec.groups)
    values = []
    for m, group in enumerate(spec.groups):
        if group.risk is not None:
            continue
        try:
            more = _found(_with_epsilon(spec, m, group.epsilon * STEP))
            free = base if group.epsilon == loosest else _found(_with_epsilon(spec, m, loosest))
        except PrivplanError:  # a larger budget may ask for less noise than can be certified
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
    lines = []
    values = budget_values(plan)
    if values:
        lines += [*_terms(plan), *_who_decides(plan, values), *_worth(plan, values)]
    return [*lines, *_bound(plan), *unspent_lines(plan)]


def _found(spec: Spec) -> tuple[float, float]:
    """Objective and noise multiplier of the mean of a spec's plan, before certification."""
    problem = problem_of(spec)
    found = allocate(task_of(spec, problem))
    value = sum(objective_of(spec).terms(spec, problem, found).values())
    return value, provisioned_noise_multiplier(spec, found)


def _with_epsilon(spec: Spec, index: int, epsilon: float) -> Spec:
    data = spec.model_dump(mode="json")
    data["groups"][index]["epsilon"] = epsilon
    return Spec.parse(data)


def _terms(plan: Plan) -> list[str]:
    total = sum(plan.bound.values())
    named = [(value / total, _TERMS[name]) for name, value in plan.bound.items() if name in _TERMS]
    if len(named) < 2 or total <= 0:
        return []
    parts = [f"{share:.0%} {name}" for share, name in sorted(named, reverse=True)]
    return [f"The expected error of a round's step is {', '.join(parts)}."]


def _who_decides(plan: Plan, values: list[BudgetValue]) -> list[str]:
    if len(plan.groups) == 1:
        return []
    most = max(values, key=lambda one: one.objective_gain)
    group = plan.group(most.group)
    share = group.clients / plan.spec.population
    lines = [
        f"{most.group} decides: 10% more of its budget would lower the objective by "
        f"{most.objective_gain:.1%}, more than that of any other group; it has {share:.0%} of the "
        f"clients and {group.weight:.0%} of the weight."
    ]
    for one in sorted(values, key=lambda value: value.cost, reverse=True):
        if one.cost > 1e-3:
            lines.append(
                f"{one.group} costs the others: with the budget of the loosest group instead of "
                f"{plan.group(one.group).epsilon:g}, the objective would be {one.cost:.1%} lower"
                f" and the noise {_change(one.noise_cost)}."
            )
    return lines


def _worth(plan: Plan, values: list[BudgetValue]) -> list[str]:
    lines = []
    for one in values:
        step = (STEP - 1) * plan.group(one.group).epsilon
        if one.objective_gain < 1e-4:
            lines.append(f"{one.group}: more budget buys nothing; it does not spend what it has.")
            continue
        lines.append(
            f"{one.group}: {step:.3g} more epsilon lowers the objective by "
            f"{one.objective_gain:.1%} ({one.objective_gain / step:.1%} per unit); the noise is "
            f"then {_change(one.noise_gain)}."
        )
    return lines


def _change(fall: float) -> str:
    return f"{abs(fall):.1%} {'lower' if fall >= 0 else 'higher'}"


def _bound(plan: Plan) -> list[str]:
    """What the distance from the dual bound means, where it is not small."""
    found = re.search(r"within (\S+) of the dual bound", plan.status)
    gap = float(found.group(1)) if found else 0.0
    if not math.isfinite(gap) or gap <= _LOOSE:
        return []
    why = (
        "the bound lets every group choose its cohort at one price, which is below what any plan "
        "reaches where doubling a small cohort more than doubles its precision"
    )
    return [
        f"No plan within these limits can have an objective more than {gap:.0%} lower. That is how "
        f"far the proof goes, not what is known to be lost: {why}."
    ]


# --- What attackers may achieve under a plan, and budgets that are stated as such a risk. --------
#
# All risks are upper bounds from the trade-off curve of the composed history of a group, which is
# what the certificate composes: membership advantage, true positives at a false-positive rate, and
# the chance to reconstruct data that could be guessed with a baseline chance before.

_SLACK = 3e-3
"""Relative slack of a risk below which its budget is not stated anew."""
STATEMENTS = 4
"""How often budgets are stated anew, at most; every statement implies the risks."""


@dataclass(frozen=True)
class GroupRisk:
    """Upper bounds on attacks on a group's clients (or their records).

    Attributes:
        group: its name.
        asked: the risk of the spec in words; None where the budget is an epsilon.
        curve: advantage, mu and true-positive rates at ``LEVELS``; a true-positive rate is also
            the chance to reconstruct what could be guessed with that chance before.
    """

    group: str
    asked: str | None
    curve: TradeOff


def risks_of(plan: Plan) -> list[GroupRisk]:
    """Upper bounds on what attackers achieve, one entry per group."""
    found = []
    for group, asked in zip(plan.groups, plan.spec.groups, strict=True):
        profile = profile_of(plan.history(group), plan.spec.relation)
        epsilon = max(
            row.epsilon_upper
            for row in plan.certificate
            if row.guarantee and row.group == group.name
        )
        words = None if asked.risk is None else str(asked.risk)
        found.append(GroupRisk(group.name, words, tradeoff(profile, group.delta, epsilon)))
    return found


def risk_rows(risks: list[GroupRisk]) -> list[dict[str, object]]:
    """The risks as plain data, one mapping per group."""
    return [
        {"group": one.group, **({"asked": one.asked} if one.asked else {}), **one.curve.to_dict()}
        for one in risks
    ]


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
