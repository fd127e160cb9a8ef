"""A training run in its folder: started, resumed, or returned when it is finished."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from privplan.attestation.attestor import Attestor
from privplan.attestation.keys import SigningKey
from privplan.errors import PrivplanError
from privplan.io.files import locked
from privplan.record import PLAN, RunRecord
from simulate.algorithms.registry import ALGORITHMS
from simulate.engine.experiment import Experiment
from simulate.engine.loop import Progress, initial_state, train
from simulate.models.initial import keep
from simulate.parallel.distributed import (
    SINGLE_PROCESS,
    EndedByRankError,
    LostRankError,
    Ranks,
    all_gather,
    on_all_ranks,
)
from simulate.runs import checkpoint
from simulate.runs.evidence import EvidenceWriter
from simulate.runs.folder import check_finished, existing_run
from simulate.runs.ledger_writer import FileLedger, LedgerWriter, RemoteLedger
from simulate.runs.record import initial_record, record_at, spent_by_group, write_finished
from simulate.runs.request import Request, prepare
from simulate.tasks import MULTI_CLASS
from simulate.tracking.callback import Callback, opened

_log = logging.getLogger(__name__)
SAVE_SECONDS = 2.0
"""Least time between two checkpoints; the last state is always saved."""
SAVE_SHARE = 0.05
"""Largest share of a run's time for saving, where the personal state is large."""


class InterruptedRunError(PrivplanError):
    """A run was interrupted from the keyboard; its state is saved."""

    exit_code = 130


@dataclass(frozen=True)
class Outcome:
    """Result of a request.

    Attributes:
        record: the finished run's record.
        folder: the run folder.
        reused: whether the run was already finished.
    """

    record: RunRecord
    folder: Path
    reused: bool


Report = Callable[[int, int], None]
"""Called with the number of completed rounds and the number of all rounds."""


def execute(
    request: Request, report: Report = lambda done, rounds: None, ranks: Ranks = SINGLE_PROCESS
) -> Outcome:
    """Train as requested, from the state that the folder holds.

    Args:
        request: parameters of the run.
        report: called after each round.
        ranks: processes of a distributed run; this one is the main rank, and the others call
            ``execute_nonzero_rank``.

    Returns:
        The finished run; a run that is already finished is not trained again.

    Raises:
        InterruptedRunError: on Ctrl-C; the run is saved and the same request resumes it.
        LostRankError: when another process ends; the run is saved likewise.
        PrivplanError: as ``prepare``, or when the folder holds another run or is in use.
    """
    return run_prepared(request, on_all_ranks(ranks, lambda: prepare(request, ranks)), report)


def run_prepared(
    request: Request,
    experiment: Experiment,
    report: Report = lambda done, rounds: None,
    callbacks: Sequence[Callback] = (),
) -> Outcome:
    """As ``execute``, with the experiment that was prepared for the request.

    Args:
        request: parameters of the run.
        experiment: the prepared experiment.
        report: called after each round.
        callbacks: called at the start, after each round and at the end.
    """
    ranks = experiment.ranks
    with ExitStack() as stack:
        found = on_all_ranks(ranks, lambda: _open_folder(request, experiment, stack))
        all_gather(ranks, [found.progress], experiment.device)
        if found.progress is None:
            return Outcome(found.record, request.folder, reused=True)
        called = stack.enter_context(opened(request.track, request.folder, callbacks))
        record = _train(request.folder, experiment, found, found.progress, report, called)
    return Outcome(record, request.folder, reused=False)


def execute_nonzero_rank(request: Request, ranks: Ranks) -> None:
    """Train as a non-zero rank of a distributed run; the main rank writes all files.

    Args:
        request: parameters of the run, equal on all ranks.
        ranks: the processes; this one is not the main rank.

    Raises:
        LostRankError: when another process of the run ends before the last round.
        EndedByRankError: when another rank reports an error, or on Ctrl-C.
    """
    try:
        experiment = on_all_ranks(ranks, lambda: prepare(request, ranks))
        on_all_ranks(ranks, lambda: None)
        received: list[Progress | None] = all_gather(ranks, [], experiment.device)
        [progress] = received
        if progress is not None:
            train(experiment, RemoteLedger(), progress)
    except KeyboardInterrupt:
        raise EndedByRankError(InterruptedRunError.exit_code) from None


@dataclass(frozen=True)
class _OpenedFolder:
    """State of a locked run folder.

    Attributes:
        record: the run's record.
        progress: state of training to continue from; None when the run is finished.
        ledger: where further releases are written.
        attestor: signs statements about them; None without signatures.
    """

    record: RunRecord
    progress: Progress | None
    ledger: LedgerWriter
    attestor: Attestor | None = None


