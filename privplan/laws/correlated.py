"""Noise that is correlated over B rounds: later rounds take a part of it back.

With x_t the sum of round t of T and c_0, ..., c_{B-1} of norm 1, a round releases

    y_t = r_t (c_0 x_t / s_t + ... + c_{B-1} x_{t-B+1} / s_{t-B+1}) + z_t,    z_t
    Gaussian,

and the server solves for the sums: x_t + n_t with n = C^{-1} z, C the matrix of the
factors. s_u gives column u of C norm 1 (column normalisation, as in jax_privacy). A
client that is summed in one of any B consecutive rounds at most (``cyclic_poisson:B``)
moves y_t, ..., y_{t+B-1} by a vector of its own norm, since the columns of C have norm
1 at most, and different participations move different releases. So its privacy is that
of one Gaussian release per participation, also where updates depend on earlier releases
(Denisov, McMahan, Rush, Smith, Thakurta, NeurIPS 2022, Theorem 2.1), and n costs
nothing more than z.

c is the start of the series of (1 - x)^(-a) (1 - beta x)^(-1/2), beta the momentum of
the server, times e^(h k / B), divided by its norm. a = 1/2 is best where B reaches all
rounds (Kalinin, Lampert, NeurIPS 2024); a, a multiple of 0.02, and h, one of 0.1 up to
0.5, leave all models least mean square noise with r = s = 1. r_t = (t (T + 1 - t))^q (1
+ g beta^(T-t)), q = 0.3 - 0.2 B / T, brings prefix sums near the best; g is the least
multiple of 1/4 by which the last model has at most 0.1% more noise than by h = 0 and r
= 1; where h leaves it more, h is 0.

A law whose name wishes for the last model has r = 1 instead, and the a and h of least
(1 - W) log(mean square noise of all models) + W log(squared noise of the last one).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

import numpy as np

from privplan.errors import Fault
from privplan.laws.law import JudgedSpec, Use

# The grid of exponents a and of ten times h that the module names.
_EXPONENTS = np.arange(25, 51) / 50
_MAX_TENTHS = 5
# Norms are rounded up by more than the error of their sums: of a series, and of a
# column of 4,000 terms.
_ABOVE_ROUNDING_OF_SERIES = 1 + 2.0**-48
_ABOVE_ROUNDING_OF_COLUMNS = 1 + 2.0**-42
# The last model may have so much more noise than by h = 0 and r = 1.
_MORE_LAST_NOISE = 1.001
_MAX_QUARTERS = 12  # of g, in steps of 1/4


def series(
    bands: int, momentum: float, exponent: float, h: float = 0.0
) -> tuple[float, ...]:
    """c_0, ..., c_{B-1}, of norm 1 at most.

    Args:
        bands: B, how many there are.
        momentum: beta of the server, in [0, 1).
        exponent: a.
        h: growth of the factors over the B rounds.
    """
    # Coefficients of (1 - x)^(-a) and of (1 - beta x)^(-1/2).
    of_sums = [1.0]
    of_momentum = [1.0]
    for k in range(1, bands):
        of_sums.append(of_sums[-1] * (exponent + k - 1) / k)
        of_momentum.append(of_momentum[-1] * momentum * (2 * k - 1) / (2 * k))

    growth = np.exp(h * np.arange(bands) / bands)
    product_of_series = np.convolve(of_sums, of_momentum)[:bands] * growth
    norm = math.hypot(*product_of_series) * _ABOVE_ROUNDING_OF_SERIES
    return tuple(float(factor) / norm for factor in product_of_series)


def coefficients(
    bands: int, momentum: float, rounds: int, max_tenths: int = _MAX_TENTHS
) -> tuple[float, ...]:
    """The series that leaves all models least mean square noise.

    Args:
        bands: B.
        momentum: of the server.
        rounds: T.
        max_tenths: the largest 10 h that is tried.
    """
    return min(
        _tried_series(bands, momentum, max_tenths),
        key=lambda factors: mean_square(factors, momentum, rounds),
    )


def _tried_series(
    bands: int, momentum: float, max_tenths: int = _MAX_TENTHS
) -> Iterator[tuple[float, ...]]:
    """The series of the grid of exponents and growths."""
    for exponent, h in product(_EXPONENTS, np.arange(max_tenths + 1) / 10):
        yield series(bands, momentum, exponent, h)


def mean_square(factors: tuple[float, ...], momentum: float, rounds: int) -> float:
    """Mean square noise of the models after each round, with r = s = 1.

    z has standard deviation 1.
    """
    # The inverse of a series may grow without bounds.
    with np.errstate(all="ignore"):
        # T - i models hold the noise of i rounds ago.
        squares = _factors_on_noise(factors, _reached(momentum, rounds)) ** 2
        models = np.arange(rounds, 0, -1)
        return float(models @ squares) / rounds


def _reached(momentum: float, rounds: int) -> np.ndarray:
    """Share of a round's noise in the model after it and 0, 1, ... further rounds."""
    return np.array([1 - momentum**t for t in range(1, rounds + 1)])


