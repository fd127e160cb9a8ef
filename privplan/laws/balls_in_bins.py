"""Balls in bins: each client in one round of all, under noise correlated over all.

``balls_in_bins:T``. Each client draws one of the T rounds, uniformly and by itself. The
noise of every round is taken back in part by all later ones (``privplan.laws.rank_one``
has the factors, for a server momentum of 0.5 and a weight of 35% on the last model;
``balls_in_bins:T:M:W`` has them for M% and W%). Which client is in which round is known
to nobody who sees releases, so that the whole run is one release with a dominating pair
(``privplan.accounting.pld.balls_in_bins``). docs/balls-in-bins.md has the proof, and
these conditions:

- each client draws its round by itself, once; no caps, no cohorts of a fixed size;
- rounds without clients release noise all the same;
- a client that misses its round does not come later;
- sizes of cohorts are published nowhere, and no mean is divided by them;
- noise is Gaussian, and independent of who takes part;
- a person has one client.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from privplan.errors import Fault
from privplan.laws.allocation import RandomAllocation
from privplan.laws.correlated import Correlated, correlated_faults
from privplan.laws.law import (
    FAMILIES,
    DominatingPairs,
    Fleet,
    JudgedSpec,
    Kind,
    LawFamily,
    Pair,
    Relation,
    RenyiBound,
    Use,
)
from privplan.laws.rank_one import RankOneFactors, best_factors

NAME = "balls_in_bins"
# What the factors are for where the name does not say it, in percent.
_MOMENTUM = 50
_LAST_WEIGHT = 35
# Noise multiplier below which a client's round counts as known: the tables of its
# prices would be long, and nobody plans with so little.
_LOWEST_NOISE = 0.3
# The largest noise multiplier of a calibration: above it the loss is lost in rounding.
_HIGHEST_NOISE = 1e4
_MAX_ROUNDS = 999  # the largest number of three digits, as names have


class BallsInBins(Correlated, RandomAllocation):
    """One of all ``block`` rounds, in [2, 999].

    Args:
        rounds: T.
        momentum: of the server that the factors are best for, in percent.
        last_weight: of the last model, beside all models, in percent.
    """

    def __init__(
        self, rounds: int, momentum: int = _MOMENTUM, last_weight: int = _LAST_WEIGHT
    ) -> None:
        super().__init__(rounds)
        self.bands = rounds
        self.momentum = momentum
        self.last_weight = last_weight
        self.name = f"{NAME}:{rounds}"
        if (momentum, last_weight) != (_MOMENTUM, _LAST_WEIGHT):
            self.name += f":{momentum}:{last_weight}"
        self.title = f"balls in bins (1 of {rounds} rounds, correlated noise)"

    def excludes(self, spec: JudgedSpec) -> Iterator[Fault]:
        """Other numbers of rounds, and what its parts exclude."""
        under = f"under {self.name} sampling"
        faults = [fault for fault in super().excludes(spec) if fault.field != "rounds"]
        if spec.rounds != self.block:
            # Noise that starts again in a second cycle costs more than it brings.
            faults.insert(
                0, Fault("rounds", f"must be {self.block} {under}", spec.rounds)
            )
        yield from faults
        for fault in correlated_faults(spec, under):
            if fault not in faults:
                yield fault

    def excludes_use(self, use: Use) -> str:
        """What correlated noise excludes, and other rounds or uploads of a client."""
        rule = RandomAllocation.excludes_use(self, use)
        if rule and use in ("solve_for rounds", "max_uploads"):
            return rule
        return Correlated.excludes_use(self, use)

    def rank_one_factors(self) -> RankOneFactors:
        """Of T rounds, the momentum and the weight of the name.

        Raises:
            AssertionError: where a column is longer than 1, so that the pair of
                ``dominating_pairs`` would not be the release's.
        """
        factors = best_factors(self.block, self.momentum / 100, self.last_weight / 100)
        assert factors.largest_norm() <= 1
        return factors

    @property
    def one_of(self) -> float:
        """As many rounds of independent noise hide a client as well, in little of it.

        One over the squared norm of the mean column, in the limit of much noise.
        """
        columns = np.array([self.mixture(0.0, 1, j) for j in range(1, self.block + 1)])
        # Row j holds C_jj, ..., C_j1: its sum is T times entry j of the mean column.
        return float(self.block**2 / np.square(columns.sum(axis=1)).sum())

    def dominating_pairs(
        self, relation: Relation, shift: float, ratio: float
    ) -> DominatingPairs:
        """The pairs of the whole run.

        Where a client is replaced, and with very little noise or much, from above as
        if its round were known: the column of a client is as long as its update at
        most. From below a client that sends something in the last round only.
        """
        is_replacement = relation == Relation.REPLACE_ONE
        is_covered = _LOWEST_NOISE <= 1 / shift <= _HIGHEST_NOISE
        if is_replacement or not is_covered:
            distance = shift * self.sensitivity(relation)
            known_round = Pair(Kind.REMOVE, distance, 1.0)
            last_move = shift * self.rank_one_factors().diagonal[-1]
            chance = 1 / self.block
            kinds = (Kind.REMOVE, Kind.ADD)
            if is_replacement:
                kinds = (Kind.SWAP, Kind.SWAP)
            removed = Pair(kinds[0], last_move, chance)
            added = Pair(kinds[1], last_move, chance)
            return DominatingPairs((known_round, known_round), (removed, added))

        from privplan.accounting.pld.balls_in_bins import balls_in_bins_pairs

        return balls_in_bins_pairs(self.rank_one_factors(), 1 / shift)

    def estimated_epsilon(
        self,
        noise_multiplier: float,
        times: int,
        delta: float,
        near: float,
        *,
        rough: bool,
    ) -> float | None:
        """By one table of prices instead of all, or by two coarse ones."""
        is_covered = _LOWEST_NOISE <= noise_multiplier <= _HIGHEST_NOISE
        if times != 1 or not is_covered:
            return None
        from privplan.accounting.pld import balls_in_bins

        factors = self.rank_one_factors()
        if rough:
            return balls_in_bins.rough_epsilon(factors, noise_multiplier, delta, near)
        return balls_in_bins.estimated_epsilon(factors, noise_multiplier, delta, near)

    def renyi(
        self, relation: Relation, noise_multiplier: float, ratio: float
    ) -> tuple[RenyiBound, ...] | None:
        """None: the pairs have no moments in closed form."""
        return None

    def mixture(
        self, momentum: float, rounds: int, round_: int = 1
    ) -> tuple[float, ...]:
        """The row of C, whatever the momentum: the pair is that of these factors."""
        return self.rank_one_factors().row(min(round_, self.block))

    def noise_left(self, momentum: float, rounds: int) -> float:
        """Of the last model, at the momentum that is trained with."""
        return self.rank_one_factors().noise_left(momentum).last_model

    def mean_noise_left(self, momentum: float, rounds: int) -> float:
        """Of all models."""
        return self.rank_one_factors().noise_left(momentum).all_models

    def complete_at(self, round_: int) -> int:
        """The end of the cycle: its last release holds a part of every client."""
        return self.stream_round(round_) + self.block - 1


def all_rounds(fleet: Fleet) -> list[str]:
    """All rounds, where each client once gives no larger cohorts."""
    fits = fleet.period <= fleet.rounds <= _MAX_ROUNDS
    if not fits:
        return []
    return [str(fleet.rounds)]


FAMILIES.register(
    NAME,
    LawFamily(
        BallsInBins,
        "([2-9]|[1-9][0-9]{1,2})(:[1-9]?[0-9]:([1-9]?[0-9]|100))?",
        "'balls_in_bins:T[:M:W]' with T in [2, 999], M in [0, 99] and W in [0, 100]",
        all_rounds,
    ),
)
