"""The check that the run was executed again, from the result file of ``privplan replay``.

``replay.json`` in the run folder states what a replay compared. It is evidence for the reader who
ran the replay; a file that came with the run is a claim of whoever wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable

from privplan.evidence import ReplayReport
from privplan.record import REPLAY
from privplan.verification.checks.check import Check, Run, failed, not_shown, passed, register


@register("replay", order=160)
def replay(run: Run) -> Check:
    """Rounds that were executed again gave the releases of the ledger; not required."""
    if run.folder is None or not (run.folder / REPLAY).exists():
        return _absent([f"a replay ({REPLAY})"])
    result = ReplayReport.load(run.folder)
    if result.plan_digest != run.plan.digest or result.chain != run.ledger.chain:
        return failed("replay", "the replay is of another run")
    if result.record and result.record != run.record.digest:
        return failed("replay", "the replay is of another record, which was changed after it")
    if result.outcome == "failed":
        return failed("replay", result.reason)
    if result.outcome == "not shown" or not result.rounds:
        return _absent(
            [result.reason.removeprefix("missing: ") or "rounds that were executed again"]
        )
    if not result.record:  # written by a version that compared less of the record
        return _absent(["a replay that names the record; replay the run again"])
    done, rounds = len(set(result.rounds)), run.plan.spec.rounds
    return passed(
        "replay", f"{done} of {rounds} rounds executed again: {result.reason}", "replayed"
    )


def _absent(missing: Iterable[str]) -> Check:
    return not_shown("replay", missing, required=False)
