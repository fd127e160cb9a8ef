"""Writer of a run's evidence for its replay: ``evidence.jsonl``, ``vectors.bin``, ``clients.npz``.

The writer is not part of training: no result depends on it. Unlike the ledger the evidence is
not synchronised to disk in each round; evidence that a power failure removed is missing from it,
and the replay reaches such a round from an earlier one.
"""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
from torch import Tensor

from privplan.errors import InputError
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
from privplan.io.files import write_bytes, write_text
from simulate.algorithm import extra_coordinates
from simulate.components import State
from simulate.data.partition.clients import client_arrays
from simulate.engine.experiment import Experiment
from simulate.engine.loop import Progress

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
        """Write the evidence of a round.

        Args:
            progress: state of training after the round.

        Raises:
            InputError: when a file cannot be written.
        """
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