def _factors_on_noise(factors: tuple[float, ...], reached: np.ndarray) -> np.ndarray:
    """Factors on z of 0, 1, ... rounds ago in a model that holds ``reached`` of n.

    Division of the two series, term by term.
    """
    divisor = np.array(factors[: len(reached)]) / factors[0]
    remainder = np.zeros(len(divisor))
    quotient = np.zeros(len(reached))
    for index, share in enumerate(reached):
        quotient[index] = share * (1 / factors[0]) + remainder[0]
        remainder[:-1] = remainder[1:] - divisor[1:] * quotient[index]
    return quotient


def column_norms(factors: tuple[float, ...], rows: np.ndarray) -> np.ndarray:
    """Norms s_u of the columns of r_t c_{t-u}, rounded up; ``rows`` are all r_t."""
    rounds = len(rows)
    squares = np.square(factors[:rounds])
    sums = np.convolve(np.square(rows), squares[::-1])[-rounds:]
    return np.asarray(np.sqrt(sums) * _ABOVE_ROUNDING_OF_COLUMNS)


def remaining_noise(
    factors: tuple[float, ...], rows: np.ndarray, momentum: float
) -> float:
    """Noise of the last model over that of plain steps with independent noise like z.

    Both for the same path of the model without noise: momentum leaves the last steps
    unfinished.
    """
    reached = _reached(momentum, len(rows))
    norms = column_norms(factors, rows)
    in_last_model = _factors_on_noise(factors, reached * norms[::-1]) / rows[::-1]
    noise = np.linalg.norm(in_last_model)
    return float(noise * math.sqrt(len(rows)) / reached.sum())


@lru_cache(maxsize=256)
def factors(
    bands: int, momentum: float, rounds: int, last_weight: int = 0
) -> tuple[tuple[float, ...], np.ndarray]:
    """c, and r_1, ..., r_T, for a weight of the last model in percent.

    The best series comes first, with the least g by which the last model has little
    more noise than by h = 0 and r = 1.
    """
    equal_rows = np.ones(rounds)
    if last_weight:

        def loss(tried: tuple[float, ...]) -> float:
            all_models = math.log(mean_square(tried, momentum, rounds))
            last_model = math.log(remaining_noise(tried, equal_rows, momentum))
            return (100 - last_weight) * all_models + 2 * last_weight * last_model

        # The inverse of a series may grow without bounds.
        with np.errstate(all="ignore"):
            return min(_tried_series(bands, momentum), key=loss), equal_rows
    plain_series = coefficients(bands, momentum, rounds, 0)
    last_noise = remaining_noise(plain_series, equal_rows, momentum)
    max_last_noise = _MORE_LAST_NOISE * last_noise

    # r_t without its last factor: (t (T + 1 - t))^q, and q is 0.1 at least.
    t = np.arange(rounds)
    q = max(0.1, 0.3 - 0.2 * bands / rounds)
    middle = ((t + 1.0) * (rounds - t)) ** q
    for tried_series in (coefficients(bands, momentum, rounds), plain_series):
        for quarters in range(_MAX_QUARTERS + 1):
            rows = middle * (1 + quarters / 4 * momentum ** t[::-1])
            noise = remaining_noise(tried_series, rows, momentum)
            if noise <= max_last_noise:
                return tried_series, rows
    return plain_series, equal_rows


