"""Separation: a client takes part when it can, and two of its rounds are B apart or more.

``min_separation:B``; the sampling ratio is 1. Who comes when is not random for the certificate: it
holds for any times of coming, also such as follow from earlier releases. So each client counts in
the most rounds that the separation leaves, ceil(T / B) of T, in each surely: that many Gaussian
releases without amplification (composition of mechanisms that are chosen adaptively; exact, since
a client that comes in rounds 1, B + 1, ... attains it).

A simulation draws that fleet: each client comes every B rounds, from a round of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from privplan.errors import Fault
from privplan.laws.allocation import RandomAllocation
from privplan.laws.builtin import Full
from privplan.laws.law import FAMILIES, Law, LawFamily

NAME = "min_separation"


class MinSeparation(RandomAllocation, Full):
    """Rounds of one client are ``block`` rounds apart or more, in [2, 9999].

    How often a client counts and how a simulation draws are as in random allocation, with one
    choice for the whole run; the privacy of a round is that of full participation.
    """

    phrase = Law.phrase
    complete_at = Law.complete_at
    dominating_pairs = Full.dominating_pairs

    def __init__(self, block: int) -> None:
        super().__init__(block)
        self.name = f"{NAME}:{block}"
        self.title = f"separation ({block} rounds)"

    @property
    def single(self) -> str:
        """One release is that of full participation."""
        return Full.name if self.contributions == 1 else self.name

    def excludes(self, spec: Any) -> Iterator[Fault]:
        """A cohort, which follows from the separation, and groups without a client in a round."""
        under = f"under {self.name} sampling"
        if spec.cohort is not None:
            yield Fault("cohort", f"must be left out {under}", spec.cohort)
        yield from (
            fault for fault in Full.excludes(self, spec) if fault.field != "cohort"
        )
        for group in spec.groups:
            if group.clients < self.block:
                rule = f"must be {self.block} or more {under}"
                yield Fault(f"groups.{group.name}.clients", rule, group.clients)

    def most_of_client(self, rounds: Sequence[int]) -> int:
        """The heaviest choice of rounds B apart, where a round counts as often as it was done."""
        times = sorted(Counter(rounds).items())
        done = [round_ for round_, _ in times]
        most = [0]  # of the first so many of ``done``
        for at, (round_, count) in enumerate(times):
            before = most[bisect_right(done, round_ - self.block, 0, at)]
            most.append(max(most[-1], before + count))
        return most[-1]

    def stream_round(self, round_: int) -> int:
        """The first: client i begins at the i-th choice of its stream."""
        return 1

    def cohort_faults(
        self, counts: Sequence[int], clients: int, ratio: float, level: float
    ) -> Iterator[str]:
        """Cohorts of B successive rounds are of different clients; their sizes are free."""
        ends = np.cumsum([0, *counts])
        for first in range(max(1, len(counts) - self.block + 1)):
            last = min(first + self.block, len(counts))
            if (found := int(ends[last] - ends[first])) > clients:
                yield f"rounds {first + 1} to {last}: {found} participations of {clients} clients"

    def attendance_faults(
        self, cohorts: Mapping[int, Collection[int]], clients: int
    ) -> Iterator[str]:
        """No client comes again too soon."""
        last = np.full(clients, 1 - self.block)
        for round_ in sorted(cohorts):
            named = np.array(
                [one for one in cohorts[round_] if one < clients], dtype=np.int64
            )
            for client in named[round_ - last[named] < self.block][:1]:
                yield (
                    f"client {client} is in the cohorts of rounds {last[client]} and {round_}, "
                    f"and the law has them {self.block} apart or more"
                )
            last[named] = round_


FAMILIES.register(
    NAME,
    LawFamily(
        MinSeparation, "([2-9]|[1-9][0-9]{1,3})", f"'{NAME}:B' with B in [2, 9999]"
    ),
)
