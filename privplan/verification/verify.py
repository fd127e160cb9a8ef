"""Verify a run: read its folder, execute rounds of it again, and ask all checks."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privplan.auditing import AuditEvidence
from privplan.bundle import is_bundle
from privplan.errors import Fault, InputError, NotGivenError, PrivplanError
from privplan.evidence.replay import ReplayReport
from privplan.guidance import checked_call
from privplan.ledger import LedgerText, history_of, read_ledger
from privplan.limits import MOST_CLIENTS
from privplan.plan import Plan
from privplan.proven import finding_on_run
from privplan.record import LEDGER, PLAN, RECORD, RunRecord, run_folder
from privplan.registry import points
from privplan.secure_stream import NoiseKey
from privplan.threads import one_product_thread
from privplan.verification.checks.check import CHECKS, run_checks
from privplan.verification.checks.replay import claimed_rounds
from privplan.verification.realised import realised
from privplan.verification.run import Run
from privplan.verification.verdict import DEPLOYED, Verdict, WorstOff

if TYPE_CHECKING:
    from privplan.proof import Finding

SELECTION = "privplan.selection_seed"
"""Key among the options of an executor: the seed of its selection of rounds; fresh if
absent."""
STATE = "privplan.state"
"""Key of a mapping into which an executor of all rounds puts the state that they end
in, where the run stores no releases from which it can be computed."""
EXECUTORS = "privplan.executors"
"""Entry points of functions that execute rounds of a run again and store the result.

