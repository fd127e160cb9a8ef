"""Unit vectors that canaries send: orthogonal where there is room for them.

Canaries: clients beyond the plan's, whose updates are known and who are in or out by a coin.

Before the run a fair coin decides for each canary whether it is in. One that is in is drawn in
every round by its group's law, as any client of the group; one that is out never sends. Telling
the two apart is telling neighbours apart, so what the canaries lose bounds from below what a
client of the group may lose. Under a fixed-size law the places of the canaries are drawn by that
law among themselves, with a ratio that is not above the group's.

A canary sends far more than the clipping allows, so that only clipping keeps it in its bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privplan.accounting.release import SamplingLaw
from privplan.errors import InputError
from privplan.plan import GroupPlan
from simulate.algorithm import Algorithm, extra_coordinates
from simulate.engine.seeds import Purpose, stream


@dataclass(frozen=True)
class Directions:
    """Unit vectors of equal entries up to signs.

    With at least as many coordinates as vectors each vector owns coordinates of its own, so all
    are orthogonal; else every vector spans all coordinates with random signs, and two of them
    have a product of about 1 / sqrt(d).

    Attributes:
        count: how many vectors there are.
        owner: the vector that owns each coordinate [d]; None where they share all.
        signs: sign of each coordinate [d], or of each vector's [count, d].
    """

    count: int
    owner: np.ndarray | None
    signs: np.ndarray

    @property
    def orthogonal(self) -> bool:
        """Whether every two vectors are orthogonal."""
        return self.owner is not None

    def rows(self, which: np.ndarray) -> np.ndarray:
        """Some of the vectors [n, d], float32."""
        if self.owner is None:
            shared: np.ndarray = self.signs[which] / np.sqrt(self.signs.shape[1])
            return shared.astype(np.float32)
        found = np.zeros((len(which), len(self.owner)), dtype=np.float32)
        sizes = np.bincount(self.owner, minlength=self.count)
        for row, vector in enumerate(which):
            mine = self.owner == vector
            found[row, mine] = self.signs[mine] / np.sqrt(sizes[vector])
        return found

    def products(self, seen: np.ndarray, kept: np.ndarray | None) -> np.ndarray:
        """The part of a vector along each direction, as far as its coordinates were released.

        Args:
            seen: what was released [k].
            kept: the coordinates that were released; None for all.

        Returns:
            Products with the directions, restricted and normalised anew [count]; 0 for one of
            whom nothing was released.
        """
        if self.owner is None:
            signs = self.signs if kept is None else self.signs[:, kept]
            return signs @ seen / np.sqrt(len(seen))
        owner = self.owner if kept is None else self.owner[kept]
        signs = self.signs if kept is None else self.signs[kept]
        sizes = np.bincount(owner, minlength=self.count)
        sums = np.bincount(owner, weights=signs * seen, minlength=self.count)
        return sums / np.sqrt(np.maximum(sizes, 1))


def directions(seed: int, count: int, dimension: int) -> Directions:
    """The directions of a run's canaries."""
    source = stream(seed, Purpose.CANARY, 0)
    if count > dimension:
        signs = source.choice(np.array([-1, 1], dtype=np.int8), size=(count, dimension))
        return Directions(count, None, signs)
    owner = source.permutation(dimension) % count
    return Directions(count, owner, source.choice(np.array([-1.0, 1.0]), size=dimension))


REACH = 10.0
"""How many times the clipping norm a canary sends."""
MOST = 20_000
"""Most canaries in all groups together, where they do not fit into the coordinates."""


@dataclass(frozen=True)
class Canaries:
    """The canaries of a run.

    Attributes:
        seed: the run's seed.
        each: how many there are in each group.
        unit: their directions, those of one group after those of the other.
        included: which of them are in, a row a group [M, each].
    """

    seed: int
    each: int
    unit: Directions
    included: np.ndarray

    def sending(
        self, algorithm: Algorithm, index: int, group: GroupPlan, round_: int
    ) -> np.ndarray:
        """The group's canaries who take part in a round, by position."""
        law, ratio = algorithm.sampler.law, group.sampling_ratio
        if law == SamplingLaw.FIXED_SIZE:
            ratio = math.floor(self.each * ratio) / self.each
        source = stream(self.seed, Purpose.CANARY, 2, round_, index)
        drawn = algorithm.sampler.draw(source, self.each, ratio, round_)
        chosen: np.ndarray = drawn[self.included[index][drawn]]
        return chosen

    def updates(self, index: int, which: np.ndarray, norm: float) -> np.ndarray:
        """What canaries of a group send [n, d]."""
        return REACH * norm * self.unit.rows(index * self.each + which)


def check_canaries(algorithm: Algorithm, each: int, dimension: int) -> None:
    """Refuse canaries where there is no place for them.

    Raises:
        InputError: for an algorithm whose clients send for themselves, or nothing, or more than
            updates; or for more canaries than can be kept.
    """
    if algorithm.mechanism.alone is not None or not dimension or extra_coordinates(algorithm):
        rule = "are only for algorithms that release sums of updates and nothing else"
        raise InputError.one("canaries", rule, algorithm.name)
    total = each * len(algorithm.plan.groups)
    if total > max(MOST, dimension):
        rule = f"must be at most {max(MOST, dimension)} in all groups together"
        raise InputError.one("canaries", rule, total)


def make_canaries(seed: int, each: int, groups: int, dimension: int) -> Canaries:
    """The canaries of a run: a function of the seed and their number alone.

    Args:
        seed: the run's seed.
        each: canaries in each group, at least one.
        groups: how many groups there are.
        dimension: length of the global vector.
    """
    coins = [stream(seed, Purpose.CANARY, 1, index).random(each) < 0.5 for index in range(groups)]
    return Canaries(seed, each, directions(seed, each * groups, dimension), np.stack(coins))
