"""Measurements of the noise of each release, and the file that holds them.

The training loop measures the noise outside the mechanism, as the release minus the sum
that entered the mechanism, and divides it by the recorded standard deviation. Honest
Gaussian noise gives independent standard normals z, whose functions are listed in
``NoiseEvidence``. ``noise.jsonl`` is optional: runs of version 0.1.0 and deployments do
not have it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from privplan.errors import InputError
from privplan.files import load_json, read_lines
from privplan.values import Count, Natural, NonNegative, Value, parse

NOISE_EVIDENCE = "noise.jsonl"
# Number of cells of equal probability in which coordinates are counted.
CELLS = 32
# Absolute values beyond which coordinates are counted.
TAILS = (3.0, 3.5, 4.0, 5.0)
# Distance below which neighbouring values count as equal, for single precision.
CLOSE = 1e-6
# Number of contiguous blocks of about equal length.
BLOCKS = 32
# Number of random projections.
PROJECTIONS = 128
# Number of coordinates in the sample of a vector that has more than twice as many.
SAMPLE = 2**17
# Relative tolerance between recorded measurements of the same vector.
ROUNDING = 1e-6
# Error of a projection that was rounded to four decimals, with a factor of 2.
DECIMALS = 1e-4


class NoiseEvidence(Value):
    """Measurements of the noise of one release; z is it over its standard deviation.

    Of a long vector the distribution is that of a sample of blocks, and the
    autocorrelation that of the sample and of the sums of neighbours; see
    ``measured_parts``. Sums of squares and projections are of all coordinates.

    Attributes:
        round: training round, from 1.
        index: position of the release among those of its round, from 0.
        coordinates: number of coordinates (n).
        sample: number of coordinates in the sample of ks, cells, tails and close; 0
            where these are of all.
        sum_squares: of the noise, equal to that of the ledger's residual.
        sum_norm: norm of the sum that entered the mechanism.
        ks: Kolmogorov-Smirnov distance of z from the standard normal law.
        cells: number of coordinates in each of ``CELLS`` cells of equal probability.
        tails: number of coordinates with abs(z) above each of ``TAILS``.
        close: number of neighbouring pairs of sorted values of z at most ``CLOSE``
            apart.
        lag: shift at which the autocorrelation of z has its largest absolute value.
        autocorrelation: sum of z_i z_(i + lag).
        layers: length of each layer of the model among the released coordinates; empty
            if these are not whole layers.
        layer_squares: sum of squares of z in each layer.
        block_squares: sum of squares of z in each of up to ``BLOCKS`` contiguous
            blocks.
        projections: of z on public random unit vectors of disjoint supports.
    """

    round: Count
    index: Natural
    coordinates: Count
    sample: Natural = 0
    sum_squares: NonNegative
    sum_norm: NonNegative
    ks: NonNegative
    cells: tuple[Natural, ...]
    tails: tuple[Natural, ...]
    close: Natural
    lag: Natural
    autocorrelation: float
    layers: tuple[Count, ...] = ()
    layer_squares: tuple[NonNegative, ...] = ()
    block_squares: tuple[NonNegative, ...]
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
        if not self.sample:
            return self.coordinates
        sums = math.ceil(self.coordinates / neighbours(self.coordinates))
        return self.sample + sums

    @property
    def line(self) -> str:
        """The measurements as a line of ``noise.jsonl``."""
        # A vector that was measured whole has no ``sample`` in its line.
        fields = {name: value for name, value in self if value or name != "sample"}
        return json.dumps(fields, separators=(",", ":"), allow_nan=False) + "\n"


def neighbours(coordinates: int) -> int:
    """Number of neighbouring coordinates in each sum of a vector that is sampled."""
    return math.ceil(coordinates / SAMPLE)


def _faults(measured: NoiseEvidence) -> Iterator[str]:
    """Rules between the fields, which hold for every vector z [n]."""
    yield from _faults_of_lengths(measured)
    yield from _faults_of_distribution(measured)
    yield from _faults_of_sums(measured)


def _faults_of_lengths(measured: NoiseEvidence) -> Iterator[str]:
    """The size of the sample, and the lengths of the lists."""
    n = measured.coordinates
    if measured.sample and (measured.sample != SAMPLE or n <= 2 * SAMPLE):
        yield (
            f"sample: must be {SAMPLE}, of more than {2 * SAMPLE}, "
            f"found {measured.sample} of {n}"
        )
    lengths = {
        "cells": CELLS,
        "tails": len(TAILS),
        "layer_squares": len(measured.layers),
        "block_squares": min(BLOCKS, n),
        "projections": min(PROJECTIONS, n),
    }
    for name, length in lengths.items():
        recorded_length = len(getattr(measured, name))
        if recorded_length != length:
            yield f"{name}: must be {length} numbers, found {recorded_length}"


def _faults_of_distribution(measured: NoiseEvidence) -> Iterator[str]:
    """Counts of parts of a vector against the whole, and shifts and distances."""
    count = measured.distributed
    if sum(measured.cells) != count:
        yield f"cells: must be {count} in total, found {sum(measured.cells)}"
    if measured.layers and sum(measured.layers) != measured.coordinates:
        total = sum(measured.layers)
        yield f"layers: must be {measured.coordinates} in total, found {total}"
    # Each limit of the tails is above the one before.
    if any(further > nearer for nearer, further in pairwise((count, *measured.tails))):
        yield f"tails: must fall from at most {count}, found {measured.tails}"
    if measured.close > count - 1:
        yield f"close: must be at most {count - 1}, found {measured.close}"
    max_lag = measured.correlated - 1
    if not min(1, max_lag) <= measured.lag <= max_lag:
        yield f"lag: must be at most {max_lag} and a shift, found {measured.lag}"

    # The distance is at least that at any one point: at the edges of the cells, and
    # half a step of the empirical distribution function.
    below = np.cumsum(np.array(measured.cells, dtype=float)) / count
    at_edges = np.abs(below - np.arange(1, CELLS + 1) / CELLS).max()
    distance = max(1 / (2 * count), float(at_edges))
    if not distance - ROUNDING <= measured.ks <= 1 + ROUNDING:
        yield f"ks: must be in [{distance:.6g}, 1], found {measured.ks:g}"


def _faults_of_sums(measured: NoiseEvidence) -> Iterator[str]:
    """Sums of squares and products against the sum of squares of z."""
    squares = math.fsum(measured.block_squares)
    if measured.layers:
        layer_squares = math.fsum(measured.layer_squares)
        if not math.isclose(layer_squares, squares, rel_tol=ROUNDING):
            yield f"layer_squares: must be {squares:.6g} in total, as block_squares"
    # By Cauchy and Schwarz.
    if not abs(measured.autocorrelation) <= squares * (1 + ROUNDING):
        yield (
            f"autocorrelation: must be at most {squares:.6g}, "
            f"found {measured.autocorrelation:g}"
        )
    # By Bessel, projections on orthonormal vectors have together no more energy than z.
    norm = math.hypot(*measured.projections)
    error = DECIMALS * math.sqrt(PROJECTIONS)
    if not norm <= math.sqrt(squares) * (1 + ROUNDING) + error:
        yield (
            f"projections: must have a norm of at most {math.sqrt(squares):.6g}, "
            f"found {norm:g}"
        )


# By round and index of the release.
Measurements = dict[tuple[int, int], NoiseEvidence]


def read_noise_evidence(folder: Path) -> tuple[Measurements, str | None]:
    """The measurements in a run folder, and the first fault of the file."""
    path = folder / NOISE_EVIDENCE
    if not path.exists():
        return {}, None
    stat = path.stat()
    return _read(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1)
def _read(path: Path, modified: int, size: int) -> tuple[Measurements, str | None]:
    """The measurements in a file; time and size of it make a changed file anew."""
    measurements: Measurements = {}
    for number, line in enumerate(read_lines(path, "noise evidence"), start=1):
        where = f"line {number} of {NOISE_EVIDENCE}"
        try:
            measured = parse(NoiseEvidence, load_json(line))
        except (ValueError, InputError):
            return measurements, f"{where} is not a measurement"
        rule = measured.fault
        if rule is not None:
            return measurements, f"{where}: {rule}"
        release = (measured.round, measured.index)
        if not line.endswith("\n") or release in measurements:
            return measurements, f"{where} is torn or a repetition"
        measurements[release] = measured
    return measurements, None
