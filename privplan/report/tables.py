"""Tables and text lines of a plan: groups, certificate, risks and other plans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from privplan.accounting.accountant import at_most
from privplan.accounting.calibrate import PLD
from privplan.accounting.certificate import NO_BOUND_HERE, CertificateRow
from privplan.accounting.release import named_law, with_article
from privplan.accounting.tradeoff import LEVELS
from privplan.plan import ComparedLaw, GroupPlan, Plan, book_lines
from privplan.planning.objectives import objective_of
from privplan.planning.recipe import recipe_lines, relative_noise
from privplan.proven import cell as proven_cell
from privplan.report.numbers import rate, six
from privplan.report.table import Cell, Table, table_of
from privplan.spec.planning import FIXED_RATIOS

if TYPE_CHECKING:
    from privplan.planning.alternatives import Alternative
    from privplan.planning.risks import GroupRisk
    from privplan.report.table import Findings

_UNIT_OF_PUBLISHED = "bound (Theorem 3's movable terms, in units of L d C^2)"
_UNIT_OF_RECORDS = (
    "noise variance of the mean update over p eta^2, and the least by weights"
)
_MOST_GROUPS = 12  # that are explained by a sentence each
THIS_PLAN = "this plan"  # the name of a plan among its alternatives


def upper_bounds(plan: Plan) -> dict[str, float]:
    """The guaranteed epsilon of each group of a plan, by name."""
    return {row.group: row.epsilon_upper for row in plan.certificate if row.guarantee}


def answer(
    plan: Plan, alternatives: Sequence[Alternative] = ()
) -> tuple[list[str], Table]:
    """A plan in a screen: what each group spends and counts.

    Args:
        plan: what was solved.
        alternatives: plans with whose noise that of the plan is compared.

    Returns:
        One or two sentences, and a table of 80 columns.
    """
    lines = [_nearest_line(plan)]
    if plan.unit == "client":
        lines.append(_noise_line(plan, alternatives))
    upper = upper_bounds(plan)
    deltas = sorted({f"{group.delta:.3g}" for group in plan.groups})
    cells: dict[str, Cell] = {"group": "name"}
    if plan.unit == "client":
        cells["clients"] = lambda group: f"{group.clients:,}"
    else:
        cells[f"{plan.unit}s"] = lambda group: f"{group.records:,}"
    cells["budget"] = lambda group: f"{group.epsilon:g}"
    cells["at most"] = lambda group: at_most(upper[group.name])
    if len(deltas) > 1:
        cells["delta"] = lambda group: f"{group.delta:.3g}"
    if plan.unit == "client":
        # Under random allocation a client is in one round of several.
        cells["ratio"] = lambda group: f"{group.expected_cohort / group.clients:.2%}"
        caps = {group: _cap(plan, group) for group in plan.groups}
        if any(caps.values()):
            cells["cap"] = lambda group: f"{caps[group]:,}" if caps[group] else "-"
    cells["multiplier"] = lambda group: f"{group.noise_multiplier:.4g}"
    cells["counts"] = lambda group: (
        f"{group.weight * plan.spec.population / group.clients:.0%}"
    )
    delta = f" {deltas[0]}" if len(deltas) == 1 else ""
    caption = (
        f"epsilon at delta{delta}, {plan.spec.laws} sampling, by {plan.guarantee}; "
        f"{plan.identity}; multiplier: of the noise; counts: weight over the share of "
        "the clients"
    )
    if "cap" in cells:
        caption += "; cap: largest cohort"
    title = f"Plan {plan.spec.name}, {plan.spec.rounds} rounds"
    return lines, table_of(title, plan.groups, cells, caption)


def _cap(plan: Plan, group: GroupPlan) -> int | None:
    """The largest cohort of a group, where its law has one."""
    return plan.law_of(group).law.cap(group.clients, group.sampling_ratio)


def _nearest_line(plan: Plan) -> str:
    """Whether all budgets hold, and which group is nearest to its own."""
    upper = upper_bounds(plan)
    nearest = max(plan.groups, key=lambda group: upper[group.name] / group.epsilon)
    spent = (
        f"epsilon at most {at_most(upper[nearest.name])} of {at_most(nearest.epsilon)}"
    )
    whom = with_article(plan.whom(nearest))
    if any(upper[group.name] > group.epsilon for group in plan.groups):
        return f"a budget does not hold: {whom} of {nearest.name} spends {spent}"
    return (
        f"every budget holds; nearest to its own is {whom} of {nearest.name}: {spent}"
    )


def _noise_line(plan: Plan, alternatives: Sequence[Alternative]) -> str:
    """The noise of a plan and of others, with what their strictest group counts."""
    epsilons = [group.epsilon for group in plan.groups]
    strictest = epsilons.index(min(epsilons))
    name = plan.groups[strictest].name
    compared = [
        f"{plan_.name} {plan_.noise:.4g}, with {name} counting "
        f"{plan_.counts[strictest]:.0%}"
        for plan_ in alternatives
        if plan_.name != THIS_PLAN
    ]
    comparison = f" ({'; '.join(compared)})" if compared else ""
    what = "of a round's mean update"
    rounds = len(plan.spec.mixture)
    if rounds > 1:
        what = (
            f"correlated over {rounds} rounds, in the last model as much as independent"
        )
    noise = relative_noise(plan)
    over_all = noise / math.sqrt(plan.spec.rounds)
    return (
        f"noise {what}: {noise:.4g} clipping norms, over all {plan.spec.rounds} rounds "
        f"{over_all:.2g} of what all clients can agree on{comparison}"
    )


def promise_line(plan: Plan) -> str:
    """What a plan promises, that nothing ran, and what to do, one line."""
    promises = ", ".join(
        f"{row.group} at most {at_most(row.epsilon_upper)} at delta {row.delta:.3g}"
        for row in plan.certificate
        if row.guarantee
    )
    return (
        f"unverified: nothing ran; plan {plan.spec.name} promises epsilon {promises}; "
        f"{plan.spec.laws} sampling, by {plan.guarantee}; {plan.identity}; next: "
        f"privplan simulate PLAN --algorithm planned{plan.spec.model.options} -o run; "
        "privplan verify run"
    )


def plan_table(plan: Plan) -> Table:
    """Parameters of each group."""
    spec = plan.spec
    is_of_records = plan.unit == "record"
    cells: dict[str, Cell] = {
        "group": "name",
        "clients": lambda group: f"{group.clients:,}",
    }
    if is_of_records:
        cells["records"] = lambda group: f"{group.records:,}"
    cells["epsilon"] = lambda group: f"{group.epsilon:g}"
    cells["delta"] = lambda group: f"{group.delta:.3g}"
    if is_of_records:
        cells["q"] = lambda group: f"{group.record_sampling_ratio:.4%}"
        cells["steps"] = lambda group: f"{group.releases:,}"
    else:
        cells["q"] = lambda group: f"{group.sampling_ratio:.4%}"
        cells["cohort"] = lambda group: f"{group.expected_cohort:.4g}"
    cells["sigma"] = lambda group: f"{group.noise_multiplier:.5g}"
    if not is_of_records:
        cells["sent"] = lambda group: f"{group.kept_fraction:.4g}"
        cells["N mu"] = lambda group: f"{group.audibility:.3g}"
    cells["weight"] = lambda group: f"{group.weight:.4f}"
    if not is_of_records and plan.release == "joint":
        cells["scale"] = lambda group: f"{group.scale:.4f}"
    if any(group.clipping_norm is not None for group in plan.groups):
        cells["clip"] = lambda group: f"{plan.clip_bound(group):.4f}"
    if any(group.segments is not None for group in plan.groups):
        cells["rounds x q"] = lambda group: ", ".join(
            f"{segment.rounds} x {segment.sampling_ratio:.4%}"
            for segment in group.segments or ()
        )

    several_runs = ""
    if plan.guarantee != PLD:
        several_runs = f" for one run, budgets by {plan.guarantee} for the best"
    of_clients = (
        "sent: part of the model's parameters; N mu: how well the group is heard as a "
        "whole at any weight; scale: factor on updates in the sum; "
    )
    if is_of_records:
        of_clients = ""
    sums = "a noisy sum per group"
    if plan.release == "joint":
        sums = "one noisy sum of all groups"
    caption = (
        f"budgets: epsilon at delta, {named_law(spec.laws, plan.unit)} sampling; "
        f"{plan.identity}; q: sampling ratio; sigma: noise multiplier, by "
        f"{spec.planning.accountant}{several_runs}; {of_clients}weight: in the model's "
        f"step; {spec.rounds} rounds, clipping norm {spec.clipping_norm:g}, {sums} a round"
    )
    return table_of(f"Plan {spec.name}", plan.groups, cells, caption)


def _about(row: CertificateRow) -> str:
    """Said before the epsilon of a row that is no bound."""
    if row.kind.startswith("approximation"):
        return "about "
    return ""


def _at_least(row: CertificateRow) -> str:
    """The lower bound of a row, where it has one."""
    if _about(row) or not row.epsilon_lower:
        return "-"
    return six(row.epsilon_lower, False)


def _at_most(row: CertificateRow) -> str:
    """The upper bound of a row, or what stands there in its place."""
    shown = f"{_about(row)}{six(row.epsilon_upper)}"
    if row.kind == NO_BOUND_HERE:
        return f"{shown} (no bound)"
    return shown


def _role(row: CertificateRow) -> str:
    """What a row is for; that it bounds nothing stands beside its number."""
    if row.guarantee:
        return "guarantee"
    return "published formula" if row.kind == NO_BOUND_HERE else row.kind


def certificate_table(
    rows: Sequence[CertificateRow], identity: str = "", findings: Findings | None = None
) -> Table:
    """Bounds on epsilon by every accountant, one row per group and accountant.

    Args:
        rows: of the certificate.
        identity: of the plan, for the caption.
        findings: of proofs, by group; they stand in a column of their own.
    """
    cells: dict[str, Cell] = {
        "group": "group",
        "accountant": "accountant",
        "at least": _at_least,
        "at most": _at_most,
        "delta": lambda row: f"{row.delta:.3g}",
        "law": "law",
        "relation": "relation",
        "role": _role,
    }
    if findings:
        proofs = findings
        cells["proven"] = lambda row: (
            proven_cell(proofs[row.group]) if row.guarantee else "-"
        )
    versions = ", ".join(sorted({row.version for row in rows}))
    caption = f"{identity}; {versions}" if identity else versions
    return table_of("Certificate: epsilon over all rounds", rows, cells, caption)


def risk_table(risks: Sequence[GroupRisk], plan: Plan) -> Table:
    """Upper bounds on every attack on one unit's data under a plan, by group."""
    cells: dict[str, Cell] = {"group": "group"}
    if any(risk.stated_risk is not None for risk in risks):
        cells["asked"] = lambda risk: risk.stated_risk or "-"
    cells["advantage"] = lambda risk: rate(risk.curve.advantage)
    for index, level in enumerate(LEVELS):
        cells[f"TPR at FPR {level:g}"] = partial(_true_positives, index)
    cells["mu down to delta"] = lambda risk: (
        "-" if math.isinf(risk.curve.mu) else f"{risk.curve.mu:.4g}"
    )
    caption = (
        f"{plan.identity}; upper bounds by pld; TPR at FPR x is also the chance to "
        "reconstruct what was guessed with chance x before; mu is read at points of the "
        "curve and no guarantee between them"
    )
    return table_of("Risks: no attack exceeds", risks, cells, caption)


