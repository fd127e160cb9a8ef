"""The initial vector and the releases that a run stores in ``vectors.bin``.

The file is the initial global vector and then the releases of all rounds, float32,
little-endian, without gaps, and ends there: the place of each vector follows from the
numbers and lengths before it, so no byte of the file is outside a vector whose digest
the evidence names. From these vectors a verifier computes the model; nothing else of
the file reaches it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from privplan.errors import InputError
from privplan.evidence.rounds import (
    EARLIER,
    EVIDENCE,
    FLOAT_BYTES,
    MOST_BYTES,
    VECTORS,
    EarlierHeader,
    EvidenceHeader,
    RoundEvidence,
    read_evidence,
    vector_digest,
)
from privplan.ledger import LedgerText
from privplan.plan import Plan
from privplan.record import LEDGER, ReleaseRecord

NOT_STORED = (
    "the releases of all rounds, which this run does not store (they are too large)"
)
"""What is missing where a run stores no releases."""


@dataclass(frozen=True)
class StoredReleases:
    """The vectors that a run stores, whose file is whole and has no other bytes.

    Attributes:
        folder: the run folder.
        header: the first line of the evidence.
        rounds: the evidence of each round, in order from round 1.
    """

    folder: Path
    header: EvidenceHeader
    rounds: tuple[RoundEvidence, ...]

    def initial(self) -> np.ndarray:
        """The initial global vector [d], float32.

        Raises:
            InputError: when it does not have its digest.
        """
        with _opened(self.folder) as file:
            return _vector(
                file, self.header.parameters, self.header.model, "initial vector"
            )

    def releases(self) -> Iterator[tuple[int, list[np.ndarray]]]:
        """Each round and its releases [k], float32, in the order of the ledger.

        Raises:
            InputError: when a release does not have its digest.
        """
        with _opened(self.folder) as file:
            file.seek(FLOAT_BYTES * self.header.parameters)
            for line in self.rounds:
                where = f"a release of round {line.round}"
                yield (
                    line.round,
                    [
                        _vector(file, line.length, digest, where)
                        for digest in line.releases
                    ],
                )


def stored_releases(
    folder: Path, plan: Plan, ledger: LedgerText | None = None
) -> StoredReleases:
    """The vectors that a run stores, once the sizes of all files agree.

    Args:
        folder: the run folder.
        plan: the plan that the run executed.
        ledger: its ledger, to which the evidence must belong; None where another check
            says so.

    Raises:
        InputError: when the folder has no evidence of this version, the releases are
        not stored,
            or the evidence does not belong to the ledger and to the file of vectors.
    """
    evidence = read_evidence(folder, plan.digest)
    if evidence is None or isinstance(evidence.header, EarlierHeader):
        why = "none" if evidence is None else EARLIER
        raise InputError.one("evidence", f"must be of this version ({EVIDENCE})", why)
    if evidence.fault is not None or evidence.header is None:
        raise InputError.one("evidence", "must be whole", evidence.fault)
    if not evidence.header.stored:
        rule = (
            "must be stored to compute the model; replay all rounds of the run instead"
        )
        raise InputError.one("releases", rule, "none")
    rounds = tuple(evidence.of_releases.values())
    fault = _size_fault(folder, evidence.header, rounds, plan)
    if fault is None and ledger is not None:
        fault = _ledger_fault(rounds, ledger, plan)
    if fault is not None:
        raise InputError.one("evidence", "must be of all releases of the ledger", fault)
    return StoredReleases(folder, evidence.header, rounds)


def stores_releases(folder: Path, plan_digest: str) -> bool:
    """Whether a run folder stores the releases of all rounds, as its evidence says."""
    evidence = read_evidence(folder, plan_digest, keep=False)
    header = None if evidence is None else evidence.header
    return isinstance(header, EvidenceHeader) and header.stored


def are_stored(releases: float, parameters: int) -> bool:
    """Whether a run stores its releases: they take ``MOST_BYTES`` or less.

    Args:
        releases: expected number of releases of all rounds.
        parameters: length of the global vector (d).
    """
    return FLOAT_BYTES * releases * parameters <= MOST_BYTES


def stored_fault(
    folder: Path,
    header: EvidenceHeader,
    rounds: tuple[RoundEvidence, ...],
    ledger: LedgerText,
    plan: Plan,
) -> str | None:
    """What is first wrong in the evidence and the stored vectors of a finished run.

    Every byte of ``vectors.bin`` is in a vector, each vector has its digest, and the
    releases are those that the ledger counts; None if all that holds. Releases that
    could be stored are: nobody computes the digest of one that is not.
    """
    releases = of_finished_run(ledger, plan)
    leaves_out = not header.stored and releases > 0
    if leaves_out and are_stored(releases, header.parameters):
        return f"{EVIDENCE} leaves out releases, which are small enough to be stored"
    fault = _size_fault(folder, header, rounds, plan) or _ledger_fault(
        rounds, ledger, plan
    )
    if fault is not None:
        return fault
    stored = StoredReleases(folder, header, rounds if header.stored else ())
    try:
        stored.initial()
        for _ in stored.releases():
            pass
    except InputError as error:
        return f"{VECTORS} {error.faults[0].rule}"
    return None


def of_finished_run(ledger: LedgerText, plan: Plan) -> float:
    """Expected number of releases of all rounds of a finished run.

    Clients who protect their records release for themselves, and so do those of
    hypernetworks: cohorts decide how many releases a round has. The number of all
    others is fixed.
    """
    of_rounds = Counter(record.round for record in ledger.records)
    is_fixed = len(set(of_rounds.values())) <= 1
    if is_fixed and all(record.unit == "client" for record in ledger.records):
        return len(ledger.records)
    return plan.spec.rounds * sum(group.expected_cohort for group in plan.groups)


def _size_fault(
    folder: Path, header: EvidenceHeader, rounds: tuple[RoundEvidence, ...], plan: Plan
) -> str | None:
    """What a finished run's vectors lack or have too much; None where nothing."""
    if header.stored and len(rounds) != plan.spec.rounds:
        return f"{EVIDENCE} has {len(rounds)} of {plan.spec.rounds} rounds"
    size = FLOAT_BYTES * header.parameters
    if header.stored:
        size += sum(line.size for line in rounds)
    try:
        stored = (folder / VECTORS).stat().st_size
    except OSError:
        return f"no {VECTORS}"
    if stored == size:
        return None
    return f"{VECTORS} has {stored} bytes, its vectors {size}"


