"""A training run in its folder: started, resumed, or returned when it is finished."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from privplan.accounting.curve import compose
from privplan.errors import Fault, InputError, PrivplanError, UnsupportedError
from privplan.files import locked, write_bytes
from privplan.laws.law import Clients
from privplan.ledger import Witness, history_of, read_ledger
from privplan.plan import Plan
from privplan.record import PLAN, RECORD, STREAMS, RunRecord
from privplan.report.plots import run_picture
from simulate import audit as traces
from simulate.aggregators import WEIGHT
from simulate.algorithms.registry import ALGORITHMS
from simulate.engine.evaluation import by_group
from simulate.engine.experiment import Experiment
from simulate.engine.loop import (
    Progress,
    evaluate,
    executed,
    initial_state,
    one_core,
    train,
)
from simulate.models.network import keep
from simulate.parallel import (
    SINGLE_PROCESS,
    EndedByRankError,
    LostRankError,
    Ranks,
    all_gather,
    on_all_ranks,
)
from simulate.runs import checkpoint
from simulate.runs.evidence_writer import EvidenceWriter
from simulate.runs.ledger_writer import (
    FileLedger,
    LedgerWriter,
    RemoteLedger,
    check_finished,
)
from simulate.runs.request import Request, prepare
from simulate.tasks import MULTI_CLASS, finite_or_none
from simulate.tracking import Callback, opened

# --- Checks of a run folder, which holds exactly one run. ----------------------------------------

_IDENTITY = (
    "algorithm",
    "dataset",
    "partition",
    "model",
    "seed",
    "device",
    "plan_digest",
)
_CONFIGURATION = (
    "aggregation", "numbers", "data", "canaries", "own_model", "metric", "task",
    "noise", "noise_commitment", "test", "tuned",
)  # fmt: skip


def existing_run(folder: Path, initial: RunRecord) -> RunRecord | None:
    """Returns record in the folder if it belongs to the requested run; None if there is none."""
    if not folder.is_dir():
        raise InputError.one("output", "must be a folder", str(folder))
    if not (folder / RECORD).exists():
        if any(
            path.name != PLAN
            for path in folder.iterdir()
            if not path.name.startswith(".")
        ):
            rule = "must be a run folder, a new folder or an empty one"
            raise InputError.one("output", rule, str(folder))
        path = folder / PLAN
        if path.exists() and Plan.load(path).digest != initial.plan_digest:
            rule = "must not hold a plan that the executed one would replace; choose another"
            raise InputError.one("output", f"{rule} with -o", str(folder))
        return None
    record = RunRecord.load(folder)
    faults, advice = [], f"as in {folder}; or choose another folder with -o"
    for name in _IDENTITY:
        expected, requested = getattr(record, name), getattr(initial, name)
        if expected != requested:
            faults.append(Fault(name, f"must be {expected!r}, {advice}", requested))
    for name in _CONFIGURATION:
        requested = initial.configuration.get(name)
        if record.configuration.get(name) != requested:
            faults.append(Fault(name, f"must be {advice}", requested))
    for name in ("processes", "streams") if record.status == "running" else ():
        began, requested = (
            record.configuration.get(name, 1),
            initial.configuration[name],
        )
        if began != requested:
            rule = f"must be {began}, as when the run in {folder} began"
            faults.append(Fault(name, rule, requested))
    if faults:
        raise InputError(faults)
    return record


# --- The record of a run before its first round, at an interruption, and after its last round. ---

PLOT = "accuracy.png"
FINAL_CLIENTS = (
    10_000  # most clients whose personal models are evaluated after the last round
)


def initial_record(request: Request, experiment: Experiment) -> RunRecord:
    """Record of a run before its first round."""
    algorithm, plan = experiment.algorithm, experiment.algorithm.plan
    chosen = ALGORITHMS.get(request.algorithm).complete(request.hyperparameters)
    configuration: dict[str, Any] = {
        "aggregation": chosen.aggregation,
        "numbers": dict(chosen.values),
        "data": experiment.data.digest,
        "clients": plan.spec.population,
        "rounds": experiment.rounds,
        "processes": experiment.ranks.size,
        "canaries": experiment.canaries,
        "streams": STREAMS,
    }
    if experiment.metric is not None:
        configuration["metric"] = experiment.metric.name
    if experiment.key is not None:
        configuration["noise"] = "secure-discrete" if experiment.discrete else "secure"
        configuration["noise_commitment"] = experiment.key.commitment
    if request.own_data is not None:
        configuration["own_data"] = True
        if request.own_data.test_of_others:
            configuration["test"] = "others"
        if request.tuned:
            configuration["tuned"] = True
    if request.own_model is not None:
        configuration["own_model"] = request.own_model.digest()
        if request.task != MULTI_CLASS:
            configuration["task"] = request.task
    return RunRecord(
        plan_digest=plan.digest,
        algorithm=algorithm.name,
        dataset=experiment.data.name,
        partition=request.partition_name,
        model=experiment.model.name,
        seed=experiment.seed,
        device=experiment.device.type,
        configuration=configuration,
        parts={
            group.name: clients.parts
            for group, clients in zip(
                plan.groups, experiment.partition.seats, strict=False
            )
            if isinstance(clients, Clients)
        },
        versions={
            "python": platform.python_version(),
            **{name: version(name) for name in ("privplan", "torch", "numpy")},
        },
        status="running",
        rounds_done=0,
        executed=executed(experiment),
        noise="seeded" if experiment.key is None else "secure",
    )


def spent_by_group(folder: Path, plan: Plan) -> dict[str, float]:
    """Upper bound on the epsilon that the ledger implies at each group's delta, by group.

    For plots and trackers, within 1e-4 of the lower bound as plans are, so that a run that keeps
    its plan shows no more than its budget. A group whose releases the accountant does not cover is
    left out.
    """
    records, spent = read_ledger(folder, plan.digest).records, {}
    for group in plan.groups:
        with suppress(UnsupportedError):
            curve = compose(history_of(records, group.name), plan.spec.relation)
            spent[group.name] = curve.epsilon(group.delta, tolerance=1e-4).upper
    return spent


def write_finished(
    folder: Path,
    experiment: Experiment,
    end: Progress,
    record: RunRecord,
    spent: Mapping[str, float],
) -> RunRecord:
    """Evaluate the final state; write the audit evidence, the plot and the complete record."""
    measures = end.measures
    if measures is None:
        with one_core():
            measures = evaluate(experiment, end, most=FINAL_CLIENTS)
    parts = (experiment.data.classes, measures.by_class, measures.total)
    classes = zip(*parts, strict=True) if measures.score is None else ()
    groups = by_group(measures, experiment.label_shares())
    audit = ""
    if experiment.canary is not None and end.canary_scores is not None:
        final = traces.final_scores(experiment.canary, experiment.start, end.theta)
        evidence = traces.audit_evidence(
            experiment.canary,
            experiment.algorithm.plan,
            end.chain,
            end.canary_scores,
            final,
        )
        evidence.save(folder)
        audit = evidence.digest
    score = finite_or_none(measures.accuracy)
    last = {
        "accuracy": score,
        "loss": measures.loss,
    }  # of more clients than while it trained
    finished = record.model_copy(
        update={
            "status": "complete",
            "chain": end.chain,
            "audit": audit,
            "metrics": (
                *record.metrics[:-1],
                record.metrics[-1].model_copy(update=last),
            ),
            "accuracy": score,
            "accuracy_by_class": {
                name: float(share) for name, share, total in classes if total
            },
            "accuracy_by_group": {
                k: v for k, v in groups.items() if finite_or_none(v) is not None
            },
            "weights": {
                group.name: float(end.server[WEIGHT + group.name]) / end.round
                for group in experiment.algorithm.plan.groups
                if WEIGHT + group.name in end.server
            },
        }
    )
    write_bytes(folder / PLOT, run_picture(finished, experiment.algorithm.plan, spent))
    finished.save(folder)
    return finished


# --- A training run in its folder: started, resumed, or returned when it is finished. ------------

_log = logging.getLogger(__name__)
SAVE_SECONDS = 2.0  # least time between two checkpoints; the last state is always saved
SAVE_SHARE = (
    0.05  # largest share of a run's time for saving, where the personal state is large
)


class InterruptedRunError(PrivplanError):
    """A run was interrupted from the keyboard; its state is saved."""

    exit_code = 130


@dataclass(frozen=True)
class Outcome:
    """The record of the finished run of a request."""

    record: RunRecord
    folder: Path
    reused: bool  # whether the run was already finished
    end: Progress | None = None  # the state after the last round; None for a reused run


Report = Callable[[int, int], None]  # number of completed rounds, number of all rounds


def execute(
    request: Request,
    report: Report = lambda done, rounds: None,
    ranks: Ranks = SINGLE_PROCESS,
) -> Outcome:
    """Train as requested, from the state that the folder holds."""
    return run_prepared(
        request, on_all_ranks(ranks, lambda: prepare(request, ranks)), report
    )


def run_prepared(
    request: Request,
    experiment: Experiment,
    report: Report = lambda done, rounds: None,
    callbacks: Sequence[Callback] = (),
) -> Outcome:
    """As ``execute``, with the experiment that was prepared for the request."""
    ranks = experiment.ranks
    with ExitStack() as stack:
        found = on_all_ranks(ranks, lambda: _open_folder(request, experiment, stack))
        all_gather(ranks, [found.progress], experiment.device)
        if found.progress is None:
            return Outcome(found.record, request.folder, reused=True)
        called = stack.enter_context(opened(request.track, request.folder, callbacks))
        record, end = _train(request.folder, experiment, found, report, called)
    return Outcome(record, request.folder, reused=False, end=end)


def execute_nonzero_rank(request: Request, ranks: Ranks) -> None:
    """Train as a non-zero rank of a distributed run; the main rank writes all files."""
    try:
        experiment = on_all_ranks(ranks, lambda: prepare(request, ranks))
        on_all_ranks(ranks, lambda: None)
        [progress] = all_gather(ranks, list[Progress | None](), experiment.device)
        if progress is not None:
            train(experiment, RemoteLedger(), progress)
    except KeyboardInterrupt:
        raise EndedByRankError(InterruptedRunError.exit_code) from None


@dataclass(frozen=True)
class _OpenedFolder:
    """State of a locked run folder."""

    record: RunRecord
    progress: Progress | None  # to continue from; None when the run is finished
    ledger: LedgerWriter
    witness: Witness | None = None  # learns of releases before they are used


def _open_folder(
    request: Request, experiment: Experiment, stack: ExitStack
) -> _OpenedFolder:
    """Lock the folder until ``stack`` closes, and read the state of its run."""
    folder, plan = request.folder, experiment.algorithm.plan
    initial = initial_record(request, experiment)
    if folder.exists():
        existing_run(
            folder, initial
        )  # refuses a wrong folder before the lock file is created
    stack.enter_context(locked(folder))
    before = existing_run(folder, initial)
    if before is None:
        if experiment.key is not None and request.key_file is not None:
            experiment.key.save(request.key_file)
        plan.save(folder / PLAN)
        initial.save(folder)
    elif not (folder / PLAN).exists():  # the record has the digest of this plan
        plan.save(folder / PLAN)
    if before is not None and before.status == "complete":
        check_finished(folder, before)
        checkpoint.remove(folder)  # a run that was killed after its record was complete
        return _OpenedFolder(before, None, RemoteLedger())
    keep(plan.spec.model.initial, folder)
    progress = checkpoint.load(folder, experiment.device) or initial_state(experiment)
    ledger = FileLedger(folder, plan.digest, progress.chain)
    witness = None
    if request.witnessing is not None:
        commitment = "" if experiment.key is None else experiment.key.commitment
        witness = request.witnessing.open(folder, plan, [progress.chain], commitment)
    return _OpenedFolder(before or initial, progress, ledger, witness)


def _train(
    folder: Path,
    experiment: Experiment,
    opened: _OpenedFolder,
    report: Report,
    callbacks: Sequence[Callback],
) -> tuple[RunRecord, Progress]:
    """Train to the last round and write the record; save the state when interrupted."""
    assert opened.progress is not None
    start, plan = opened.progress, experiment.algorithm.plan
    evidence = EvidenceWriter(
        folder, experiment, start.round, opened.record.settings_digest
    )
    latest, saved, started = start, time.monotonic(), time.monotonic()
    pause = SAVE_SECONDS

    def record_at(progress: Progress) -> RunRecord:
        """The record with the state of training and the wall time so far."""
        seconds = opened.record.wall_seconds + max(0.0, time.monotonic() - started)
        return opened.record.model_copy(
            update={
                "rounds_done": progress.round,
                "metrics": progress.metrics,
                "wall_seconds": seconds,
            }
        )

    def after(progress: Progress) -> None:
        nonlocal latest, saved, pause
        evidence.append(progress)
        latest = progress  # after its evidence: a round that is interrupted in between is repeated
        report(progress.round, experiment.rounds)
        if callbacks:
            state = record_at(progress)
            for callback in callbacks:
                callback.on_round(state)
        now = time.monotonic()
        if (
            not 0 <= now - saved < pause
        ):  # a clock that was set back must not delay saving
            checkpoint.save(folder, progress, experiment.rounds)
            saved = time.monotonic()
            _log.debug(
                "%s: saved round %d in %.3f s", folder, progress.round, saved - now
            )
            pause = max(SAVE_SECONDS, (saved - now) / SAVE_SHARE)

    action = f"resuming after round {start.round}" if start.round else "starting"
    _log.info(
        "%s: %s of %d on %s", folder, action, experiment.rounds, experiment.device
    )
    report(start.round, experiment.rounds)
    for callback in callbacks:
        callback.on_start(plan, record_at(start))
    try:
        end = train(experiment, opened.ledger, start, after, opened.witness)
    except (KeyboardInterrupt, LostRankError) as stop:
        checkpoint.save(folder, latest, experiment.rounds)
        record_at(latest).save(folder)
        done = f"{latest.round} of {experiment.rounds} rounds are saved in {folder}"
        if isinstance(stop, LostRankError):
            raise LostRankError(done) from None
        raise InterruptedRunError(
            f"interrupted: {done}; the same command resumes"
        ) from None
    checkpoint.save(folder, end, experiment.rounds)
    if opened.witness is not None:
        opened.witness.end(end.chain)
    spent = spent_by_group(folder, plan)
    finished = write_finished(folder, experiment, end, record_at(end), spent)
    checkpoint.remove(folder)
    for callback in callbacks:
        callback.on_end(finished, spent)
    return finished, end
