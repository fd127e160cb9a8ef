"""A training run in its folder: started, resumed, or returned when it is finished."""

from __future__ import annotations

import io
import logging
import math
import platform
import time
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.accounting.curve import compose
from privplan.auditing import AuditEvidence
from privplan.errors import Fault, InputError, PrivplanError, UnsupportedError
from privplan.evidence import (
    CLIENTS,
    EVIDENCE,
    FLOAT_BYTES,
    VECTORS,
    Evidence,
    EvidenceHeader,
    RoundEvidence,
    chained_line,
    clients_digest,
    read_evidence,
    vector_digest,
)
from privplan.files import locked, write_bytes, write_text
from privplan.ledger import history_of, read_ledger
from privplan.plan import Plan
from privplan.record import CHECKPOINT, LEDGER, PLAN, RECORD, RoundMetrics, RunRecord
from privplan.witness import Witness
from simulate import audit as traces
from simulate.algorithm import extra_coordinates
from simulate.algorithms.registry import ALGORITHMS
from simulate.components import State
from simulate.data.partition.clients import client_arrays
from simulate.engine.evaluation import by_group
from simulate.engine.experiment import Experiment
from simulate.engine.loop import Progress, evaluate, executed, initial_state, one_core, train
from simulate.engine.round import PersonalState
from simulate.models.network import keep
from simulate.parallel import (
    SINGLE_PROCESS,
    EndedByRankError,
    LostRankError,
    Ranks,
    all_gather,
    on_all_ranks,
)
from simulate.runs.ledger_writer import FileLedger, LedgerWriter, RemoteLedger
from simulate.runs.plots import accuracy_by_round
from simulate.runs.request import Request, prepare
from simulate.tasks import MULTI_CLASS, finite_or_none
from simulate.tracking.callback import Callback, opened

# --- Checks of a run folder, which holds exactly one run. ----------------------------------------

NOISE = ("noise", "noise_commitment")
"""Entries of the configuration that a run with secure noise has."""
_IDENTITY = ("algorithm", "dataset", "partition", "model", "seed", "device", "plan_digest")


def existing_run(folder: Path, initial: RunRecord) -> RunRecord | None:
    """Returns record in the folder if it belongs to the requested run; None if there is none."""
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
    """Raises if the ledger of a finished run differs from the one that the run wrote."""
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


# --- Checkpoint files: the state of training on disk. --------------------------------------------

VERSION = 3


def save(folder: Path, progress: Progress) -> None:
    """Write ``checkpoint.pt``; equal states give equal bytes."""
    content, scores = io.BytesIO(), progress.canary_scores
    data = {
        "version": VERSION,
        "round": progress.round,
        "theta": progress.theta.cpu().clone(),
        "server": {name: value.cpu().clone() for name, value in progress.server.items()},
        "personal": _to_tensors(progress.personal),
        "metrics": [point.model_dump() for point in progress.metrics],
        "chain": progress.chain,
        "audit": None if scores is None else torch.from_numpy(scores),
    }
    if progress.mechanism:
        state = progress.mechanism.items()
        data["mechanism"] = {name: value.cpu().clone() for name, value in state}
    torch.save(data, content)
    write_bytes(folder / CHECKPOINT, content.getvalue())


