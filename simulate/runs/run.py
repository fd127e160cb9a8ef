"""A run in its folder: begun, resumed, or found finished."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from privplan.auditing.findings import AuditEvidence
from privplan.errors import PrivplanError
from privplan.io.lock import locked
from privplan.plan import Plan
from privplan.record import PLAN, RunRecord
from simulate.algorithms.entry import Hyperparameters
from simulate.algorithms.registry import algorithm, row
from simulate.audit import traces
from simulate.data.partition.clients import ClientPartition
from simulate.data.partition.registry import partition, require_unshared, scheme
from simulate.data.registry import load
from simulate.engine.evaluation import by_group
from simulate.engine.experiment import Experiment
from simulate.engine.loop import Progress, evaluate, initial_state, one_core, train
from simulate.engine.measurements import executed
from simulate.models.registry import model
from simulate.parallel.device import device_of
from simulate.parallel.distributed import (
    ALONE,
    EndedTogetherError,
    LostRankError,
    Ranks,
    gather,
    together,
)
from simulate.runs import checkpoint
from simulate.runs.folder import check_finished, existing_run
from simulate.runs.ledger_writer import FileLedger, LedgerWriter, RemoteLedger
from simulate.runs.plots import accuracy_by_round

PLOT = "accuracy.png"
SAVE_SECONDS = 2.0
"""Least time between two checkpoints; the last state is always saved."""
SAVE_SHARE = 0.05
"""Most of a run's time that saving may take, where clients keep much."""
EVALUATED = 10_000
"""Most clients whose own models are judged in the end."""


class InterruptedRunError(PrivplanError):
    """A run that was stopped from the keyboard; everything so far is saved."""

    exit_code = 130


@dataclass(frozen=True)
class Request:
    """What a person asks for.

    Attributes:
        plan: the solved plan.
        algorithm: name in the catalogue of algorithms.
        dataset: name of the data set.
        folder: the run folder.
        seed: the run's seed, 0 or more.
        device: ``auto``, ``cpu`` or ``cuda``.
        partition: how records are spread over clients, such as ``dirichlet:0.3``.
        choices: what else may be chosen of the algorithm.
        data_dir: where data are kept; PRIVPLAN_DATA or the user's cache when None.
        download: whether missing data may be fetched.
        canaries: canaries of an audit in each group, beyond the plan's clients.
    """

    plan: Plan
    algorithm: str
    dataset: str
    folder: Path
    seed: int = 0
    device: str = "auto"
    partition: str = "iid"
    choices: Hyperparameters = field(default_factory=Hyperparameters)
    data_dir: Path | None = None
    download: bool = False
    canaries: int = 0


@dataclass(frozen=True)
class Outcome:
    """What a request came to.

    Attributes:
        record: the finished run's record.
        folder: where it is.
        reused: whether it was finished before.
    """

    record: RunRecord
    folder: Path
    reused: bool


Report = Callable[[int, int], None]
"""Called with the rounds done and the rounds in all."""


def prepare(request: Request, ranks: Ranks = ALONE) -> Experiment:
    """Everything that the request needs, checked before anything is written.

    Args:
        request: what is asked for.
        ranks: the processes that share the run.

    Raises:
        PrivplanError: for a name that is not known, data that are missing, or parts that do
            not fit each other.
    """
    chosen = scheme(request.partition)
    row(request.algorithm).complete(request.choices)
    model(request.plan.spec.model.name)
    device = device_of(request.device, ranks)
    data = load(request.dataset, request.data_dir, request.download)
    labels, groups = data.train_y.numpy(), request.plan.groups
    held = partition(chosen, labels, groups, request.seed, data.train_people)
    if row(request.algorithm).protects(request.plan) == "record":
        require_unshared(request.algorithm, chosen, held, len(labels))
    records = _fewest(request, held) if row(request.algorithm).unit == "record" else None
    built = algorithm(request.algorithm, request.plan, request.choices, records)
    network = model(built.plan.spec.model.name)
    return Experiment(
        built,
        network,
        data,
        held,
        request.seed,
        device,
        ranks=ranks,
        canaries=request.canaries,
    )


def _fewest(request: Request, held: ClientPartition) -> dict[str, int]:
    """The fewest records that a client of each group holds, by name of the group.

    A number that a plan may use is public; a deployment knows it beforehand, a simulation looks.
    """
    return {
        group.name: int(held.sizes(members).min())
        for group, members in zip(request.plan.groups, held.members, strict=True)
    }


def execute(
    request: Request, report: Report = lambda done, rounds: None, ranks: Ranks = ALONE
) -> Outcome:
    """Train as requested, from where the folder stands.

    Args:
        request: what is asked for.
        report: called after each round.
        ranks: the processes that share the run; this one leads, and the others ``follow``.

    Returns:
        The finished run; a finished one is not trained again.

    Raises:
        InterruptedRunError: on Ctrl-C; the run is saved and the same request resumes it.
        LostRankError: when another process ends; saved likewise.
        PrivplanError: as ``prepare``, or when the folder is another run's or in use.
    """
    return run_prepared(request, together(ranks, lambda: prepare(request, ranks)), report)


def run_prepared(
    request: Request, setting: Experiment, report: Report = lambda done, rounds: None
) -> Outcome:
    """As ``execute``, in a setting that was prepared for the request."""
    ranks = setting.ranks
    with ExitStack() as opened:
        found = together(ranks, lambda: _entered(request, setting, opened))
        gather(ranks, [found.begun], setting.device)
        if found.begun is None:
            return Outcome(found.record, request.folder, reused=True)
        record = _train(request.folder, setting, found, found.begun, report)
    return Outcome(record, request.folder, reused=False)


