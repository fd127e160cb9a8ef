"""Opening the folder of a guarded run, and the plans and settings that are refused."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.record import PLAN, RECORD, RunRecord
from privplan.spec.turns import refuse_turns


def check_settings(plan: Plan, evidence: str, keep: int | None) -> None:
    """Refuse plans and settings that a guard cannot execute.

    Raises:
        InputError: naming the first of them.
    """
    if plan.unit != "client":
        rule = "must be client; noise that clients add for their records is drawn by the clients"
        raise InputError.one("plan.spec.unit", rule, plan.unit)
    if plan.clipping is not None:
        rule = "must be fixed; a clipping norm that follows a private quantile is for simulations"
        raise InputError.one("plan.clipping", rule, plan.clipping.quantile)
    refuse_turns(plan.spec.sampling, "plan.spec.sampling", "a guard")
    if evidence not in ("public", "internal"):
        raise InputError.one("evidence", "must be public or internal", evidence)
    if keep is not None and keep < 1:
        raise InputError.one("keep", "must be 1 or more", keep)


def open_record(folder: Path, plan: Plan, evidence: str, framework: str) -> RunRecord:
    """The record of the run in a folder, which is created where there is none.

    Raises:
        InputError: when the folder holds another run, or other files.
    """
    path = folder / RECORD
    if not path.exists():
        others = [one.name for one in folder.iterdir() if not one.name.startswith(".")]
        known = (folder / PLAN).exists() and Plan.load(folder / PLAN).digest == plan.digest
        if any(name != PLAN for name in others) or (PLAN in others and not known):
            rule = "must be the folder of a guarded run, a new folder or an empty one"
            raise InputError.one("ledger", rule, str(folder))
        plan.save(folder / PLAN)
        versions = {name: version(name) for name in ("privplan", "numpy")}
        record = RunRecord(
            plan_digest=plan.digest,
            algorithm=framework,
            configuration={"evidence": evidence},
            versions={"python": platform.python_version(), **versions},
            status="running",
            rounds_done=0,
            noise="secure",
        )
        record.save(folder)
        return record
    record = RunRecord.load(folder)
    if record.seed is not None or record.configuration.get("evidence") is None:
        raise InputError.one("ledger", "must not hold the run of a simulation", str(folder))
    if record.plan_digest != plan.digest:
        raise InputError.one("plan", f"must be the one of the run in {folder}", plan.digest)
    if record.configuration["evidence"] != evidence:
        rule = f"must be {record.configuration['evidence']}, as in {folder}"
        raise InputError.one("evidence", rule, evidence)
    return record
