"""Measures the noise of a release, by functions whose laws honest noise determines.

``NoiseEvidence`` says what is measured, ``privplan.verification.checks`` tests it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from privplan.accounting.pld.convolution import fast_length
from privplan.evidence.noise import (
    BLOCKS,
    CELLS,
    CLOSE,
    PROJECTIONS,
    SAMPLE,
    TAILS,
    NoiseEvidence,
    neighbours,
)

# Of the stream that assigns coordinates and signs to projections.
PROJECTION_KEY = 11
# Length of the contiguous blocks of a sample.
SAMPLE_BLOCK = 2**12
# Inner edges of the cells of equal probability under the standard normal law.
_EDGES = ndtri(np.arange(1, CELLS) / CELLS)


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
        noise: the release minus the sum that entered the mechanism [n].
        std: recorded standard deviation of a coordinate, above 0.
        round_: training round, from 1.
        index: position of the release among those of its round, from 0.
        sum_norm: norm of the sum that entered the mechanism.
        layers: length of each layer among the coordinates; empty if they are not whole
            layers.
    """
    z = noise / std
    squares = np.square(z)
    block_squares = _sums(squares, block_starts(len(z)))
    layer_squares: tuple[float, ...] = ()
    if layers:
        layer_squares = _sums(squares, np.cumsum([0, *layers])[:-1])
    projections = tuple(np.round(projected(z), 4).tolist())

    sample, correlated = measured_parts(z, repr((block_squares, projections)))
    ordered = np.sort(sample)
    edges = [0, *np.searchsorted(ordered, _EDGES).tolist(), len(sample)]
    lag, autocorrelation = _largest_autocorrelation(correlated)
    # These numbers need no validation, those of a file do.
    return NoiseEvidence.model_construct(
        round=round_,
        index=index,
        coordinates=len(z),
        sample=len(sample) if len(sample) < len(z) else 0,
        sum_squares=float(np.square(noise).sum()),
        sum_norm=sum_norm,
        ks=_short(_distance_from_normal(ordered)),
        cells=tuple(upper - lower for lower, upper in pairwise(edges)),
        tails=tuple(_beyond(ordered, limit) for limit in TAILS),
        close=int((np.diff(ordered) <= CLOSE).sum()),
        lag=lag,
        autocorrelation=_short(autocorrelation),
        layers=tuple(layers),
        layer_squares=layer_squares,
        block_squares=block_squares,
        projections=projections,
    )


def along_sum(product: float, sum_norm: float, residual: np.ndarray) -> float:
    """The part of a residual along the sum, standard normal in units of the noise.

    A sum of exactly zero, whose updates cancel, has no direction; any that is fixed
    serves the tests as well, and all coordinates have the same part in this one.

    Args:
        product: inner product of residual and sum.
        sum_norm: norm of the sum.
        residual: the release minus the sum [n].
    """
    if sum_norm > 0:
        return product / sum_norm
    return float(residual.sum()) / math.sqrt(len(residual))


