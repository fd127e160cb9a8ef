"""Opening the folder of a guarded run, and the plans and settings that are refused."""

from __future__ import annotations

from pathlib import Path

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.record import PLAN, RECORD, RunRecord, versions_of
from privplan.values import parse

OTHER_BOOK = (
    "must be the book in which the run reserved its releases (where that is lost, "
    "privplan book add counts them, and a new run goes on)"
)


def check_settings(
    plan: Plan, evidence: str, keep: int | None, coordinates: int | None = None
) -> None:
    """Refuse plans and settings that a guard cannot execute.

    Args:
        plan: to be executed.
        evidence: what the ledger is to record.
        keep: number of released sums and of models that stay on disk.
        coordinates: numbers in an update (d).

    Raises:
        InputError: naming the first of them.
    """
    if plan.unit != "client":
        rule = (
            "must be client; noise that clients add for their records is drawn by the "
            "clients (docs/reference/hospitals.md says what is possible where a client "
            "holds many people)"
        )
        raise InputError.one("plan.spec.unit", rule, plan.unit)
    if plan.clipping is not None:
        rule = (
            "must be fixed; a clipping norm that follows a private quantile is for "
            "simulations"
        )
        raise InputError.one("plan.clipping", rule, plan.clipping.quantile)
    plan.spec.require("a guard", "plan.spec.sampling")
    if evidence not in ("public", "internal"):
        raise InputError.one("evidence", "must be public or internal", evidence)
    for name, number in {"keep": keep, "coordinates": coordinates}.items():
        if number is not None and not (isinstance(number, int) and number >= 1):
            raise InputError.one(name, "must be a whole number, 1 or more", number)


def open_record(folder: Path, plan: Plan, evidence: str, framework: str) -> RunRecord:
    """The record of the run in a folder, made in a new or an empty folder.

    Args:
        folder: of the run; it exists.
        plan: of the run.
        evidence: what the ledger records.
        framework: what trains.

    Raises:
        InputError: when the folder holds another run, or other files.
    """
    if not (folder / RECORD).exists():
        return _new_record(folder, plan, evidence, framework)
    record = RunRecord.load(folder)
    recorded_evidence = record.configuration.get("evidence")
    if record.seed is not None or recorded_evidence is None:
        rule = "must not hold the run of a simulation"
        raise InputError.one("ledger", rule, str(folder))
    if record.plan_digest != plan.digest:
        rule = f"must be the one of the run in {folder}"
        raise InputError.one("plan", rule, plan.digest)
    if recorded_evidence != evidence:
        rule = f"must be {recorded_evidence}, as in {folder}"
        raise InputError.one("evidence", rule, evidence)
    return record


def _new_record(folder: Path, plan: Plan, evidence: str, framework: str) -> RunRecord:
    """Begin a run in a folder that is empty, or has the plan only."""
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    has_plan = PLAN in names and Plan.load(folder / PLAN).digest == plan.digest
    if names - {PLAN} or (PLAN in names and not has_plan):
        rule = "must be the folder of a guarded run, a new folder or an empty one"
        raise InputError.one("ledger", rule, str(folder))
    if evidence == "internal":
        folder.chmod(0o700)  # who takes part is for nobody else
    plan.save(folder / PLAN)
    fields = {
        "plan_digest": plan.digest,
        "algorithm": framework,
        "configuration": {"evidence": evidence},
        "versions": versions_of("privplan", "numpy"),
        "status": "running",
        "rounds_done": 0,
        "noise": "secure",
    }
    record = parse(RunRecord, fields)
    record.save(folder)
    return record
