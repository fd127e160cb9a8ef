"""Checks of a run folder, which holds exactly one run."""

from __future__ import annotations

from pathlib import Path

from privplan.errors import Fault, InputError
from privplan.ledger import read_ledger
from privplan.plan import Plan
from privplan.record import LEDGER, PLAN, RECORD, RunRecord

NOISE = ("noise", "noise_commitment")
"""Entries of the configuration that a run with secure noise has."""
_IDENTITY = ("algorithm", "dataset", "partition", "model", "seed", "device", "plan_digest")


def existing_run(folder: Path, initial: RunRecord) -> RunRecord | None:
    """Returns the record in the folder if it belongs to the requested run; None if there is none.

    Args:
        folder: the run folder.
        initial: initial record of the requested run.

    Raises:
        InputError: when the folder holds another run, or files that are no run.
    """
    if not folder.is_dir():
        raise InputError.one("output", "must be a folder", str(folder))
    if not (folder / RECORD).exists():
        if any(path.name != PLAN for path in folder.iterdir() if not path.name.startswith(".")):
            rule = "must be a run folder, a new folder or an empty one"
            raise InputError.one("output", rule, str(folder))
        _check_plan(folder, initial)
        return None
    record = RunRecord.load(folder)
    faults = []
    for name in _IDENTITY:
        expected, requested = getattr(record, name), getattr(initial, name)
        if expected != requested:
            rule = f"must be {expected!r}, as in {folder}; or choose another folder with -o"
            faults.append(Fault(name, rule, requested))
    names = ("aggregation", "numbers", "data", "canaries", "own_model", "metric", "task")
    for name in (*names, "precision", *NOISE):
        requested = initial.configuration.get(name)
        if record.configuration.get(name) != requested:
            rule = f"must be as in {folder}; or choose another folder with -o"
            faults.append(Fault(name, rule, requested))
    processes = record.configuration.get("processes", 1)
    if record.status == "running" and processes != initial.configuration["processes"]:
        rule = f"must be {processes}, as when the run in {folder} began"
        faults.append(Fault("processes", rule, initial.configuration["processes"]))
    if faults:
        raise InputError(faults)
    return record


def _check_plan(folder: Path, initial: RunRecord) -> None:
    """Raises if the executed plan would overwrite another plan."""
    path = folder / PLAN
    if path.exists() and Plan.load(path).digest != initial.plan_digest:
        rule = "must not hold a plan that the executed one would replace; choose another with -o"
        raise InputError.one("output", rule, str(folder))


def check_finished(folder: Path, record: RunRecord) -> None:
    """Raises if the ledger of a finished run differs from the one that the run wrote.

    Raises:
        InputError: with the fault of the ledger; resuming cannot repair it.
    """
    advice = "what was lost cannot be recovered, so choose another folder with -o"
    if not (folder / LEDGER).exists():
        rule = f"must be in the folder of a finished run; {advice}"
        raise InputError.one("ledger", rule, f"no {folder / LEDGER}")
    ledger = read_ledger(folder, record.plan_digest)
    fault = ledger.fault
    if fault is None and record.chain not in ("", ledger.chain):
        fault = f"only {len(ledger.records)} releases"
    if fault is not None:
        rule = f"must be as the finished run wrote it; {advice}"
        raise InputError.one("ledger", rule, f"{fault} of {folder / LEDGER}")
