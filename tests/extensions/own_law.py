"""A sampling law of another distribution with a behaviour of its own, in this one file.

``one_of_four``: each client takes part in exactly one of every four rounds. Which one is public and
drawn anew for each four rounds, so nothing is amplified: four rounds are one Gaussian release.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from privplan.errors import Fault
from privplan.laws.law import LAWS, DominatingPairs, Law, Relation, RenyiBound, Use

EVERY = 4


class OneOfFour(Law):
    """Each client in one of every four rounds, by a public schedule; the ratio is 1."""

    name = "one_of_four"
    title = "one of four rounds"
    whole_cohorts = True

    @property
    def single(self) -> str:
        return "full"

    def excludes(self, spec: Any) -> Iterator[Fault]:
        under = f"under {self.name} sampling"
        if spec.rounds % EVERY:
            yield Fault("rounds", f"must be a multiple of {EVERY} {under}", spec.rounds)
        if spec.planning.ratios != "uniform":
            yield Fault("planning.ratios", f"must be uniform {under}", spec.planning.ratios)
        for group in spec.groups:
            if group.clients % EVERY:
                where = f"groups.{group.name}.clients"
                yield Fault(where, f"must be a multiple of {EVERY} {under}", group.clients)
        if spec.cohort != self.drawable(spec.population):
            yield Fault("cohort", f"must be a quarter of the clients {under}", spec.cohort)

    def excludes_use(self, use: Use) -> str | None:
        return f"must be left out under {self.name} sampling" if use == "canaries" else None

    def places(self, round_: int, clients: int) -> tuple[int, ...]:
        block, turn = divmod(round_ - 1, EVERY)
        order = np.random.default_rng([block, clients]).permutation(clients)
        return tuple(sorted(order[turn::EVERY].tolist()))

    def drawable(self, clients: int) -> float:
        return clients / EVERY

    def rounds_of_client(self, rounds: int) -> int:
        return -(-rounds // EVERY)

    def rounds_for(self, participations: int) -> int:
        return participations * EVERY

    def most_of_client(self, rounds: Sequence[int]) -> int:
        blocks: dict[int, int] = {}
        for round_, count in Counter(rounds).items():
            block = (round_ - 1) // EVERY
            blocks[block] = max(count, blocks.get(block, 0))
        return sum(blocks.values())

    def dominating_pairs(self, relation: Relation, shift: float, ratio: float) -> DominatingPairs:
        return LAWS.get("full").dominating_pairs(relation, shift, 1.0)

    def renyi(
        self, relation: Relation, noise_multiplier: float, ratio: float
    ) -> tuple[RenyiBound, ...] | None:
        return LAWS.get("full").renyi(relation, noise_multiplier, 1.0)

    def draw(
        self, generator: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        return np.array(self.places(round_, clients))

    def cohort_faults(
        self, counts: Sequence[int], clients: int, ratio: float, level: float
    ) -> Iterator[str]:
        for count in counts:
            if count != clients // EVERY:
                yield f"a cohort of {count} where a quarter is {clients // EVERY}"

    def participations(self, rounds: Mapping[float, int]) -> np.ndarray:
        times = self.rounds_of_client(sum(rounds.values()))
        return np.eye(1 + times)[times]