Each takes the run folder, how many rounds (None for as many as fit into the seconds),
the seconds (None without a limit), and what options of ``verify`` set in
``click.Context.meta``; it returns the ``ReplayReport`` of the rounds that it executed.
"""
# Time for executing rounds again where their number is left out.
SECONDS = 10.0
# Digits of a number of rounds: with more it is no longer exact as a float.
_MAX_DIGITS = 15

_log = logging.getLogger(__name__)


@checked_call
def load_run(folder: Any) -> Run:
    """Read a run folder, whose ledger must not end in an incomplete line.

    >>> privplan.load_run("run").record.status
    'complete'

    Raises:
        InputError: when a file is missing or damaged, or when the plan's certificate is
            not what its releases cost.
    """
    folder = run_folder(folder)
    if is_bundle(folder):
        rule = "must be the run folder of which this bundle was published"
        raise InputError.one("run", rule, str(folder))
    if not (folder / RECORD).exists():
        runs = sorted(folder.glob(f"*/*/{RECORD}"))
        if runs:
            first_run = f"the first of the {len(runs)} in it is {runs[0].parent}"
            rule = f"must be a run folder; {first_run}"
            raise InputError.one("run", rule, str(folder))
    plan = _read_plan(folder)
    if plan.spec.population > MOST_CLIENTS:
        rule = f"must have at most {MOST_CLIENTS} clients to be verified"
        raise InputError.one("plan.groups", rule, plan.spec.population)

    record = RunRecord.load(folder)
    is_open_deployment = record.status == "running" and record.seed is None
    if is_open_deployment and not (folder / LEDGER).exists():
        rule = f"must have a release; 0 of {plan.spec.rounds} rounds are booked"
        raise InputError.one("ledger", rule, str(folder))
    ledger = read_ledger(folder, plan.digest)
    if ledger.torn:
        rule = f"{ledger.fault}; {_cure(ledger, record)}"
        raise InputError.one("ledger", rule, str(folder / LEDGER))
    audit = AuditEvidence.load(folder) if record.audit else None
    return Run(plan=plan, ledger=ledger, record=record, audit=audit, folder=folder)


def _read_plan(folder: Path) -> Plan:
    """The plan in a run folder; its faults name the file and what it is for."""
    try:
        return Plan.load(folder / PLAN)
    except InputError as error:
        ending = "; without the plan that it executed a run has no verdict"
        faults = [
            Fault(f"{folder / PLAN}: {fault.field}", fault.rule + ending, fault.found)
            for fault in error.faults
        ]
        raise InputError(faults) from None


def _cure(ledger: LedgerText, record: RunRecord) -> str:
    """What is left of a torn ledger, and what helps.

    A run that goes on writes the torn line again; a finished one has lost it for good.
    """
    sound = f"{len(ledger.records)} releases before it are sound"
    if record.status == "running":
        return f"{sound}; resume the run"
    return (
        f"{sound}; the run was finished, so what is lost cannot be recovered; run it in "
        "another folder"
    )


def approved_plan(plan: Plan | Path | str, folder: Path | None) -> Plan:
    """The plan that a reader of a run approved before, and keeps elsewhere.

    Args:
        plan: or its file.
        folder: of the run, whose plan is what its trainer says; None without one.

    Raises:
        InputError: for a plan in the run's folder, or one that cannot be read.
    """
    if folder is not None and isinstance(plan, Path | str):
        place = Path(plan)
        if place.is_dir():
            place = place / PLAN
        place = place.resolve()
        is_inside = folder.resolve() in place.parents
        # A second name of the same file is nowhere else.
        is_linked = place.is_file() and os.path.samefile(place, folder / PLAN)
        if is_inside or is_linked:
            rule = "must be the plan that was approved, not the one that the run has"
            raise InputError.one("plan", rule, str(plan))
    return Plan.load(plan)


@checked_call
def judge(
    run: Run | Path | str,
    rounds: int | str | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    trusted: Iterable[object] = (),
    noise_key: Path | None = None,
) -> Verdict:
    """The verdict on a run, after rounds of it were executed again.

    Every verdict is this one.

    >>> privplan.judge(privplan.load_run("run"), rounds=0).outcome
    'kept'

    Args:
        run: what ``load_run`` read, or a run folder.
        rounds: how many are executed again where simulator and data are found: a
            number, ``all``, or as many as fit into 10 s when None.
        options: what else the executor is given, such as data and model of a run on own
            ones.
        trusted: what the reader trusts, such as the plan that was approved.
        noise_key: file with the key of cohorts and noise; the one beside the folder
            when None.
    """
    if not isinstance(run, Run):
        run = load_run(run)
    commitment = run.record.configuration.get("noise_commitment")
    key = NoiseKey.of_run(run.folder or Path(), commitment, noise_key)
    keys = () if key is None else (key,)
    all_options = {**(options or {}), "noise_key": noise_key}
    execution = _executed_again(run, rounds, all_options)
    judged = replace(
        run,
        trusted=(*run.trusted, *trusted, *keys),
        executed=execution.report,
        contradiction=execution.contradiction,
    )
    return _verdict_of(judged, execution.obstacle)


def number_of_rounds(text: int | str) -> int | None:
    """A number of rounds as it is typed; None for ``all``."""
    text = str(text)
    if text == "all":
        return None
    is_whole = text.isascii() and text.isdigit()
    if not is_whole or len(text) > _MAX_DIGITS:
        raise InputError.one("rounds", "must be all or a whole number", text)
    return int(text)


@dataclass(frozen=True)
class _Execution:
    """What executing rounds of a run again found now, or why none was executed."""

    report: ReplayReport | None = None
    obstacle: str = ""
    # What the record says and cannot be so here. No run may escape execution by it.
    contradiction: str = ""


def _executed_again(
    run: Run, rounds: int | str | None, options: Mapping[str, Any]
) -> _Execution:
    """Execute rounds of a run again, where nothing stands in the way.

    What is missing here, such as data or a key, leaves a run as recorded. What the
    record says and cannot be so, such as public data with other records, makes it
    unverified: a run must not escape execution by a name that nobody knows.

    Args:
        run: what ``load_run`` read.
        rounds: as ``judge`` takes them.
        options: of the executor.
    """
    number = number_of_rounds("all" if rounds is None else rounds)
    executors = list(points(EXECUTORS))
    obstacles = {
        "--rounds 0": number == 0,
        "the run has no folder": run.folder is None,
        DEPLOYED: run.record.seed is None,
        "the run is not finished": run.record.status != "complete",
        "the simulator is not installed": not executors,
    }
    for obstacle, is_met in obstacles.items():
        if is_met:
            return _Execution(obstacle=obstacle)
    seconds = SECONDS if rounds is None else None
    try:
        execute = executors[0].load()
        return _Execution(execute(run.folder, number, seconds, options))
    except (PrivplanError, ImportError) as error:
        reason = str(error).splitlines()[0]
        is_absent = not isinstance(error, InputError) or isinstance(
            error, NotGivenError
        )
        if is_absent:
            return _Execution(obstacle=reason)
        return _Execution(obstacle=reason, contradiction=reason)


@one_product_thread()
def _verdict_of(run: Run, not_executed: str) -> Verdict:
    """The verdict on a run by all checks; epsilon follows from the ledger only.

    Args:
        run: what was read, with what was executed again just now.
        not_executed: why nothing was.
    """
    checks = run_checks(run)
    groups, worst, refused = run.once(realised)
    # Of a broken run the check that failed says why accountants refuse.
    has_failed = any(check.failed for check in checks if check.name != "budget")
    if refused and not has_failed:
        raise refused[0]
    for check in checks:
        _log.info("check %s: %s: %s", check.name, check.outcome, check.reason)

    record = run.record
    # A run that goes on has no evaluation.
    last_evaluation = record.metrics[-1] if record.metrics else None
    scored_badly = last_evaluation is not None and last_evaluation.accuracy is None
    executed = 0
    claimed = ""
    agrees = any(check.name == "replay" and check.passed for check in checks)
    if agrees and run.executed is not None:
        executed = len(set(run.executed.rounds))
        claimed = run.executed.claimed if executed else ""
    return Verdict(
        algorithm=record.algorithm,
        dataset=record.dataset,
        noise=record.noise,
        groups=tuple(groups),
        worst=max(worst, key=_share_of_budget),
        checks=tuple(checks),
        accuracy=record.accuracy,
        accuracy_by_class=record.accuracy_by_class,
        metric=record.metric,
        not_finite=record.accuracy is None and scored_badly,
        own_data=record.is_on_own_data,
        own_model="own_model" in record.configuration,
        own_loss="own_loss" in record.configuration,
        tuned=bool(record.configuration.get("tuned")),
        tested_on_others=record.configuration.get("test") == "others",
        plan_digest=run.plan.digest,
        unit=run.plan.unit,
        person=run.plan.spec.person,
        rounds=run.plan.spec.rounds,
        executed=executed,
        earlier=0 if executed else claimed_rounds(run),
        not_executed=not_executed,
        claimed=claimed,
    )


def _share_of_budget(client: WorstOff) -> float:
    """The ratio of realised epsilon to budget."""
    if client.realised_upper is None:
        upper = math.inf
    else:
        upper = client.realised_upper
    return upper / client.budget


def false_alarm_rate() -> float:
    """Largest rate at which a verdict on an honest run is broken, by a union bound."""
    return sum(check.false_alarm for _, check in CHECKS.items())


def proven_of(run: Run, verdict: Verdict) -> dict[str, Finding]:
    """What is proven of the realised upper bounds of a verdict, by group."""
    findings = {}
    for group in verdict.groups:
        history = history_of(run.ledger.records, group.group)
        findings[group.group] = finding_on_run(
            group.accountant, history, group.relation, group.realised_upper, group.delta
        )
    return findings
