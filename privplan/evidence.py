"""The evidence of a run for its replay: hashes of the releases beside the ledger.

``evidence.jsonl`` has a header and one line per round, chained by hashes from the digest of the
plan; a run with a line that breaks the chain is broken. ``vectors.bin`` holds the initial vector
and the releases of all rounds (``privplan.releases``); ``clients.npz`` holds the group and the
training records of each client. Simulations write all of them, deployments and version 0.1.0 none.
No model is stored: it is a function of the releases.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from scipy.special import ndtr, ndtri

from privplan.accounting.pld.convolution import fast_length
from privplan.errors import InputError
from privplan.files import load_json, read_json, read_lines, write_text
from privplan.ledger import parse_chained
from privplan.limits import refuse_bomb
from privplan.record import REPLAY
from privplan.values import Count, Natural, NonNegative, Value, is_empty, parse

EVIDENCE = "evidence.jsonl"
VECTORS = "vectors.bin"
CLIENTS = "clients.npz"
FLOAT_BYTES = 4
MOST_BYTES = 256 * 2**20  # of the stored releases of a run
Arrays = Mapping[str, np.ndarray]


Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]  # SHA-256 in hexadecimal


class EvidenceHeader(Value):
    """First line of the evidence."""

    version: Literal[2] = 2
    data: Digest  # of the data set
    clients: (
        Digest  # digest of the assignment of clients to groups and training records
    )
    parameters: Count  # length of the global vector (d)
    model: (
        Digest  # digest of the initial global vector, which is the first vector stored
    )
    settings: Digest  # of the hyperparameters, ``RunRecord.settings_digest``
    # whether the releases of all rounds are stored; they are not above ``MOST_BYTES``
    stored: bool


class RoundEvidence(Value):
    """A round of the evidence."""

    round: Count  # training round, from 1
    releases: tuple[Digest, ...]  # digest of each release, in the order of the ledger
    length: Natural  # number of coordinates of each release
    ledger: Digest  # hash of the ledger's last line after the round

    @property
    def size(self) -> int:
        """Bytes of its releases."""
        return FLOAT_BYTES * self.length * len(self.releases)


class EarlierHeader(Value):
    """First line of the evidence of version 0.2.0, whose models were compared, not computed."""

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


EARLIER = "evidence of a version of this project before its models were computed from the releases"
"""What is missing where the evidence is of version 0.2.0: its rounds cannot be executed again."""


class Evidence(Value):
    """The evidence as read: the header and the rounds up to the first fault."""

    # the first line; None where it is not valid
    header: EvidenceHeader | EarlierHeader | None
    # evidence of each round by its number; rounds may be missing where releases are not stored
    rounds: dict[int, RoundEvidence | EarlierRound]
    chain: str  # hash of the last valid line
    fault: str | None = (
        None  # one line on the first line that is not valid; None when all are
    )
    torn: bool = False  # whether the fault is a round's line that was cut off while it was written

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
    """The evidence in run folder, with every line before the first fault; None without the file."""
    path = folder / EVIDENCE
    if not path.exists():
        return None
    header: EvidenceHeader | EarlierHeader | None = None
    rounds: dict[int, RoundEvidence | EarlierRound] = {}
    chain, torn, last = plan_digest, False, 0
    fault: str | None = f"{EVIDENCE} is empty"
    for number, line in enumerate(read_lines(path, "evidence"), start=1):
        read = _line(line, chain, header)
        if read is None:
            torn = header is not None and not line.endswith("\n")
            what = "is torn" if torn else "does not continue the chain of hashes"
            fault = f"line {number} of {EVIDENCE} {what}"
            break
        value, chain = read
        if isinstance(value, EvidenceHeader | EarlierHeader):
            header, fault = value, None
            continue
        if isinstance(value, RoundEvidence) and not _follows(value.round, last, header):
            fault = f"line {number} of {EVIDENCE} is not of round {last + 1}"
            break
        last = value.round
        if keep:
            rounds[value.round] = value
    return Evidence(header=header, rounds=rounds, chain=chain, fault=fault, torn=torn)


Line = EvidenceHeader | EarlierHeader | RoundEvidence | EarlierRound


def _line(
    line: str, chain: str, header: EvidenceHeader | EarlierHeader | None
) -> tuple[Line, str] | None:
    """The value of a line and its hash; None where it is not valid in its place."""
    kinds: tuple[type[Line], ...] = (EvidenceHeader, EarlierHeader)
    if header is not None:
        kinds = (
            (RoundEvidence,) if isinstance(header, EvidenceHeader) else (EarlierRound,)
        )
    for kind in kinds:
        with contextlib.suppress(ValueError):
            read: tuple[Line, str] | None = parse_chained(line, chain, kind, "evidence")
            if read is not None:
                return read
    return None


def _follows(
    round_: int, last: int, header: EvidenceHeader | EarlierHeader | None
) -> bool:
    """Whether a round may follow the last one: the next, or a later one without stored releases."""
    stored = isinstance(header, EvidenceHeader) and header.stored
    return round_ == last + 1 if stored else round_ > last


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
    """The arrays of ``clients.npz``; None without the file."""
    path = folder / CLIENTS
    if not path.exists():
        return None
    try:
        refuse_bomb(path, "clients")
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            if sorted(stored.files) != ["group", "records", "starts"]:
                raise ValueError("other arrays")
            return {name: stored[name] for name in stored.files}
    except InputError:
        raise
    except Exception:  # NumPy's reader of a damaged file can fail in any way
        rule = "must be the assignment of clients that the run wrote"
        raise InputError.one("clients", rule, str(path)) from None


# --- Measurements of the noise of each release, and the file that holds them. --------------------
# The training loop measures the noise outside the mechanism, as the release minus the sum that
# entered the mechanism, and divides it by the recorded standard deviation. Honest Gaussian noise
# gives independent standard normals z, whose functions are listed in ``NoiseEvidence``.
# ``noise.jsonl`` is optional: runs of version 0.1.0 and deployments do not have it.

NOISE_EVIDENCE = "noise.jsonl"
CELLS = 32  # number of cells of equal probability in which coordinates are counted
TAILS = (3.0, 3.5, 4.0, 5.0)  # absolute values beyond which coordinates are counted
CLOSE = 1e-6  # distance below which neighbouring values count as equal, for single precision
BLOCKS = 32  # number of contiguous blocks of about equal length
PROJECTIONS = 128  # number of random projections
PROJECTION_KEY = 11  # of the stream that assigns coordinates and signs to projections
ROUNDING = 1e-6  # relative tolerance between recorded measurements of the same vector
DECIMALS = (
    1e-4  # error of a projection that was rounded to four decimals, with a factor of 2
)
SAMPLE = (
    2**17
)  # number of coordinates in the sample of a vector that has more than twice as many
SAMPLE_BLOCK = 2**12  # length of the contiguous blocks of a sample
_EDGES = ndtri(np.arange(1, CELLS) / CELLS)


class NoiseEvidence(Value):
    """Measurements of the noise of one release; z is the noise over its standard deviation.

    Of a long vector the distribution is that of a sample of blocks, and the autocorrelation that
    of the sample and of the sums of neighbours; see ``measured_parts``. Sums of squares and
    projections are of all coordinates.
    """

    round: Count  # training round, from 1
    index: Natural  # position of the release among those of its round, from 0
    coordinates: Count  # number of coordinates (n)
    # number of coordinates in the sample of ks, cells, tails and close; 0 where these are of all
    sample: Natural = 0
    sum_squares: NonNegative  # sum of squares of the noise, equal to that of the ledger's residual
    sum_norm: NonNegative  # norm of the sum that entered the mechanism
    ks: NonNegative  # Kolmogorov-Smirnov distance of z from the standard normal law
    # number of coordinates in each of ``CELLS`` cells of equal probability
    cells: tuple[Natural, ...]
    tails: tuple[
        Natural, ...
    ]  # number of coordinates with abs(z) above each of ``TAILS``
    close: Natural  # number of neighbouring pairs of sorted values of z at most ``CLOSE`` apart
    lag: Natural  # shift at which the autocorrelation of z has its largest absolute value
    autocorrelation: float  # sum of z_i z_(i + lag)
    # length of each layer of the model among the released coordinates; empty if these are not whole
    # layers
    layers: tuple[Count, ...] = ()
    layer_squares: tuple[NonNegative, ...] = ()  # sum of squares of z in each layer
    # sum of squares of z in each of up to ``BLOCKS`` contiguous blocks
    block_squares: tuple[NonNegative, ...]
    # projections of z on public random unit vectors of disjoint supports
    projections: tuple[float, ...]

    @property
    def fault(self) -> str | None:
        """The first rule that no measured vector can break; None where all hold."""
        return next(_faults(self), None)

    @property
    def distributed(self) -> int:
        """Number of coordinates in ks, cells, tails and close."""
        return self.sample or self.coordinates

    @property
    def correlated(self) -> int:
        """Length of the vector whose autocorrelation was measured."""
        n = self.coordinates
        return self.sample + math.ceil(n / _neighbours(n)) if self.sample else n

    @property
    def line(self) -> str:
        """The measurements as a line of ``noise.jsonl``."""
        fields = {name: value for name, value in self if value or name != "sample"}
        return json.dumps(fields, separators=(",", ":"), allow_nan=False) + "\n"


def _faults(one: NoiseEvidence) -> Iterator[str]:
    """Rules between the fields: the lengths of lists, and what holds for every vector z [n].

    Sums over parts of a vector are at most those of the whole; by Cauchy and Schwarz a correlation
    is at most the sum of squares, and by Bessel projections on orthonormal vectors have together
    no more energy than z; a distance is at least that at any one point.
    """
    n, seen, correlated = one.coordinates, one.distributed, one.correlated
    if one.sample and (one.sample != SAMPLE or n <= 2 * SAMPLE):
        yield f"sample: must be {SAMPLE}, of more than {2 * SAMPLE}, found {one.sample} of {n}"
    lengths = {
        "cells": CELLS, "tails": len(TAILS), "layer_squares": len(one.layers),
        "block_squares": min(BLOCKS, n), "projections": min(PROJECTIONS, n),
    }  # fmt: skip
    for name, length in lengths.items():
        if (found := len(getattr(one, name))) != length:
            yield f"{name}: must be {length} numbers, found {found}"
    if sum(one.cells) != seen:
        yield f"cells: must be {seen} in total, found {sum(one.cells)}"
    if one.layers and sum(one.layers) != n:
        yield f"layers: must be {n} in total, found {sum(one.layers)}"
    if any(
        more > fewer for fewer, more in zip((seen, *one.tails), one.tails, strict=False)
    ):
        yield f"tails: must fall from at most {seen}, found {one.tails}"
    if one.close > seen - 1:
        yield f"close: must be at most {seen - 1}, found {one.close}"
    if not min(1, correlated - 1) <= one.lag <= correlated - 1:
        yield f"lag: must be at most {correlated - 1} and a shift, found {one.lag}"
    below = np.cumsum(np.array(one.cells, dtype=float)) / seen
    distance = max(
        1 / (2 * seen), float(np.abs(below - np.arange(1, CELLS + 1) / CELLS).max())
    )
    if not distance - ROUNDING <= one.ks <= 1 + ROUNDING:
        yield f"ks: must be in [{distance:.6g}, 1], found {one.ks:g}"
    squares = math.fsum(one.block_squares)
    if one.layers and not math.isclose(
        math.fsum(one.layer_squares), squares, rel_tol=ROUNDING
    ):
        yield f"layer_squares: must be {squares:.6g} in total, as block_squares"
    if not abs(one.autocorrelation) <= squares * (1 + ROUNDING):
        yield f"autocorrelation: must be at most {squares:.6g}, found {one.autocorrelation:g}"
    energy, error = math.hypot(*one.projections), DECIMALS * math.sqrt(PROJECTIONS)
    if not energy <= math.sqrt(squares) * (1 + ROUNDING) + error:
        yield f"projections: must have a norm of at most {math.sqrt(squares):.6g}, found {energy:g}"


def measure_noise(
    noise: np.ndarray,
    std: float,
    *,
    round_: int,
    index: int,
    sum_norm: float,
    layers: Sequence[int] = (),
) -> NoiseEvidence:
    """Measurements of one release's noise."""
    z = noise / std
    n, squares = len(z), np.square(z)
    block_squares = _sums(squares, block_starts(n))
    projections = tuple(np.round(projected(z), 4).tolist())
    sample, correlated = measured_parts(z, repr((block_squares, projections)))
    ordered, seen = np.sort(sample), len(sample)
    probability, steps = ndtr(ordered), _steps(seen)
    above, below = (steps[1:] - probability).max(), (probability - steps[:-1]).max()
    edges = [0, *np.searchsorted(ordered, _EDGES).tolist(), seen]
    lag, autocorrelation = _largest_autocorrelation(correlated)
    return NoiseEvidence.model_construct(  # its own numbers need no validation, a file's do
        round=round_,
        index=index,
        coordinates=n,
        sample=seen if seen < n else 0,
        sum_squares=float(np.square(noise).sum()),
        sum_norm=sum_norm,
        ks=_short(max(above, below)),
        cells=tuple(right - left for left, right in pairwise(edges)),
        tails=tuple(_beyond(ordered, limit) for limit in TAILS),
        close=int((np.diff(ordered) <= CLOSE).sum()),
        lag=lag,
        autocorrelation=_short(autocorrelation),
        layers=tuple(layers),
        layer_squares=_sums(squares, np.cumsum([0, *layers])[:-1]) if layers else (),
        block_squares=block_squares,
        projections=projections,
    )


