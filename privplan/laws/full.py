"""Full participation: every client takes part in every round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from privplan.laws.law import LAWS, Law
from privplan.laws.pairs import (
    DominatingPairs,
    Kind,
    Moments,
    Pair,
    Relation,
    RenyiBound,
    exact,
)


class Full(Law):
    """All clients; nothing is drawn and nothing is amplified."""

    name = "full"
    title = "full"
    everyone = True

    @property
    def phrase(self) -> str:
        """The law in a sentence."""
        return "full participation"

    def dominating_pairs(self, relation: Relation, shift: float, ratio: float) -> DominatingPairs:
        """One Gaussian, exact: at distance 2 C under replace-one, else C."""
        pair = Pair(Kind.REMOVE, self.sensitivity(relation) * shift, 1.0)
        return exact(pair, pair)

    def renyi(
        self, relation: Relation, noise_multiplier: float, ratio: float
    ) -> tuple[RenyiBound, ...]:
        """The Gaussian mechanism: alpha / (2 sigma^2)."""
        replace = relation == Relation.REPLACE_ONE
        sigma = noise_multiplier / 2 if replace else noise_multiplier
        return (RenyiBound(Moments.SAMPLED, sigma, 1.0),)

    def has_central_limit(self, relation: Relation) -> bool:
        """The Gaussian is its own limit."""
        return True

    def has_theorem_1(self, relation: Relation) -> bool:
        """Under every relation."""
        return True

    def draw(
        self, generator: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        """All positions."""
        return np.arange(clients)

    def executed_ratio(self, clients: int, ratio: float) -> float:
        """Always 1."""
        return 1.0

    def cohort_faults(
        self, counts: Sequence[int], clients: int, ratio: float, level: float
    ) -> Iterator[str]:
        """Every cohort is the whole group."""
        planned = round(ratio * clients)
        for count in counts:
            if count != planned:
                yield f"a cohort of {count} where the law takes exactly {planned}"


LAWS.register(Full.name, Full())
