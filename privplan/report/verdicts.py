"""Tables and text lines of a verdict."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from privplan.accounting.release import SHORT, named_law
from privplan.proven import cell as proven_cell
from privplan.record import ACCURACY
from privplan.report.numbers import lower, percent, score, upper
from privplan.report.table import Cell, Table, table_of
from privplan.verification.verdict import (
    DEPLOYED,
    OF_PERSON,
    GroupVerdict,
    Verdict,
)

if TYPE_CHECKING:
    from privplan.report.table import Findings

_PROOFS = {
    "declared": "declared (what the run wrote)",
    "replayed": "replayed (rounds executed again)",
    "attested": "attested (releases signed)",
}
"""Levels of evidence in words."""

_MARKS_OF_AUDITS = {"bound": "", "bound if Gaussian": " (if Gaussian)"}


def no_score(verdict: Verdict) -> str:
    """Why a verdict has no score."""
    if verdict.not_finite:
        return "not finite"
    return "not measured"


def check_table(verdict: Verdict) -> Table:
    """One row per check."""
    cells: dict[str, Cell] = {
        "check": "name",
        "result": lambda check: (
            "FAILED" if check.outcome == "failed" else check.outcome
        ),
        "what was found": "reason",
    }
    return table_of("checks", verdict.checks, cells, verdict.identity)


def group_table(
    verdict: Verdict, *, scores: bool = True, findings: Findings | None = None
) -> Table:
    """One row per group.

    Where the budget is that of the best of several runs, no independent bound stands
    beside it; those of the one run are named so.

    Args:
        verdict: on the run.
        scores: whether the score of each group is in its row.
        findings: of proofs, by group; they stand in a column of their own.
    """
    first_group = verdict.groups[0]
    is_best_of_several = first_group.one_run is not None
    missing_score = no_score(verdict) if verdict.not_finite else ""
    cells: dict[str, Cell] = {
        "group": "group",
        "clients": "clients",
        "budget": lambda group: f"{group.budget:g}",
        "planned": lambda group: upper(group.planned),
    }
    if is_best_of_several:
        cells["realised lower"] = lambda group: "-"
        cells["realised upper"] = lambda group: upper(group.realised_upper)
        cells["one run, pld"] = lambda group: upper(group.one_run.upper)
    else:
        cells["realised lower"] = lambda group: lower(group.realised_lower)
        cells["realised upper"] = lambda group: upper(group.realised_upper)
        cells["rdp upper"] = _rdp_upper
    cells["headroom"] = lambda group: (
        "none" if group.headroom is None else lower(group.headroom)
    )
    cells["delta"] = lambda group: f"{group.delta:.3g}"
    if scores:
        cells[verdict.metric] = lambda group: (
            score(verdict.metric, group.accuracy) or missing_score
        )
    cells["verdict"] = lambda group: _outcome_of(group, verdict)
    if findings:
        proofs = findings
        cells["proven"] = lambda group: proven_cell(proofs[group.group])
    caption = (
        f"epsilon at delta, {named_law(verdict.laws, verdict.unit)} sampling; "
        f"{verdict.identity}; planned: at most, by the plan; realised by "
        f"{first_group.accountant} from the ledger alone; headroom: budget less "
        "realised upper"
    )
    if is_best_of_several:
        caption += ", for the best of the runs of tuning; one run, pld: this run alone"
    return table_of(run_name(verdict), verdict.groups, cells, caption)


def _rdp_upper(group: GroupVerdict) -> str:
    """The independent bound of a group; rdp does not cover every law."""
    if group.realised_rdp is None and group.realised_upper is not None:
        return "-"
    return upper(group.realised_rdp)


def _outcome_of(group: GroupVerdict, verdict: Verdict) -> str:
    """Whether a group's budget was kept, as strongly as the verdict says it."""
    if group.kept:
        if verdict.outcome == "broken":
            return "not shown"
        return verdict.outcome
    if group.realised_upper is None:
        return "not bounded"
    return "EXCEEDED"


