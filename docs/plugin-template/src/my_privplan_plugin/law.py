"""A sampling law: Poisson sampling, drawn by one coin per client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from privplan.laws.law import LAWS, DominatingPairs, Law, Relation
from privplan.laws.participation import total_p_value


class Coins(Law):
    """Each client takes part when its coin shows heads.

    The dominating pairs are the law's privacy: every certificate rests on them. Each client is
    independent of all others, so they are those of Poisson sampling.
    """

    name = "coins"
    title = "coins"
    independent_clients = True

    def dominating_pairs(
        self, relation: Relation, shift: float, ratio: float
    ) -> DominatingPairs:
        """The pairs of Poisson sampling."""
        return LAWS.get("poisson").dominating_pairs(relation, shift, ratio)

    def draw(
        self, generator: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        """Positions of the participants, sorted."""
        return np.flatnonzero(generator.random(clients) < ratio)

    def cohort_faults(
        self, counts: Sequence[int], clients: int, ratio: float, level: float
    ) -> Iterator[str]:
        """What cohorts of these sizes contradict, at a false-alarm rate of ``level``."""
        if total_p_value(counts, clients, ratio) < level:
            yield f"{sum(counts)} participations are not those of coins"