def _true_positives(index: int, risk: GroupRisk) -> str:
    """The rate of true positives at one of ``LEVELS``."""
    return rate(risk.curve.true_positives[index])


def alternatives_table(alternatives: Sequence[Alternative], plan: Plan) -> Table:
    """What each group counts, the noise, and forecasts, under plans side by side."""
    rows = []
    for index, group in enumerate(plan.groups):
        cells = [group.name]
        for alternative in alternatives:
            cell = f"{alternative.counts[index]:.0%}"
            if alternative.forecast is not None:
                expected = alternative.forecast.groups[index]
                cell += (
                    f", accuracy {expected.accuracy:.1%} "
                    f"[{expected.lower:.1%}, {expected.upper:.1%}]"
                )
            cells.append(cell)
        rows.append(cells)
    noise = [f"{alternative.noise:.4g}" for alternative in alternatives]
    rows.append(["noise of the mean", *noise])
    epsilon = min(group.epsilon for group in plan.groups)
    delta = min(group.delta for group in plan.groups)
    caption = (
        "what a group's clients count, in percent of their number; noise in norm over "
        "the clipping norm; groups alike: planning.least_share 0; strictest for all: "
        f"epsilon {epsilon:g} at delta {delta:.3g}, {plan.spec.laws} sampling, "
        f"{plan.spec.relation}, by {plan.spec.planning.accountant}"
    )
    columns = ["group", *(alternative.name for alternative in alternatives)]
    return Table("Who counts how much, beside other plans", columns, rows, caption)


