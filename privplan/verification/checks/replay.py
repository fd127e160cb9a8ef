"""The check that rounds of the run were executed again.

Only what was executed for this verdict counts. What ``replay.json`` says of rounds that
agree is a claim of whoever wrote the file; that it says of a difference stays until all
rounds agree.
"""

from __future__ import annotations

import math

from privplan.accounting.deviation import carried
from privplan.evidence.replay import ReplayReport
from privplan.record import REPLAY
from privplan.verification.checks import check
from privplan.verification.run import Run


@check.register("replay", order=160)
def replay(run: Run) -> check.Check:
    """Rounds that were executed again now gave the ledger's releases; not required.

    It is the only check that shows clipping, training and the sum themselves: all
    others read what the run says of them.
    """
    stored = _stored_replay(run)
    new_report = run.executed
    for report in filter(None, (new_report, stored)):
        fault = _fault_of(run, report)
        if fault is not None and report is not new_report:
            fault = f"{REPLAY}, of an earlier replay, says: {fault}"
        if fault is not None:
            return check.failed("replay", fault)

    if new_report is not None and new_report.outcome == "passed" and new_report.rounds:
        executed = len(set(new_report.rounds))
        done = f"{executed} of {run.plan.spec.rounds} rounds executed again"
        reason = f"{done}: {new_report.reason}{_carried(run, new_report)}"
        return check.passed("replay", reason, "replayed")

    if run.contradiction:
        return check.not_shown("replay", [run.contradiction])

    missing = "rounds that were executed again"
    for report in filter(None, (new_report, stored)):
        if report.outcome == "not shown":
            missing = report.reason.removeprefix("missing: ")
            break
    return check.not_shown("replay", [missing], required=False)


def _fault_of(run: Run, report: ReplayReport) -> str | None:
    """Why a report speaks against the run, or is of another one."""
    if report.plan_digest != run.plan.digest or report.chain != run.ledger.chain:
        return "the replay is of another run"
    if report.record and report.record != run.record.digest:
        return "the replay is of another record, which was changed after it"
    if report.outcome == "failed":
        return report.reason
    return None


def claimed_rounds(run: Run) -> int:
    """How many rounds ``replay.json`` claims to have executed with no difference."""
    stored = _stored_replay(run)
    if stored is None or stored.outcome != "passed" or not stored.record:
        return 0
    return len(set(stored.rounds))


def _stored_replay(run: Run) -> ReplayReport | None:
    """What ``replay.json`` in the run folder says; None without the file."""
    if run.folder is None or not (run.folder / REPLAY).exists():
        return None
    return ReplayReport.load(run.folder)


def _carried(run: Run, report: ReplayReport) -> str:
    """What the deviations of a replay could carry, for the group where it is most.

    ``privplan.accounting.deviation`` has the lemma. It is about rounding that does not
    depend on the noise of its own round.
    """
    if not report.deviation:
        return ""
    bounds = [
        carried(report.deviation, run.plan.spec.rounds, group.epsilon, group.delta)
        for group in run.plan.groups
    ]
    largest = max(bound.epsilon for bound in bounds)
    # An upper bound is rounded up.
    added = math.ceil(1e4 * largest) / 1e4
    return (
        f"; releases are off by at most {report.deviation:.1g} deviations of their "
        f"noise, and rounding of that size carries at most +{added:.4f} of epsilon"
    )
