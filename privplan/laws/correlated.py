"""Noise that is correlated over B rounds: what one round adds later ones take back in part.

With x_t the sum of round t and c_0, ..., c_{B-1} of norm 1, a round releases

    y_t = c_0 x_t + c_1 x_{t-1} + ... + c_{B-1} x_{t-B+1} + z_t,    z_t independent Gaussian,

and the server solves for the sums: x_t + n_t with n = C^{-1} z, C the Toeplitz matrix of c. The
last B - 1 sums have fewer rounds to come: their factors are longer, so that each column of C has
norm 1 (column normalisation, as in jax_privacy), and the last rounds have less noise. A client
that is summed in one of any B consecutive rounds at most (``cyclic_poisson:B``) moves
y_t, ..., y_{t+B-1} by a vector of its own norm, since the columns of C have norm 1 at most, and
different participations move different releases. So its privacy is that of one Gaussian release
per participation, also where updates depend on earlier releases (Denisov, McMahan, Rush, Smith,
Thakurta, NeurIPS 2022, Theorem 2.1), and n costs nothing more than z.

c is the start of the series of (1 - x)^(-a) (1 - beta x)^(-1/2), divided by its norm, beta the
momentum of the server. a = 1/2 is best where B reaches all rounds (Kalinin, Lampert, NeurIPS
2024); a is the multiple of 0.02 of the least mean square noise of all models.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from privplan.errors import Fault
from privplan.laws.law import Use


def series(bands: int, momentum: float, exponent: float) -> tuple[float, ...]:
    """c_0, ..., c_{B-1}, of norm 1 at most."""
    sums, steps = [1.0], [1.0]
    for k in range(1, bands):
        sums.append(sums[-1] * (exponent + k - 1) / k)
        steps.append(steps[-1] * momentum * (2 * k - 1) / (2 * k))
    found = np.convolve(sums, steps)[:bands]
    length = math.hypot(*found) * (1 + 2.0**-48)
    return tuple(float(one) / length for one in found)


@lru_cache(maxsize=256)
def coefficients(bands: int, momentum: float, rounds: int) -> tuple[float, ...]:
    """The series that leaves all models least mean square noise."""
    found = [series(bands, momentum, step / 50) for step in range(25, 51)]
    left = np.arange(rounds, 0, -1)  # models that hold the noise of i rounds ago, i = 0, 1, ...
    reached = _reached(momentum, rounds)
    return min(found, key=lambda given: float(left @ _held(given, reached) ** 2))


def _reached(momentum: float, rounds: int) -> np.ndarray:
    """Share of a round's noise that the model holds after it and 0, 1, ... further rounds."""
    return np.array([1 - momentum**t for t in range(1, rounds + 1)])


def _held(given: tuple[float, ...], reached: np.ndarray) -> np.ndarray:
    """Factors on z of 0, 1, ... rounds ago in a model that holds ``reached`` of n."""
    from scipy.linalg import solve_banded  # slow to load

    matrix = np.repeat(np.array(given[: len(reached)])[:, None], len(reached), axis=1)
    return np.asarray(solve_banded((len(matrix) - 1, 0), matrix, reached))


def column_norms(given: tuple[float, ...]) -> np.ndarray:
    """Norms of the first 1, ..., B factors, which are those of the last columns, rounded up."""
    return np.asarray(np.minimum(1.0, np.sqrt(np.cumsum(np.square(given))) * (1 + 2.0**-48)))


def remaining_noise(given: tuple[float, ...], momentum: float, rounds: int) -> float:
    """Noise that the last model holds, over that of plain steps with independent noise like z.

    Both for the same way of the model without noise: momentum leaves the last steps unfinished.
    """
    reached = _reached(momentum, rounds)
    last = column_norms(given)[:rounds]
    held = _held(given, np.append(reached[: len(last)] * last, reached[len(last) :]))
    return float(np.linalg.norm(held) * math.sqrt(rounds) / reached.sum())


_OBJECTIVES = ("balanced", "noise")
_LEFT_OUT = ("clipping", "constants")
_PLANNED = (
    ("ratios", _OBJECTIVES), ("accountant", ("pld",)), ("sparsification", ("none",)),
)  # fmt: skip
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
            yield Fault(f"planning.{field}", f"must be {' or '.join(allowed)} {under}", value)
    for choice in {*planning.free} - {"ratios", "weights"}:
        yield Fault("planning.free", f"can name ratios and weights only {under}", choice)
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

    def mixture(self, momentum: float, rounds: int, round_: int = 1) -> tuple[float, ...]:
        """B factors, for noise that later rounds take back in part."""
        given = coefficients(self.bands, momentum, rounds)
        if round_ + self.bands - 1 <= rounds:
            return given
        norms = column_norms(given)[rounds - round_ :]  # of this round, of the one before it, ...
        ends = np.pad(norms, (0, self.bands - len(norms)), constant_values=1.0)
        return tuple(float(one) for one in np.array(given) / ends)

    def noise_left(self, momentum: float, rounds: int) -> float:
        """Less than 1: that of the correlated noise."""
        return remaining_noise(self.mixture(momentum, rounds), momentum, rounds)