def measured_parts(z: np.ndarray, release: str) -> tuple[np.ndarray, np.ndarray]:
    """The vector whose distribution is measured, and the one whose autocorrelation is; both z [n].

    Of more than 2 ``SAMPLE`` coordinates the first is a sample of random blocks, wherever they
    start, and the second the sample and the scaled sums of neighbours that are not in it. Honest
    noise makes both independent standard normals; the places of sums that are left out have zeros,
    which keep the shifts and only lower a correlation. The blocks are drawn once the noise is
    fixed: the seed is the hash of what was measured of it, ``release``.
    """
    n = len(z)
    if n <= 2 * SAMPLE:
        return z, z
    words = np.frombuffer(hashlib.sha256(release.encode()).digest(), "<u4")
    generator = np.random.Generator(
        np.random.Philox(np.random.SeedSequence(words.tolist()))
    )
    blocks = n // SAMPLE_BLOCK
    drawn = generator.choice(blocks, SAMPLE // SAMPLE_BLOCK, replace=False)
    starts = drawn * n // blocks + generator.integers(n)
    places = (starts[:, None] + np.arange(SAMPLE_BLOCK)).ravel() % n
    sample, sums = z[places], _sums_of_neighbours(z)
    sums[places // _neighbours(n)] = 0.0
    return sample, np.concatenate([sample, sums])


def projected(z: np.ndarray, sampled: bool | None = None) -> np.ndarray:
    """Projections of a vector, or where it is measured by a sample, of its sums of neighbours."""
    long = len(z) > 2 * SAMPLE if sampled is None else sampled
    return project(_sums_of_neighbours(z) if long else z)


def _neighbours(coordinates: int) -> int:
    """Number of neighbouring coordinates in each sum."""
    return math.ceil(coordinates / SAMPLE)


def _sums_of_neighbours(z: np.ndarray) -> np.ndarray:
    """Sums of neighbouring coordinates over the square root of their number."""
    starts = np.arange(0, len(z), _neighbours(len(z)))
    sums: np.ndarray = np.add.reduceat(z, starts)
    return sums / np.sqrt(np.diff(starts, append=len(z)))


def _beyond(ordered: np.ndarray, limit: float) -> int:
    """Number of values of absolute value above a limit."""
    low, high = (
        np.searchsorted(ordered, -limit),
        np.searchsorted(ordered, limit, side="right"),
    )
    return int(low + len(ordered) - high)


def _largest_autocorrelation(z: np.ndarray) -> tuple[int, float]:
    """The shift of the largest absolute autocorrelation, and its value."""
    if len(z) < 2:
        return 0, 0.0
    length = _padded_length(len(z))
    correlations = np.fft.irfft(np.abs(np.fft.rfft(z, length)) ** 2, length)[1 : len(z)]
    lag = int(np.abs(correlations).argmax())
    return lag + 1, float(correlations[lag])


@lru_cache(maxsize=8)
def _padded_length(coordinates: int) -> int:
    """Length of a vector with so many zeros after it that shifted ends do not meet."""
    return fast_length(2 * coordinates)


@lru_cache(maxsize=8)
def _steps(coordinates: int) -> np.ndarray:
    """The heights of an empirical distribution function, 0, 1 / n, ..., 1."""
    heights: np.ndarray = np.arange(coordinates + 1) / coordinates
    return heights


def block_starts(coordinates: int) -> np.ndarray:
    """First coordinate of each block."""
    blocks = min(BLOCKS, coordinates)
    return np.arange(blocks) * coordinates // blocks


def block_lengths(coordinates: int) -> np.ndarray:
    """Number of coordinates in each block."""
    return np.diff(block_starts(coordinates), append=coordinates)


def project(z: np.ndarray) -> np.ndarray:
    """Projections of a vector on public random unit vectors of disjoint supports.

    Projections of independent standard normals are independent standard normals. Each is the signed
    sum of the coordinates of one part of a random partition, over the square root of their number.
    """
    order, signs, starts, lengths = _partition(len(z))
    projected: np.ndarray = np.add.reduceat(z[order] * signs, starts) / np.sqrt(lengths)
    return projected


@lru_cache(maxsize=8)
def _partition(
    coordinates: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Order and signs of the coordinates, and start and length of each part."""
    words = np.random.SeedSequence(entropy=coordinates, spawn_key=(PROJECTION_KEY,))
    generator = np.random.Generator(np.random.Philox(words))
    parts = min(PROJECTIONS, coordinates)
    starts = np.arange(parts) * coordinates // parts
    order = generator.permutation(coordinates)
    signs = generator.integers(2, size=coordinates) * 2.0 - 1.0
    return order, signs, starts, np.diff(starts, append=coordinates)


def _sums(values: np.ndarray, starts: np.ndarray) -> tuple[float, ...]:
    return tuple(_short(value) for value in np.add.reduceat(values, starts))


def _short(value: float) -> float:
    """The value rounded to nine digits."""
    return float(f"{value:.9g}")


Measurements = dict[tuple[int, int], NoiseEvidence]  # by round and index of the release


def read_noise_evidence(folder: Path) -> tuple[Measurements, str | None]:
    """The measurements in a run folder, and the first fault of the file."""
    path = folder / NOISE_EVIDENCE
    if not path.exists():
        return {}, None
    stat = path.stat()
    return _read(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1)
def _read(path: Path, modified: int, size: int) -> tuple[Measurements, str | None]:
    """The measurements in a file; the arguments besides the path make a changed file anew."""
    found: Measurements = {}
    for number, line in enumerate(read_lines(path, "noise evidence"), start=1):
        try:
            one = parse(NoiseEvidence, load_json(line))
        except (ValueError, InputError):
            return found, f"line {number} of {NOISE_EVIDENCE} is not a measurement"
        if (rule := one.fault) is not None:
            return found, f"line {number} of {NOISE_EVIDENCE}: {rule}"
        if not line.endswith("\n") or (one.round, one.index) in found:
            return found, f"line {number} of {NOISE_EVIDENCE} is torn or a repetition"
        found[one.round, one.index] = one
    return found, None


# --- The result of a replay, which ``privplan replay`` writes into the run folder. ---------------


class Comparison(Value):
    """What was compared under one name, over all rounds."""

    name: str  # what was compared, such as ``releases`` or ``noise_state``
    compared: Natural  # number of comparisons
    differ: Natural  # number of those that differ by more than the tolerance
    # largest deviation, relative to the largest coordinate or to the recorded value
    largest: NonNegative


class Difference(Value):
    """A difference between a run and its replay."""

    round: Natural  # training round, from 1; 0 for what precedes or follows all rounds
    name: str  # name of the comparison
    detail: str  # the recorded value and the replayed one, or the deviation


class ReplayReport(Value):
    """The result of a replay (``replay.json``)."""

    schema_version: Literal[1] = 1
    # ``passed`` when everything was compared and agrees; ``failed`` when something differs; ``not
    # shown`` when nothing differs but something could not be compared
    outcome: Literal["passed", "failed", "not shown"]
    reason: str  # the first difference, what could not be compared, or what agrees
    rounds: tuple[Count, ...]  # rounds that were trained again
    # number of rounds of the run; cohorts, bounds, weights and generator states are compared in all
    # of them
    of: Count
    # seed of the verifier's selection of rounds; None when all were replayed
    selection_seed: Natural | None
    # largest L2 deviation of a release that agrees, as a multiple of the rounding of its
    # summands; in a report of version 0.2.0 a relative deviation
    tolerance: NonNegative
    # the largest that was found, in standard deviations of the release's noise
    deviation: NonNegative = Field(0.0, exclude_if=lambda found: not found)
    # what of the record is only claimed, as no replay can compute it; empty for nothing
    claimed: str = Field("", exclude_if=is_empty)
    comparisons: tuple[Comparison, ...]  # the comparisons by name
    differences: tuple[Difference, ...]  # the first differences
    plan_digest: str  # digest of the run's plan
    chain: (
        str  # hash of the last ledger line, so that the report is bound to the ledger
    )
    # digest of the record, to which the report is bound too; empty in a report of an earlier
    # version, which does not count
    record: str = ""
    versions: dict[
        str, str
    ]  # versions of Python and of the packages that replayed the run
    seconds: NonNegative  # wall time of the replay

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 0 passed, 4 failed, 5 not shown."""
        return {"passed": 0, "failed": 4, "not shown": 5}[self.outcome]

    def joined(self, earlier: ReplayReport) -> ReplayReport:
        """The one of this replay and an earlier one of the same run that is kept.

        A difference stays, and else the replay of more rounds; rounds of two are never added,
        since who wrote the earlier report is not known. Where all rounds were trained again and
        agree, an earlier difference was not the run's.
        """
        bound, whole = (
            ("plan_digest", "chain", "record", "of"),
            len(self.rounds) == self.of,
        )
        other = any(getattr(self, name) != getattr(earlier, name) for name in bound)
        if other or (self.outcome == "passed" and whole):
            return self
        order = ("failed", "passed", "not shown")
        worst = min(earlier, self, key=lambda one: order.index(one.outcome))
        if worst.outcome != "passed":
            return worst
        shown = [one for one in (earlier, self) if one.outcome == "passed"]
        return max(reversed(shown), key=lambda one: len(set(one.rounds)))

    def save(self, folder: Path | str) -> ReplayReport:
        """Keep the result in ``replay.json`` in the run folder; returns what it holds now."""
        found, folder = self, Path(folder)
        with contextlib.suppress(InputError):
            found = self.joined(ReplayReport.load(folder))
        write_text(folder / REPLAY, found.model_dump_json(indent=1) + "\n")
        return found

    @classmethod
    def load(cls, folder: Path) -> ReplayReport:
        """Read ``replay.json`` from the run folder."""
        return parse(cls, read_json(folder / REPLAY, "replay"))
