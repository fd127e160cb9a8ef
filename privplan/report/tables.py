"""Tables of plans, certificates, sweeps and frontiers: title, column heads, rows, caption."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from privplan.accounting.tradeoff import LEVELS
from privplan.forecast.lines import extrapolates
from privplan.plan import Plan
from privplan.planning.objectives import objective_of
from privplan.planning.recipe import recipe_lines
from privplan.sensitivity.rows import DECIDED
from privplan.spec.objectives import FIXED_RATIOS
from privplan.spec.turns import noise_left

if TYPE_CHECKING:
    from privplan.planning.horizon import HorizonPlan
    from privplan.planning.risks import GroupRisk
    from privplan.sensitivity.frontier import FrontierPoint

_PUBLISHED = "bound (Theorem 3's movable terms, in units of L d C^2)"
_RECORDS = "noise variance of the mean update over p eta^2, and the least by weights"
Table = tuple[str, list[str], list[list[str]], str]


def plan_table(plan: Plan) -> Table:
    """Parameters of each group."""
    columns, rows = _record_rows(plan) if plan.unit == "record" else _client_rows(plan)
    spec = plan.spec
    law = f"{spec.sampling} sampling" + (" of records, unit record" * (plan.unit == "record"))
    chosen = "" if spec.tuning is None else " for one run, budgets by selection for the best"
    caption = (
        f"budgets: epsilon at delta, {law}, {spec.relation}; sigma calibrated "
        f"by {spec.planning.accountant}{chosen}; {spec.rounds} rounds, clipping norm "
        f"{spec.clipping_norm:g}, release {plan.release}"
    )
    return f"Plan {spec.name}", columns, rows, caption


def _client_rows(plan: Plan) -> tuple[list[str], list[list[str]]]:
    extra: dict[str, list[str]] = {}
    if plan.release == "joint":
        extra["scale"] = [f"{group.scale:.4f}" for group in plan.groups]
    if any(group.clipping_norm is not None for group in plan.groups):
        extra["clip"] = [f"{plan.clip_bound(group):.4f}" for group in plan.groups]
    if any(group.segments is not None for group in plan.groups):
        extra["rounds x q"] = [
            ", ".join(f"{s.rounds} x {s.sampling_ratio:.4%}" for s in group.segments or ())
            for group in plan.groups
        ]
    columns = ["group", "clients", "epsilon", "delta", "q", "cohort", "sigma", "sigma^2"]
    rows = [
        [
            group.name,
            f"{group.clients:,}",
            f"{group.epsilon:g}",
            f"{group.delta:.3g}",
            f"{group.sampling_ratio:.4%}",
            f"{group.expected_cohort:.4g}",
            f"{group.noise_multiplier:.5g}",
            f"{group.noise_multiplier**2:.4g}",
            f"{group.kept_fraction:.4g}",
            f"{group.weight:.4f}",
            *(values[m] for values in extra.values()),
        ]
        for m, group in enumerate(plan.groups)
    ]
    return [*columns, "kept", "weight", *extra], rows


def _record_rows(plan: Plan) -> tuple[list[str], list[list[str]]]:
    columns = ["group", "clients", "records", "epsilon", "delta", "q", "steps", "sigma", "weight"]
    rows = [
        [
            group.name,
            f"{group.clients:,}",
            f"{group.records:,}",
            f"{group.epsilon:g}",
            f"{group.delta:.3g}",
            f"{group.record_sampling_ratio:.4%}",
            f"{group.releases:,}",
            f"{group.noise_multiplier:.5g}",
            f"{group.weight:.4f}",
        ]
        for group in plan.groups
    ]
    return columns, rows


def certificate_table(plan: Plan | HorizonPlan) -> Table:
    """Bounds on epsilon by every accountant, one row per group and accountant."""
    columns = ["group", "accountant", "epsilon", "at most", "delta", "law", "relation", "role"]
    rows = [
        [
            row.group,
            row.accountant,
            f"{row.epsilon_lower:.6g}" if row.epsilon_lower > 0 else "-",
            f"{row.epsilon_upper:.6g}",
            f"{row.delta:.3g}",
            row.law,
            str(row.relation),
            "guarantee" if row.guarantee else row.kind,
        ]
        for row in plan.certificate
    ]
    columns[2] = "at least"
    versions = sorted({row.version for row in plan.certificate})
    over = "all rounds" if isinstance(plan, Plan) else "all rounds of all runs"
    return f"Certificate: epsilon over {over}", columns, rows, ", ".join(versions)


def horizon_table(planned: HorizonPlan) -> Table:
    """Share, epsilons and noise of each run of a horizon."""
    names = [group.name for group in planned.spec.groups]
    rows = []
    for plan, share in zip(planned.plans, planned.shares, strict=True):
        norm = plan.noise_std * math.sqrt(plan.spec.model.parameters)
        epsilons = [f"{group.epsilon:.4g}" for group in plan.groups]
        sigmas = [f"{group.noise_multiplier:.4g}" for group in plan.groups]
        value = f"{plan.objective.value:.6g}"
        cells = [plan.spec.name, f"{share:.1%}", f"{plan.spec.rounds}", value, f"{norm:.4g}"]
        rows.append([*cells, " ".join(epsilons), " ".join(sigmas)])
    columns = ["run", "share", "rounds", "objective", "noise, norm", "epsilon of the run", "sigma"]
    caption = f"epsilon and sigma of {', '.join(names)}; a run's epsilon holds for that run only"
    return f"Horizon of {planned.spec.name}: {len(rows)} runs", columns, rows, caption


def risk_table(risks: Sequence[GroupRisk]) -> Table:
    """Upper bounds on every attack, one row per group."""
    asked = any(one.asked is not None for one in risks)
    rows = [
        [
            one.group,
            *([one.asked or "-"] if asked else []),
            f"{one.curve.advantage:.4f}",
            *(f"{rate:.4f}" for rate in one.curve.true_positives),
            "-" if math.isinf(one.curve.mu) else f"{one.curve.mu:.4g}",
        ]
        for one in risks
    ]
    rates = [f"TPR at FPR {level:g}" for level in LEVELS]
    columns = ["group", *(["asked"] if asked else []), "advantage", *rates, "mu down to delta"]
    caption = (
        "upper bounds by pld; TPR at FPR x is also the chance to reconstruct what was guessed "
        "with chance x before; mu is read at points of the curve and no guarantee between them"
    )
    return "Risks: no attack exceeds", columns, rows, caption


def plan_lines(plan: Plan) -> list[str]:
    """Objective, bound, status and recipe, one line each."""
    norm = plan.noise_std * math.sqrt(plan.spec.model.parameters)
    terms = ", ".join(f"{name} {value:.6g}" for name, value in plan.bound.items())
    return [
        f"objective {plan.objective.name}: {plan.objective.value:.8g}",
        f"{_unit(plan)}: {terms}",
        f"noise of the mean update: {plan.noise_std:.4g} a coordinate, {norm:.4g} in norm",
        *_correlation_line(plan, norm),
        f"status: {plan.status}",
        *recipe_lines(plan),
    ]


def _correlation_line(plan: Plan, norm: float) -> list[str]:
    """What the last model holds of noise that is correlated over the rounds of a cycle."""
    turns = plan.spec.sampling.law.turns
    if turns == 1:
        return []
    return [
        f"noise correlated over {turns} rounds: in the last model as much as independent noise of "
        f"norm {norm * noise_left(plan.spec):.4g} per round would leave"
    ]


def sweep_table(rows: Sequence[dict[str, Any]], paths: Sequence[str]) -> Table:
    """Noise of the mean update and weights, one row per point of a what-if sweep.

    With what the plan of each point decided, where ``planning.free`` lets it decide more.

    Args:
        rows: rows of the sweep, one per point and group.
        paths: the varied numbers.
    """
    cells: dict[tuple[str, ...], list[str]] = {}
    forecast = ["forecast accuracy"] if any("accuracy" in row for row in rows) else []
    decided = [name for name in DECIDED if name not in paths and any(name in row for row in rows)]
    for row in rows:
        point = tuple(f"{row[path]:g}" for path in paths)
        noise = row.get("error") or f"{row['noise_norm']:.4g}"
        weight = [f"{row['group']} {row['weight']:.3f}"] if "weight" in row else []
        known = [""] if forecast else []
        if "accuracy" in row:
            ends = f"[{row['accuracy_lower']:.1%}, {row['accuracy_upper']:.1%}]"
            far = extrapolates(row.get("forecast_distance", 0.0))
            known = [", ".join(filter(None, (f"{row['accuracy']:.1%} {ends}", far)))]
        chosen = ["" if row.get(name) is None else f"{row[name]:.5g}" for name in decided]
        line = cells.setdefault(point, [*point, *chosen, noise, *known, ""])
        line[-1] = ", ".join([*filter(None, line[-1:]), *weight])
    names = [name.replace("_", " ") for name in decided]
    columns = [*paths, *names, "noise of the mean, norm", *forecast, "weights"]
    return "What if", columns, list(cells.values()), ""


def frontier_table(name: str, points: Sequence[FrontierPoint]) -> Table:
    """Noise of the mean update and its change, one row per point of a frontier.

    With forecasts also accuracy and its change in points (for shadow prices per unit of epsilon).
    """
    forecast = any(point.accuracy is not None for point in points)
    rows = [
        [
            point.question,
            point.what,
            f"{point.noise:.4g}" if point.noise is not None else "-",
            f"{point.change:+.2%}" if point.change is not None else "-",
            *(_points(point) if forecast else ()),
            point.note,
        ]
        for point in points
    ]
    title = f"Frontier of {name}: noise of the mean update, in norm"
    columns = ["question", "what", "noise", "change", *(["accuracy", "points"] * forecast)]
    return title, [*columns, "note"], rows, ""


def _points(point: FrontierPoint) -> tuple[str, str]:
    """Forecast accuracy of a point, and its change in points."""
    if point.accuracy is None or point.points is None:
        return "-", "-"
    return f"{point.accuracy:.1%}", f"{point.points:+.2f}"


def _unit(plan: Plan) -> str:
    """Quantity and unit of the plan's objective and its terms."""
    if plan.unit == "record":
        return _RECORDS
    if plan.objective.name in FIXED_RATIOS or plan.objective.name != plan.spec.planning.ratios:
        return _PUBLISHED
    return objective_of(plan.spec).unit