@dataclass(frozen=True)
class _Found:
    """How a run's folder stands, once it is held; nothing has begun where all is done."""

    record: RunRecord
    begun: Progress | None
    journal: LedgerWriter


def _entered(request: Request, setting: Experiment, opened: ExitStack) -> _Found:
    """Hold the folder until ``opened`` ends, and find where the run stands."""
    folder, blank = request.folder, _blank(request, setting)
    if folder.exists():
        existing_run(folder, blank)  # refused before even the lock is made
    opened.enter_context(locked(folder))
    before = existing_run(folder, blank)
    if before is None:
        setting.algorithm.plan.save(folder / PLAN)
        blank.save(folder)
    if before is not None and before.status == "complete":
        check_finished(folder, before)
        return _Found(before, None, RemoteLedger())
    begun = checkpoint.load(folder, setting.device) or initial_state(setting)
    journal = FileLedger(folder, setting.algorithm.plan.digest, begun.chain)
    return _Found(before or blank, begun, journal)


def _train(
    folder: Path, setting: Experiment, found: _Found, begun: Progress, report: Report
) -> RunRecord:
    """Train to the end and write the record; when stopped, save where training stands."""
    record = found.record
    latest, saved, started = begun, time.monotonic(), time.monotonic()
    pause = SAVE_SECONDS

    def spent() -> float:
        return record.wall_seconds + max(0.0, time.monotonic() - started)

    def after(progress: Progress) -> None:
        nonlocal latest, saved, pause
        latest = progress
        report(progress.round, setting.rounds)
        now = time.monotonic()
        if not 0 <= now - saved < pause:  # a clock that was set back must not put saving off
            checkpoint.save(folder, progress)
            saved = time.monotonic()
            pause = max(SAVE_SECONDS, (saved - now) / SAVE_SHARE)

    report(begun.round, setting.rounds)
    try:
        end = train(setting, found.journal, begun, after)
    except (KeyboardInterrupt, LostRankError) as stop:
        checkpoint.save(folder, latest)
        _stopped(record, latest, spent()).save(folder)
        done = f"{latest.round} of {setting.rounds} rounds are saved in {folder}"
        if isinstance(stop, LostRankError):
            raise LostRankError(done) from None
        line = f"interrupted: {done}; the same command resumes"
        raise InterruptedRunError(line) from None
    checkpoint.save(folder, end)
    return _finished(folder, setting, end, _stopped(record, end, spent()))


def _stopped(record: RunRecord, progress: Progress, seconds: float) -> RunRecord:
    changes = {
        "rounds_done": progress.round,
        "metrics": progress.metrics,
        "wall_seconds": seconds,
    }
    return record.model_copy(update=changes)


def _finished(folder: Path, setting: Experiment, end: Progress, record: RunRecord) -> RunRecord:
    with one_core():
        found = evaluate(setting, end, most=EVALUATED)
    known = zip(setting.data.classes, found.by_class, found.total, strict=True)
    evidence = _audit(setting, end)
    if evidence is not None:
        evidence.save(folder)
    finished = record.model_copy(
        update={
            "status": "complete",
            "chain": end.chain,
            "audit": "" if evidence is None else evidence.digest,
            "accuracy": found.accuracy,
            "accuracy_by_class": {name: float(share) for name, share, total in known if total},
            "accuracy_by_group": by_group(found, setting.label_shares()),
        }
    )
    accuracy_by_round(folder / PLOT, finished)
    finished.save(folder)
    return finished


def _audit(setting: Experiment, end: Progress) -> AuditEvidence | None:
    """What was seen of the canaries; None without."""
    if setting.canary is None or end.audit is None:
        return None
    final = traces.final_scores(setting.canary, setting.start, end.theta)
    return traces.written(setting.canary, setting.algorithm.plan, end.chain, end.audit, final)


def _blank(request: Request, setting: Experiment) -> RunRecord:
    """The record of a run before its first round."""
    configuration: dict[str, Any] = {
        "aggregation": request.choices.aggregation,
        "numbers": dict(row(request.algorithm).complete(request.choices).numbers),
        "data": setting.data.digest,
        "clients": setting.algorithm.plan.spec.population,
        "rounds": setting.rounds,
        "processes": setting.ranks.size,
        "canaries": request.canaries,
    }
    return RunRecord(
        plan_digest=setting.algorithm.plan.digest,
        algorithm=setting.algorithm.name,
        dataset=setting.data.name,
        partition=request.partition,
        model=setting.model.name,
        seed=request.seed,
        device=setting.device.type,
        configuration=configuration,
        versions={
            "python": platform.python_version(),
            **{name: version(name) for name in ("privplan", "torch", "numpy")},
        },
        status="running",
        rounds_done=0,
        metrics=(),
        accuracy=None,
        accuracy_by_class={},
        accuracy_by_group={},
        wall_seconds=0.0,
        executed=executed(setting),
    )


def follow(request: Request, ranks: Ranks) -> None:
    """Train beside the process that leads, which writes down what comes of it.

    Args:
        request: what is asked for, as in the process that leads.
        ranks: the processes; this one does not lead.

    Raises:
        LostRankError: when another process of the run ends before the last round.
        EndedTogetherError: when another process says why the run cannot be, or on Ctrl-C.
    """
    try:
        setting = together(ranks, lambda: prepare(request, ranks))
        together(ranks, lambda: None)
        [begun] = gather(ranks, [], setting.device)
        if begun is not None:
            train(setting, RemoteLedger(), begun)
    except KeyboardInterrupt:
        raise EndedTogetherError(InterruptedRunError.exit_code) from None
