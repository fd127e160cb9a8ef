"""Variance of the update that a client computes by DP-SGD on its own records.

Source: Malekmohammadi, Yu, Cao (ICML 2024), Section 3. Every variance is the sum over the
coordinates. A client takes noisy steps theta <- theta - eta g with

    g = (sum of the clipped gradients of a batch + N(0, c^2 z^2 I_p)) / b,

so that its update's variance is, to first order in eta, the number of steps times
eta^2 Var(g) (Eq. 7); with a curvature lambda along a direction, a step's noise shrinks by
1 - eta lambda at each later step, which Eq. 7 leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def clipped_gradient_variance(
    clip: float, z: float, batch_size: float, dimension: int, mean_norm: float | None = None
) -> float:
    """Eq. 3: variance of a noisy batch gradient when every record's gradient is clipped.

    Args:
        clip: c, L2 bound on a record's gradient.
        z: noise multiplier, over c, on the sum of a batch.
        batch_size: b, records in a batch.
        dimension: p, coordinates.
        mean_norm: norm of the mean of the clipped gradients, at most c; without it, the sampling
            term (c^2 - mean_norm^2) / b is dropped, as in the approximation of Eq. 3 for large p.

    Returns:
        (c^2 - mean_norm^2) / b + p c^2 z^2 / b^2.
    """
    sampling = 0.0 if mean_norm is None else (clip**2 - mean_norm**2) / batch_size
    return sampling + dimension * (clip * z / batch_size) ** 2


def unclipped_gradient_variance(
    gradient_variance: float, clip: float, z: float, batch_size: float, dimension: int
) -> float:
    """Eq. 5: upper bound on the variance of a noisy batch gradient when no gradient is clipped.

    Args:
        gradient_variance: largest variance of the batch gradient without noise.
        clip: c.
        z: noise multiplier.
        batch_size: b.
        dimension: p.

    Returns:
        gradient_variance + p c^2 z^2 / b^2.
    """
    return gradient_variance + clipped_gradient_variance(clip, z, batch_size, dimension)


def local_steps(records: int, batch_size: int, epochs: int) -> int:
    """E_i = K ceil(N / b): steps of a client per round."""
    return epochs * math.ceil(records / batch_size)


def update_variance(steps: int, learning_rate: float, gradient_variance: float) -> float:
    """Eq. 7: variance of a client's update per round, E_i eta^2 Var(g).

    Args:
        steps: E_i, ``local_steps``.
        learning_rate: eta.
        gradient_variance: of a step, by Eq. 3 or Eq. 5.
    """
    return steps * learning_rate**2 * gradient_variance


def oracle_weights(variances: Sequence[float] | Floats) -> Floats:
    """Eq. 8: the weights that minimise the variance of the mean, 1 / sigma_i^2 normalised.

    Args:
        variances: sigma_i^2 of the clients, shape (clients,), positive.

    Returns:
        Weights that sum to 1, shape (clients,).
    """
    precision = 1 / np.asarray(variances, dtype=float)
    return np.asarray(precision / precision.sum())


def mean_variance(weights: Sequence[float] | Floats, variances: Sequence[float] | Floats) -> float:
    """Variance of the weighted mean of independent updates, sum w_i^2 sigma_i^2."""
    return float(np.sum(np.asarray(weights) ** 2 * np.asarray(variances)))