def _open_folder(request: Request, experiment: Experiment, stack: ExitStack) -> _OpenedFolder:
    """Lock the folder until ``stack`` closes, and read the state of its run."""
    folder, plan = request.folder, experiment.algorithm.plan
    chosen = ALGORITHMS.get(request.algorithm).complete(request.hyperparameters)
    initial = initial_record(experiment, request.partition_name, chosen.aggregation, chosen.values)
    optional: dict[str, str] = {}
    if request.own_model is not None:
        optional["own_model"] = request.own_model.digest()
        if request.task != MULTI_CLASS:
            optional["task"] = request.task
    if request.precision != "float32":
        optional["precision"] = request.precision
    if optional:
        configuration = {**initial.configuration, **optional}
        initial = initial.model_copy(update={"configuration": configuration})
    if folder.exists():
        existing_run(folder, initial)  # refuses a wrong folder before the lock file is created
    stack.enter_context(locked(folder))
    before = existing_run(folder, initial)
    if before is None:
        if experiment.key is not None and request.noise_key_file is not None:
            experiment.key.save(request.noise_key_file)
        plan.save(folder / PLAN)
        initial.save(folder)
    elif not (folder / PLAN).exists():  # the record has the digest of this plan
        plan.save(folder / PLAN)
    if before is not None and before.status == "complete":
        check_finished(folder, before)
        return _OpenedFolder(before, None, RemoteLedger())
    keep(plan.spec.model.initial, folder)
    progress = checkpoint.load(folder, experiment.device) or initial_state(experiment)
    ledger = FileLedger(folder, plan.digest, progress.chain)
    attestor = None
    if request.signing_key_file is not None:
        key = SigningKey.load(request.signing_key_file)
        attestor = Attestor(folder, plan, key, progress.chain)
        attestor.start("" if experiment.key is None else experiment.key.commitment)
    return _OpenedFolder(before or initial, progress, ledger, attestor)


def _train(
    folder: Path,
    experiment: Experiment,
    opened: _OpenedFolder,
    start: Progress,
    report: Report,
    callbacks: Sequence[Callback],
) -> RunRecord:
    """Train to the last round and write the record; save the state when interrupted."""
    record, evidence = opened.record, EvidenceWriter(folder, experiment, start.round)
    latest, saved, started = start, time.monotonic(), time.monotonic()
    pause = SAVE_SECONDS

    def wall_seconds() -> float:
        return record.wall_seconds + max(0.0, time.monotonic() - started)

    def after(progress: Progress) -> None:
        nonlocal latest, saved, pause
        evidence.append(progress)
        latest = progress  # after its evidence: a round that is interrupted in between is repeated
        report(progress.round, experiment.rounds)
        if callbacks:
            state = record_at(record, progress, wall_seconds())
            for callback in callbacks:
                callback.on_round(state)
        now = time.monotonic()
        if not 0 <= now - saved < pause:  # a clock that was set back must not delay saving
            checkpoint.save(folder, progress)
            saved = time.monotonic()
            _log.debug("%s: saved round %d in %.3f s", folder, progress.round, saved - now)
            pause = max(SAVE_SECONDS, (saved - now) / SAVE_SHARE)

    action = f"resuming after round {start.round}" if start.round else "starting"
    _log.info("%s: %s of %d on %s", folder, action, experiment.rounds, experiment.device)
    report(start.round, experiment.rounds)
    plan = experiment.algorithm.plan
    for callback in callbacks:
        callback.on_start(plan, record_at(record, start, wall_seconds()))
    try:
        end = train(experiment, opened.ledger, start, after, opened.attestor)
    except (KeyboardInterrupt, LostRankError) as stop:
        checkpoint.save(folder, latest)
        record_at(record, latest, wall_seconds()).save(folder)
        done = f"{latest.round} of {experiment.rounds} rounds are saved in {folder}"
        if isinstance(stop, LostRankError):
            raise LostRankError(done) from None
        line = f"interrupted: {done}; the same command resumes"
        raise InterruptedRunError(line) from None
    checkpoint.save(folder, end)
    if opened.attestor is not None:
        opened.attestor.end(end.chain)
    spent = spent_by_group(folder, plan)
    finished = write_finished(
        folder, experiment, end, record_at(record, end, wall_seconds()), spent
    )
    for callback in callbacks:
        callback.on_end(finished, spent)
    return finished
