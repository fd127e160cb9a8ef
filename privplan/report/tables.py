"""Tables of plans, certificates, sweeps and frontiers: title, column heads, rows, caption."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from privplan.accounting.calibrate import PLD
from privplan.accounting.tradeoff import LEVELS
from privplan.book.entry import BookedRun
from privplan.book.spending import MOST_REPETITIONS, Remaining, Spending, full_name
from privplan.files import csv_cell
from privplan.plan import Plan
from privplan.planning.choices import recipe_lines
from privplan.planning.objectives import objective_of
from privplan.planning.sweep import DECIDED
from privplan.record import ACCURACY
from privplan.spec.planning import FIXED_RATIOS
from privplan.verification.checks.check import Check
from privplan.verification.verify import GroupVerdict, Verdict

if TYPE_CHECKING:
    from privplan.accounting.certificate import CertificateRow
    from privplan.planning.explain import GroupRisk
    from privplan.planning.frontier import FrontierPoint

_PUBLISHED = "bound (Theorem 3's movable terms, in units of L d C^2)"
_RECORDS = "noise variance of the mean update over p eta^2, and the least by weights"
Table = tuple[str, list[str], list[list[str]], str]


class Certified(Protocol):
    """What has a certificate."""

    @property
    def certificate(self) -> tuple[CertificateRow, ...]:
        """Its rows."""


def plan_table(plan: Plan) -> Table:
    """Parameters of each group."""
    columns, rows = _record_rows(plan) if plan.unit == "record" else _client_rows(plan)
    spec = plan.spec
    law = f"{spec.sampling} sampling" + (" of records, unit record" * (plan.unit == "record"))
    chosen = ""
    if plan.guarantee != PLD:
        chosen = f" for one run, budgets by {plan.guarantee} for the best"
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


def certificate_table(plan: Certified) -> Table:
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
    return "Certificate: epsilon over all rounds", columns, rows, ", ".join(versions)


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
    if (rounds := len(plan.spec.mixture)) == 1:
        return []
    return [
        f"noise correlated over {rounds} rounds: in the last model as much as independent noise of "
        f"norm {norm * plan.spec.noise_left:.4g} per round would leave"
    ]


def sweep_table(rows: Sequence[dict[str, Any]], paths: Sequence[str]) -> Table:
    """Noise of the mean update and weights, one row per point of a what-if sweep.

    With what the plan of each point decided, where ``planning.free`` lets it decide more.
    """
    cells: dict[tuple[str, ...], list[str]] = {}
    decided = [name for name in DECIDED if name not in paths and any(name in row for row in rows)]
    for row in rows:
        point = tuple(f"{row[path]:g}" for path in paths)
        noise = row.get("error") or f"{row['noise_norm']:.4g}"
        weight = [f"{row['group']} {row['weight']:.3f}"] if "weight" in row else []
        chosen = ["" if row.get(name) is None else f"{row[name]:.5g}" for name in decided]
        line = cells.setdefault(point, [*point, *chosen, noise, ""])
        line[-1] = ", ".join([*filter(None, line[-1:]), *weight])
    names = [name.replace("_", " ") for name in decided]
    columns = [*paths, *names, "noise of the mean, norm", "weights"]
    return "What if", columns, list(cells.values()), ""


def frontier_table(name: str, points: Sequence[FrontierPoint]) -> Table:
    """Noise of the mean update and its change, one row per point of a frontier."""
    rows = [
        [
            point.question,
            point.what,
            f"{point.noise:.4g}" if point.noise is not None else "-",
            f"{point.change:+.2%}" if point.change is not None else "-",
            point.note,
        ]
        for point in points
    ]
    title = f"Frontier of {name}: noise of the mean update, in norm"
    return title, ["question", "what", "noise", "change", "note"], rows, ""


def _unit(plan: Plan) -> str:
    """Quantity and unit of the plan's objective and its terms."""
    if plan.unit == "record":
        return _RECORDS
    if plan.objective.name in FIXED_RATIOS or plan.objective.name != plan.spec.planning.ratios:
        return _PUBLISHED
    return objective_of(plan.spec).unit


# --- Tables and text lines of a verdict. ---------------------------------------------------------

GROUP_COLUMNS = (
    "group",
    "clients",
    "budget",
    "planned",
    "realised lower",
    "realised upper",
    "rdp upper",
    "headroom",
    "delta",
    ACCURACY,
    "verdict",
)
CHECK_COLUMNS = ("check", "result", "what was found")


def number(value: float | None) -> str:
    """An epsilon as text; None means infinite."""
    return "inf" if value is None else f"{value:.4f}"


def percent(value: float | None) -> str:
    """An accuracy as text; empty for None."""
    return "" if value is None else f"{100 * value:.1f}%"


def score(metric: str, value: float | None) -> str:
    """A score as text: accuracies in percent, others as numbers; empty for None."""
    if metric == ACCURACY or value is None:
        return percent(value)
    return f"{value:.4g}"


