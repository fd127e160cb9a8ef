"""Noise that is correlated over B rounds: what one round adds later ones take back in part.

With x_t the sum of round t of T and c_0, ..., c_{B-1} of norm 1, a round releases

    y_t = r_t (c_0 x_t / s_t + ... + c_{B-1} x_{t-B+1} / s_{t-B+1}) + z_t,    z_t Gaussian,

and the server solves for the sums: x_t + n_t with n = C^{-1} z, C the matrix of the factors. s_u
gives column u of C norm 1 (column normalisation, as in jax_privacy). A client that is summed in
one of any B consecutive rounds at most (``cyclic_poisson:B``) moves y_t, ..., y_{t+B-1} by a
vector of its own norm, since the columns of C have norm 1 at most, and different participations
move different releases. So its privacy is that of one Gaussian release per participation, also
where updates depend on earlier releases (Denisov, McMahan, Rush, Smith, Thakurta, NeurIPS 2022,
Theorem 2.1), and n costs nothing more than z.

c is the start of the series of (1 - x)^(-a) (1 - beta x)^(-1/2), beta the momentum of the server,
times e^(h k / B), divided by its norm. a = 1/2 is best where B reaches all rounds (Kalinin,
Lampert, NeurIPS 2024); a, a multiple of 0.02, and h, one of 0.1 up to 0.5, leave all models least
mean square noise with r = s = 1. r_t = (t (T + 1 - t))^q (1 + g beta^(T-t)), q = 0.3 - 0.2 B / T,
brings prefix sums near the best; g is the least multiple of 1/4 by which the last model has at most
0.1% more noise than by h = 0 and r = 1; where h leaves it more, h is 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from privplan.errors import Fault
from privplan.laws.law import Use


def series(
    bands: int, momentum: float, exponent: float, h: float = 0.0
) -> tuple[float, ...]:
    """c_0, ..., c_{B-1}, of norm 1 at most."""
    sums, steps = [1.0], [1.0]
    for k in range(1, bands):
        sums.append(sums[-1] * (exponent + k - 1) / k)
        steps.append(steps[-1] * momentum * (2 * k - 1) / (2 * k))
    found = np.convolve(sums, steps)[:bands] * np.exp(h * np.arange(bands) / bands)
    length = math.hypot(*found) * (1 + 2.0**-48)
    return tuple(float(one) / length for one in found)


def coefficients(
    bands: int, momentum: float, rounds: int, most: int = 5
) -> tuple[float, ...]:
    """The series that leaves all models least mean square noise, with 10 h up to ``most``."""
    parts = product([momentum], np.arange(25, 51) / 50, np.arange(most + 1) / 10)
    found = (series(bands, *one) for one in parts)
    return min(found, key=lambda given: mean_square(given, momentum, rounds))


def mean_square(given: tuple[float, ...], momentum: float, rounds: int) -> float:
    """Mean square noise of the models after each round, by z of standard deviation 1, r = s = 1."""
    with np.errstate(
        all="ignore"
    ):  # where the inverse of a series grows without bounds
        squares = (
            _held(given, _reached(momentum, rounds)) ** 2
        )  # of the noise of i rounds ago,
        return (
            float(np.arange(rounds, 0, -1) @ squares) / rounds
        )  # which T - i models hold


def _reached(momentum: float, rounds: int) -> np.ndarray:
    """Share of a round's noise that the model holds after it and 0, 1, ... further rounds."""
    return np.array([1 - momentum**t for t in range(1, rounds + 1)])


def _held(given: tuple[float, ...], reached: np.ndarray) -> np.ndarray:
    """Factors on z of 0, 1, ... rounds ago in a model that holds ``reached`` of n."""
    from scipy.signal import lfilter  # slow to load

    return np.asarray(lfilter([1.0], given[: len(reached)], reached))


def column_norms(given: tuple[float, ...], rows: np.ndarray) -> np.ndarray:
    """Norms of the columns of r_t c_{t-u}, rounded up."""
    sums = np.convolve(np.square(rows), np.square(given[: len(rows)])[::-1])[
        -len(rows) :
    ]
    return np.asarray(
        np.sqrt(sums) * (1 + 2.0**-42)
    )  # above the rounding of 4,000 terms


