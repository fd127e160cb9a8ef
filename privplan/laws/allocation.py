"""Random allocation: each client chooses one round of every block of B.

``random_allocation:B``; the sampling ratio is 1, that of a client in a block. Removing
a client (or zeroing what it sends) moves one of the B sums of a block by its clipping
norm at most, with chance 1/B each: the mixture of N(e_i, sigma^2) over the rounds of
the block against N(0, sigma^2), in both orders (Feldman and Shenfeld 2025, arXiv
2502.08202). So it is where updates depend on earlier releases: without the client each
round's noise along its update is independent of them. Choices of different blocks are
independent, so blocks compose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from privplan.errors import Fault
from privplan.laws import law as base
from privplan.laws.law import DominatingPairs, JudgedSpec, Kind, Pair, Relation, Use
from privplan.laws.participation import dispersion_p_value, total_p_value

NAME = "random_allocation"
# Noise multiplier below which rounds count as known: the pairs of a block are made for
# more noise than that.
_LOWEST_NOISE = 0.25
# The largest noise multiplier of a calibration. Above it a block costs next to nothing,
# and its loss is lost in rounding: its round counts as known, too.
_HIGHEST_NOISE = 1e4
_MAX_BLOCK = 9999  # the largest number of four digits, as names have
_OPEN: tuple[Use, ...] = ("plain sums", "secure-discrete", "canaries", "a guard")


class RandomAllocation(base.Law):
    """One of every ``block`` rounds, in [2, 9999].

    Attributes:
        parts: of a group, which take turns; a block has a round of every ``parts``.
    """

    everyone = True
    independent_clients = True
    uniform_cohorts = False
    participation: base.Participation = "clients_choose"
    parts = 1

    def __init__(self, block: int) -> None:
        self.turns = self.block = block
        self.name = f"{NAME}:{block}"
        self.title = f"random allocation (1 of {block} rounds)"

    def excludes(self, spec: JudgedSpec) -> Iterator[Fault]:
        """Whole blocks, the relation with tight pairs, and the cohort of the blocks."""
        block = self.turns
        under = f"under {self.name} sampling"
        # A list: where a field of the spec cannot be read, the law says nothing.
        faults: list[Fault] = []
        if spec.rounds % block:
            faults.append(
                Fault("rounds", f"must be a multiple of {block} {under}", spec.rounds)
            )
        if spec.relation == Relation.REPLACE_ONE:
            relation = str(spec.relation)
            faults.append(Fault("relation", f"must be add_remove {under}", relation))
        if spec.cohort is not None:
            faults.append(Fault("cohort", f"must be left out {under}", spec.cohort))
        accountant = spec.planning.accountant
        if accountant != "pld":
            faults.append(
                Fault("planning.accountant", f"must be pld {under}", accountant)
            )
        free = list(spec.planning.free)
        if "cohort" in free or "rounds" in free:
            rule = f"must be without cohort, rounds {under}"
            faults.append(Fault("planning.free", rule, free))
        for group in spec.groups:
            if group.clients < block:
                rule = f"must be {block} or more {under}"
                faults.append(
                    Fault(f"groups.{group.name}.clients", rule, group.clients)
                )
        for group in spec.groups:
            # The ratio is that of a client in a block.
            ratios = {
                "sampling_ratio": group.sampling_ratio,
                "min_sampling_ratio": group.min_sampling_ratio,
                "max_sampling_ratio": group.max_sampling_ratio,
            }
            for field, ratio in ratios.items():
                if ratio not in (None, 1):
                    rule = f"must be 1 or left out {under}"
                    faults.append(Fault(f"groups.{group.name}.{field}", rule, ratio))
        yield from faults

    def excludes_use(self, use: Use) -> str | None:
        """Uses whose rounds are drawn or counted one by one."""
        if use == "solve_for rounds":
            return f"must be epsilon under {self.name} sampling"
        if use == "max_uploads":
            reason = f"each client uploads once in {self.block} rounds"
            return f"must be left out under {self.name} sampling: {reason}"
        if use in _OPEN:
            return None
        return f"must be a law of independent rounds, for {use}"

    @property
    def one_of(self) -> float:
        """The rounds of a block."""
        return self.block

    def most_of_client(self, rounds: Sequence[int]) -> int:
        """One round of each block of the client's part, the one repeated most often."""
        # By first round of a block: how often the round was done that was done most.
        repetitions: Counter[int] = Counter()
        for round_, times in Counter(rounds).items():
            first_round = self.stream_round(round_)
            repetitions[first_round] = max(repetitions[first_round], times)
        participations_of_parts: Counter[int] = Counter()
        for first_round, times in repetitions.items():
            participations_of_parts[first_round % self.parts] += times
        return max(participations_of_parts.values(), default=0)

    def dominating_pairs(
        self, relation: Relation, shift: float, ratio: float
    ) -> DominatingPairs:
        """The pairs of a block.

        Under replace-one, with little noise and with very much: from above as if the
        round were known (joint convexity), from below what one round tells.
        """
        from privplan.accounting.pld.allocation import allocation_pairs

        is_replacement = relation == Relation.REPLACE_ONE
        is_covered = _LOWEST_NOISE <= 1 / shift <= _HIGHEST_NOISE
        if not is_replacement and is_covered:
            return allocation_pairs(1 / shift, self.block)
        chance = 1 / self.block
        if is_replacement:
            known_round = Pair(Kind.REMOVE, 2 * shift, 1.0)
            attained = Pair(Kind.SWAP, shift, chance)
            return DominatingPairs((known_round, known_round), (attained, attained))
        known_round = Pair(Kind.REMOVE, shift, 1.0)
        removed = Pair(Kind.REMOVE, shift, chance)
        added = Pair(Kind.ADD, shift, chance)
        return DominatingPairs((known_round, known_round), (removed, added))

    def estimated_epsilon(
        self,
        noise_multiplier: float,
        times: int,
        delta: float,
        near: float,
        *,
        rough: bool,
    ) -> float | None:
        """By one lattice instead of some twenty; of several blocks by half of them."""
        is_covered = _LOWEST_NOISE <= noise_multiplier <= _HIGHEST_NOISE
        # A law that inherits may have pairs of its own.
        has_pairs = type(self).dominating_pairs is RandomAllocation.dominating_pairs
        if not is_covered or not has_pairs:
            return None
        from privplan.accounting.pld import accountant, allocation

        if times == 1:
            return allocation.estimated_epsilon(
                noise_multiplier, self.block, delta, near
            )
        pair = allocation.removed_pair(noise_multiplier, self.block)
        return accountant.estimated_epsilon(pair, times, delta)

    def stream_round(self, round_: int) -> int:
        """The first round of the block."""
        return round_ - self.parts * ((round_ - 1) // self.parts % self.block)

    def complete_at(self, round_: int) -> int:
        """The end of the block."""
        last_round = self.stream_round(round_) + self.parts * (self.block - 1)
        return super().complete_at(last_round)

    def draw(
        self, generator: np.random.Generator, clients: int, ratio: float, round_: int
    ) -> np.ndarray:
        """Those whose choice is the round; draw i of the stream is client i's."""
        clients_in_turn = np.arange(clients)[self.places(round_, clients)]
        choices = generator.integers(self.block, size=len(clients_in_turn))
        round_of_block = (round_ - 1) // self.parts % self.block
        return np.asarray(clients_in_turn[choices == round_of_block])

    def cohort_faults(
        self, counts: Sequence[int], clients: int, ratio: float, level: float
    ) -> Iterator[str]:
        """Cohort sizes are binomial, and vary so at one place of different blocks.

        Sizes within a block add up to the part, so that they are no independent draws.
        Half of the level is for the sizes, half for their dispersion.
        """
        chance = 1 / self.block
        part_sizes = []
        for round_, count in enumerate(counts, 1):
            part_size = len(self.places(round_, clients))
            part_sizes.append(part_size)
            if total_p_value([count], part_size, chance) < level / (2 * len(counts)):
                expected = f"about {part_size / self.block:.0f} expected"
                yield f"round {round_}: a cohort of {count}, {expected}"
        for place in range(min(self.turns, len(counts))):
            place_counts = counts[place :: self.turns]
            trials = part_sizes[place :: self.turns]
            p_value = dispersion_p_value(place_counts, trials, chance)
            if p_value < level / (2 * self.turns):
                where = f"round {place + 1} of the blocks"
                yield f"cohort sizes at {where} vary unlike {self.title}"

    def attendance_faults(
        self, cohorts: Mapping[int, Collection[int]], clients: int
    ) -> Iterator[str]:
        """A client is in one cohort of a block at most, and in one of a whole block.

        A block is whole where all of its cohorts are known.
        """
        rounds_of_blocks: dict[int, list[int]] = {}
        for round_ in cohorts:
            rounds_of_blocks.setdefault(self.stream_round(round_), []).append(round_)
        for first_round, rounds in sorted(rounds_of_blocks.items()):
            participants: list[int] = []
            for round_ in rounds:
                participants += [
                    client for client in cohorts[round_] if client < clients
                ]
            times = np.bincount(
                np.array(participants, dtype=np.int64), minlength=clients
            )
            clients_in_turn = np.arange(clients)[self.places(first_round, clients)]
            min_times = 1 if len(rounds) == self.block else 0
            is_odd = (times[clients_in_turn] > 1) | (times[clients_in_turn] < min_times)
            last_round = first_round + self.parts * (self.block - 1)
            for client in clients_in_turn[is_odd][:1]:
                where = f"the cohorts of rounds {first_round} to {last_round}"
                yield f"client {client} is in {times[client]} of {where}, not in one"

    def participations(self, rounds: Mapping[float, int]) -> np.ndarray:
        """One for each whole block of its part, and perhaps one in an incomplete block.

        The mean over the parts, whose numbers of rounds may differ by one.
        """
        total = sum(rounds.values())
        mean_law = np.zeros(2 + self.rounds_of_client(total))
        for turn in range(self.parts):
            rounds_of_part = len(range(turn, total, self.parts))
            whole_blocks, further_rounds = divmod(rounds_of_part, self.block)
            chance = further_rounds / self.block
            mean_law[whole_blocks] += (1 - chance) / self.parts
            mean_law[whole_blocks + 1] += chance / self.parts
        return np.trim_zeros(mean_law, "b")


def shortest_block(fleet: base.Fleet) -> list[str]:
    """The shortest block that divides the rounds and has no larger cohorts."""
    return [str(block) for block in fleet.divisors(fleet.period, _MAX_BLOCK)[:1]]


base.FAMILIES.register(
    NAME,
    base.LawFamily(
        RandomAllocation,
        "([2-9]|[1-9][0-9]{1,3})",
        f"'{NAME}:B' with B in [2, 9999]",
        shortest_block,
    ),
)
