"""Cyclic Poisson sampling: B public parts of a group take turns, each drawn by Poisson sampling.

``cyclic_poisson:B``. A client's part is a hash of its own name, keyed by its group's, modulo B: it
is public, and does not change when another client is added or removed. Round t draws each client
of part (t - 1) mod B independently with the sampling ratio, and nobody else. So a client can take
part in one of every B rounds only, and between two of them lie B - 1 others: what a release holds
of it may last B rounds, as the noise of ``privplan.laws.correlated`` needs. Parts differ in size
by chance; ratios and the denominators of means are those of the plan, whatever the sizes.

C. A. Choquette-Choo, A. Ganesh, R. McKenna, H. B. McMahan, K. Rush, A. Thakurta, Z. Xu, (Amplified)
Banded Matrix Factorization, NeurIPS 2023, Theorem 4: T rounds with a B-banded matrix of columns of
norm 1 at most are as private as ceil(T / B) Poisson-sampled Gaussian releases.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from privplan.errors import Fault
from privplan.laws.builtin import Poisson
from privplan.laws.correlated import Correlated, correlated_faults
from privplan.laws.law import FAMILIES, Clients, LawFamily, Relation
from privplan.laws.participation import (
    dispersion_p_value,
    participation_law,
    total_p_value,
)

NAME = "cyclic_poisson"


class CyclicPoisson(Correlated, Poisson):
    """Poisson sampling of one of ``bands`` parts per round; its ratio is that within the part."""

    def __init__(self, turns: int) -> None:
        self.turns = self.bands = turns
        self.name = f"{NAME}:{turns}"
        self.title = f"cyclic Poisson ({turns} rounds)"

    @property
    def single(self) -> str:
        """One release is that of Poisson sampling with the same ratio."""
        return Poisson.name

    def excludes(self, spec: Any) -> Iterator[Fault]:
        """Whole cycles of parts with clients, and plans of rounds that are alike."""
        turns, under = self.turns, f"under {self.name} sampling"
        if spec.rounds % turns:
            yield Fault("rounds", f"must be a multiple of {turns} {under}", spec.rounds)
        for group in spec.groups:
            if group.clients < turns:
                rule = f"must be {turns} or more {under}"
                yield Fault(f"groups.{group.name}.clients", rule, group.clients)
        most = self.drawable(sum(group.clients for group in spec.groups))
        if spec.groups and spec.cohort is not None and spec.cohort > most:
            rule = f"must be at most the {most:g} clients of a turn {under}"
            yield Fault("cohort", rule, spec.cohort)
        yield from correlated_faults(spec, under)

    def alternatives(self, spec: Any) -> Sequence[str]:
        """Other numbers of turns that rounds and groups allow, and Poisson sampling of all."""
        most = min(spec.rounds, 999, *(group.clients for group in spec.groups))
        turns = (at for at in range(2, most + 1) if spec.rounds % at == 0)
        return ["poisson", *(f"{NAME}:{at}" for at in turns)]

    def turn(self, group: str, name: object) -> int:
        """The turn of a client in 0..B-1: BLAKE2b of its name, of 64 bits, keyed by its group's."""
        key = hashlib.blake2b(group.encode()).digest()
        found = hashlib.blake2b(str(name).encode(), digest_size=8, key=key)
        return int.from_bytes(found.digest(), "big") % self.bands

    def seated(self, group: str, names: Sequence[object]) -> tuple[int, np.ndarray]:
        """Those of the first turn have the first places, in the order of their names."""
        turns = np.array([self.turn(group, name) for name in names], np.int64)
        sizes = np.bincount(turns, minlength=self.bands).tolist()
        return Clients(sizes), np.argsort(turns, kind="stable")

    def places(self, round_: int, clients: int) -> range:
        """Those of the part; parts are of one size where ``clients`` does not tell them."""
        if not isinstance(clients, Clients):
            clients = Clients(
                [len(range(at, clients, self.bands)) for at in range(self.bands)]
            )
        turn = (round_ - 1) % self.bands
        return range(sum(clients.parts[:turn]), sum(clients.parts[: turn + 1]))

    def most_of_client(self, rounds: Sequence[int]) -> int:
        """Those of one part."""
        return max(
            Counter((one - 1) % self.bands for one in rounds).values(), default=0
        )

    def most_contributions(self, relation: Relation) -> int:
        """Clients of one person may be of different parts, whose rounds share noise."""
        return 1

    def draw(
        self, generator: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        """A Poisson sample of the places that have their turn."""
        places = self.places(round_, clients)
        return places.start + super().draw(generator, len(places), ratio, round_)

    def cohort_faults(
        self, counts: Sequence[int], clients: int, ratio: float, level: float
    ) -> Iterator[str]:
        """The total of each part's cohorts, and the dispersion of all, are those of binomials."""
        for turn in range(min(self.bands, len(counts))):
            part, found = (
                len(self.places(turn + 1, clients)),
                counts[turn :: self.bands],
            )
            if total_p_value(found, part, ratio) < level / (2 * self.bands):
                expected = ratio * part * len(found)
                yield (
                    f"{sum(found)} participations where about {expected:.0f} are expected in "
                    f"rounds {turn + 1}, {turn + 1 + self.bands}, ..."
                )
        parts = [len(self.places(at + 1, clients)) for at in range(len(counts))]
        if dispersion_p_value(counts, parts, ratio) < level / 2:
            yield f"cohort sizes vary unlike Poisson sampling ({min(counts)} to {max(counts)})"

    def participations(self, rounds: Mapping[float, int]) -> np.ndarray:
        """Independent in the rounds of a client's turn; a mixture where a cycle is not complete."""
        total = sum(rounds.values())
        mean = np.zeros(1 + total)
        for turn in range(self.bands):
            own = {
                q: len(range(turn, count, self.bands)) for q, count in rounds.items()
            }
            law = participation_law(own)
            mean[: len(law)] += law / self.bands
        return mean[
            : 1 + sum(self.rounds_of_client(count) for count in rounds.values())
        ]


FAMILIES.register(
    NAME,
    LawFamily(
        CyclicPoisson,
        "([2-9]|[1-9][0-9]{1,3})",
        "'cyclic_poisson:B' with B in [2, 9999]",
    ),
)