def remaining_noise(
    given: tuple[float, ...], rows: np.ndarray, momentum: float
) -> float:
    """Noise that the last model holds, over that of plain steps with independent noise like z.

    Both for the same way of the model without noise: momentum leaves the last steps unfinished.
    """
    reached = _reached(momentum, len(rows))
    held = _held(given, reached * column_norms(given, rows)[::-1]) / rows[::-1]
    return float(np.linalg.norm(held) * math.sqrt(len(rows)) / reached.sum())


@lru_cache(maxsize=256)
def factors(
    bands: int, momentum: float, rounds: int
) -> tuple[tuple[float, ...], np.ndarray]:
    """c, and r_1, ..., r_T."""
    plain, equal, t = (
        coefficients(bands, momentum, rounds, 0),
        np.ones(rounds),
        np.arange(rounds),
    )
    most = 1.001 * remaining_noise(plain, equal, momentum)
    middle = ((t + 1.0) * (rounds - t)) ** max(0.1, 0.3 - 0.2 * bands / rounds)
    rises = [middle * (1 + step / 4 * momentum ** t[::-1]) for step in range(13)]
    tried = product((coefficients(bands, momentum, rounds), plain), rises)
    return next(
        (one for one in tried if remaining_noise(*one, momentum) <= most),
        (plain, equal),
    )


_LEFT_OUT = ("clipping", "constants")
_OBJECTIVES = ("balanced", "noise")
_PLANNED = (
    ("ratios", _OBJECTIVES),
    ("accountant", ("pld",)),
    ("sparsification", ("none",)),
)
_EVERY_ROUND = "must be a law under which every round draws from all clients"
_EXCLUDED: dict[Use, str] = {
    "plain sums": _EVERY_ROUND,
    "secure-discrete": "must not be secure-discrete under {law}",
    "max_uploads": "must be left out under {law} sampling",
    "solve_for rounds": "must be cohort or epsilon under {law} sampling",
}
"""Rules of the uses that rest on rounds of all clients, or on a sum per round."""


def correlated_faults(spec: Any, under: str) -> Iterator[Fault]:
    """What plans with noise that is correlated over rounds cannot have."""
    planning = spec.planning
    for field, allowed in _PLANNED:
        if (value := getattr(planning, field)) not in allowed:
            yield Fault(
                f"planning.{field}", f"must be {' or '.join(allowed)} {under}", value
            )
    for choice in {*planning.free} - {"ratios", "weights", "sampling"}:
        yield Fault(
            "planning.free",
            f"can name ratios, weights and sampling only {under}",
            choice,
        )
    absent = [(f"groups.{group.name}.risk", group.risk) for group in spec.groups]
    absent += ((f"planning.{one}", getattr(planning, one, None)) for one in _LEFT_OUT)
    for field, value in (*absent, ("groups_from", spec.groups_from)):
        if value is not None:
            dumped = getattr(value, "model_dump", None)
            found = value if dumped is None else dumped(mode="json", exclude_unset=True)
            yield Fault(field, f"must be left out {under}", found)


class Correlated:
    """What a law has whose rounds share noise over ``bands`` rounds."""

    name: str
    bands: int
    recipe_momentum = 0.5  # docs/correlated-noise.md

    def excludes_use(self, use: Use) -> str:
        """None of the uses so far: each needs rounds of all clients, or one sum per round."""
        return _EXCLUDED.get(use, f"{_EVERY_ROUND}, for {use}").format(law=self.name)

    def mixture(
        self, momentum: float, rounds: int, round_: int = 1
    ) -> tuple[float, ...]:
        """B factors, for noise that later rounds take back in part."""
        given, rows = factors(self.bands, momentum, rounds)
        norms = column_norms(given, rows)
        past = np.maximum(
            round_ - 1 - np.arange(self.bands), 0
        )  # before the first one: nothing
        return tuple(
            float(one) for one in rows[round_ - 1] * np.array(given) / norms[past]
        )

    def noise_left(self, momentum: float, rounds: int) -> float:
        """Less than 1: that of the correlated noise."""
        return remaining_noise(*factors(self.bands, momentum, rounds), momentum)
