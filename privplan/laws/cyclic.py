"""Cyclic Poisson sampling: B public parts of a group take turns, drawn by Poisson.

``cyclic_poisson:B``. A client's part is a hash of its own name, keyed by its group's,
modulo B: it is public, and does not change when another client is added or removed.
Round t draws each client of part (t - 1) mod B independently with the sampling ratio,
and nobody else. So a client can take part in one of every B rounds only, and between
two of them lie B - 1 others: what a release holds of it may last B rounds, as the noise
of ``privplan.laws.correlated`` needs. Parts differ in size by chance; ratios and the
denominators of means are those of the plan, whatever the sizes.

C. A. Choquette-Choo, A. Ganesh, R. McKenna, H. B. McMahan, K. Rush, A. Thakurta, Z. Xu,
(Amplified) Banded Matrix Factorization, NeurIPS 2023, Theorem 4: T rounds with a
B-banded matrix of columns of norm 1 at most are as private as ceil(T / B)
Poisson-sampled Gaussian releases.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from privplan.errors import Fault
from privplan.laws.builtin import Poisson
from privplan.laws.correlated import Correlated, correlated_faults
from privplan.laws.law import (
    FAMILIES,
    Clients,
    Fleet,
    JudgedSpec,
    LawFamily,
    Relation,
)
from privplan.laws.participation import (
    dispersion_p_value,
    participation_law,
    total_p_value,
)

NAME = "cyclic_poisson"
_MAX_TURNS = 9999  # the largest number of four digits, as names have


class CyclicPoisson(Correlated, Poisson):
    """Poisson sampling of one of ``bands`` parts per round, with the part's ratio."""

    def __init__(self, turns: int) -> None:
        self.turns = self.bands = turns
        self.name = f"{NAME}:{turns}"
        self.title = f"cyclic Poisson ({turns} rounds)"

    @property
    def single(self) -> str:
        """One release is that of Poisson sampling with the same ratio."""
        return Poisson.name

    def excludes(self, spec: JudgedSpec) -> Iterator[Fault]:
        """Whole cycles of parts with clients, and plans of rounds that are alike."""
        turns = self.turns
        under = f"under {self.name} sampling"
        if spec.rounds % turns:
            yield Fault("rounds", f"must be a multiple of {turns} {under}", spec.rounds)
        for group in spec.groups:
            if group.clients < turns:
                rule = f"must be {turns} or more {under}"
                yield Fault(f"groups.{group.name}.clients", rule, group.clients)
        clients_of_turn = self.drawable(sum(group.clients for group in spec.groups))
        if spec.groups and spec.cohort is not None and spec.cohort > clients_of_turn:
            rule = f"must be at most the {clients_of_turn:g} clients of a turn {under}"
            yield Fault("cohort", rule, spec.cohort)
        yield from correlated_faults(spec, under)

    def turn(self, group: str, name: object) -> int:
        """The turn of a client in 0..B-1: 64 bits of BLAKE2b of its name, modulo B.

        The hash is keyed by the group's name.
        """
        key = hashlib.blake2b(group.encode()).digest()
        name_hash = hashlib.blake2b(str(name).encode(), digest_size=8, key=key)
        return int.from_bytes(name_hash.digest(), "big") % self.bands

    def seated(self, group: str, names: Sequence[object]) -> tuple[int, np.ndarray]:
        """Those of the first turn have the first places, in the order of names."""
        turns = np.array([self.turn(group, name) for name in names], np.int64)
        sizes = np.bincount(turns, minlength=self.bands).tolist()
        return Clients(sizes), np.argsort(turns, kind="stable")

    def places(self, round_: int, clients: int) -> range:
        """Those of the part; parts of one size where ``clients`` does not tell them."""
        if not isinstance(clients, Clients):
            sizes = [
                len(range(turn, clients, self.bands)) for turn in range(self.bands)
            ]
            clients = Clients(sizes)
        turn = (round_ - 1) % self.bands
        return range(sum(clients.parts[:turn]), sum(clients.parts[: turn + 1]))

    def most_of_client(self, rounds: Sequence[int]) -> int:
        """Those of one part."""
        rounds_of_turns = Counter((round_ - 1) % self.bands for round_ in rounds)
        return max(rounds_of_turns.values(), default=0)

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
        """The total of each part, and the dispersion of all, are those of binomials.

        Half of the level is for the totals, half for the dispersion.
        """
        for turn in range(min(self.bands, len(counts))):
            part_size = len(self.places(turn + 1, clients))
            part_counts = counts[turn :: self.bands]
            if total_p_value(part_counts, part_size, ratio) < level / (2 * self.bands):
                expected = ratio * part_size * len(part_counts)
                yield (
                    f"{sum(part_counts)} participations where about {expected:.0f} are "
                    f"expected in rounds {turn + 1}, {turn + 1 + self.bands}, ..."
                )
        trials = [
            len(self.places(round_, clients)) for round_ in range(1, len(counts) + 1)
        ]
        if dispersion_p_value(counts, trials, ratio) < level / 2:
            sizes = f"{min(counts)} to {max(counts)}"
            yield f"cohort sizes vary unlike Poisson sampling ({sizes})"

    def participations(self, rounds: Mapping[float, int]) -> np.ndarray:
        """Independent in the rounds of a client's turn.

        Where a cycle is not complete, turns have different numbers of rounds, and the
        distribution is their mean.
        """
        mean_law = np.zeros(1 + sum(rounds.values()))
        for turn in range(self.bands):
            rounds_of_turn = {
                ratio: len(range(turn, count, self.bands))
                for ratio, count in rounds.items()
            }
            law = participation_law(rounds_of_turn)
            mean_law[: len(law)] += law / self.bands
        max_participations = sum(map(self.rounds_of_client, rounds.values()))
        return mean_law[: 1 + max_participations]


def whole_cycles(fleet: Fleet) -> list[str]:
    """Turns that divide the rounds and have as many clients as the cohort."""
    return [str(turns) for turns in fleet.divisors(2, min(fleet.period, _MAX_TURNS))]


FAMILIES.register(
    NAME,
    LawFamily(
        CyclicPoisson,
        "([2-9]|[1-9][0-9]{1,3})",
        "'cyclic_poisson:B' with B in [2, 9999]",
        whole_cycles,
    ),
)
