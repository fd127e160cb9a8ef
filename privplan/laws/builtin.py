"""The plain laws: Poisson sampling, cohorts of a fixed size, and full participation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from privplan.errors import UnsupportedError
from privplan.laws.law import (
    LAWS,
    DominatingPairs,
    Kind,
    Law,
    Moments,
    Pair,
    Relation,
    RenyiBound,
    exact,
)
from privplan.laws.participation import dispersion_p_value, total_p_value

# Clients, or records, of one person: docs/laws.md states the limit.
_MAX_CONTRIBUTIONS = 100
_ROUNDING = 1e-9  # far above the error of a product of doubles, below any other ratio


class Poisson(Law):
    """Each client independently; the size of the cohort is binomial."""

    name = "poisson"
    title = "Poisson"
    independent_clients = True
    uniform_cohorts = True

    def dominating_pairs(
        self, relation: Relation, shift: float, ratio: float
    ) -> DominatingPairs:
        """Exact pairs: ``REMOVE`` and ``ADD``, or ``SWAP`` under replace-one.

        Add/remove and zero-out (where, too, a client contributes or does not) are Zhu,
        Dong and Wang 2022, Theorem 11, composed per direction.
        """
        if ratio == 1:
            pair = Pair(Kind.REMOVE, self.sensitivity(relation) * shift, 1.0)
            return exact(pair, pair)
        is_replacement = relation == Relation.REPLACE_ONE
        if self.contributions > 1:
            from privplan.accounting.pld.several import several_pairs

            if is_replacement:
                text = f"no pairs are known for {self.phrase} under {relation}"
                raise UnsupportedError(text)
            return several_pairs(shift, ratio, self.contributions)
        if is_replacement:
            pair = Pair(Kind.SWAP, shift, ratio)
            return exact(pair, pair)
        return exact(Pair(Kind.REMOVE, shift, ratio), Pair(Kind.ADD, shift, ratio))

    def most_contributions(self, relation: Relation) -> int:
        """Those of ``privplan.accounting.pld.several``; none under replace-one."""
        if relation == Relation.REPLACE_ONE:
            return 1
        return _MAX_CONTRIBUTIONS

    def renyi(
        self, relation: Relation, noise_multiplier: float, ratio: float
    ) -> tuple[RenyiBound, ...] | None:
        """None for persons whose clients are drawn."""
        if self.contributions > 1 and ratio < 1:
            return None
        return super().renyi(relation, noise_multiplier, ratio)

    def has_central_limit(self, relation: Relation) -> bool:
        """No published limit under replace-one, nor of persons."""
        return relation != Relation.REPLACE_ONE and self.contributions == 1

    def has_theorem_1(self, relation: Relation) -> bool:
        """Where there is a central limit."""
        return self.has_central_limit(relation)

    def draw(
        self, generator: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        """A binomial size, and given its size a uniform cohort.

        This has the distribution of one coin per client, at a cost that grows with the
        cohort.
        """
        size = int(generator.binomial(clients, ratio))
        return np.sort(
            generator.choice(clients, size=size, replace=False, shuffle=False)
        )

    def cohort_faults(
        self, counts: Sequence[int], clients: int, ratio: float, level: float
    ) -> Iterator[str]:
        """The total of the cohorts and their dispersion are those of binomial draws."""
        if total_p_value(counts, clients, ratio) < level:
            expected = ratio * clients * len(counts)
            text = f"{sum(counts)} participations where about {expected:.0f}"
            yield f"{text} are expected"
        if dispersion_p_value(counts, clients, ratio) < level:
            sizes = f"{min(counts)} to {max(counts)}"
            yield f"cohort sizes vary unlike Poisson sampling ({sizes})"


LAWS.register(Poisson.name, Poisson())


class FixedSize(Law):
    """A cohort of m = ratio * n clients in every round, drawn without replacement."""

    name = "fixed_size"
    title = "fixed_size"
    whole_cohorts = True
    uniform_cohorts = True

    def sensitivity(self, relation: Relation) -> int:
        """Two clipping norms: a client that takes part displaces another one."""
        return 2

    def dominating_pairs(
        self, relation: Relation, shift: float, ratio: float
    ) -> DominatingPairs:
        """Exact under add/remove, else a dominating pair and a smaller, attained one.

        Add/remove: ``REMOVE`` and ``ADD`` at half the noise. The cohort always has m
        clients, so a client that takes part displaces another: a distance of 2 C, also
        where everybody takes part and one client more would push one of them out.

        Replace-one and zero-out are open. From above the stitched pair at distance 2 C
        (Zhu, Dong and Wang 2022, Proposition 30; a client that is zeroed or replaced
        differs from any other outcome by at most 2 C). From below a pair that is
        attained: for replace-one all others at -C and one at +C against its replacement
        by -C, ``REMOVE`` and ``ADD`` at 2 C; for zero-out all others at 0, ``REMOVE``
        and ``ADD`` at C.
        """
        distance = shift if relation == Relation.ZERO_OUT else 2 * shift
        if ratio == 1:
            pair = Pair(Kind.REMOVE, distance, 1.0)
            return exact(pair, pair)
        attained = exact(
            Pair(Kind.REMOVE, distance, ratio), Pair(Kind.ADD, distance, ratio)
        )
        if relation == Relation.ADD_REMOVE:
            return attained
        stitched = Pair(Kind.STITCHED, 2 * shift, ratio)
        return DominatingPairs((stitched, stitched), attained.lower)

    def renyi(
        self, relation: Relation, noise_multiplier: float, ratio: float
    ) -> tuple[RenyiBound, ...]:
        """Poisson at half the noise under add/remove, else Wang et al. 2019.

        The latter is at sensitivity 2. Zero-out is a special case of replace-one and
        uses its bound.
        """
        moments = Moments.WITHOUT_REPLACEMENT
        if relation == Relation.ADD_REMOVE:
            moments = Moments.SAMPLED
        return (RenyiBound(moments, noise_multiplier / 2, ratio),)

    def has_central_limit(self, relation: Relation) -> bool:
        """Under add/remove, as Poisson sampling at half the noise."""
        return relation == Relation.ADD_REMOVE

    def has_theorem_1(self, relation: Relation) -> bool:
        """Not under zero-out."""
        return relation != Relation.ZERO_OUT

    def draw(
        self, generator: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        """A uniform cohort of the ratio times n clients, rounded."""
        size = round(clients * ratio)
        return np.sort(
            generator.choice(clients, size=size, replace=False, shuffle=False)
        )

    def executed_ratio(self, clients: int, ratio: float) -> float:
        """The ratio of a whole cohort; the stated one where only rounding differs."""
        whole_ratio = round(clients * ratio) / clients
        is_whole = math.isclose(whole_ratio, ratio, rel_tol=_ROUNDING)
        if is_whole:
            return ratio
        return whole_ratio

    def cohort_faults(
        self, counts: Sequence[int], clients: int, ratio: float, level: float
    ) -> Iterator[str]:
        """Every cohort has exactly the planned size."""
        return _other_sizes(counts, round(ratio * clients))


def _other_sizes(counts: Sequence[int], planned: int) -> Iterator[str]:
    for count in counts:
        if count != planned:
            yield f"a cohort of {count} where the law takes exactly {planned}"


LAWS.register(FixedSize.name, FixedSize())


class Full(Law):
    """All clients; nothing is drawn and nothing is amplified."""

    name = "full"
    title = "full"
    everyone = True

    @property
    def phrase(self) -> str:
        """The law in a sentence."""
        return "full participation"

    def dominating_pairs(
        self, relation: Relation, shift: float, ratio: float
    ) -> DominatingPairs:
        """One Gaussian, exact: at distance 2 C under replace-one, else C."""
        pair = Pair(Kind.REMOVE, self.sensitivity(relation) * shift, 1.0)
        return exact(pair, pair)

    def most_contributions(self, relation: Relation) -> int:
        """All clients of a person take part in each round."""
        return _MAX_CONTRIBUTIONS

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
        return _other_sizes(counts, round(ratio * clients))


LAWS.register(Full.name, Full())
