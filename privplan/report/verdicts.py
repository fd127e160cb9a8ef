"""A verdict as tables of text."""

from __future__ import annotations

from privplan.verification.verify import GroupVerdict, Verdict

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
    "accuracy",
    "verdict",
)
CHECK_COLUMNS = ("check", "result", "what was found")


def number(value: float | None) -> str:
    """An epsilon for a table; None stands for infinity."""
    return "inf" if value is None else f"{value:.4f}"


def percent(value: float | None) -> str:
    """An accuracy for a table."""
    return "" if value is None else f"{100 * value:.1f}%"


def _row(group: GroupVerdict) -> list[str]:
    return [
        group.group,
        f"{group.clients}",
        f"{group.budget:g}",
        number(group.planned),
        number(group.realised_lower),
        number(group.realised_upper),
        number(group.realised_rdp),
        "none" if group.headroom is None else f"{group.headroom:.4f}",
        f"{group.delta:.3g}",
        percent(group.accuracy),
        "kept" if group.kept else "EXCEEDED",
    ]


def group_rows(verdict: Verdict) -> list[list[str]]:
    """One row a group, for ``GROUP_COLUMNS``."""
    return [_row(group) for group in verdict.groups]


def group_caption(verdict: Verdict) -> str:
    """What the epsilons of the table are: law, relation, accountant."""
    first = verdict.groups[0]
    return (
        f"epsilon at delta, {first.sampling} sampling, {first.relation} neighbours; "
        f"realised by {first.accountant} from the ledger alone"
    )


def audit_columns(verdict: Verdict) -> list[str]:
    """The columns of ``audit_rows``; a method that gives no sound bound says so."""
    marks = {"bound": "", "bound if Gaussian": " (if Gaussian)", "estimate": " (estimate)"}
    first = verdict.groups[0].audit
    named = {found.method: f"{found.method}{marks[found.kind]}" for found in first}
    return ["group", "observer sees", "canaries", "realised upper", *named.values()]


def audit_rows(verdict: Verdict) -> list[list[str]]:
    """One row a group and view: the empirical epsilons beside the upper bound."""
    rows = []
    for group in verdict.groups:
        for view in dict.fromkeys(found.view for found in group.audit):
            seen = [found for found in group.audit if found.view == view]
            values = [f"{found.epsilon:.4f}" for found in seen]
            upper = number(group.realised_upper)
            rows.append([group.group, view, f"{seen[0].canaries}", upper, *values])
    return rows


def audit_caption(verdict: Verdict) -> str:
    """How sure the bounds of the table are."""
    first = verdict.groups[0]
    confidence = 100 * first.audit[0].confidence
    return (
        f"lower bounds on epsilon at delta, each with confidence {confidence:g}%; estimates have "
        f"none; {first.sampling} sampling, {first.relation} neighbours"
    )


def worst_line(verdict: Verdict) -> str:
    """What the worst-off client spent, in a line."""
    worst = verdict.worst
    who = "any client" if worst.client is None else f"client {worst.client}"
    return (
        f"worst off: {who} of {worst.group}, epsilon between {number(worst.realised_lower)} and "
        f"{number(worst.realised_upper)} of a budget of {worst.budget:g} (planned "
        f"{number(worst.planned)}) at delta {worst.delta:.3g}, {worst.sampling} sampling, "
        f"{worst.relation} neighbours, accountant {worst.accountant}"
    )


def check_rows(verdict: Verdict) -> list[list[str]]:
    """One row a check, for ``CHECK_COLUMNS``."""
    return [
        [check.name, "passed" if check.passed else "FAILED", check.reason]
        for check in verdict.checks
    ]


def class_line(verdict: Verdict) -> str:
    """Test accuracy of each class, in a line."""
    classes = (f"{name} {percent(share)}" for name, share in verdict.accuracy_by_class.items())
    return f"accuracy by class: {', '.join(classes) or 'not measured'}"


def closing_line(verdict: Verdict) -> str:
    """The verdict in a line."""
    failed = [check.name for check in verdict.checks if not check.passed]
    if verdict.kept:
        outcome = "kept: the run spent no more than the plan promised"
    else:
        outcome = f"NOT kept: {', '.join(failed)}"
    accuracy = percent(verdict.accuracy) or "not measured"
    return f"{outcome}; test accuracy {accuracy} ({verdict.algorithm} on {verdict.dataset})"
