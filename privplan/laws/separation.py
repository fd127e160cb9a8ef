"""Separation: a client takes part when it can, its rounds B apart or more.

``min_separation:B``; the sampling ratio is 1. Who comes when is not random for the
certificate: it holds for any times of coming, also such as follow from earlier
releases. So each client counts in the most rounds that the separation leaves, ceil(T /
B) of T, in each surely: that many Gaussian releases without amplification (composition
of mechanisms that are chosen adaptively; exact, since a client that comes in rounds 1,
B + 1, ... attains it).

A simulation draws that fleet: each client comes every B rounds, from a round of its
own.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from privplan.errors import Fault
from privplan.laws.allocation import RandomAllocation
from privplan.laws.builtin import Full
from privplan.laws.law import FAMILIES, Fleet, JudgedSpec, Law, LawFamily

NAME = "min_separation"


class MinSeparation(RandomAllocation, Full):
    """Rounds of one client are ``block`` rounds apart or more, in [2, 9999].

    How often a client counts and how a simulation draws are as in random allocation,
    with one choice for the whole run; the privacy of a round is that of full
    participation.
    """

    phrase = Law.phrase
    one_of = Law.one_of
    participation = "when_they_can"
    complete_at = Law.complete_at
    dominating_pairs = Full.dominating_pairs

    def __init__(self, block: int) -> None:
        super().__init__(block)
        self.name = f"{NAME}:{block}"
        self.title = f"separation ({block} rounds)"

    @property
    def single(self) -> str:
        """One release is that of full participation."""
        if self.contributions == 1:
            return Full.name
        return self.name

    def excludes(self, spec: JudgedSpec) -> Iterator[Fault]:
        """A cohort, which the separation gives, and groups too small to give one."""
        under = f"under {self.name} sampling"
        if spec.cohort is not None:
            yield Fault("cohort", f"must be left out {under}", spec.cohort)
        for fault in Full.excludes(self, spec):
            if fault.field != "cohort":
                yield fault
        for group in spec.groups:
            if group.clients < self.block:
                rule = f"must be {self.block} or more {under}"
                yield Fault(f"groups.{group.name}.clients", rule, group.clients)

    def most_of_client(self, rounds: Sequence[int]) -> int:
        """The heaviest choice of rounds B apart; a repeated round counts repeatedly.

        By dynamic programming over the rounds: a choice that ends in one of them goes
        on from the best choice among those that are B rounds earlier.
        """
        repetitions = sorted(Counter(rounds).items())
        distinct_rounds = [round_ for round_, _ in repetitions]
        heaviest = [0]  # among the first 0, 1, ... distinct rounds
        for index, (round_, count) in enumerate(repetitions):
            earlier = bisect_right(distinct_rounds, round_ - self.block, 0, index)
            heaviest.append(max(heaviest[-1], heaviest[earlier] + count))
        return heaviest[-1]

    def stream_round(self, round_: int) -> int:
        """The first: client i begins at the i-th choice of its stream."""
        return 1

    def cohort_faults(
        self, counts: Sequence[int], clients: int, ratio: float, level: float
    ) -> Iterator[str]:
        """Cohorts of B successive rounds are of different clients; sizes are free."""
        ends = np.cumsum([0, *counts])
        for start in range(max(1, len(counts) - self.block + 1)):
            end = min(start + self.block, len(counts))
            participations = int(ends[end] - ends[start])
            if participations > clients:
                yield (
                    f"rounds {start + 1} to {end}: {participations} participations of "
                    f"{clients} clients"
                )

    def attendance_faults(
        self, cohorts: Mapping[int, Collection[int]], clients: int
    ) -> Iterator[str]:
        """No client comes again too soon."""
        last_round = np.full(clients, 1 - self.block)
        for round_ in sorted(cohorts):
            known_clients = [client for client in cohorts[round_] if client < clients]
            cohort = np.array(known_clients, dtype=np.int64)
            too_soon = cohort[round_ - last_round[cohort] < self.block]
            for client in too_soon[:1]:
                yield (
                    f"client {client} is in the cohorts of rounds {last_round[client]} "
                    f"and {round_}, and the law has them {self.block} apart or more"
                )
            last_round[cohort] = round_


def least_separation(fleet: Fleet) -> list[str]:
    """The least separation that has no larger cohorts."""
    return [str(max(2, math.ceil(fleet.period)))]


FAMILIES.register(
    NAME,
    LawFamily(
        MinSeparation,
        "([2-9]|[1-9][0-9]{1,3})",
        f"'{NAME}:B' with B in [2, 9999]",
        least_separation,
    ),
)