# Values that fields of ``planning`` may have, and fields that must be left out.
_ALLOWED = {
    "ratios": ("balanced", "noise"),
    "accountant": ("pld",),
    "sparsification": ("none",),
}
_LEFT_OUT = ("clipping", "constants")
_ALLOWED_FREE = ("ratios", "weights", "sampling")
_EVERY_ROUND = "must be a law under which every round draws from all clients"
_EXCLUDED: dict[Use, str] = {
    "plain sums": _EVERY_ROUND,
    "a guard": "must be a law whose rounds have noise of their own, for a guard",
    "secure-discrete": "must not be secure-discrete under {law}",
    "max_uploads": "must be left out under {law} sampling",
    "solve_for rounds": "must be cohort or epsilon under {law} sampling",
}
"""Rules of the uses that rest on rounds of all clients, or on a sum per round."""


def correlated_faults(spec: JudgedSpec, under: str) -> Iterator[Fault]:
    """What plans with noise that is correlated over rounds cannot have."""
    planning = spec.planning
    for field, allowed in _ALLOWED.items():
        value = getattr(planning, field)
        if value not in allowed:
            rule = f"must be {' or '.join(allowed)} {under}"
            yield Fault(f"planning.{field}", rule, value)
    for choice in dict.fromkeys(planning.free):
        if choice not in _ALLOWED_FREE:
            rule = f"can name ratios, weights and sampling only {under}"
            yield Fault("planning.free", rule, choice)

    absent = {f"groups.{group.name}.risk": group.risk for group in spec.groups}
    for field in _LEFT_OUT:
        absent[f"planning.{field}"] = getattr(planning, field, None)
    absent["groups_from"] = spec.groups_from
    for field, value in absent.items():
        if value is None:
            continue
        # A message shows a part of a spec as its file does.
        as_plain = getattr(value, "model_dump", None)
        if as_plain is not None:
            value = as_plain(mode="json", exclude_unset=True)
        yield Fault(field, f"must be left out {under}", value)


class Correlated:
    """What a law has whose rounds share noise over ``bands`` rounds."""

    name: str
    bands: int
    last_weight = 0  # of the last model beside all models, in percent
    recipe_momentum = 0.5  # docs/correlated-noise.md

    def excludes_use(self, use: Use) -> str:
        """All uses so far: each needs rounds of all clients, or one sum per round."""
        return _EXCLUDED.get(use, f"{_EVERY_ROUND}, for {use}").format(law=self.name)

    def mixture(
        self, momentum: float, rounds: int, round_: int = 1
    ) -> tuple[float, ...]:
        """B factors, for noise that later rounds take back in part."""
        series_factors, rows = self._factors(momentum, rounds)
        norms = column_norms(series_factors, rows)
        # r_t c_k / s_{t-k}. Before the first round there is no sum, so that any s will
        # do.
        past = np.maximum(round_ - 1 - np.arange(self.bands), 0)
        mixture = rows[round_ - 1] * np.array(series_factors) / norms[past]
        return tuple(float(factor) for factor in mixture)

    def noise_left(self, momentum: float, rounds: int) -> float:
        """Less than 1: that of the correlated noise."""
        return remaining_noise(*self._factors(momentum, rounds), momentum)

    def _factors(
        self, momentum: float, rounds: int
    ) -> tuple[tuple[float, ...], np.ndarray]:
        return factors(self.bands, momentum, rounds, self.last_weight)