def measured_parts(z: np.ndarray, release: str) -> tuple[np.ndarray, np.ndarray]:
    """The vectors whose distribution and whose autocorrelation are measured.

    Of more than 2 ``SAMPLE`` coordinates the first is a sample of random blocks,
    wherever they start, and the second the sample and the scaled sums of neighbours
    that are not in it. Honest noise makes both independent standard normals; the places
    of sums that are left out have zeros, which keep the shifts and only lower a
    correlation.

    Args:
        z: noise over its standard deviation [n].
        release: what was measured of it. The hash of it is the seed of the blocks, so
            that they are drawn once the noise is fixed.
    """
    n = len(z)
    if n <= 2 * SAMPLE:
        return z, z
    words = np.frombuffer(hashlib.sha256(release.encode()).digest(), "<u4")
    seed = np.random.SeedSequence(words.tolist())
    generator = np.random.Generator(np.random.Philox(seed))

    # Blocks on a grid that is turned by a random offset start at any coordinate.
    blocks = n // SAMPLE_BLOCK
    drawn = generator.choice(blocks, SAMPLE // SAMPLE_BLOCK, replace=False)
    starts = drawn * n // blocks + generator.integers(n)
    places = (starts[:, None] + np.arange(SAMPLE_BLOCK)).ravel() % n
    sample = z[places]
    sums = _sums_of_neighbours(z)
    sums[places // neighbours(n)] = 0.0
    return sample, np.concatenate([sample, sums])


def projected(z: np.ndarray, sampled: bool | None = None) -> np.ndarray:
    """Projections of a vector, or of its sums of neighbours where it is sampled.

    Args:
        z: noise over its standard deviation [n].
        sampled: whether the vector was measured by a sample; by its length if None.
    """
    if sampled is None:
        sampled = len(z) > 2 * SAMPLE
    return project(_sums_of_neighbours(z) if sampled else z)


def _sums_of_neighbours(z: np.ndarray) -> np.ndarray:
    """Sums of neighbouring coordinates over the square root of their number."""
    starts = np.arange(0, len(z), neighbours(len(z)))
    sums: np.ndarray = np.add.reduceat(z, starts)
    return sums / np.sqrt(np.diff(starts, append=len(z)))


def _distance_from_normal(ordered: np.ndarray) -> float:
    """Kolmogorov-Smirnov distance of sorted values from the standard normal law."""
    probability = ndtr(ordered)
    heights = _steps(len(ordered))
    # The empirical distribution function jumps at each value: both sides count.
    above = (heights[1:] - probability).max()
    below = (probability - heights[:-1]).max()
    distance: float = max(above, below)
    return distance


def _beyond(ordered: np.ndarray, limit: float) -> int:
    """Number of values of absolute value above a limit."""
    below = np.searchsorted(ordered, -limit)
    not_above = np.searchsorted(ordered, limit, side="right")
    return int(below + len(ordered) - not_above)


def _largest_autocorrelation(z: np.ndarray) -> tuple[int, float]:
    """The shift of the largest absolute autocorrelation, and its value."""
    if len(z) < 2:
        return 0, 0.0
    # By the theorem of Wiener and Khinchin.
    length = _padded_length(len(z))
    power = np.abs(np.fft.rfft(z, length)) ** 2
    correlations = np.fft.irfft(power, length)[1 : len(z)]
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

    Projections of independent standard normals are independent standard normals. Each
    is the signed sum of the coordinates of one part of a random partition, over the
    square root of their number.
    """
    partition = _partition(len(z))
    sums: np.ndarray = np.add.reduceat(
        z[partition.order] * partition.signs, partition.starts
    )
    projections: np.ndarray = sums / np.sqrt(partition.lengths)
    return projections


class _Partition(NamedTuple):
    """A random partition of the coordinates of a vector, whose signs it changes."""

    order: np.ndarray  # the coordinates, part after part [n]
    signs: np.ndarray  # -1 or 1 for each of them [n]
    starts: np.ndarray  # where in the order each part begins
    lengths: np.ndarray  # number of coordinates of each part


@lru_cache(maxsize=8)
def _partition(coordinates: int) -> _Partition:
    """The public partition of vectors of a length, from a fixed seed."""
    words = np.random.SeedSequence(entropy=coordinates, spawn_key=(PROJECTION_KEY,))
    generator = np.random.Generator(np.random.Philox(words))
    count = min(PROJECTIONS, coordinates)
    starts = np.arange(count) * coordinates // count
    order = generator.permutation(coordinates)
    signs = generator.integers(2, size=coordinates) * 2.0 - 1.0
    return _Partition(order, signs, starts, np.diff(starts, append=coordinates))


def _sums(values: np.ndarray, starts: np.ndarray) -> tuple[float, ...]:
    """Sums of stretches of values, each from its start to the next."""
    return tuple(_short(value) for value in np.add.reduceat(values, starts))


def _short(value: float) -> float:
    """The value rounded to nine digits."""
    return float(f"{value:.9g}")
