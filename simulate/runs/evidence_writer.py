"""Writer of a run's evidence: ``evidence.jsonl``, ``vectors.bin``, ``clients.npz``.

The writer is not part of training: no result depends on it. Models are not written:
they are functions of the releases (``simulate.postprocessing``).
"""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path

import numpy as np
from torch import Tensor

from privplan.errors import InputError
from privplan.evidence.clients import CLIENTS, clients_digest
from privplan.evidence.rounds import (
    EVIDENCE,
    FLOAT_BYTES,
    VECTORS,
    EvidenceHeader,
    RoundEvidence,
    read_evidence,
    vector_digest,
)
from privplan.files import append_bytes, write_bytes, write_text
from privplan.ledger import chained
from privplan.record import LEDGER
from privplan.releases import are_stored
from simulate.data.partition.clients import client_arrays
from simulate.engine.experiment import Experiment
from simulate.engine.loop import Progress


class EvidenceWriter:
    """Appends each round's evidence; rounds after the checkpoint's are written anew.

    Args:
        folder: the run folder.
        experiment: the run.
        done: last round of the checkpoint from which the run goes on; 0 for a new run.
        settings: the record's ``settings_digest``.

    Raises:
        InputError: when the releases of rounds that are done should be stored and are
            lost.
    """

    def __init__(
        self,
        folder: Path,
        experiment: Experiment,
        done: int,
        settings: str,
    ) -> None:
        self._folder = folder
        plan = experiment.algorithm.plan
        start = experiment.start.numpy()
        clients = client_arrays(experiment.partition)
        header = EvidenceHeader(
            data=experiment.data.digest,
            clients=clients_digest(clients),
            parameters=len(start),
            model=vector_digest(start),
            settings=settings,
            stored=are_stored(expected_releases(experiment), len(start)),
        )
        lines = _written(folder, plan.digest, header, done)
        if header.stored and len(lines) < done:
            rule = (
                f"must hold the releases of the {done} rounds that are done, from the "
                "initial vector that this machine draws; begin the run anew elsewhere"
            )
            raise InputError.one("evidence", rule, f"{len(lines)} rounds")
        self._stores = header.stored
        text, self._chain = chained(header, plan.digest, "evidence")
        for line in lines:
            written, self._chain = chained(line, self._chain, "evidence")
            text += written
        size = FLOAT_BYTES * len(start)
        if header.stored:
            size += sum(line.size for line in lines)
        _cut(folder / VECTORS, size, _bytes(start))
        content = io.BytesIO()
        np.savez_compressed(content, **clients)  # type: ignore[arg-type]
        write_bytes(folder / CLIENTS, content.getvalue())
        write_text(folder / EVIDENCE, text)

    def append(self, progress: Progress) -> None:
        """Write the evidence of a round.

        ``put_on_disk`` precedes the next checkpoint; later rounds are written anew.
        """
        releases = [_array(vector) for vector in progress.releases]
        evidence = RoundEvidence(
            round=progress.round,
            releases=tuple(map(vector_digest, releases)),
            length=len(releases[0]) if releases else 0,
            ledger=progress.chain,
        )
        line, self._chain = chained(evidence, self._chain, "evidence")
        if self._stores:
            content = b"".join(map(_bytes, releases))
            append_bytes(self._folder / VECTORS, content, "evidence")
        append_bytes(self._folder / EVIDENCE, line.encode(), "evidence")


def put_on_disk(folder: Path) -> None:
    """Put on disk what ledger and evidence have written, the ledger first."""
    for name in (LEDGER, VECTORS, EVIDENCE):
        if (folder / name).exists():
            append_bytes(folder / name, b"", name, sync=True)


def expected_releases(experiment: Experiment) -> float:
    """Expected number of releases of all rounds."""
    algorithm = experiment.algorithm
    if algorithm.mechanism.joint:
        releases = 1.0
    else:
        releases = float(len(algorithm.plan.groups))
    if algorithm.mechanism.release_client is not None:
        releases = sum(group.expected_cohort for group in algorithm.plan.groups)
    return experiment.rounds * releases


def _written(
    folder: Path, plan_digest: str, header: EvidenceHeader, done: int
) -> list[RoundEvidence]:
    """The whole evidence of the rounds up to ``done``; none without its vectors."""
    before = None
    with suppress(InputError):
        before = read_evidence(folder, plan_digest)
    if before is None or before.header != header:
        return []
    lines = [line for line in before.of_releases.values() if line.round <= done]
    size = FLOAT_BYTES * header.parameters
    if header.stored:
        size += sum(line.size for line in lines)
    with suppress(OSError):
        if (folder / VECTORS).stat().st_size >= size:
            return lines
    return []


def _cut(path: Path, size: int, start: bytes) -> None:
    """Cut the file of vectors to a size; the initial vector alone is written."""
    try:
        if size == len(start):
            write_bytes(path, start)
        else:
            with path.open("r+b") as file:
                file.truncate(size)
    except OSError as error:
        rule = f"must be writable ({error.strerror})"
        raise InputError.one("evidence", rule, str(path)) from None


def _array(vector: Tensor) -> np.ndarray:
    array: np.ndarray = vector.detach().cpu().numpy()
    return array


def _bytes(vector: np.ndarray) -> bytes:
    return np.ascontiguousarray(vector, "<f4").tobytes()
