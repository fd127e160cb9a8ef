"""Exact samples of the discrete Gaussian, and the noise that replaces normal noise."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from privplan.discrete_gaussian import LARGEST, Uniform, discrete_gaussian, grid_of, scale_for
from privplan.errors import InputError
from privplan.streams import NoiseKey

KEY = NoiseKey(bytes(range(32)))


class Given:
    """Words that a test chooses."""

    def __init__(self, *words: int) -> None:
        self.rest = list(words)

    def words(self, count: int) -> np.ndarray:
        found, self.rest = self.rest[:count], self.rest[count:]
        return np.array(found, np.uint64)


@pytest.mark.parametrize(("scale", "margin", "count"), [
    (1.0, 1e-10, 200_000), (1.7, 1e-10, 200_000), (6.25, 1e-10, 200_000), (2.5, 0.5, 5_000),
])  # fmt: skip
def test_small_scales_have_the_probabilities_of_the_definition(
    scale: float, margin: float, count: int
) -> None:
    drawn = discrete_gaussian(KEY.stream(1, int(scale * 8), count), scale, count, margin=margin)
    reach = math.ceil(6 * scale)
    values = np.arange(-reach, reach + 1)
    expected = np.exp(-np.square(values) / (2 * scale**2))
    expected *= count / expected.sum()
    counts = np.array([(drawn == value).sum() for value in values])
    often = expected > 5
    rest = (count - counts[often].sum(), count - expected[often].sum())
    assert chisquare([*counts[often], rest[0]], [*expected[often], rest[1]]).pvalue > 1e-3


def test_the_exact_comparison_decides_as_the_floating_point_one() -> None:
    fast = discrete_gaussian(KEY.stream(2), 3.5, 2000)
    assert (discrete_gaussian(KEY.stream(2), 3.5, 2000, margin=0.3) == fast).all()


@pytest.mark.parametrize("std", [0.37, 1.0, 1.999, 1e-12, 4e5])
def test_large_scales_have_the_normal_law(std: float) -> None:
    grid, scale = grid_of(std), scale_for(std)
    assert 2**36 <= scale < 2**37 + 1
    assert Fraction(scale) ** 2 - 16 >= (Fraction(std) / Fraction(grid)) ** 2
    assert scale * grid == pytest.approx(std, rel=1e-15)
    drawn = discrete_gaussian(KEY.stream(3), scale, 50_000) * grid
    assert kstest(drawn / std, "norm").pvalue > 1e-3
    assert len(np.unique(drawn)) > 49_990


def test_a_uniform_number_is_compared_exactly() -> None:
    """exp(-1) 2^128, by the series of e in whole numbers, decides for words around it."""
    terms = sum(Fraction((-1) ** k, math.factorial(k)) for k in range(60))
    floor = int(terms * 2**128)
    high, low = divmod(floor, 2**64)
    assert Uniform(high - 1, Given()).below(Fraction(1))
    assert not Uniform(high + 1, Given()).below(Fraction(1))
    assert Uniform(high, Given(low - 1)).below(Fraction(1))
    assert not Uniform(high, Given(low + 1)).below(Fraction(1))
    assert Uniform(2**64 - 1, Given()).below(Fraction(0))
    assert not Uniform(1, Given()).below(Fraction(10**6))


@pytest.mark.parametrize("scale", [0, 0.5, -1, LARGEST * 2.0, math.nan, math.inf])
def test_a_scale_out_of_range_is_refused(scale: float) -> None:
    with pytest.raises(InputError, match="scale: must be in"):
        discrete_gaussian(KEY.stream(1), scale, 1)
