"""Correlated noise where a client chooses its rounds, and where it comes when it can.

The noise is that of ``privplan.laws.correlated``: what one round adds B - 1 later ones
take back in part. It costs nothing where two rounds of a client are B apart or more.

``banded_separation:B``. A client takes part when it can, its rounds B apart
(``min_separation:B``). Each participation then moves releases of its own by its norm at
most, so that T rounds are as private as ceil(T / B) Gaussian releases. This holds where
rounds follow from earlier releases: the squared moves add up to ceil(T / B) at most on
every way (fully adaptive composition of Gaussian mechanisms: Koskela, Tobaben, Honkela,
Individual Privacy Accounting with GDP, ICLR 2023).

``cyclic_allocation:B:K``. A hash of its name gives each client one of B turns, as under
``cyclic_poisson:B``; in one of every K rounds of its turn, which it chooses by itself,
it takes part. The K rounds that it may be are B apart, so that the choices move
releases of their own: under the mechanism without the client their log-likelihoods are
independent, as where noise is. So B K rounds are as private as one block of
``random_allocation:K``.
"""

from __future__ import annotations

from collections.abc import Iterator

from privplan.errors import Fault
from privplan.laws.allocation import RandomAllocation, shortest_block
from privplan.laws.correlated import Correlated, correlated_faults
from privplan.laws.cyclic import CyclicPoisson
from privplan.laws.law import FAMILIES, Fleet, JudgedSpec, LawFamily, Use
from privplan.laws.separation import MinSeparation, least_separation

_MAX_BANDS = 999  # the largest number of three digits, as names have


class BandedSeparation(Correlated, MinSeparation):
    """Rounds of one client are ``block`` rounds apart or more; noise is correlated.

    ``block`` is in [2, 999].
    """

    def __init__(self, block: int) -> None:
        super().__init__(block)
        self.bands = block
        self.name = f"banded_separation:{block}"
        self.title = f"separation ({block} rounds, correlated noise)"

    def excludes(self, spec: JudgedSpec) -> Iterator[Fault]:
        """What separation excludes, and plans of rounds that are not alike."""
        yield from super().excludes(spec)
        yield from correlated_faults(spec, f"under {self.name} sampling")


class CyclicAllocation(RandomAllocation, CyclicPoisson):
    """One of every ``block`` rounds of a client's turn, one of ``bands`` turns.

    ``cyclic_allocation:B:K:W`` has factors for a weight of W% on the last model.
    """

    has_central_limit = RandomAllocation.has_central_limit
    has_theorem_1 = RandomAllocation.has_theorem_1

    def __init__(self, bands: int, block: int, last_weight: int = 0) -> None:
        self.bands = self.parts = bands
        self.last_weight = last_weight
        self.block = block
        self.turns = bands * block
        self.name = f"cyclic_allocation:{bands}:{block}"
        if last_weight:
            self.name += f":{last_weight}"
        self.title = f"cyclic allocation (1 of {block} rounds, {bands} turns)"

    @property
    def single(self) -> str:
        """One release is that of a block."""
        return f"random_allocation:{self.block}"

    def excludes(self, spec: JudgedSpec) -> Iterator[Fault]:
        """What random allocation excludes, and plans of rounds that are not alike."""
        faults = list(super().excludes(spec))
        yield from faults
        # The laws exclude some of the same: each fault is reported once.
        for fault in correlated_faults(spec, f"under {self.name} sampling"):
            if fault not in faults:
                yield fault

    def excludes_use(self, use: Use) -> str:
        """What cyclic Poisson sampling excludes, and cohorts of another size."""
        if use == "solve_for rounds":
            rule = RandomAllocation.excludes_use(self, use)
            if rule is not None:
                return rule
        return CyclicPoisson.excludes_use(self, use)


def turns_of_shortest_block(fleet: Fleet) -> list[str]:
    """Each way to cut the shortest block of random allocation into turns."""
    numbers = []
    for block in map(int, shortest_block(fleet)):
        for bands in Fleet(block, 1).divisors(block / _MAX_BANDS, block / 2):
            numbers.append(f"{bands}:{block // bands}")
    return numbers


_NUMBER = "([2-9]|[1-9][0-9]{1,2})"  # from 2 to _MAX_BANDS
FAMILIES.register(
    "banded_separation",
    LawFamily(
        BandedSeparation,
        _NUMBER,
        "'banded_separation:B' with B in [2, 999]",
        least_separation,
    ),
)
FAMILIES.register(
    "cyclic_allocation",
    LawFamily(
        CyclicAllocation,
        f"{_NUMBER}:{_NUMBER}(:([1-9][0-9]?|100))?",
        "'cyclic_allocation:B:K[:W]' with B, K in [2, 999] and W in [1, 100]",
        turns_of_shortest_block,
    ),
)
