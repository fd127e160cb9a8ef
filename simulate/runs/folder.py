"""A run folder holds one run."""

from __future__ import annotations

from pathlib import Path

from privplan.errors import Fault, InputError
from privplan.plan import Plan
from privplan.record import LEDGER, PLAN, RECORD, RunRecord, read_ledger

_IDENTITY = ("algorithm", "dataset", "partition", "model", "seed", "device", "plan_digest")


def existing_run(folder: Path, blank: RunRecord) -> RunRecord | None:
    """The record that the folder holds already, when it is of this very run.

    Raises:
        InputError: when the folder holds another run, or something that is no run.
    """
    if not folder.is_dir():
        raise InputError.one("output", "must be a folder", str(folder))
    if not (folder / RECORD).exists():
        if any(path.name != PLAN for path in folder.iterdir() if not path.name.startswith(".")):
            rule = "must be a run folder, a new folder or an empty one"
            raise InputError.one("output", rule, str(folder))
        _keep_plan(folder, blank)
        return None
    found = RunRecord.load(folder)
    faults = []
    for name in _IDENTITY:
        held, asked = getattr(found, name), getattr(blank, name)
        if held != asked:
            rule = f"must be {held!r}, as in {folder}; or choose another folder with -o"
            faults.append(Fault(name, rule, asked))
    for name in ("aggregation", "numbers", "data", "canaries"):
        if found.configuration.get(name) != blank.configuration[name]:
            rule = f"must be as in {folder}; or choose another folder with -o"
            faults.append(Fault(name, rule, blank.configuration[name]))
    began = found.configuration.get("processes", 1)
    if found.status == "running" and began != blank.configuration["processes"]:
        rule = f"must be {began}, as when the run in {folder} began"
        faults.append(Fault("processes", rule, blank.configuration["processes"]))
    if faults:
        raise InputError(faults)
    return found


def _keep_plan(folder: Path, blank: RunRecord) -> None:
    """Refuse to put the executed plan in the place of another one."""
    path = folder / PLAN
    if path.exists() and Plan.load(path).digest != blank.plan_digest:
        rule = "must not hold a plan that the executed one would replace; choose another with -o"
        raise InputError.one("output", rule, str(folder))


def check_finished(folder: Path, record: RunRecord) -> None:
    """Refuse a finished run whose ledger is no longer the one that it wrote.

    Raises:
        InputError: saying what is wrong, and that no resuming mends it.
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
