"""The evidence of a run for its replay: hashes and stored vectors beside the ledger.

``evidence.jsonl`` has a header and one line per round, chained by hashes from the digest of the
plan; a run with a line that breaks the chain is broken. ``vectors.bin`` holds releases and models,
float32, little-endian, at the offsets that the lines name; ``clients.npz`` holds the group and the
training records of each client. Simulations write all of them, deployments and version 0.1.0 none.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from privplan.errors import InputError
from privplan.io.files import read_lines
from privplan.values import Count, Natural, Value, is_empty

EVIDENCE = "evidence.jsonl"
VECTORS = "vectors.bin"
CLIENTS = "clients.npz"
FLOAT_BYTES = 4
MODEL = "model"
"""Name of the model among the stored vectors of a round."""
Arrays = Mapping[str, np.ndarray]


class EvidenceHeader(Value):
    """First line of the evidence.

    Attributes:
        data: digest of the data set.
        clients: digest of the assignment of clients to groups and training records.
        parameters: length of the global vector (d).
        model: digest of the initial model, which is the first vector stored.
        models_every: the models of rounds that are multiples of it are stored.
        releases_every: the same for releases.
    """

    version: Literal[1] = 1
    data: str
    clients: str
    parameters: Count
    model: str
    models_every: Count
    releases_every: Count


class RoundEvidence(Value):
    """A round of the evidence.

    Attributes:
        round: training round, from 1.
        releases: digest of each release, in the order of the ledger.
        length: number of coordinates of each release.
        model: digest of the model after the round.
        state: scalars of the server's state after the round, such as the clipping norm.
        server: digests of the vectors of the server's state [d] by name, where a spec has a
            server optimiser or averages models; they are stored after the model, in this order.
        ledger: hash of the ledger's last line after the round.
        releases_at: offset of the releases among the stored vectors, in bytes; None if not stored.
        model_at: the same for the model.
        end: length of the stored vectors after the round, in bytes.
    """

    round: Count
    releases: tuple[str, ...]
    length: Natural
    model: str
    state: dict[str, float] = Field(default_factory=dict)
    server: dict[str, str] = Field(default_factory=dict, exclude_if=is_empty)
    ledger: str
    releases_at: Natural | None = None
    model_at: Natural | None = None
    end: Natural


class Evidence(Value):
    """The evidence as read: the header and the rounds up to the first fault.

    Attributes:
        header: the first line; None where it is not valid.
        rounds: evidence of each round by its number; rounds may be missing.
        chain: hash of the last valid line.
        fault: one line on the first line that is not valid; None when all are.
        torn: whether the fault is a round's line that was cut off while it was written.
    """

    header: EvidenceHeader | None
    rounds: dict[int, RoundEvidence]
    chain: str
    fault: str | None = None
    torn: bool = False


def chained_line(value: EvidenceHeader | RoundEvidence, previous: str) -> tuple[str, str]:
    """A line of the evidence, and the hash that the next line includes.

    Args:
        value: the header or a round.
        previous: hash of the line before; the plan's digest for the header.
    """
    body = json.dumps(value.model_dump(mode="json"), separators=(",", ":"), allow_nan=False)
    chain = hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()
    return f'{{"evidence":{body},"chain":"{chain}"}}\n', chain


def read_evidence(folder: Path, plan_digest: str, *, keep: bool = True) -> Evidence | None:
    """The evidence in a run folder, with every line before the first fault; None without the file.

    Args:
        folder: the run folder.
        plan_digest: digest of the plan, with which the chain of hashes begins.
        keep: whether to keep the rounds, or only to check them.

    Raises:
        InputError: when the file cannot be read.
    """
    path = folder / EVIDENCE
    if not path.exists():
        return None
    header: EvidenceHeader | None = None
    rounds: dict[int, RoundEvidence] = {}
    chain, torn, fault = plan_digest, False, f"{EVIDENCE} is empty"
    for number, line in enumerate(read_lines(path, "evidence"), start=1):
        found = _parse_line(line, chain, RoundEvidence if header else EvidenceHeader)
        if found is None:
            torn = header is not None and not line.endswith("\n")
            what = "is torn" if torn else "does not continue the chain of hashes"
            fault = f"line {number} of {EVIDENCE} {what}"
            break
        value, chain = found
        if isinstance(value, EvidenceHeader):
            header = value
        elif keep:
            rounds[value.round] = value
    else:
        if header is not None:
            return Evidence(header=header, rounds=rounds, chain=chain)
    return Evidence(header=header, rounds=rounds, chain=chain, fault=fault, torn=torn)


_BEFORE, _AFTER = '{"evidence":', ',"chain":"'
_TAIL = len(_AFTER) + 64 + len('"}\n')


def _parse_line(
    line: str, previous: str, kind: type[EvidenceHeader] | type[RoundEvidence]
) -> tuple[EvidenceHeader | RoundEvidence, str] | None:
    """The value of a line and its hash; None if ``chained_line`` does not make the line of it.

    Args:
        line: the line with its line feed.
        previous: hash of the line before.
        kind: what the line must be.
    """
    body = line[len(_BEFORE) : -_TAIL]
    chain = hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()
    if line != f'{_BEFORE}{body}{_AFTER}{chain}"}}\n':
        return None
    try:
        value = kind.model_validate_json(body)
        # Usually the compiled writer gives the same text; it writes some numbers in another form.
        same = value.model_dump_json() == body or chained_line(value, previous)[0] == line
    except ValueError:
        return None
    return (value, chain) if same else None


def vector_digest(vector: np.ndarray) -> str:
    """SHA-256 of a vector as float32, little-endian."""
    return hashlib.sha256(np.ascontiguousarray(vector, "<f4").data).hexdigest()


def clients_digest(clients: Arrays) -> str:
    """SHA-256 of the arrays of ``clients.npz``: group, starts and records, as int64."""
    content = hashlib.sha256()
    for name in ("group", "starts", "records"):
        array = np.ascontiguousarray(clients[name], "<i8")
        content.update(f"{name}:{len(array)}\n".encode())
        content.update(array.data)
    return content.hexdigest()


def read_clients(folder: Path) -> Arrays | None:
    """The arrays of ``clients.npz``; None without the file.

    Raises:
        InputError: when the file is damaged.
    """
    path = folder / CLIENTS
    if not path.exists():
        return None
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            return {name: stored[name] for name in ("group", "starts", "records")}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zipfile.LargeZipFile):
        rule = "must be the assignment of clients that the run wrote"
        raise InputError.one("clients", rule, str(path)) from None


def stored_vectors(folder: Path, offset: int, count: int, length: int) -> Iterator[np.ndarray]:
    """Vectors of ``vectors.bin`` from an offset.

    Args:
        folder: the run folder.
        offset: offset of the first vector in bytes.
        count: number of vectors.
        length: length of each.

    Raises:
        InputError: when the file is missing or too short.
    """
    path = folder / VECTORS
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            for _ in range(count):
                content = file.read(FLOAT_BYTES * length)
                if len(content) < FLOAT_BYTES * length:
                    rule = "must hold the vectors that the evidence names"
                    raise InputError.one("vectors", rule, str(path))
                yield np.frombuffer(content, "<f4")
    except OSError as error:
        raise InputError.one("vectors", f"must be readable ({error.strerror})", str(path)) from None


@dataclass(frozen=True)
class RoundVectors:
    """Vectors that a run stored for a round.

    Attributes:
        releases: the releases in the order of the ledger; none where they are not stored.
        model: the model after the round as ``model``, and the server's vectors by name; none
            where they are not stored.
        digests: the recorded digest of each of these vectors, and its own.
    """

    releases: list[np.ndarray]
    model: dict[str, np.ndarray]
    digests: list[tuple[str, str]]


def round_vectors(folder: Path, line: RoundEvidence | None, parameters: int) -> RoundVectors:
    """The stored vectors of a round.

    Args:
        folder: the run folder.
        line: evidence of the round; None without.
        parameters: length of the model.

    Raises:
        InputError: as ``stored_vectors``.
    """
    if line is None:
        return RoundVectors([], {}, [])
    releases, models = list[np.ndarray](), list[np.ndarray]()
    recorded = {MODEL: line.model, **line.server}
    if line.releases_at is not None:
        count = len(line.releases)
        releases = list(stored_vectors(folder, line.releases_at, count, line.length))
    if line.model_at is not None:
        models = list(stored_vectors(folder, line.model_at, len(recorded), parameters))
    pairs = [
        *zip(line.releases, releases, strict=False),
        *zip(recorded.values(), models, strict=False),
    ]
    digests = [(digest, vector_digest(vector)) for digest, vector in pairs]
    return RoundVectors(releases, dict(zip(recorded, models, strict=False)), digests)