def audit_table(verdict: Verdict) -> Table:
    """Realised upper bound and empirical epsilons, one row per group and view."""
    first_group = verdict.groups[0]
    methods = {
        audit.method: f"{audit.method}{_MARKS_OF_AUDITS[audit.kind]}"
        for audit in first_group.audit
    }
    rows = []
    for group in verdict.groups:
        for view in dict.fromkeys(audit.view for audit in group.audit):
            audits = [audit for audit in group.audit if audit.view == view]
            row = [group.group, view, f"{audits[0].canaries}"]
            row.append(upper(group.realised_upper))
            row += [lower(audit.epsilon) for audit in audits]
            rows.append(row)
    confidence = 100 * first_group.audit[0].confidence
    caption = (
        f"lower bounds on epsilon at delta, each with confidence {confidence:g}%; "
        f"{verdict.laws} sampling; {verdict.identity}; realised upper by "
        f"{first_group.accountant}"
    )
    columns = ["group", "observer sees", "canaries", "realised upper"]
    return Table("what canaries say", [*columns, *methods.values()], rows, caption)


def headline(verdict: Verdict) -> str:
    """The answer: whether the plan was kept, and how strongly that was checked."""
    if verdict.level == "broken":
        failed_check, *further = verdict.failed
        text = f"NOT kept: {failed_check.name}: {failed_check.reason}"
        if further:
            text += f"; failed, too: {', '.join(check.name for check in further)}"
        return text
    if verdict.level == "unverified":
        names = ", ".join(check.name for check in verdict.not_shown)
        missing = ", ".join(verdict.not_shown[0].missing)
        return f"unverified, not shown: {names} (missing: {missing})"
    if verdict.level == "rehearsal":
        return (
            "a rehearsal: nothing here protected anybody, since whoever has the seed "
            "removes the noise; run it with secure noise for records of people"
        )
    describe = _kept_as_executed
    if verdict.level == "recorded":
        describe = _kept_as_recorded
    text = describe(verdict)
    return text + _not_checked_here(verdict, text)


def _kept_as_recorded(verdict: Verdict) -> str:
    """What a verdict without an executed round says."""
    reason = f": {verdict.not_executed}" if verdict.not_executed else ""
    text = f"kept as recorded (not executed again for this verdict{reason})"
    if verdict.earlier:
        text += (
            f"; replay.json claims that {verdict.earlier} of {verdict.rounds} rounds "
            "were, which does not count"
        )
    if verdict.accuracy is None:
        return f"{text}; its names are only claimed"
    # The name of another metric is the run's word, too.
    name = verdict.metric if verdict.metric == ACCURACY else "score"
    return f"{text}; its {name} and names are only claimed"


def _kept_as_executed(verdict: Verdict) -> str:
    """What a verdict with executed rounds says."""
    if verdict.executed == verdict.rounds:
        text = f"kept, executed again (all {verdict.rounds} rounds)"
    else:
        chance = math.floor(100 * verdict.chance_of_detection) / 100
        text = (
            f"kept, executed again ({verdict.executed} of {verdict.rounds} rounds; a "
            f"fault in one of five rounds would have been seen with probability "
            f"{chance:.2f})"
        )
    if verdict.level == "executed" and verdict.claimed:
        text += f"; {verdict.claimed}"
    # Each client's update is whatever this code makes of whichever records it has.
    believed = {"module": verdict.own_model, "loss": verdict.own_loss}
    own_code = " and ".join(code for code, is_own in believed.items() if is_own)
    if own_code:
        text += f"; the code of its own {own_code} is believed"
    return text


def _not_checked_here(verdict: Verdict, text: str) -> str:
    """Which checks fell away for this verdict, beside what a text says already."""
    without_key = [
        check
        for check in verdict.fell_away
        if check.missing[0].startswith("the key of")
    ]
    addition = ""
    has_key = verdict.not_executed != DEPLOYED
    if without_key and has_key and not verdict.executed and "key" not in text:
        addition = (
            "; cohorts and noise were not drawn again without the key (--noise-key)"
        )
    fell_away = [
        f"{check.name} ({', '.join(check.missing)})"
        for check in verdict.fell_away
        if check not in without_key
    ]
    if fell_away:
        addition += f"; not checked here: {'; '.join(fell_away)}"
    return addition


