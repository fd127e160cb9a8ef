"""A training run in its folder: started, resumed, or returned when it is finished."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from privplan.errors import PrivplanError
from privplan.files import locked
from privplan.record import PLAN, RunRecord
from privplan.witness import Witness
from simulate.engine.experiment import Experiment
from simulate.engine.loop import Progress, initial_state, train
from simulate.models.start import keep
from simulate.parallel import (
    SINGLE_PROCESS,
    EndedByRankError,
    LostRankError,
    Ranks,
    all_gather,
    on_all_ranks,
)
from simulate.runs import checkpoint
from simulate.runs.evidence_writer import EvidenceWriter, put_on_disk
from simulate.runs.folder import existing_run
from simulate.runs.ledger_writer import (
    FileLedger,
    LedgerWriter,
    RemoteLedger,
    check_finished,
)
from simulate.runs.records import initial_record, spent_by_group, write_finished
from simulate.runs.request import Request, prepare
from simulate.tracking import Callback, opened

_log = logging.getLogger(__name__)
# Least time between two checkpoints, in seconds: what a killed run may have to repeat.
# The last state is always saved.
SAVE_SECONDS = 2.0
# Largest share of a run's time for saving, where the personal state is large.
SAVE_SHARE = 0.05


class InterruptedRunError(PrivplanError):
    """A run was interrupted from the keyboard; its state is saved."""

    exit_code = 130


@dataclass(frozen=True)
class Outcome:
    """The record of the finished run of a request.

    Attributes:
        record: of the run.
        folder: of the run.
        reused: whether the run was already finished.
        end: the state after the last round; None for a reused run.
    """

    record: RunRecord
    folder: Path
    reused: bool
    end: Progress | None = None


Report = Callable[[int, int], None]
"""Takes the number of completed rounds and the number of all rounds."""


def execute(
    request: Request,
    report: Report = lambda done, rounds: None,
    ranks: Ranks = SINGLE_PROCESS,
) -> Outcome:
    """Train as requested, from the state that the folder holds.

    Args:
        request: the run.
        report: called after each round.
        ranks: the processes that train together; this one writes the files.

    Raises:
        InputError: for a fault in the request or a folder that holds something else;
            nothing was written then.
        InterruptedRunError: at Ctrl-C, with the state saved.
        LostRankError: where another process ended, with the state saved.
    """
    experiment = on_all_ranks(ranks, lambda: prepare(request, ranks))
    return run_prepared(request, experiment, report)


def run_prepared(
    request: Request,
    experiment: Experiment,
    report: Report = lambda done, rounds: None,
    callbacks: Sequence[Callback] = (),
) -> Outcome:
    """As ``execute``, with the experiment that was prepared for the request."""
    ranks = experiment.ranks
    with ExitStack() as stack:
        opened_folder = on_all_ranks(
            ranks, lambda: _open_folder(request, experiment, stack)
        )
        all_gather(ranks, [opened_folder.progress], experiment.device)
        if opened_folder.progress is None:
            return Outcome(opened_folder.record, request.folder, reused=True)
        called = stack.enter_context(opened(request.track, request.folder, callbacks))
        record, end = _train(request.folder, experiment, opened_folder, report, called)
    return Outcome(record, request.folder, reused=False, end=end)


def execute_nonzero_rank(request: Request, ranks: Ranks) -> None:
    """Train as a non-zero rank of a distributed run; the main rank writes all files."""
    try:
        experiment = on_all_ranks(ranks, lambda: prepare(request, ranks))
        # The main rank opens the folder meanwhile, which may fail on all ranks.
        on_all_ranks(ranks, lambda: None)
        [progress] = all_gather(ranks, list[Progress | None](), experiment.device)
        if progress is not None:
            train(experiment, RemoteLedger(), progress)
    except KeyboardInterrupt:
        raise EndedByRankError(InterruptedRunError.exit_code) from None


@dataclass(frozen=True)
class _OpenedFolder:
    """State of a locked run folder.

    Attributes:
        record: of the run so far.
        progress: to continue from; None when the run is finished.
        ledger: where the next releases are booked.
        witness: learns of releases before they are used.
        commit_every: after how many rounds ledger and evidence are put on disk.
    """

    record: RunRecord
    progress: Progress | None
    ledger: LedgerWriter
    witness: Witness | None = None
    commit_every: int = 1

    def commits_after(self, round_: int) -> bool:
        """Whether files are put on disk after a round.

        When each round is committed, the ledger puts its own lines there before they
        are used, and evidence is only needed at a checkpoint.
        """
        return self.commit_every > 1 and round_ % self.commit_every == 0


def _open_folder(
    request: Request, experiment: Experiment, stack: ExitStack
) -> _OpenedFolder:
    """Lock the folder until ``stack`` closes, and read the state of its run."""
    folder = request.folder
    plan = experiment.algorithm.plan
    initial = initial_record(request, experiment)
    # A wrong folder is refused before a lock file is created in it, and judged again
    # under the lock, since another process may have begun a run in between.
    if folder.exists():
        existing_run(folder, initial)
    stack.enter_context(locked(folder))
    record = existing_run(folder, initial)
    if record is None and experiment.key is not None and request.key_file is not None:
        experiment.key.save(request.key_file)
    # The record, if there is one, has the digest of this plan.
    if record is None or not (folder / PLAN).exists():
        plan.save(folder / PLAN)
    if record is None:
        record = initial
        record.save(folder)
    if record.status == "complete":
        check_finished(folder, record)
        # Left by a run that was killed after its record was complete.
        checkpoint.remove(folder)
        return _OpenedFolder(record, None, RemoteLedger())
    keep(plan.spec.model.initial, folder)
    progress = checkpoint.load(folder, experiment.device) or initial_state(experiment)
    sync = request.commit_every == 1
    ledger = FileLedger(folder, plan.digest, progress.chain, sync=sync)
    witness = None
    if request.witnessing is not None:
        if experiment.key is None:
            commitment = ""
        else:
            commitment = experiment.key.commitment
        witness = request.witnessing.open(folder, plan, [progress.chain], commitment)
    return _OpenedFolder(record, progress, ledger, witness, request.commit_every)


class _Checkpoints:
    """Saves the state of a run in its folder, not more often than is worth its time."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self._folder = folder
        self._rounds = rounds
        self._saved = time.monotonic()
        self._pause = SAVE_SECONDS

    def save(self, progress: Progress) -> None:
        """Save the state, once ledger and evidence of its rounds are on disk."""
        put_on_disk(self._folder)
        checkpoint.save(self._folder, progress, self._rounds)

    def save_if_due(self, progress: Progress) -> None:
        """Save the state where the last checkpoint is long ago."""
        begin = time.monotonic()
        # A clock that was set back must not delay saving.
        if 0 <= begin - self._saved < self._pause:
            return
        self.save(progress)
        self._saved = time.monotonic()
        seconds = self._saved - begin
        _log.debug(
            "%s: saved round %d in %.3f s", self._folder, progress.round, seconds
        )
        self._pause = max(SAVE_SECONDS, seconds / SAVE_SHARE)


