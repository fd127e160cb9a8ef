"""Tables and text lines of a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from privplan.record import ACCURACY
from privplan.verification.checks.check import Check
from privplan.verification.verify import GroupVerdict, Verdict

if TYPE_CHECKING:
    from privplan.verification.horizon import HorizonVerdict

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
HORIZON_COLUMNS = ("group", "budget", "planned", "realised upper", "delta", "verdict")
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


def horizon_rows(verdict: HorizonVerdict) -> list[list[str]]:
    """One row per group over all runs of a horizon, for ``HORIZON_COLUMNS``."""
    return [
        [
            one.group,
            f"{one.budget:g}",
            number(one.planned),
            number(one.realised_upper),
            f"{one.delta:.3g}",
            "kept" if one.kept else "EXCEEDED",
        ]
        for one in verdict.groups
    ]


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
