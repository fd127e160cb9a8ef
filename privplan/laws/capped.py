"""Capped Poisson sampling: of a cohort larger than a cap a uniform part of the cap's size stays.

``capped_poisson:N``. With n clients of a group, as planned and hence public, and M = Binomial(n -
1, q), the draws of all but one, the cap c is the least that M reaches with a chance of t = 1/N at
most. Caps are for servers, padded batches and aggregators that take so many and no more.

Add or remove a client. Where M < c nobody is cut: the client moves the sum by its norm with chance
q. Where M >= c, c of the others stay without it; with it, it takes the place of one of these with
chance q c / (M + 1), and moves the sum by two norms at most. So a round has at most 1 - t times the
profile of Poisson sampling and t times the one at distance 2 (joint convexity: the others' draws
may be public). That is a pair, so it composes and takes nothing of delta, as the bound of Chua et
al. 2024 (arXiv 2411.04205) does. Under the other relations the client is drawn in both data sets or
in neither, and a cap costs nothing. From below all others send zero: Poisson sampling at q (1 - t).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from privplan.errors import Fault, TooLittleNoiseError
from privplan.laws.builtin import Poisson
from privplan.laws.law import (
    FAMILIES,
    AnyPair,
    DiscretePair,
    DominatingPairs,
    Law,
    LawFamily,
    Relation,
)
from privplan.laws.participation import binomial_log_mass, spread_p_value

NAME = "capped_poisson"


@lru_cache(maxsize=4096)
def cap_of(clients: int, ratio: float, one_of: int) -> int:
    """The largest cohort: the least c with P(Binomial(n - 1, q) >= c) <= 1/N."""
    from scipy.special import bdtrc

    low, high = 0, clients  # n is never reached
    while high - low > 1:
        middle = (low + high) // 2
        rare = bdtrc(middle - 1, clients - 1, ratio) * (1 + 1e-9) * one_of <= 1
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
    most_contributions = Law.most_contributions
    renyi = Law.renyi
    has_central_limit = Law.has_central_limit
    has_theorem_1 = Law.has_theorem_1

    def __init__(self, one_of: int) -> None:
        self.one_of = one_of
        self.name = f"{NAME}:{one_of}"
        self.title = f"Poisson (cut where 1 of {one_of} cohorts is larger)"

    def excludes(self, spec: Any) -> Iterator[Fault]:
        """Accountants that need moments, for which no bound is known."""
        yield from super().excludes(spec)
        if (accountant := spec.planning.accountant) != "pld":
            yield Fault(
                "planning.accountant", f"must be pld under {self.name} sampling", accountant
            )

    def dominating_pairs(self, relation: Relation, shift: float, ratio: float) -> DominatingPairs:
        """Those of Poisson sampling and, add or remove, at times at distance 2; see above."""
        from privplan.accounting.pld.pairs import LARGEST_SHIFT
        from privplan.accounting.pld.several import several_pairs

        free, t = super().dominating_pairs(relation, shift, ratio), 1 / self.one_of
        if ratio == 1:  # everybody, and the cap is n
            return free
        kept = super().dominating_pairs(relation, shift, ratio * (1 - t)).lower
        if relation != Relation.ADD_REMOVE:
            return DominatingPairs(free.upper, kept)
        if 2 * shift > LARGEST_SHIFT:
            rule = f"pld needs {2 / LARGEST_SHIFT:g} or more under {self.name}"
            raise TooLittleNoiseError(f"noise_multiplier: {rule}, found {1 / shift:g}")
        usual, cut = (several_pairs(reach, ratio, 1).upper for reach in (shift, 2 * shift))
        return DominatingPairs((_mixed(usual[0], cut[0], t), _mixed(usual[1], cut[1], t)), kept)

    def draw(
        self, generator: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        """A Poisson cohort, of which a uniform part stays where it is above the cap."""
        drawn = super().draw(generator, clients, ratio, round_)
        cap = self.cap(clients, ratio)
        return drawn if len(drawn) <= cap else np.sort(generator.choice(drawn, cap, replace=False))

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
            masses = cohort_masses(clients, ratio, self.one_of)
            if spread_p_value((counts, np.arange(cap + 1), masses, 0)) < level:
                yield f"cohort sizes vary unlike {self.title}"


def _mixed(usual: AnyPair, cut: AnyPair, chance: float) -> DiscretePair:
    """The pair that says which of two it is, the second with a chance; rounded up."""
    assert isinstance(usual, DiscretePair)
    assert isinstance(cut, DiscretePair)
    losses, where = np.unique([*usual.losses, *cut.losses], return_inverse=True)
    weights = np.array([1 - chance, chance * (1 + 1e-15)])
    parts = np.repeat(weights, [len(usual.losses), len(cut.losses)]) * [*usual.masses, *cut.masses]
    return DiscretePair(tuple(losses.tolist()), tuple(np.bincount(where, parts).tolist()))


FAMILIES.register(
    NAME,
    LawFamily(CappedPoisson, "([2-9]|[1-9][0-9]{1,8})", f"'{NAME}:N' with N in [2, 999999999]"),
)