def _train(
    folder: Path,
    experiment: Experiment,
    opened_folder: _OpenedFolder,
    report: Report,
    callbacks: Sequence[Callback],
) -> tuple[RunRecord, Progress]:
    """Train to the last round and write the record; save the state when interrupted."""
    start = opened_folder.progress
    assert start is not None
    rounds = experiment.rounds
    before = opened_folder.record
    evidence = EvidenceWriter(folder, experiment, start.round, before.settings_digest)
    checkpoints = _Checkpoints(folder, rounds)
    started = time.monotonic()
    latest = start

    def record_at(progress: Progress) -> RunRecord:
        """The record with the state of training and the wall time so far."""
        seconds = before.wall_seconds + max(0.0, time.monotonic() - started)
        return before.model_copy(
            update={
                "rounds_done": progress.round,
                "metrics": progress.metrics,
                "wall_seconds": seconds,
            }
        )

    def after_round(progress: Progress) -> None:
        nonlocal latest
        # A round counts after its evidence: one that is interrupted in between is
        # repeated.
        evidence.append(progress)
        if opened_folder.commits_after(progress.round):
            put_on_disk(folder)
        latest = progress
        report(progress.round, rounds)
        if callbacks:
            record = record_at(progress)
            for callback in callbacks:
                callback.on_round(record)
        checkpoints.save_if_due(progress)

    if start.round:
        action = f"resuming after round {start.round}"
    else:
        action = "starting"
    _log.info("%s: %s of %d on %s", folder, action, rounds, experiment.device)
    report(start.round, rounds)
    for callback in callbacks:
        callback.on_start(experiment.algorithm.plan, record_at(start))
    try:
        end = train(
            experiment,
            opened_folder.ledger,
            start,
            after_round,
            opened_folder.witness,
        )
    except (KeyboardInterrupt, LostRankError) as stop:
        checkpoints.save(latest)
        record_at(latest).save(folder)
        saved = f"{latest.round} of {rounds} rounds are saved in {folder}"
        if isinstance(stop, LostRankError):
            raise LostRankError(saved) from None
        raise InterruptedRunError(
            f"interrupted: {saved}; the same command resumes"
        ) from None
    checkpoints.save(end)
    if opened_folder.witness is not None:
        opened_folder.witness.end(end.chain)
    spent = spent_by_group(folder, experiment.algorithm.plan)
    finished = write_finished(folder, experiment, end, record_at(end), spent)
    checkpoint.remove(folder)
    for callback in callbacks:
        callback.on_end(finished, spent)
    return finished, end
