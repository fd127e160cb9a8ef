"""Who takes part in a round: by the plan's sampling law, or in turns.

The law itself (its draw and the ratio that it executes) is one file of
``privplan.laws``; a rotation is a public schedule, draws nothing and amplifies no
privacy.
"""

from __future__ import annotations

import math

import numpy as np

from privplan.accounting.release import SamplingLaw
from simulate.components import Sampler

# Slack on a whole number of turns, for the rounding of the ratio.
ROUNDING = 1e-9


def by_law(law: SamplingLaw) -> Sampler:
    """The sampler that executes a law."""
    registered_law = law.law
    return Sampler(law, registered_law.draw, registered_law.executed_ratio)


def rotation() -> Sampler:
    """The next clients in each round, around and around, none twice.

    On average, a round has the number of clients times the ratio.
    """

    def draw(
        generator: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        start = _places(clients, ratio, round_ - 1)
        end = _places(clients, ratio, round_)
        return np.sort(np.arange(start, end) % clients)

    return Sampler(None, draw, lambda clients, ratio: ratio)


def _places(clients: int, ratio: float, rounds: int) -> int:
    """Places of the endless row of clients that some rounds take up."""
    return math.floor(clients * ratio * rounds + ROUNDING)
