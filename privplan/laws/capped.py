"""Capped Poisson sampling: of a cohort larger than a cap a uniform part of the cap's size stays.

``capped_poisson:N``. With n clients of a group, as planned and hence public, and M = Binomial(n -
1, q), the draws of all but one, the cap c is the least that M reaches with a chance of t = 1/N at
most. Caps are for servers, padded batches and aggregators that take so many and no more.

Add or remove a client. Where M < c nobody is cut: the client moves the sum by its norm with chance
q. Where M >= c, c of the others stay without it; with it, it takes the place of one of these with
chance q c / (M + 1), and moves the sum by two norms at most. So a round has at most 1 - t times the
profile of Poisson sampling and t times the one at distance 2 (joint convexity: the others' draws
may be public; Ganesh 2025, arXiv 2508.15089, splits by M). That is a pair, so it composes and takes
nothing of delta, and needs t only. From below all others send zero: Poisson sampling at q (1 - t).
Where a client is replaced or sends zero, whom it displaces matters in both data sets: no such pair.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from privplan.errors import Fault, TooLittleNoiseError, UnsupportedError
from privplan.laws import law as base
from privplan.laws.builtin import Poisson
from privplan.laws.law import DiscretePair, DominatingPairs, Law, Relation, Use
from privplan.laws.participation import binomial_log_mass, spread_p_value, total_p_value

NAME = "capped_poisson"


@lru_cache(maxsize=4096)
def cap_of(clients: int, ratio: float, one_of: int) -> int:
    """The largest cohort: the least c with P(Binomial(n - 1, q) >= c) <= 1/N."""
    from scipy.special import bdtrc

    low, high = 0, clients  # n is never reached
    while high - low > 1:
        middle = (low + high) // 2
        rare = bdtrc(middle - 1, clients - 1, ratio) * (1 + 1e-6) * one_of <= 1
        low, high = (low, middle) if rare else (middle, high)
    return high


def cohort_masses(clients: int, ratio: float, one_of: int) -> np.ndarray:
    """Logarithms of the chances of cohorts of 0, 1, ..., the cap, for a ratio below 1."""
    from scipy.special import bdtrc

    cap = cap_of(clients, ratio, one_of)
    masses = binomial_log_mass(np.arange(cap + 1), clients, ratio)
    masses[cap] = np.log(max(bdtrc(cap - 1, clients, ratio), 1e-300))
    return masses


class CappedPoisson(Poisson):
    """Poisson sampling whose cohorts are cut where one of ``one_of`` is larger than a size."""

    independent_clients = False
    most_contributions, renyi = Law.most_contributions, Law.renyi
    has_central_limit, has_theorem_1 = Law.has_central_limit, Law.has_theorem_1

    def __init__(self, one_of: int) -> None:
        self.one_of = one_of
        self.name = self.title = f"{NAME}:{one_of}"

    def excludes(self, spec: Any) -> Iterator[Fault]:
        """Accountants that need moments, and relations, for which no bound is known."""
        yield from super().excludes(spec)
        accountant, relation = spec.planning.accountant, str(spec.relation)
        if accountant != "pld":
            yield Fault(
                "planning.accountant", f"must be pld under {self.phrase}", accountant
            )
        if relation != Relation.ADD_REMOVE:
            yield Fault("relation", f"must be add_remove under {self.phrase}", relation)

    def excludes_use(self, use: Use) -> str | None:
        """Uses that leave out clients after the draw, or draw some for themselves."""
        return (
            f"must be a law without a cap, for {use}"
            if use in ("canaries", "attacks")
            else None
        )

    def dominating_pairs(
        self, relation: Relation, shift: float, ratio: float
    ) -> DominatingPairs:
        """Those of Poisson sampling, at times at distance 2."""
        from privplan.accounting.pld.pairs import LARGEST_SHIFT
        from privplan.accounting.pld.several import several_pairs

        if relation != Relation.ADD_REMOVE:
            raise UnsupportedError(
                f"no pairs are known for {self.phrase} under {relation}"
            )
        if ratio == 1:  # everybody, and the cap is n
            return base.exact(*[base.Pair(base.Kind.REMOVE, shift, 1.0)] * 2)
        if 2 * shift > LARGEST_SHIFT:
            rule = f"pld needs {2 / LARGEST_SHIFT:g} or more under {self.name}"
            raise TooLittleNoiseError(f"noise_multiplier: {rule}, found {1 / shift:g}")
        t = 1 / self.one_of
        kept = super().dominating_pairs(relation, shift, ratio * (1 - t)).lower
        usual, cut = (
            several_pairs(reach, ratio, 1).upper for reach in (shift, 2 * shift)
        )
        return DominatingPairs(
            (_mixed(usual[0], cut[0], t), _mixed(usual[1], cut[1], t)), kept
        )

    def sensitivity(self, relation: Relation) -> int:
        """Two clipping norms: a client that takes part may displace another one."""
        return 2

    def draw(
        self, generator: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        """A Poisson cohort, of which a uniform part stays where it is above the cap."""
        drawn = super().draw(generator, clients, ratio, round_)
        if len(drawn) <= (cap := self.cap(clients, ratio)):
            return drawn
        return drawn[
            np.sort(generator.choice(len(drawn), cap, replace=False, shuffle=False))
        ]

    def cap(self, clients: int, ratio: float) -> int:
        """The cap."""
        return cap_of(clients, ratio, self.one_of)

    def chance(self, clients: int, ratio: float) -> float:
        """The mean cohort over the clients."""
        if ratio == 1:
            return 1.0
        masses = np.exp(cohort_masses(clients, ratio, self.one_of))
        return float(masses @ np.arange(len(masses))) / clients

    def cohort_faults(
        self, counts: Sequence[int], clients: int, ratio: float, level: float
    ) -> Iterator[str]:
        """No cohort is above the cap, and sizes vary as those of binomial draws that are cut."""
        if max(counts) > (cap := self.cap(clients, ratio)):
            yield f"a cohort of {max(counts)} where the law takes {cap} at most"
        elif ratio < 1:
            masses, mean = (
                cohort_masses(clients, ratio, self.one_of),
                self.chance(clients, ratio),
            )
            rounds, cut, reached = (
                len(counts),
                [*counts].count(cap),
                math.exp(masses[cap]),
            )
            if (
                total_p_value(counts, clients, mean) < level / 3
            ):  # a cut total varies less
                yield f"{sum(counts)} participations, about {mean * clients * rounds:.0f} expected"
            if total_p_value([cut], rounds, reached) < level / 3:
                yield f"{cut} of {rounds} cohorts are as large as the cap, {cap}"
            if spread_p_value((counts, np.arange(cap + 1), masses, 0)) < level / 3:
                yield f"cohort sizes vary unlike {self.phrase}"


def _mixed(usual: base.AnyPair, cut: base.AnyPair, chance: float) -> DiscretePair:
    """The pair that says which of two it is, the second with a chance; rounded up."""
    assert isinstance(usual, DiscretePair)
    assert isinstance(cut, DiscretePair)
    losses, where = np.unique([*usual.losses, *cut.losses], return_inverse=True)
    weights = np.array([1 - chance, chance * (1 + 1e-15)])
    parts = np.repeat(weights, [len(usual.losses), len(cut.losses)]) * [
        *usual.masses,
        *cut.masses,
    ]
    return DiscretePair(
        tuple(losses.tolist()), tuple(np.bincount(where, parts).tolist())
    )


_NUMBER, _PHRASE = "([2-9]|[1-9][0-9]{1,8})", f"'{NAME}:N' with N in [2, 999999999]"
base.FAMILIES.register(NAME, base.LawFamily(CappedPoisson, _NUMBER, _PHRASE))
