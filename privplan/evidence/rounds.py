"""The evidence of a run for its replay: hashes of the releases beside the ledger.

``evidence.jsonl`` has a header and one line per round, chained by hashes from the
digest of the plan; a run with a line that breaks the chain is broken. ``vectors.bin``
holds the initial vector and the releases of all rounds (``privplan.releases``).
Simulations write both, deployments and version 0.1.0 neither. No model is stored: it
is a function of the releases.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from privplan.files import read_lines
from privplan.ledger import parse_chained
from privplan.values import Count, Natural, Value, is_empty

EVIDENCE = "evidence.jsonl"
VECTORS = "vectors.bin"
# Vectors are stored in single precision.
FLOAT_BYTES = 4
# Of the stored releases of a run; above it only their digests are kept.
MOST_BYTES = 256 * 2**20

# SHA-256 in hexadecimal.
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class EvidenceHeader(Value):
    """First line of the evidence.

    Attributes:
        data: digest of the data set.
        clients: digest of the assignment of clients to groups and training records.
        parameters: length of the global vector (d).
        model: digest of the initial global vector, which is the first vector stored.
        settings: digest of the hyperparameters, ``RunRecord.settings_digest``.
        stored: whether the releases of all rounds are stored; they are not above
            ``MOST_BYTES``.
    """

    version: Literal[2] = 2
    data: Digest
    clients: Digest
    parameters: Count
    model: Digest
    settings: Digest
    stored: bool


class RoundEvidence(Value):
    """A round of the evidence.

    Attributes:
        round: training round, from 1.
        releases: digest of each release, in the order of the ledger.
        length: number of coordinates of each release.
        ledger: hash of the ledger's last line after the round.
    """

    round: Count
    releases: tuple[Digest, ...]
    length: Natural
    ledger: Digest

    @property
    def size(self) -> int:
        """Bytes of its releases."""
        return FLOAT_BYTES * self.length * len(self.releases)


class EarlierHeader(Value):
    """First line in version 0.2.0, whose models were compared, not computed."""

    version: Literal[1] = 1
    data: str
    clients: str
    parameters: Count
    model: str
    models_every: Count
    releases_every: Count


class EarlierRound(Value):
    """A round of the evidence of version 0.2.0."""

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


EARLIER = (
    "evidence of a version of this project before its models were computed from the "
    "releases"
)
"""What is missing where the evidence is of version 0.2.0: its rounds cannot be executed
again."""

Header = EvidenceHeader | EarlierHeader
Line = Header | RoundEvidence | EarlierRound


class Evidence(Value):
    """The evidence as read: the header and the rounds up to the first fault.

    Attributes:
        header: the first line; None where it is not valid.
        rounds: evidence of each round by its number; rounds may be missing where
            releases are not stored.
        chain: hash of the last valid line.
        fault: one line on the first line that is not valid; None when all are.
        torn: whether the fault is a round's line that was cut off while it was written.
    """

    header: EvidenceHeader | EarlierHeader | None
    rounds: dict[int, RoundEvidence | EarlierRound]
    chain: str
    fault: str | None = None
    torn: bool = False

    @property
    def of_releases(self) -> dict[int, RoundEvidence]:
        """The rounds of evidence of this version by number; none of an earlier one."""
        return {
            number: line
            for number, line in self.rounds.items()
            if isinstance(line, RoundEvidence)
        }


def read_evidence(
    folder: Path, plan_digest: str, *, keep: bool = True
) -> Evidence | None:
    """The evidence in a run folder up to its first fault.

    Args:
        folder: the run folder.
        plan_digest: digest of the plan, from which the hashes are chained.
        keep: whether the rounds are returned; without them only faults are found.

    Returns:
        Every line before the first fault; None without the file.
    """
    path = folder / EVIDENCE
    if not path.exists():
        return None
    header: Header | None = None
    rounds: dict[int, RoundEvidence | EarlierRound] = {}
    chain = plan_digest
    torn = False
    last_round = 0
    fault: str | None = f"{EVIDENCE} is empty"

    for number, text in enumerate(read_lines(path, "evidence"), start=1):
        parsed = _parse_line(text, chain, header)
        if parsed is None:
            # A line of a round without its end was being written when the run stopped.
            torn = header is not None and not text.endswith("\n")
            if torn:
                what = "is torn"
            else:
                what = "does not continue the chain of hashes"
            fault = f"line {number} of {EVIDENCE} {what}"
            break
        line, chain = parsed
        if isinstance(line, EvidenceHeader | EarlierHeader):
            header = line
            fault = None
            continue
        in_turn = not isinstance(line, RoundEvidence) or _follows(
            line.round, last_round, header
        )
        if not in_turn:
            fault = f"line {number} of {EVIDENCE} is not of round {last_round + 1}"
            break
        last_round = line.round
        if keep:
            rounds[line.round] = line
    return Evidence(header=header, rounds=rounds, chain=chain, fault=fault, torn=torn)


def _parse_line(
    text: str, chain: str, header: Header | None
) -> tuple[Line, str] | None:
    """The value of a line and its hash; None where it is not valid in its place."""
    kinds: tuple[type[Line], ...]
    if header is None:
        kinds = (EvidenceHeader, EarlierHeader)
    elif isinstance(header, EvidenceHeader):
        kinds = (RoundEvidence,)
    else:
        kinds = (EarlierRound,)

    for kind in kinds:
        with contextlib.suppress(ValueError):
            parsed: tuple[Line, str] | None = parse_chained(
                text, chain, kind, "evidence"
            )
            if parsed is not None:
                return parsed
    return None


def _follows(round_: int, last_round: int, header: Header | None) -> bool:
    """Whether a round may follow the last one.

    It is the next one, or any later one where releases are not stored.
    """
    if isinstance(header, EvidenceHeader) and header.stored:
        return round_ == last_round + 1
    return round_ > last_round


def vector_digest(vector: np.ndarray) -> str:
    """SHA-256 of a vector as float32, little-endian."""
    return hashlib.sha256(np.ascontiguousarray(vector, "<f4").data).hexdigest()