def load(folder: Path, device: torch.device) -> Progress | None:
    """Returns the state in ``checkpoint.pt``; None without the file. Executes no code from it."""
    path = folder / CHECKPOINT
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError.one(
            "checkpoint", f"must be readable ({error.strerror})", str(path)
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a damaged file is reported below, in one line
            if zipfile.ZipFile(io.BytesIO(content)).testzip() is not None:
                raise ValueError("a part of the file does not have its checksum")
            data = torch.load(io.BytesIO(content), map_location=device, weights_only=True)
        return _progress(data)
    except Exception:  # readers of a damaged file can fail in any way
        rule = "must be a sound checkpoint; remove it to replay the run from its first round"
        raise InputError.one("checkpoint", rule, str(path)) from None


def _progress(data: Any) -> Progress:
    if data["version"] != VERSION or data["theta"].ndim != 1:
        raise ValueError(data["version"])
    return Progress(
        round=int(data["round"]),
        theta=data["theta"],
        server=dict(data["server"]),
        personal=_from_tensors(data["personal"]),
        metrics=tuple(RoundMetrics(**point) for point in data["metrics"]),
        chain=str(data["chain"]),
        canary_scores=None if data["audit"] is None else data["audit"].cpu().numpy(),
        mechanism=dict(data.get("mechanism", {})),
    )


def _to_tensors(personal: PersonalState) -> dict[str, Tensor]:
    """Personal state as tensors in the order of the client numbers, for a checkpoint."""
    clients = sorted(personal)
    if not clients:
        return {}
    rows = torch.stack([personal[client] for client in clients])
    return {"clients": torch.tensor(clients, dtype=torch.int64), "rows": rows}


def _from_tensors(data: Mapping[str, Tensor]) -> dict[int, Tensor]:
    """The inverse of ``_to_tensors``."""
    if not data:
        return {}
    pairs = zip(data["clients"].tolist(), data["rows"].cpu(), strict=True)
    return {int(client): row.clone() for client, row in pairs}


# --- The record of a run before its first round, at an interruption, and after its last round. ---

PLOT = "accuracy.png"
FINAL_CLIENTS = 10_000
"""Most clients whose personal models are evaluated after the last round."""


def initial_record(
    experiment: Experiment, partition: str, aggregation: str, numbers: Mapping[str, float]
) -> RunRecord:
    """Record of a run before its first round."""
    algorithm = experiment.algorithm
    return RunRecord(
        plan_digest=algorithm.plan.digest,
        algorithm=algorithm.name,
        dataset=experiment.data.name,
        partition=partition,
        model=experiment.model.name,
        seed=experiment.seed,
        device=experiment.device.type,
        configuration={
            "aggregation": aggregation,
            "numbers": dict(numbers),
            "data": experiment.data.digest,
            "clients": algorithm.plan.spec.population,
            "rounds": experiment.rounds,
            "processes": experiment.ranks.size,
            "canaries": experiment.canaries,
            **({} if experiment.metric is None else {"metric": experiment.metric.name}),
            **noise_configuration(experiment),
        },
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
        executed=executed(experiment),
        noise="seeded" if experiment.key is None else "secure",
    )


def noise_configuration(experiment: Experiment) -> dict[str, str]:
    """Kind of the noise and commitment to its key; empty for noise from the seed."""
    if experiment.key is None:
        return {}
    kind = "secure-discrete" if experiment.discrete else "secure"
    return {"noise": kind, "noise_commitment": experiment.key.commitment}


def record_at(record: RunRecord, progress: Progress, seconds: float) -> RunRecord:
    """The record with the state of training and the wall time so far."""
    changes = {
        "rounds_done": progress.round,
        "metrics": progress.metrics,
        "wall_seconds": seconds,
    }
    return record.model_copy(update=changes)


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
    evidence = _audit_evidence(experiment, end)
    if evidence is not None:
        evidence.save(folder)
    finished = record.model_copy(
        update={
            "status": "complete",
            "chain": end.chain,
            "audit": "" if evidence is None else evidence.digest,
            "accuracy": finite_or_none(measures.accuracy),
            "accuracy_by_class": {name: float(share) for name, share, total in classes if total},
            "accuracy_by_group": _finite(by_group(measures, experiment.label_shares())),
        }
    )
    accuracy_by_round(folder / PLOT, finished, experiment.algorithm.plan, spent)
    finished.save(folder)
    return finished


def _finite(scores: Mapping[str, float]) -> dict[str, float]:
    """The finite ones of the scores by name."""
    return {name: value for name, value in scores.items() if finite_or_none(value) is not None}


def _audit_evidence(experiment: Experiment, end: Progress) -> AuditEvidence | None:
    """The canaries' scores as evidence; None in a run without canaries."""
    if experiment.canary is None or end.canary_scores is None:
        return None
    final = traces.final_scores(experiment.canary, experiment.start, end.theta)
    plan = experiment.algorithm.plan
    return traces.audit_evidence(experiment.canary, plan, end.chain, end.canary_scores, final)


# -------------------------------------------------------------------------------------------------
# Writer of a run's evidence for its replay: ``evidence.jsonl``, ``vectors.bin``, ``clients.npz``.
#
# The writer is not part of training: no result depends on it. Unlike the ledger the evidence is
# not synchronised to disk in each round; evidence that a power failure removed is missing from it,
# and the replay reaches such a round from an earlier one.

MOST_BYTES = 64 * 2**20
"""Largest size of the stored models of a run, and of its stored releases, in bytes."""


class EvidenceWriter:
    """Appends the evidence of each round; a resumed run continues the lines of its checkpoint.

    Args:
        folder: the run folder.
        experiment: the run.
        done: number of rounds that the checkpoint includes; later lines are written again.

    Raises:
        InputError: when the files cannot be written.
    """

    def __init__(self, folder: Path, experiment: Experiment, done: int) -> None:
        self._folder, self._last = folder, experiment.rounds
        digest = experiment.algorithm.plan.digest
        clients = client_arrays(experiment.partition)
        start, spec = experiment.start.numpy(), experiment.algorithm.plan.spec
        self._with_server = spec.server is not None or spec.averaging is not None
        vectors = self._server_vectors(experiment.algorithm.server.start(experiment.start))
        self._header = EvidenceHeader(
            data=experiment.data.digest,
            clients=clients_digest(clients),
            parameters=len(start),
            model=vector_digest(start),
            models_every=_interval(experiment.rounds, len(start) * (1 + len(vectors))),
            releases_every=_interval(experiment.rounds, _release_values(experiment)),
        )
        try:
            before = read_evidence(folder, digest)
        except InputError:  # damaged evidence is written anew from this round on
            before = None
        text, self._chain = chained_line(self._header, digest)
        self._end = FLOAT_BYTES * len(start)
        for line in _continued(before, self._header, done, folder / VECTORS):
            written, self._chain = chained_line(line, self._chain)
            text, self._end = text + written, line.end
        with _Writing(folder / VECTORS), open(folder / VECTORS, "ab") as file:
            if file.tell() < self._end:
                file.truncate(0)
                file.write(_bytes(start))
            file.truncate(self._end)
        content = io.BytesIO()
        np.savez_compressed(content, **clients)  # type: ignore[arg-type]
        write_bytes(folder / CLIENTS, content.getvalue())
        write_text(folder / EVIDENCE, text)

    def append(self, progress: Progress) -> None:
        """Write the evidence of a round."""
        theta, releases = _array(progress.theta), [_array(one) for one in progress.releases]
        server = self._server_vectors(progress.server)
        stored, offsets = b"", []
        for every, vectors in (
            (self._header.releases_every, releases),
            (self._header.models_every, [theta, *server.values()]),
        ):
            due = bool(vectors) and (progress.round % every == 0 or progress.round == self._last)
            offsets.append(self._end + len(stored) if due else None)
            stored += b"".join(map(_bytes, vectors)) if due else b""
        self._end += len(stored)
        state = {name: float(value) for name, value in progress.server.items() if value.ndim == 0}
        line, self._chain = chained_line(
            RoundEvidence(
                round=progress.round,
                releases=tuple(map(vector_digest, releases)),
                length=len(releases[0]) if releases else 0,
                model=vector_digest(theta),
                state={name: value for name, value in state.items() if math.isfinite(value)},
                server={name: vector_digest(vector) for name, vector in server.items()},
                ledger=progress.chain,
                releases_at=offsets[0],
                model_at=offsets[1],
                end=self._end,
            ),
            self._chain,
        )
        for name, content in ((VECTORS, stored), (EVIDENCE, line.encode())):
            with _Writing(self._folder / name), open(self._folder / name, "ab") as file:
                file.write(content)

    def _server_vectors(self, state: State) -> dict[str, np.ndarray]:
        """Vectors of the state of the spec's server optimiser and average, by name."""
        if not self._with_server:
            return {}
        return {name: _array(one) for name, one in sorted(state.items()) if one.ndim == 1}


def _continued(
    before: Evidence | None, header: EvidenceHeader, done: int, vectors: Path
) -> list[RoundEvidence]:
    """Rounds of earlier evidence that precede the checkpoint and whose vectors are stored."""
    if before is None or before.header != header or not vectors.exists():
        return []
    size = vectors.stat().st_size
    return [line for number, line in before.rounds.items() if number <= done and line.end <= size]


def _interval(rounds: int, values: float) -> int:
    """Least number of rounds between stored vectors of so many values in total."""
    return max(1, math.ceil(rounds * FLOAT_BYTES * values / MOST_BYTES))


def _release_values(experiment: Experiment) -> float:
    """Expected number of values of a round's releases."""
    algorithm = experiment.algorithm
    length = experiment.dimension + extra_coordinates(algorithm)
    if algorithm.mechanism.release_client is not None:
        return length * sum(group.expected_cohort for group in algorithm.plan.groups)
    return length * (1 if algorithm.mechanism.joint else len(algorithm.plan.groups))


def _array(vector: Tensor) -> np.ndarray:
    array: np.ndarray = vector.detach().cpu().numpy()
    return array


def _bytes(vector: np.ndarray) -> bytes:
    return np.ascontiguousarray(vector, "<f4").tobytes()


class _Writing:
    """Turns an error of the operating system into one line that names the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            rule = f"must be writable ({error.strerror})"
            raise InputError.one("evidence", rule, str(self._path)) from None


# --- A training run in its folder: started, resumed, or returned when it is finished. ------------

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
    """Train as requested, from the state that the folder holds."""
    return run_prepared(request, on_all_ranks(ranks, lambda: prepare(request, ranks)), report)


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
        record = _train(request.folder, experiment, found, found.progress, report, called)
    return Outcome(record, request.folder, reused=False)


def execute_nonzero_rank(request: Request, ranks: Ranks) -> None:
    """Train as a non-zero rank of a distributed run; the main rank writes all files."""
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
        witness: learns of them before they are used; None without one.
    """

    record: RunRecord
    progress: Progress | None
    ledger: LedgerWriter
    witness: Witness | None = None


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
    progress = load(folder, experiment.device) or initial_state(experiment)
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
            save(folder, progress)
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
        end = train(experiment, opened.ledger, start, after, opened.witness)
    except (KeyboardInterrupt, LostRankError) as stop:
        save(folder, latest)
        record_at(record, latest, wall_seconds()).save(folder)
        done = f"{latest.round} of {experiment.rounds} rounds are saved in {folder}"
        if isinstance(stop, LostRankError):
            raise LostRankError(done) from None
        line = f"interrupted: {done}; the same command resumes"
        raise InterruptedRunError(line) from None
    save(folder, end)
    if opened.witness is not None:
        opened.witness.end(end.chain)
    spent = spent_by_group(folder, plan)
    finished = write_finished(
        folder, experiment, end, record_at(record, end, wall_seconds()), spent
    )
    for callback in callbacks:
        callback.on_end(finished, spent)
    return finished