def worst_line(verdict: Verdict) -> str:
    """Whom the plan protects, and the realised epsilon of the worst off, one line."""
    worst = verdict.worst
    whom = f"any {verdict.whom(worst.sampling)}"
    protects_person = OF_PERSON in worst.sampling
    if worst.client is not None and not protects_person:
        whom = f"{verdict.whom()} {worst.client}"
        if verdict.unit != "client":
            whom = f"a {verdict.unit} of client {worst.client}"

    epsilon = f"at most {upper(worst.realised_upper)}"
    has_lower_bound = verdict.groups[0].one_run is None
    if has_lower_bound:
        bounds = f"{lower(worst.realised_lower)} and {upper(worst.realised_upper)}"
        epsilon = f"between {bounds}".replace("between inf and", "is")
    return (
        f"worst off: {whom} of {worst.group}, epsilon {epsilon} of a budget of "
        f"{worst.budget:g} (planned {upper(worst.planned)}) at delta {worst.delta:.3g}, "
        f"{named_law(worst.sampling, verdict.unit)} sampling, {worst.relation} "
        f"neighbours, accountant {worst.accountant}"
    )


def class_line(verdict: Verdict) -> str:
    """Test accuracy of each class, one line."""
    classes = (
        f"{name} {percent(share)}" for name, share in verdict.accuracy_by_class.items()
    )
    return f"accuracy by class: {', '.join(classes) or 'not measured'}"


def closing_lines(verdict: Verdict, *, scores: bool = True) -> list[str]:
    """Which plan, the levels of evidence, the source of the noise, and the score.

    Args:
        verdict: on the run.
        scores: whether the score is said.
    """
    levels = ", ".join(_PROOFS[level] for level in verdict.evidence)
    noise = ""
    if verdict.simulation_only:
        noise = "; noise drawn from a recorded seed: simulation only"
    todo = "compare it with the one that was approved"
    for check in verdict.checks[:1]:  # the check of the plan
        if "is the approved one" in check.reason:
            todo = "the approved one"
        elif "approved was" in check.reason:
            todo = "not the approved one"
    whom = verdict.whom()
    for group in verdict.groups:
        if OF_PERSON in group.sampling:
            whom += f", in {group.group} each {verdict.whom(group.sampling)}"
    lines = [
        f"plan {verdict.plan_digest[:SHORT]}, protects each {whom}: {todo}",
        f"evidence: {levels}{noise}",
        *_unchecked_lines(verdict),
    ]
    # What a broken run recorded is nobody's score.
    if scores and verdict.outcome != "broken":
        reached = score(verdict.metric, verdict.accuracy) or no_score(verdict)
        lines.append(f"test {verdict.metric} {reached} ({run_name(verdict)})")
    return lines


def _unchecked_lines(verdict: Verdict) -> list[str]:
    """What the epsilon of a run does not count and no check can see, one line each."""
    lines = []
    if verdict.own_model:
        lines.append(
            "own module: its initial values and buffers are declared public; nothing "
            "checks that they do not come from private records"
        )
    # A deployment has no test records.
    if verdict.own_data and verdict.dataset:
        chosen = "were" if verdict.tuned else "were not"
        if verdict.tested_on_others:
            tested = "people who are no clients"
        else:
            tested = "clients"
        lines.append(
            f"the run's word: its numbers {chosen} chosen by looking at members' "
            f"records, and its test records are of {tested}; this epsilon counts no look"
        )
    return lines


def run_name(verdict: Verdict) -> str:
    """Algorithm and data set of the run, one line; a deployment records no data set."""
    name = verdict.algorithm
    if verdict.dataset:
        name = f"{name} on {verdict.dataset}"
    # A line break in a record must not begin a line of the verdict.
    return " ".join(name.split())
