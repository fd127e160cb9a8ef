"""Poisson sampling: each client takes part independently with the sampling ratio."""

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
from privplan.laws.participation import dispersion_p_value, total_p_value


class Poisson(Law):
    """Each client independently; the size of the cohort is binomial."""

    name = "poisson"
    title = "Poisson"
    independent_clients = True
    uniform_cohorts = True

    def dominating_pairs(self, relation: Relation, shift: float, ratio: float) -> DominatingPairs:
        """Exact pairs: ``REMOVE`` and ``ADD``, or ``SWAP`` under replace-one.

        Add/remove and zero-out (where, too, a client contributes or does not) are Zhu, Dong and
        Wang 2022, Theorem 11, composed per direction.
        """
        replace = relation == Relation.REPLACE_ONE
        if ratio == 1:
            pair = Pair(Kind.REMOVE, 2 * shift if replace else shift, 1.0)
            return exact(pair, pair)
        if replace:
            pair = Pair(Kind.SWAP, shift, ratio)
            return exact(pair, pair)
        return exact(Pair(Kind.REMOVE, shift, ratio), Pair(Kind.ADD, shift, ratio))

    def renyi(
        self, relation: Relation, noise_multiplier: float, ratio: float
    ) -> tuple[RenyiBound, ...]:
        """Exact: Mironov et al. 2019, or the moments of ``SWAP`` under replace-one."""
        if relation != Relation.REPLACE_ONE:
            return (RenyiBound(Moments.SAMPLED, noise_multiplier, ratio),)
        if ratio == 1:
            return (RenyiBound(Moments.SAMPLED, noise_multiplier / 2, 1.0),)
        return (RenyiBound(Moments.SWAP, noise_multiplier, ratio),)

    def has_central_limit(self, relation: Relation) -> bool:
        """No published limit under replace-one."""
        return relation != Relation.REPLACE_ONE

    def has_theorem_1(self, relation: Relation) -> bool:
        """Not under replace-one."""
        return relation != Relation.REPLACE_ONE

    def draw(
        self, generator: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        """A binomial size, and given its size a uniform cohort.

        This has the distribution of one coin per client, at a cost that grows with the cohort.
        """
        size = int(generator.binomial(clients, ratio))
        return np.sort(generator.choice(clients, size=size, replace=False, shuffle=False))

    def cohort_faults(
        self, counts: Sequence[int], clients: int, ratio: float, level: float
    ) -> Iterator[str]:
        """The total of the cohorts and their dispersion are those of binomial draws."""
        if total_p_value(counts, clients, ratio) < level:
            expected = ratio * clients * len(counts)
            yield f"{sum(counts)} participations where about {expected:.0f} are expected"
        if dispersion_p_value(counts, clients, ratio) < level:
            yield f"cohort sizes vary unlike Poisson sampling ({min(counts)} to {max(counts)})"


LAWS.register(Poisson.name, Poisson())
