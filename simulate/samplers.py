"""Fixed-size sampling: a cohort of m of n clients, without replacement.

Full participation: everybody, in every round.

Poisson sampling: each client independently with the sampling ratio.

Rotation: clients take turns by a public schedule; nothing is drawn, nothing is amplified.

Who takes part in a round: one file a sampling law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType

import numpy as np

from privplan.accounting.release import SamplingLaw
from simulate.components import Sampler


def fixed_size() -> Sampler:
    """A sampler by the fixed-size law, with m the ratio times n, rounded."""

    def draw(generator: np.random.Generator, clients: int, ratio: float, round_: int) -> np.ndarray:
        size = round(clients * ratio)
        return np.sort(generator.choice(clients, size=size, replace=False, shuffle=False))

    return Sampler(SamplingLaw.FIXED_SIZE, draw, _executed)


def _executed(clients: int, ratio: float) -> float:
    whole = round(clients * ratio) / clients
    return ratio if math.isclose(whole, ratio, rel_tol=1e-9) else whole


def full() -> Sampler:
    """A sampler that takes every client and draws nothing."""
    return Sampler(
        SamplingLaw.FULL,
        lambda generator, clients, ratio, round_: np.arange(clients),
        lambda clients, ratio: 1.0,
    )


def poisson() -> Sampler:
    """A sampler by the Poisson law.

    The size is binomial, and given its size the cohort is uniform: the same law as one coin a
    client, at a cost that grows with the cohort only.
    """

    def draw(generator: np.random.Generator, clients: int, ratio: float, round_: int) -> np.ndarray:
        size = int(generator.binomial(clients, ratio))
        return np.sort(generator.choice(clients, size=size, replace=False, shuffle=False))

    return Sampler(SamplingLaw.POISSON, draw, lambda clients, ratio: ratio)


ROUNDING = 1e-9
"""Slack on a whole number of turns, for the rounding of the ratio."""


def rotation() -> Sampler:
    """The next clients in each round, around and around, n times ratio of them on average.

    After T rounds the first T n ratio places of an endless row of all clients are taken, so no
    client took part more than ceil(T ratio) times, and none twice in a round.
    """

    def draw(generator: np.random.Generator, clients: int, ratio: float, round_: int) -> np.ndarray:
        first, last = (_places(clients, ratio, number) for number in (round_ - 1, round_))
        return np.sort(np.arange(first, last) % clients)

    return Sampler(None, draw, lambda clients, ratio: ratio)


def _places(clients: int, ratio: float, rounds: int) -> int:
    """Places of the endless row that are taken after some rounds."""
    return math.floor(clients * ratio * rounds + ROUNDING)


SAMPLERS: MappingProxyType[SamplingLaw, Callable[[], Sampler]] = MappingProxyType(
    {
        SamplingLaw.POISSON: poisson,
        SamplingLaw.FIXED_SIZE: fixed_size,
        SamplingLaw.FULL: full,
    }
)


def by_law(law: SamplingLaw) -> Sampler:
    """The sampler that executes a law."""
    return SAMPLERS[law]()