def _ledger_fault(
    rounds: tuple[RoundEvidence, ...], ledger: LedgerText, plan: Plan
) -> str | None:
    """The first round whose evidence does not belong to the ledger; None if all do."""
    by_round = defaultdict[int, list[ReleaseRecord]](list)
    for record in ledger.records:
        by_round[record.round].append(record)
    order = [record.round for record in ledger.records]
    for line in rounds:
        released = by_round[line.round]
        count = len(line.releases)
        if count != len(released):
            # A ledger is read up to its first fault.
            if ledger.fault is not None:
                return f"{LEDGER}: {ledger.fault}"
            return f"{count} releases in round {line.round}, the ledger has {len(released)}"
        before = bisect_right(order, line.round)  # lines of the ledger after the round
        link = ledger.link(before) if before else plan.digest
        if line.ledger != link:
            return f"round {line.round} is of another ledger"
        for record in released:
            if record.noise.noisy and record.dimension != record.steps * line.length:
                noised = record.dimension // record.steps
                return f"round {line.round}: {line.length} coordinates, {noised} have noise"
    return None


def _opened(folder: Path) -> BinaryIO:
    """``vectors.bin``, opened to read."""
    path = folder / VECTORS
    try:
        return open(path, "rb")
    except OSError as error:
        raise InputError.one(
            "vectors", f"must be readable ({error.strerror})", str(path)
        ) from None


def _vector(file: BinaryIO, length: int, digest: str, what: str) -> np.ndarray:
    """The next vector of the file, which must have its digest."""
    content = file.read(FLOAT_BYTES * length)
    if len(content) < FLOAT_BYTES * length:
        raise InputError.one("vectors", f"must hold {what}", file.name)
    vector = np.frombuffer(content, "<f4")
    if vector_digest(vector) != digest:
        raise InputError.one(
            "vectors", f"must have the recorded digest of {what}", file.name
        )
    return vector
