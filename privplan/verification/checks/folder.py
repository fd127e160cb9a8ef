"""The check that a run folder holds what privplan writes into it, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from privplan.auditing import AUDIT
from privplan.files import LOCK
from privplan.folder import GUARD, INITIAL, unfinished_files, unknown_files
from privplan.record import CHECKPOINT
from privplan.verification.checks.check import CHECKS, Check, RunCheck, first
from privplan.verification.run import Run
from privplan.visible import printable

MOST_NAMES = 5  # files that a verdict names


def folder(run: Run) -> Check:
    """Every file is one that privplan writes, and no state of training is left.

    No check reads an unknown file, so it could hold anything, such as sums without
    noise. The checkpoint of a finished run would hold the personal states of clients.
    """
    reason = "no file but those that privplan writes"
    unfinished = [] if run.folder is None else unfinished_files(run.folder)
    if unfinished:
        names = _named(unfinished)
        reason += (
            f"; killed writers left {names}, which the command that ran it removes"
        )
    return first((), "folder", reason, _strange(run))


def _strange(run: Run) -> Iterator[str]:
    """What no verdict says anything of, as missing evidence."""
    if run.folder is None:
        return
    optional = frozenset[str]().union(*(check.files for _, check in CHECKS.items()))
    unknown = list(unknown_files(run.folder, optional, _unplanned(run)))
    if unknown:
        yield (
            f"what {_named(unknown)} may be: privplan writes no such file; take it out "
            "of the folder"
        )
    lock = run.folder / LOCK
    if lock.exists() and lock.stat().st_size:
        yield f"what {LOCK} may hold: privplan writes nothing into it"
    if run.record.status == "complete" and (run.folder / CHECKPOINT).exists():
        yield (
            f"the end of the run: {CHECKPOINT} holds the state of its clients; the command that "
            "ran it removes it"
        )


def _unplanned(run: Run) -> set[str]:
    """Files that plan and record of the run leave no place for."""
    names = set()
    if run.plan.spec.model.initial is None:
        names.add(INITIAL)
    if not (run.record.audit or run.record.configuration.get("canaries")):
        names.add(AUDIT)
    # A simulation keeps nothing for its next round that a verdict does not read.
    if run.record.seed is not None:
        names.add(GUARD)
    return names


def _named(names: list[str]) -> str:
    """The first of some names of files."""
    text = ", ".join(map(printable, names[:MOST_NAMES]))
    unnamed = len(names) - MOST_NAMES
    if unnamed > 0:
        return f"{text} and {unnamed} more"
    return text


CHECKS.register(
    "folder", RunCheck(folder, order=16, applies=lambda run: run.folder is not None)
)
