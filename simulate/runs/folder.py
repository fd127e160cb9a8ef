"""The run folder, which holds exactly one run: whether it is the requested one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from privplan.errors import Fault, InputError
from privplan.plan import Plan
from privplan.record import PLAN, RECORD, RunRecord

# Fields of the record that name a run: another value is another run.
_IDENTITY = (
    "algorithm",
    "dataset",
    "partition",
    "model",
    "seed",
    "device",
    "plan_digest",
)
# Entries of the configuration on which the result of a run depends.
_CONFIGURATION = (
    "aggregation",
    "numbers",
    "data",
    "canaries",
    "own_model",
    "metric",
    "task",
    "noise",
    "noise_commitment",
    "test",
    "tuned",
)
# Entries on which the remaining rounds depend, but no finished run: a run that goes on
# keeps the order of its sums and its streams of random numbers.
_WHILE_RUNNING = ("processes", "streams")


def existing_run(folder: Path, initial: RunRecord) -> RunRecord | None:
    """The record in a folder, if the folder holds the requested run.

    Args:
        folder: an existing path.
        initial: the record of the requested run before its first round.

    Returns:
        The record; None where the folder holds no run, and nothing that one would
        replace.

    Raises:
        InputError: for a folder that holds another run, another plan or other files.
    """
    if not folder.is_dir():
        raise InputError.one("output", "must be a folder", str(folder))
    if not (folder / RECORD).exists():
        _check_without_run(folder, initial)
        return None
    record = RunRecord.load(folder)
    faults = list(_differences(folder, record, initial))
    if faults:
        raise InputError(faults)
    return record


def _check_without_run(folder: Path, initial: RunRecord) -> None:
    """Raise where a folder without a record holds more than the plan of the run."""
    for path in folder.iterdir():
        if path.name != PLAN and not path.name.startswith("."):
            rule = "must be a run folder, a new folder or an empty one"
            raise InputError.one("output", rule, str(folder))
    plan_file = folder / PLAN
    if plan_file.exists() and Plan.load(plan_file).digest != initial.plan_digest:
        rule = (
            "must not hold a plan that the executed one would replace; "
            "choose another with -o"
        )
        raise InputError.one("output", rule, str(folder))


def _differences(
    folder: Path, record: RunRecord, initial: RunRecord
) -> Iterator[Fault]:
    """What is requested otherwise than the folder's record says."""
    advice = f"as in {folder}; or choose another folder (-o, folder=)"
    for name in _IDENTITY:
        expected = getattr(record, name)
        requested = getattr(initial, name)
        if expected != requested:
            yield Fault(name, f"must be {expected!r}, {advice}", requested)
    for name in _CONFIGURATION:
        requested = initial.configuration.get(name)
        if record.configuration.get(name) != requested:
            yield Fault(name, f"must be {advice}", requested)
    if record.status != "running":
        return
    for name in _WHILE_RUNNING:
        expected = record.configuration.get(name, 1)
        requested = initial.configuration[name]
        if expected != requested:
            rule = f"must be {expected}, as when the run in {folder} began"
            yield Fault(name, rule, requested)
