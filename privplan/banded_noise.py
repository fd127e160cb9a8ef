"""Noise that is correlated over B rounds, so that what one round adds later ones take back in part.

With x_t the sum of round t and c_0, ..., c_{B-1} of norm 1, a round releases

    y_t = c_0 x_t + c_1 x_{t-1} + ... + c_{B-1} x_{t-B+1} + z_t,    z_t independent Gaussian,

and the server solves for the sums: x_t + n_t with n = C^{-1} z, C the Toeplitz matrix of c. A
client that is summed in one of any B consecutive rounds at most (``cyclic_poisson:B``) moves y_t,
..., y_{t+B-1} by a vector of its own norm, since the columns of C have norm 1 at most, and
different participations move different releases. So its privacy is that of one Gaussian release
per participation, also where updates depend on earlier releases (Denisov, McMahan, Rush, Smith,
Thakurta, NeurIPS 2022, Theorem 2.1), and n costs nothing more than z.

c is the start of the series of ((1 - x) (1 - beta x))^(-1/2), the square root of a server with
momentum beta that adds up its steps: the banded square root factorisation (Kalinin, Lampert,
NeurIPS 2024, Section 3), divided by its norm.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@lru_cache(maxsize=256)
def coefficients(bands: int, momentum: float) -> tuple[float, ...]:
    """c_0, ..., c_{B-1}, of norm 1 at most.

    Args:
        bands: B.
        momentum: beta of the server, in [0, 1).
    """
    root = [1.0]
    for k in range(1, bands):
        root.append(root[-1] * (2 * k - 1) / (2 * k))  # (1 - x)^(-1/2)
    first = np.array(root)
    series = np.convolve(first, first * momentum ** np.arange(bands))[:bands]
    length = math.sqrt(math.fsum(float(one) ** 2 for one in series)) * (1 + 2.0**-48)
    return tuple(float(one) / length for one in series)


def inverse_series(given: tuple[float, ...], rounds: int) -> Floats:
    """The first column of C^{-1}, shape (rounds,)."""
    found = np.zeros(rounds)
    found[0] = 1 / given[0]
    for t in range(1, rounds):
        reach = min(t, len(given) - 1)
        found[t] = -np.dot(given[1 : reach + 1], found[t - reach : t][::-1]) / given[0]
    return found


@lru_cache(maxsize=1024)
def remaining_noise(bands: int, momentum: float, rounds: int) -> float:
    """Noise that the last model holds, over that of plain steps with independent noise like z.

    Both for the same way of the model without noise: momentum leaves the last steps unfinished.

    Args:
        bands: B; 1 for independent noise.
        momentum: beta of the server.
        rounds: T.
    """
    if bands == 1:
        return 1.0
    # the model after round T holds 1 - beta^(T - t + 1) of the noise of round t
    reached = 1 - momentum ** np.arange(1, rounds + 1) if momentum else np.ones(rounds)
    held = np.convolve(inverse_series(coefficients(bands, momentum), rounds), reached)[:rounds]
    return float(np.linalg.norm(held) * math.sqrt(rounds) / reached.sum())
