"""The check that the run was executed again, from the result file of ``privplan replay``.

``replay.json`` in the run folder states what a replay compared. It is evidence for the reader who
ran the replay; a file that came with the run is a claim of whoever wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict

from privplan.errors import InputError
from privplan.io.files import read_text
from privplan.io.text import load_json
from privplan.record import REPLAY
from privplan.values import Count, Value, parse
from privplan.verification.checks.check import Check, Run, failed, not_shown, passed, register


class ReplayResult(Value):
    """The result of a replay; fields that are not listed here are ignored.

    Attributes:
        plan_digest: content hash of the plan that was executed again.
        chain: hash of the last line of the ledger that was compared.
        outcome: whether all compared values agree; ``not shown`` when none could be compared.
        rounds: rounds that were executed again.
        reason: the first difference, or what was compared.
    """

    model_config = ConfigDict(extra="ignore")

    schema_version: Literal[1] = 1
    plan_digest: str
    chain: str
    outcome: Literal["passed", "failed", "not shown"]
    rounds: tuple[Count, ...]
    reason: str

    @classmethod
    def load(cls, path: Path) -> ReplayResult:
        """Read a result file.

        Raises:
            InputError: when it is damaged.
        """
        try:
            data = load_json(read_text(path, "replay"))
        except ValueError:
            raise InputError.one("replay", "must be JSON", str(path)) from None
        return parse(cls, data)


@register("replay", order=160)
def replay(run: Run) -> Check:
    """Rounds that were executed again gave the releases of the ledger; not required."""
    if run.folder is None or not (run.folder / REPLAY).exists():
        return _absent([f"a replay ({REPLAY})"])
    result = ReplayResult.load(run.folder / REPLAY)
    if result.plan_digest != run.plan.digest or result.chain != run.ledger.chain:
        return failed("replay", "the replay is of another run")
    if result.outcome == "failed":
        return failed("replay", result.reason)
    if result.outcome == "not shown" or not result.rounds:
        return _absent([result.reason or "rounds that were executed again"])
    done, rounds = len(set(result.rounds)), run.plan.spec.rounds
    return passed(
        "replay", f"{done} of {rounds} rounds executed again: {result.reason}", "replayed"
    )


def _absent(missing: Iterable[str]) -> Check:
    return not_shown("replay", missing, required=False)
