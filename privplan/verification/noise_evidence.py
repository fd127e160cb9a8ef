"""Measurements of the noise of each release, and the file that holds them.

The training loop measures the noise outside the mechanism, as the release minus the sum that
entered the mechanism, and divides it by the recorded standard deviation. Honest Gaussian noise
gives independent standard normals z, whose functions are listed in ``NoiseEvidence``.
``noise.jsonl`` is optional: runs of version 0.1.0 and deployments do not have it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from privplan.errors import InputError
from privplan.io.files import read_text
from privplan.io.text import load_json
from privplan.scipy_functions import ndtr, ndtri, next_fast_len
from privplan.values import Count, Natural, NonNegative, Value, parse

NOISE_EVIDENCE = "noise.jsonl"
CELLS = 32
"""Number of cells of equal probability in which coordinates are counted."""
TAILS = (3.0, 3.5, 4.0, 5.0)
"""Absolute values beyond which coordinates are counted."""
CLOSE = 1e-6
"""Distance below which two neighbouring values are counted as equal, for single precision."""
BLOCKS = 32
"""Number of contiguous blocks of about equal length."""
PROJECTIONS = 128
"""Number of random projections."""
PROJECTION_KEY = 11
"""Key of the stream that assigns coordinates and signs to projections, the same in each run."""
ROUNDING = 1e-6
"""Relative tolerance between recorded measurements of the same vector."""
DECIMALS = 1e-4
"""Error of a projection that was rounded to four decimals, with a factor of 2."""
_EDGES = ndtri(np.arange(1, CELLS) / CELLS)


class NoiseEvidence(Value):
    """Measurements of the noise of one release; z is the noise over its standard deviation.

    Attributes:
        round: training round, from 1.
        index: position of the release among those of its round, from 0.
        coordinates: number of coordinates (n).
        sum_squares: sum of squares of the noise, equal to that of the ledger's residual.
        sum_norm: norm of the sum that entered the mechanism.
        ks: Kolmogorov-Smirnov distance of z from the standard normal law.
        cells: number of coordinates in each of ``CELLS`` cells of equal probability.
        tails: number of coordinates with abs(z) above each of ``TAILS``.
        close: number of neighbouring pairs of sorted values of z at most ``CLOSE`` apart.
        lag: shift at which the autocorrelation of z has its largest absolute value.
        autocorrelation: sum of z_i z_(i + lag).
        layers: length of each layer of the model among the released coordinates; empty if these
            are not whole layers.
        layer_squares: sum of squares of z in each layer.
        block_squares: sum of squares of z in each of up to ``BLOCKS`` contiguous blocks.
        projections: projections of z on public random unit vectors of disjoint supports.
    """

    round: Count
    index: Natural
    coordinates: Count
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
    def line(self) -> str:
        """The measurements as a line of ``noise.jsonl``."""
        return json.dumps(dict(self), separators=(",", ":"), allow_nan=False) + "\n"


def _faults(one: NoiseEvidence) -> Iterator[str]:
    """Rules between the fields: the lengths of lists, and what holds for every vector z [n].

    Sums over parts of a vector are at most those of the whole; by Cauchy and Schwarz a correlation
    is at most the sum of squares, and by Bessel projections on orthonormal vectors have together
    no more energy than z; a distance is at least that at any one point.
    """
    n = one.coordinates
    lengths = {
        "cells": CELLS,
        "tails": len(TAILS),
        "layer_squares": len(one.layers),
        "block_squares": min(BLOCKS, n),
        "projections": min(PROJECTIONS, n),
    }
    for name, length in lengths.items():
        if (found := len(getattr(one, name))) != length:
            yield f"{name}: must be {length} numbers, found {found}"
    if sum(one.cells) != n:
        yield f"cells: must be {n} in total, found {sum(one.cells)}"
    if one.layers and sum(one.layers) != n:
        yield f"layers: must be {n} in total, found {sum(one.layers)}"
    tails = (n, *one.tails)
    if any(more > fewer for fewer, more in zip(tails, one.tails, strict=False)):
        yield f"tails: must fall from at most {n}, found {one.tails}"
    if one.close > n - 1:
        yield f"close: must be at most {n - 1}, found {one.close}"
    if not min(1, n - 1) <= one.lag <= n - 1:
        yield f"lag: must be at most {n - 1} and a shift, found {one.lag}"
    below = np.cumsum(np.array(one.cells, dtype=float)) / n
    distance = max(1 / (2 * n), float(np.abs(below - np.arange(1, CELLS + 1) / CELLS).max()))
    if not distance - ROUNDING <= one.ks <= 1 + ROUNDING:
        yield f"ks: must be in [{distance:.6g}, 1], found {one.ks:g}"
    squares = math.fsum(one.block_squares)
    if one.layers and not math.isclose(math.fsum(one.layer_squares), squares, rel_tol=ROUNDING):
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
    """Measurements of one release's noise.

    Args:
        noise: the noise [n], float64.
        std: recorded standard deviation of each coordinate.
        round_: training round, from 1.
        index: position of the release among those of its round.
        sum_norm: norm of the sum that entered the mechanism.
        layers: lengths of the model's layers, in total n; empty if unknown.
    """
    z = noise / std
    n = len(z)
    ordered = np.sort(z)
    probability = ndtr(ordered)
    steps = _steps(n)
    above, below = (steps[1:] - probability).max(), (probability - steps[:-1]).max()
    edges = [0, *np.searchsorted(ordered, _EDGES).tolist(), n]
    lag, autocorrelation = _largest_autocorrelation(z)
    squares = np.square(z)
    return NoiseEvidence.model_construct(  # its own numbers need no validation, a file's do
        round=round_,
        index=index,
        coordinates=n,
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
        block_squares=_sums(squares, block_starts(n)),
        projections=tuple(np.round(project(z), 4).tolist()),
    )


def _beyond(ordered: np.ndarray, limit: float) -> int:
    """Number of values of absolute value above a limit."""
    low, high = np.searchsorted(ordered, -limit), np.searchsorted(ordered, limit, side="right")
    return int(low + len(ordered) - high)


def _largest_autocorrelation(z: np.ndarray) -> tuple[int, float]:
    """The shift of the largest absolute autocorrelation, and its value."""
    if len(z) < 2:
        return 0, 0.0
    length = _padded_length(len(z))
    spectrum = np.abs(np.fft.rfft(z, length)) ** 2
    correlations = np.fft.irfft(spectrum, length)[1 : len(z)]
    lag = int(np.abs(correlations).argmax())
    return lag + 1, float(correlations[lag])


@lru_cache(maxsize=8)
def _padded_length(coordinates: int) -> int:
    """Length of a vector with so many zeros after it that shifted ends do not meet."""
    return int(next_fast_len(2 * coordinates))


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

    Projections of independent standard normals are independent standard normals. Each is the
    signed sum of the coordinates of one part of a random partition, over the square root of
    their number.
    """
    order, signs, starts, lengths = _partition(len(z))
    projected: np.ndarray = np.add.reduceat(z[order] * signs, starts) / np.sqrt(lengths)
    return projected


@lru_cache(maxsize=8)
def _partition(coordinates: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
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


Measurements = dict[tuple[int, int], NoiseEvidence]
"""Measurements by round and index of the release."""


def read_noise_evidence(folder: Path) -> tuple[Measurements, str | None]:
    """The measurements in a run folder, and the first fault of the file.

    Returns:
        No measurements where there is no file; those before the first invalid line, with one
        line of text that names it.

    Raises:
        InputError: when the file cannot be read.
    """
    path = folder / NOISE_EVIDENCE
    if not path.exists():
        return {}, None
    stat = path.stat()
    return _read(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1)
def _read(path: Path, modified: int, size: int) -> tuple[Measurements, str | None]:
    """The measurements in a file; the arguments besides the path make a changed file anew."""
    found: Measurements = {}
    lines = read_text(path, "noise evidence").splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
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