def group_columns(verdict: Verdict) -> list[str]:
    """Columns of ``group_rows``, with the name of the metric.

    Where the budget is that of the best of several runs, no independent bound stands beside it;
    those of the one run are named so.
    """
    names = [verdict.metric if name == ACCURACY else name for name in GROUP_COLUMNS]
    if verdict.groups[0].one_run is not None:
        names[names.index("rdp upper")] = "one run, pld"
    return names


def no_score(verdict: Verdict) -> str:
    """Why a verdict has no score."""
    return "not finite" if verdict.not_finite else "not measured"


def _row(group: GroupVerdict, verdict: Verdict) -> list[str]:
    missing = no_score(verdict) if verdict.not_finite else ""
    return [
        group.group,
        f"{group.clients}",
        f"{group.budget:g}",
        number(group.planned),
        number(group.realised_lower) if group.one_run is None else "-",
        number(group.realised_upper),
        number(group.realised_rdp if group.one_run is None else group.one_run.upper),
        "none" if group.headroom is None else f"{group.headroom:.4f}",
        f"{group.delta:.3g}",
        score(verdict.metric, group.accuracy) or missing,
        "kept" if group.kept else "EXCEEDED",
    ]


def group_rows(verdict: Verdict) -> list[list[str]]:
    """One row per group, for ``group_columns``."""
    return [_row(group, verdict) for group in verdict.groups]


def group_caption(verdict: Verdict) -> str:
    """Sampling law, relation and accountant of the table's epsilons."""
    first = verdict.groups[0]
    caption = (
        f"epsilon at delta, {first.sampling} sampling, {first.relation} neighbours; "
        f"realised by {first.accountant} from the ledger alone"
    )
    if first.one_run is None:
        return caption
    return f"{caption}, for the best of the runs of tuning; one run, pld: this run alone"


def audit_columns(verdict: Verdict) -> list[str]:
    """Columns of ``audit_rows``; conditional bounds and estimates are marked."""
    marks = {"bound": "", "bound if Gaussian": " (if Gaussian)", "estimate": " (estimate)"}
    first = verdict.groups[0].audit
    named = {one.method: f"{one.method}{marks[one.kind]}" for one in first}
    return ["group", "observer sees", "canaries", "realised upper", *named.values()]


def audit_rows(verdict: Verdict) -> list[list[str]]:
    """One row per group and view: realised upper bound and empirical epsilons."""
    rows = []
    for group in verdict.groups:
        for view in dict.fromkeys(one.view for one in group.audit):
            audits = [one for one in group.audit if one.view == view]
            values = [f"{one.epsilon:.4f}" for one in audits]
            upper = number(group.realised_upper)
            rows.append([group.group, view, f"{audits[0].canaries}", upper, *values])
    return rows


def audit_caption(verdict: Verdict) -> str:
    """How sure the bounds of the table are."""
    first = verdict.groups[0]
    confidence = 100 * first.audit[0].confidence
    return (
        f"lower bounds on epsilon at delta, each with confidence {confidence:g}%; estimates have "
        f"none; {first.sampling} sampling, {first.relation} neighbours; realised upper by "
        f"{first.accountant}"
    )


def worst_line(verdict: Verdict) -> str:
    """Realised epsilon of the worst-off client, one line."""
    worst = verdict.worst
    who = "any client" if worst.client is None else f"client {worst.client}"
    two_sided = verdict.groups[0].one_run is None
    lower = f"between {number(worst.realised_lower)} and" if two_sided else "at most"
    return (
        f"worst off: {who} of {worst.group}, epsilon {lower} {number(worst.realised_upper)} of "
        f"a budget of {worst.budget:g} (planned {number(worst.planned)}) at delta "
        f"{worst.delta:.3g}, {worst.sampling} sampling, {worst.relation} neighbours, accountant "
        f"{worst.accountant}"
    )


def check_rows(verdict: Verdict) -> list[list[str]]:
    """One row per check, for ``CHECK_COLUMNS``."""
    words = {"failed": "FAILED"}
    return [
        [check.name, words.get(check.outcome, check.outcome), check.reason]
        for check in verdict.checks
    ]


def evidence_line(verdict: Verdict) -> str:
    """Levels of evidence and source of the noise, one line."""
    proofs = {
        "declared": "declared (what the run wrote)",
        "replayed": "replayed (rounds executed again)",
        "attested": "attested (releases signed before use)",
    }
    levels = ", ".join(proofs[level] for level in verdict.evidence)
    noise = "; noise drawn from a recorded seed: simulation only"
    return f"evidence: {levels}{noise if verdict.simulation_only else ''}"


def class_line(verdict: Verdict) -> str:
    """Test accuracy of each class, one line."""
    classes = (f"{name} {percent(share)}" for name, share in verdict.accuracy_by_class.items())
    return f"accuracy by class: {', '.join(classes) or 'not measured'}"


def closing_line(verdict: Verdict) -> str:
    """Outcome, checks that failed or are not shown, and accuracy, one line."""
    if verdict.failed:
        outcome = f"NOT kept: {_names(verdict.failed)}"
    elif verdict.not_shown:
        outcome = f"unverified, not shown: {_names(verdict.not_shown)}"
    else:
        outcome = "kept: the run spent no more than the plan promised"
    found = score(verdict.metric, verdict.accuracy) or no_score(verdict)
    return f"{outcome}; test {verdict.metric} {found} ({run_name(verdict)})"


