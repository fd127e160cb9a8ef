"""Writer of a run's evidence for its replay: ``evidence.jsonl``, ``vectors.bin``, ``clients.npz``.

The writer is not part of training: no result depends on it. Unlike the ledger the evidence is
not synchronised to disk in each round; evidence that a power failure removed is missing from it,
and the replay reaches such a round from an earlier one.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
from torch import Tensor

from privplan.errors import InputError
from privplan.evidence import (
    CLIENTS,
    EVIDENCE,
    FLOAT_BYTES,
    VECTORS,
    EvidenceHeader,
    RoundEvidence,
    clients_digest,
    read_evidence,
    vector_digest,
)
from privplan.files import write_bytes, write_text
from privplan.ledger import chained
from simulate.algorithm import extra_coordinates
from simulate.components import State
from simulate.data.partition.clients import client_arrays
from simulate.engine.experiment import Experiment
from simulate.engine.loop import Progress, initial_state

MOST_BYTES = 64 * 2**20  # of a run's stored models, and of its stored releases


class EvidenceWriter:
    """Appends each round's evidence; lines after the ``done`` ones of the checkpoint anew."""

    def __init__(self, folder: Path, experiment: Experiment, done: int) -> None:
        self._folder, self._last = folder, experiment.rounds
        algorithm, start = experiment.algorithm, experiment.start.numpy()
        plan, clients = algorithm.plan, client_arrays(experiment.partition)
        vectors = _server_vectors(initial_state(experiment).server)
        # Expected number of values of a round's releases: per client, per group, or of one sum.
        sums = 1.0 if algorithm.mechanism.joint else float(len(plan.groups))
        if algorithm.mechanism.release_client is not None:
            sums = sum(group.expected_cohort for group in plan.groups)
        released = sums * (experiment.dimension + extra_coordinates(algorithm))
        self._header = EvidenceHeader(
            data=experiment.data.digest,
            clients=clients_digest(clients),
            parameters=len(start),
            model=vector_digest(start),
            models_every=_interval(experiment.rounds, len(start) * (1 + len(vectors))),
            releases_every=_interval(experiment.rounds, released),
        )
        stored, lines = folder / VECTORS, []
        with suppress(InputError):  # damaged evidence is written anew from this round on
            before = read_evidence(folder, plan.digest)
            if before is not None and before.header == self._header and stored.exists():
                size, known = stored.stat().st_size, before.rounds.items()
                lines = [one for number, one in known if number <= done and one.end <= size]
        text, self._chain = chained(self._header, plan.digest, "evidence")
        self._end = FLOAT_BYTES * len(start)
        for line in lines:
            written, self._chain = chained(line, self._chain, "evidence")
            text, self._end = text + written, line.end
        with _writing(stored) as file:
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
        server = _server_vectors(progress.server)
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
        line, self._chain = chained(
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
            "evidence",
        )
        for name, content in ((VECTORS, stored), (EVIDENCE, line.encode())):
            with _writing(self._folder / name) as file:
                file.write(content)


def _server_vectors(state: State) -> dict[str, np.ndarray]:
    """Vectors [d] of the server's state by name; rows of a matrix by name and number."""
    found = dict[str, Tensor]()
    for name, value in sorted(state.items()):
        rows = enumerate(value if value.ndim == 2 else ())
        found |= {name: value} if value.ndim == 1 else {f"{name} {at}": row for at, row in rows}
    return {name: _array(one) for name, one in found.items()}


def _interval(rounds: int, values: float) -> int:
    """Least number of rounds between stored vectors of so many values in total."""
    return max(1, math.ceil(rounds * FLOAT_BYTES * values / MOST_BYTES))


def _array(vector: Tensor) -> np.ndarray:
    array: np.ndarray = vector.detach().cpu().numpy()
    return array


def _bytes(vector: np.ndarray) -> bytes:
    return np.ascontiguousarray(vector, "<f4").tobytes()


@contextmanager
def _writing(path: Path) -> Iterator[BinaryIO]:
    """The file, opened to append; an error of the operating system names it in one line."""
    try:
        with path.open("ab") as file:
            yield file
    except OSError as error:
        rule = f"must be writable ({error.strerror})"
        raise InputError.one("evidence", rule, str(path)) from None
