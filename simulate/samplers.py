"""Who takes part in a round: by the plan's sampling law, or in turns.

The law itself (its draw and the ratio that it executes) is one file of ``privplan.laws``; a
rotation is a public schedule, draws nothing and amplifies no privacy.
"""

from __future__ import annotations

import math

import numpy as np

from privplan.accounting.release import SamplingLaw
from simulate.components import Sampler


def by_law(law: SamplingLaw) -> Sampler:
    """The sampler that executes a law.

    Raises:
        InputError: when the law's entry point cannot be loaded.
    """
    found = law.law
    return Sampler(law, found.draw, found.executed_ratio)


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
