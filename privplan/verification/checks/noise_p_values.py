"""P-values of measured noise against independent standard normals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import bdtr, bdtrc, chdtr, chdtrc, ndtr

from privplan.evidence.noise import CLOSE

# Largest density of the standard normal law.
DENSITY = 1 / math.sqrt(2 * math.pi)


def ks_p_value(distance: float, n: int) -> float:
    """P-value of a Kolmogorov-Smirnov distance (Massart 1990, the DKW inequality)."""
    return min(1.0, 2 * math.exp(-2 * n * distance**2))


def counts_p_values(
    counts: np.ndarray, n: int, probabilities: np.ndarray
) -> np.ndarray:
    """Exact two-sided binomial p-values of numbers of coordinates in cells or tails."""
    below = bdtr(counts, n, probabilities)
    at_least = bdtrc(np.maximum(counts - 1, 0), n, probabilities)
    above = np.where(counts > 0, at_least, 1.0)
    chances: np.ndarray = np.minimum(1.0, 2 * np.minimum(below, above))
    return chances


def tail_probabilities(limits: Sequence[float]) -> np.ndarray:
    """Probability that a standard normal exceeds each limit in absolute value."""
    probabilities: np.ndarray = 2 * ndtr(-np.asarray(limits))
    return probabilities


def squares_p_values(squares: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Exact two-sided chi-square p-values of sums of squares."""
    smaller = np.minimum(chdtr(counts, squares), chdtrc(counts, squares))
    chances: np.ndarray = np.minimum(1.0, 2 * smaller)
    return chances


def close_pairs_p_value(pairs: int, sizes: Sequence[int]) -> float:
    """P-value of the number of neighbouring sorted values closer than ``CLOSE``.

    With the distribution function as a transform, the values of a vector become n
    independent uniform variables, whose spacings are negatively associated and at most
    ``a`` with probability 1 - (1 - a)^n. A multiplicative Chernoff bound holds for sums
    of negatively associated indicators (Dubhashi and Ranjan 1998).

    Args:
        pairs: over all vectors.
        sizes: number of values of each vector (n).
    """
    mean = sum((n - 1) * -math.expm1(n * math.log1p(-CLOSE * DENSITY)) for n in sizes)
    if pairs <= mean or mean == 0:
        return 1.0
    return math.exp(min(0.0, pairs - mean - pairs * math.log(pairs / mean)))


def product_p_values(products: np.ndarray, n: int | np.ndarray) -> np.ndarray:
    """Chernoff bound on tails of sums of products x_i y_i of independent normals.

    The logarithm of the moment generating function at t is -(n / 2) log(1 - t^2). The
    bound is two-sided.

    Args:
        products: the sums.
        n: number of products in each.
    """
    s = np.maximum(np.abs(np.asarray(products, dtype=float)), 1e-12)
    # Where the derivative of n / 2 log(1 - t^2) + t s is 0.
    t = 2 * s / (n + np.sqrt(np.square(np.asarray(n, dtype=float)) + 4 * s**2))
    bounds: np.ndarray = np.minimum(1.0, 2 * np.exp(-t * s - n / 2 * np.log1p(-(t**2))))
    return bounds


def lagged_p_values(products: np.ndarray, n: int | np.ndarray) -> np.ndarray:
    """As ``product_p_values`` for products z_i z_(i + lag) within one vector.

    The quadratic form of the n normals has trace 0 and eigenvalues in [-1, 1] (the mean
    of a shift matrix and its transpose), so that by convexity the logarithm of its
    moment generating function at t is at most -(n / 4) log(1 - 4 t^2): half the
    exponent of ``product_p_values``.
    """
    of_products = product_p_values(products, n)
    chances: np.ndarray = np.minimum(1.0, 2 * np.sqrt(of_products / 2))
    return chances


def normal_p_values(values: np.ndarray) -> np.ndarray:
    """Exact two-sided p-values of standard normals."""
    chances: np.ndarray = 2 * ndtr(-np.abs(values))
    return chances
