"""Capped Poisson sampling: of a cohort larger than a cap a uniform part stays.

``capped_poisson:N``. With n clients of a group, as planned and hence public, and M =
Binomial(n - 1, q), the draws of all but one, the cap c is the least that M reaches with
a chance of t = 1/N at most. Caps are for servers, padded batches and aggregators that
take so many and no more.

Add or remove a client. Where M < c nobody is cut: the client moves the sum by its norm
with chance q. Where M >= c, c of the others stay without it; with it, it takes the
place of one of these with chance q c / (M + 1), and moves the sum by two norms at most.
So a round has at most 1 - t times the profile of Poisson sampling and t times the one
at distance 2 (joint convexity: the others' draws may be public; Ganesh 2025, arXiv
2508.15089, splits by M). That is a pair, so it composes and takes nothing of delta, and
needs t only. From below all others send zero: Poisson sampling at q (1 - t). Where a
client is replaced or sends zero, whom it displaces matters in both data sets: no such
pair.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from privplan.errors import Fault, TooLittleNoiseError, UnsupportedError
from privplan.laws.builtin import Poisson
from privplan.laws.law import (
    FAMILIES,
    AnyPair,
    DiscretePair,
    DominatingPairs,
    JudgedSpec,
    Kind,
    Law,
    LawFamily,
    Pair,
    Relation,
    Use,
    exact,
)
from privplan.laws.participation import binomial_log_mass, spread_p_value, total_p_value

NAME = "capped_poisson"

# The relative error of SciPy's binomial tails is far below it; a cap that is one larger
# where the chance is on the border is still rare enough.
_TAIL_ERROR = 1e-6
# A chance of zero has no logarithm; one below this changes no sum of doubles.
_LOWEST_CHANCE = 1e-300
# Products and sums of a few doubles are rounded by less.
_ROUNDING = 1e-15


@lru_cache(maxsize=4096)
def cap_of(clients: int, ratio: float, one_of: int) -> int:
    """The largest cohort: the least c with P(Binomial(n - 1, q) >= c) <= 1/N."""
    from scipy.special import bdtrc

    # Bisection: ``low`` is reached too often, ``high`` rarely enough. Of n - 1 clients
    # there are never n.
    low = 0
    high = clients
    while high - low > 1:
        middle = (low + high) // 2
        chance = bdtrc(middle - 1, clients - 1, ratio) * (1 + _TAIL_ERROR)
        if chance * one_of <= 1:
            high = middle
        else:
            low = middle
    return high


def cohort_masses(clients: int, ratio: float, one_of: int) -> np.ndarray:
    """Logarithms of the chances of cohorts of 0 to the cap, for a ratio below 1."""
    from scipy.special import bdtrc

    cap = cap_of(clients, ratio, one_of)
    masses = binomial_log_mass(np.arange(cap + 1), clients, ratio)
    masses[cap] = np.log(max(bdtrc(cap - 1, clients, ratio), _LOWEST_CHANCE))
    return masses


class CappedPoisson(Poisson):
    """Poisson sampling, cut at a size that one of ``cohorts`` exceeds at most."""

    independent_clients = False
    most_contributions = Law.most_contributions
    renyi = Law.renyi
    has_central_limit = Law.has_central_limit
    has_theorem_1 = Law.has_theorem_1

    def __init__(self, cohorts: int) -> None:
        self.cohorts = cohorts
        self.name = self.title = f"{NAME}:{cohorts}"

    def excludes(self, spec: JudgedSpec) -> Iterator[Fault]:
        """Accountants that need moments, and relations, for which no bound is known."""
        yield from super().excludes(spec)
        accountant = spec.planning.accountant
        relation = str(spec.relation)
        under = f"under {self.phrase}"
        if accountant != "pld":
            yield Fault("planning.accountant", f"must be pld {under}", accountant)
        if relation != Relation.ADD_REMOVE:
            yield Fault("relation", f"must be add_remove {under}", relation)

    def excludes_use(self, use: Use) -> str | None:
        """Uses that leave out clients after the draw, or draw some for themselves."""
        if use in ("canaries", "attacks"):
            return f"must be a law without a cap, for {use}"
        return None

    def dominating_pairs(
        self, relation: Relation, shift: float, ratio: float
    ) -> DominatingPairs:
        """Those of Poisson sampling, at times at distance 2."""
        from privplan.accounting.pld.pairs import LARGEST_SHIFT
        from privplan.accounting.pld.several import several_pairs

        if relation != Relation.ADD_REMOVE:
            text = f"no pairs are known for {self.phrase} under {relation}"
            raise UnsupportedError(text)
        if ratio == 1:  # everybody, and the cap is n
            pair = Pair(Kind.REMOVE, shift, 1.0)
            return exact(pair, pair)
        if 2 * shift > LARGEST_SHIFT:
            rule = f"pld needs {2 / LARGEST_SHIFT:g} or more under {self.name}"
            raise TooLittleNoiseError(f"noise_multiplier: {rule}, found {1 / shift:g}")
        # In the module's words: the usual profile, and at times t the one at distance
        # 2.
        t = 1 / self.cohorts
        usual = several_pairs(shift, ratio, 1).upper
        cut = several_pairs(2 * shift, ratio, 1).upper
        removed = _mixed(usual[0], cut[0], t)
        added = _mixed(usual[1], cut[1], t)
        attained = super().dominating_pairs(relation, shift, ratio * (1 - t)).lower
        return DominatingPairs((removed, added), attained)

    def sensitivity(self, relation: Relation) -> int:
        """Two clipping norms: a client that takes part may displace another one."""
        return 2

    def draw(
        self, generator: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        """A Poisson cohort, of which a uniform part stays where it is above the cap."""
        drawn = super().draw(generator, clients, ratio, round_)
        cap = self.cap(clients, ratio)
        if len(drawn) <= cap:
            return drawn
        stay = generator.choice(len(drawn), cap, replace=False, shuffle=False)
        return drawn[np.sort(stay)]

    def cap(self, clients: int, ratio: float) -> int:
        """The cap."""
        return cap_of(clients, ratio, self.cohorts)

    def chance(self, clients: int, ratio: float) -> float:
        """The mean cohort over the clients."""
        if ratio == 1:
            return 1.0
        masses = np.exp(cohort_masses(clients, ratio, self.cohorts))
        return float(masses @ np.arange(len(masses))) / clients

    def cohort_faults(
        self, counts: Sequence[int], clients: int, ratio: float, level: float
    ) -> Iterator[str]:
        """No cohort is above the cap; sizes vary as binomial draws that are cut.

        A third of the level each for the total, the number of cut cohorts, and the
        dispersion. The first test is valid: a total that is cut varies less than one of
        binomial draws.
        """
        cap = self.cap(clients, ratio)
        if max(counts) > cap:
            yield f"a cohort of {max(counts)} where the law takes {cap} at most"
            return
        if ratio == 1:
            return
        rounds = len(counts)
        chance = self.chance(clients, ratio)
        if total_p_value(counts, clients, chance) < level / 3:
            expected = f"about {chance * clients * rounds:.0f} expected"
            yield f"{sum(counts)} participations, {expected}"
        masses = cohort_masses(clients, ratio, self.cohorts)
        full_cohorts = [*counts].count(cap)
        if total_p_value([full_cohorts], rounds, math.exp(masses[cap])) < level / 3:
            yield f"{full_cohorts} of {rounds} cohorts are as large as the cap, {cap}"
        if spread_p_value((counts, np.arange(cap + 1), masses, 0)) < level / 3:
            yield f"cohort sizes vary unlike {self.phrase}"


def _mixed(usual: AnyPair, cut: AnyPair, chance: float) -> DiscretePair:
    """The pair that says which of two it is, the second with a chance.

    Rounded up: the masses of the second, whose losses are larger, by a little.
    """
    assert isinstance(usual, DiscretePair)
    assert isinstance(cut, DiscretePair)
    losses, places = np.unique([*usual.losses, *cut.losses], return_inverse=True)
    weights = np.array([1 - chance, chance * (1 + _ROUNDING)])
    masses = np.repeat(weights, [len(usual.losses), len(cut.losses)])
    masses = masses * [*usual.masses, *cut.masses]
    sums = np.bincount(places, masses)
    return DiscretePair(tuple(losses.tolist()), tuple(sums.tolist()))


FAMILIES.register(
    NAME,
    LawFamily(
        CappedPoisson,
        "([2-9]|[1-9][0-9]{1,8})",
        f"'{NAME}:N' with N in [2, 999999999]",
    ),
)