def run_name(verdict: Verdict) -> str:
    """Algorithm and data set of the run, one line; a deployment records no data set."""
    name = f"{verdict.algorithm} on {verdict.dataset}" if verdict.dataset else verdict.algorithm
    return " ".join(name.split())  # a line break in a record must not begin a line of the verdict


def _names(checks: Sequence[Check]) -> str:
    return ", ".join(check.name for check in checks)


# --- Tables, text lines, CSV and plain data of a budget book. ------------------------------------

SPENDING_COLUMNS = (
    "group",
    "runs",
    "kept",
    "releases",
    "at least",
    "at most",
    "naive sum",
    "rdp",
    "delta",
    "protects",
    "law",
    "relation",
    "accountant",
)
CAPTION = (
    "epsilon of all releases of all runs, composed at once (at least, at most); naive sum: the "
    "runs' own epsilons at delta / runs, added; rdp: an upper bound for runs chosen by what "
    "earlier ones showed; kept: runs whose verdict is kept"
)
SCHEMA_VERSION = 1
_RUN = (
    "chain",
    "plan",
    "population",
    "source",
    "algorithm",
    "dataset",
    "seed",
    "status",
    "verdict",
    "cost",
)
_SHARE = ("group", "unit", "relation", "clients", "epsilon", "delta")
_RELEASE = ("noise_multiplier", "sampling_ratio", "sampling", "count")


def _number(value: float | None) -> str:
    return "inf" if value is None else f"{value:.6g}"


def spending_rows(spent: Sequence[Spending]) -> list[list[str]]:
    """One row per group, for ``SPENDING_COLUMNS``."""
    return [
        [
            full_name(one.population, one.group),
            f"{one.runs}",
            f"{one.kept}",
            f"{one.releases}",
            _number(one.epsilon_lower),
            _number(one.epsilon_upper),
            _number(one.epsilon_naive),
            "-" if one.epsilon_rdp is None else _number(one.epsilon_rdp),
            f"{one.delta:.4g}",
            one.unit,
            one.sampling,
            str(one.relation),
            one.accountant,
        ]
        for one in spent
    ]


def cost_line(run: BookedRun) -> str:
    """The verdict on a run that is not kept, and how its releases are booked."""
    costs = {
        "recorded": "as recorded",
        "full participation": "as if every client took part in every round",
        "infinite": "at infinite epsilon",
    }
    return (
        f"the verdict on {run.source} is {run.verdict}: its releases are booked {costs[run.cost]}"
    )


def remaining_lines(remaining: Remaining) -> list[str]:
    """The remaining budget as lines of text."""
    where = full_name(remaining.population, remaining.group)
    times = f"{remaining.repetitions}"
    if remaining.repetitions == MOST_REPETITIONS:
        times = f"at least {times}"
    lines = [
        f"{where}: budget epsilon {remaining.budget:g} at delta {remaining.delta:.4g} over all "
        f"runs ({remaining.sampling} sampling, {remaining.relation}, "
        f"accountant {remaining.accountant}, for each {remaining.unit})",
        f"spent: at least {remaining.spent_lower:.6g}, at most {remaining.spent_upper:.6g}",
        f"spent under the rule for further runs ({remaining.rule}): {remaining.spent:.6g}",
        f"headroom: {remaining.headroom:.6g}",
        f"the last run ({remaining.last_run}) fits {times} more times",
    ]
    shape = (
        f"at sampling ratio {remaining.next_ratio:.6g} ({remaining.next_sampling}), "
        f"{remaining.next_rounds} rounds"
    )
    if remaining.noise_multiplier is None:
        return [*lines, f"a next run {shape}: does not fit, whatever its noise"]
    lines.append(
        f"a next run {shape}: noise multiplier {remaining.noise_multiplier:.6g} or more; it costs "
        f"{remaining.alone:.6g} by itself, {remaining.total:.6g} with the book"
    )
    if remaining.exact_noise_multiplier is not None:
        lines.append(
            f"fixed in advance with all earlier runs (--rule exact), it would need "
            f"{remaining.exact_noise_multiplier:.6g}"
        )
    return lines


def export_data(runs: Sequence[BookedRun]) -> dict[str, Any]:
    """The whole book as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "runs": [run.model_dump(mode="json") for run in runs],
    }


def export_csv(runs: Sequence[BookedRun]) -> str:
    """The whole book as tidy CSV: one row per run, group and kind of release."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", *_RUN, *_SHARE, *_RELEASE])
    for number, run in enumerate(runs, start=1):
        booked = {"verdict": None, "cost": run.cost, **run.model_dump(mode="json")}
        for share in booked["shares"]:
            for release in share["releases"]:
                values = [booked[key] for key in _RUN] + [share[key] for key in _SHARE]
                cells = [number, *values, *(release[key] for key in _RELEASE)]
                writer.writerow(map(csv_cell, cells))
    return text.getvalue()
