"""Random allocation: each client takes part in one round of every block of B, chosen by itself.

``random_allocation:B``; the sampling ratio is 1, that of a client in a block. Removing a client (or
zeroing what it sends) moves one of the B sums of a block by its clipping norm at most, with chance
1/B each: the mixture of N(e_i, sigma^2) over the rounds of the block against N(0, sigma^2), in both
orders (Feldman and Shenfeld 2025, arXiv 2502.08202). So it is where updates depend on earlier
releases: without the client each round's noise along its update is independent of them. Choices of
different blocks are independent, so blocks compose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from privplan.errors import Fault
from privplan.laws import law as base
from privplan.laws.law import DominatingPairs, Kind, Pair, Relation, Use
from privplan.laws.participation import dispersion_p_value, total_p_value

NAME = "random_allocation"
_LEAST_NOISE = 0.25  # noise multiplier below which rounds count as known
_OPEN: tuple[Use, ...] = ("plain sums", "secure-discrete", "canaries", "a guard")


class RandomAllocation(base.Law):
    """One of every ``block`` rounds, in [2, 9999]."""

    everyone = True
    independent_clients = True
    uniform_cohorts = False
    parts = 1  # of a group, which take turns; a block has a round of every ``parts``

    def __init__(self, block: int) -> None:
        self.turns = self.block = self.one_of = block
        self.name = f"{NAME}:{block}"
        self.title = f"random allocation (1 of {block} rounds)"

    def excludes(self, spec: Any) -> Iterator[Fault]:
        """Whole blocks, the relation with tight pairs, and the cohort that the blocks give."""
        block, under = self.turns, f"under {self.name} sampling"
        accountant, relation = spec.planning.accountant, str(spec.relation)
        sizes = [(f"groups.{one.name}.clients", one.clients) for one in spec.groups]
        free, limits = (
            [*spec.planning.free],
            [f"{i}sampling_ratio" for i in ("", "min_", "max_")],
        )
        ratios = [
            (f"groups.{g.name}.{i}", getattr(g, i)) for g in spec.groups for i in limits
        ]
        for field, found, kept, rule in (
            ("rounds", spec.rounds, spec.rounds % block == 0, f"a multiple of {block}"),
            ("relation", relation, relation != "replace_one", "add_remove"),
            ("cohort", spec.cohort, spec.cohort is None, "left out"),
            ("planning.accountant", accountant, accountant == "pld", "pld"),
            (
                "planning.free",
                free,
                not {"cohort", "rounds"} & {*free},
                "without cohort, rounds",
            ),
            *((field, one, one >= block, f"{block} or more") for field, one in sizes),
            *((field, one, one in (None, 1), "1 or left out") for field, one in ratios),
        ):
            if not kept:
                yield Fault(field, f"must be {rule} {under}", found)

    def excludes_use(self, use: Use) -> str | None:
        """Uses whose rounds are drawn or counted one by one."""
        if use == "solve_for rounds":
            return f"must be epsilon under {self.name} sampling"
        return (
            None if use in _OPEN else f"must be a law of independent rounds, for {use}"
        )

    def most_of_client(self, rounds: Sequence[int]) -> int:
        """One of each block of the client's part; as often as a round of it was repeated."""
        most: Counter[int] = Counter()
        for round_, times in Counter(rounds).items():
            most |= Counter({self.stream_round(round_): times})
        own: Counter[int] = Counter()
        for first, times in most.items():
            own[first % self.parts] += times
        return max(own.values(), default=0)

    def dominating_pairs(
        self, relation: Relation, shift: float, ratio: float
    ) -> DominatingPairs:
        """Those of a block; under replace-one and with little noise between a known and one round.

        From above as if the round were known (joint convexity); from below what one round tells.
        """
        from privplan.accounting.pld.allocation import allocation_pairs

        replace, chance = relation == Relation.REPLACE_ONE, 1 / self.block
        if not replace and shift * _LEAST_NOISE <= 1:
            return allocation_pairs(1 / shift, self.block)
        known = Pair(Kind.REMOVE, (1 + replace) * shift, 1.0)
        kinds = (Kind.SWAP, Kind.SWAP) if replace else (Kind.REMOVE, Kind.ADD)
        first, second = (Pair(kind, shift, chance) for kind in kinds)
        return DominatingPairs((known, known), (first, second))

    def stream_round(self, round_: int) -> int:
        """The first round of the block."""
        return round_ - self.parts * ((round_ - 1) // self.parts % self.block)

    def complete_at(self, round_: int) -> int:
        """The end of the block."""
        return super().complete_at(
            self.stream_round(round_) + self.parts * (self.block - 1)
        )

    def draw(
        self, generator: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        """Those whose choice is the round; the i-th draw of the block's stream is client i's."""
        own, at = (
            np.arange(clients)[self.places(round_, clients)],
            (round_ - 1) // self.parts,
        )
        choices = generator.integers(self.block, size=len(own))
        return np.asarray(own[choices == at % self.block])

    def cohort_faults(
        self, counts: Sequence[int], clients: int, ratio: float, level: float
    ) -> Iterator[str]:
        """Each cohort's size is binomial, and sizes at one place of different blocks vary so."""
        own = [len(self.places(at + 1, clients)) for at in range(len(counts))]
        for at, (count, of) in enumerate(zip(counts, own, strict=True)):
            if total_p_value([count], of, 1 / self.block) < level / (2 * len(counts)):
                yield f"round {at + 1}: a cohort of {count}, about {of / self.block:.0f} expected"
        for at in range(min(self.turns, len(counts))):
            found = counts[at :: self.turns], own[at :: self.turns]
            if dispersion_p_value(*found, 1 / self.block) < level / (2 * self.turns):
                yield f"cohort sizes at round {at + 1} of the blocks vary unlike {self.title}"

    def attendance_faults(
        self, cohorts: Mapping[int, Collection[int]], clients: int
    ) -> Iterator[str]:
        """Every client is in exactly one cohort of each block of which all are known."""
        blocks: dict[int, list[int]] = {}
        for round_ in cohorts:
            blocks.setdefault(self.stream_round(round_), []).append(round_)
        for first, rounds in sorted(blocks.items()):
            named = [
                client
                for round_ in rounds
                for client in cohorts[round_]
                if client < clients
            ]
            times = np.bincount(np.array(named, dtype=np.int64), minlength=clients)
            own = np.arange(clients)[self.places(first, clients)]
            where = f"rounds {first} to {first + self.parts * (self.block - 1)}"
            for client in own[
                (times[own] > 1) | (times[own] < (len(rounds) == self.block))
            ][:1]:
                yield f"client {client} is in {times[client]} of the cohorts of {where}, not in one"

    def participations(self, rounds: Mapping[float, int]) -> np.ndarray:
        """One for each whole block of its part, and perhaps one in a block not complete."""
        total = sum(rounds.values())
        mean = np.zeros(2 + self.rounds_of_client(total))
        for part in range(self.parts):
            whole, rest = divmod(len(range(part, total, self.parts)), self.block)
            mean[whole] += (1 - rest / self.block) / self.parts
            mean[whole + 1] += rest / self.block / self.parts
        return np.trim_zeros(mean, "b")


base.FAMILIES.register(
    NAME,
    base.LawFamily(
        RandomAllocation, "([2-9]|[1-9][0-9]{1,3})", f"'{NAME}:B' with B in [2, 9999]"
    ),
)