def laws_table(laws: Sequence[ComparedLaw]) -> Table:
    """The sampling laws of which a planner chose the one of least noise."""
    planned = [law for law in laws if law.noise is not None]
    planned.sort(key=lambda law: law.noise or 0.0)
    lowest_noise = planned[0].noise
    cells: dict[str, Cell] = {
        "sampling": "sampling",
        "noise": lambda law: "-" if law.noise is None else f"{law.noise:.4g}",
        "over the least": lambda law: (
            law.reason or f"{law.noise / lowest_noise - 1:+.1%}"
        ),
    }
    rows = [*planned, *(law for law in laws if law.noise is None)]
    caption = (
        "noise: of the last model, as much as independent noise of a round's mean "
        "update, in norm over the clipping norm; within 0.5% but for the chosen law's"
    )
    return table_of("Laws that the plan was chosen from", rows, cells, caption)


def explanation(plan: Plan) -> list[str]:
    """A plan in sentences: what it gives whom, what that costs, what was decided."""
    from privplan.forecast.target import forecast_lines
    from privplan.planning.floors import floor_lines
    from privplan.planning.reasons import reasons
    from privplan.report.protection import promise_to, right_guesses, risks_where_known

    several = "plan with unit: client"
    if plan.unit == "client":
        several = "make one client of a person"
    persons = [
        f", in {group.name} each {plan.whom(group)} with up to {group.contributions} "
        f"{plan.unit}s"
        for group in plan.groups
        if group.contributions > 1
    ]
    upper = upper_bounds(plan)
    right = {risk.group: right_guesses(risk) for risk in risks_where_known(plan)}
    lines = [
        promise_to(plan, group, upper[group.name], right.get(group.name))
        for group in plan.groups[:_MOST_GROUPS]
    ]
    if len(plan.groups) > _MOST_GROUPS:
        further_groups = len(plan.groups) - _MOST_GROUPS
        lines.append(f"{further_groups} more groups stand in the table of risks")
    law = named_law(plan.spec.laws, plan.unit)
    lines += [
        f"epsilon is an upper bound by {plan.guarantee}, for {law} sampling; "
        f"{plan.identity}",
        f"protected: each {plan.whom()}{''.join(persons)}; for k {plan.unit}s of one "
        "person only k epsilon holds, at a larger delta (state a group's contributions, "
        f"or {several})",
    ]
    if plan.guarantee == PLD:  # the reasons are of a single run
        lines += [*reasons(plan), *floor_lines(plan)]
    lines += [line for line in plan.warnings if line.startswith("planning.free: ")]
    lines += recipe_lines(plan)
    if plan.forecast is not None:
        lines += forecast_lines(plan)
    return [*lines, *book_lines(plan.book)]


def plan_lines(plan: Plan) -> list[str]:
    """Objective, bound, status and recipe, one line each."""
    norm = plan.mean_noise_std * math.sqrt(plan.spec.model.parameters)
    terms = ", ".join(f"{name} {value:.6g}" for name, value in plan.bound.items())
    objective = plan.objective.name
    is_published = objective in FIXED_RATIOS or objective != plan.spec.planning.ratios
    if plan.unit == "record":
        unit = _UNIT_OF_RECORDS
    elif is_published:
        unit = _UNIT_OF_PUBLISHED
    else:
        unit = objective_of(plan.spec).unit
    return [
        f"objective {objective}, less is better: {plan.objective.value:.8g}",
        f"{unit}: {terms}",
        f"noise of the mean update: {plan.mean_noise_std:.4g} a parameter, "
        f"{norm:.4g} in norm",
        f"status: {plan.status}",
        *recipe_lines(plan),
    ]
