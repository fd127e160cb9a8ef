"""Empirical privacy audit: canaries, their participation in rounds, and their scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from privplan.auditing import AuditEvidence, GroupTraces
from privplan.errors import InputError
from privplan.plan import GroupPlan, Plan
from privplan.streams import Purpose, stream
from simulate.algorithm import Algorithm, extra_coordinates
from simulate.components import GroupSum, Released

# -------------------------------------------------------------------------------------------------
# Canaries: additional clients with known updates whose participation is decided by a fair coin.
#
# Before the run a fair coin decides for each canary whether it is included. An included canary is
# drawn in every round by its group's sampling law, as any client of the group; an excluded one
# never sends. Distinguishing the two cases means distinguishing neighbouring data sets, so the
# canaries' empirical privacy loss is a lower bound on epsilon of the group. Under a fixed-size
# law the canaries' places are drawn by that law among the canaries, with a ratio not above the
# group's. Canaries send unit vectors (orthogonal if the dimension allows it) times NORM_FACTOR
# times the clipping norm, so that only clipping limits their influence.

BLOCK_ROWS = 64  # directions that are multiplied at a time


@dataclass(frozen=True)
class Directions:
    """Unit vectors of equal entries up to signs.

    With at least as many coordinates as vectors, the vectors have disjoint supports and are
    orthogonal; else every vector spans all coordinates with random signs, and the product of two
    vectors is about 1 / sqrt(d).
    """

    count: int  # number of vectors
    # vector whose support contains each coordinate [d]; None if all vectors share all
    owner: np.ndarray | None
    signs: np.ndarray  # sign of each coordinate [d], or of each vector's [count, d]

    @property
    def orthogonal(self) -> bool:
        """Whether every two vectors are orthogonal."""
        return self.owner is not None

    def rows(self, which: np.ndarray) -> np.ndarray:
        """The vectors with the given indices [n, d], float32."""
        if self.owner is None:
            shared: np.ndarray = self.signs[which] / np.sqrt(self.signs.shape[1])
            return shared.astype(np.float32)
        vectors = np.zeros((len(which), len(self.owner)), dtype=np.float32)
        sizes = np.bincount(self.owner, minlength=self.count)
        row_of = np.full(self.count, -1)
        row_of[which] = np.arange(len(which))
        rows = row_of[self.owner]
        [owned] = np.nonzero(rows >= 0)
        vectors[rows[owned], owned] = self.signs[owned] / np.sqrt(
            sizes[self.owner[owned]]
        )
        return vectors

    def products(
        self,
        released_vector: np.ndarray,
        released: np.ndarray | None,
        wanted: slice | None = None,
    ) -> np.ndarray:
        """Projections of released vector on each direction, restricted to released coordinates."""
        if self.owner is None:
            products, wanted = np.zeros(self.count), wanted or slice(0, self.count)
            # A block is converted inside the cache. None has a single row, whose product would
            # be summed in another order.
            bounds = [*range(0, max(1, self.count - 1), BLOCK_ROWS), self.count]
            for block in map(slice, bounds, bounds[1:]):
                if block.start < wanted.stop and wanted.start < block.stop:
                    signs = self.signs[block]
                    signs = signs if released is None else signs[:, released]
                    products[block] = signs.astype(np.float64) @ released_vector
            return np.asarray(products / np.sqrt(len(released_vector)))
        owner = self.owner if released is None else self.owner[released]
        signs = self.signs if released is None else self.signs[released]
        sizes = np.bincount(owner, minlength=self.count)
        sums = np.bincount(owner, weights=signs * released_vector, minlength=self.count)
        return sums / np.sqrt(np.maximum(sizes, 1))


def directions(seed: int, count: int, dimension: int) -> Directions:
    """The directions of a run's canaries."""
    source = stream(seed, Purpose.CANARY, 0)
    if count > dimension:
        signs = source.choice(np.array([-1, 1], dtype=np.int8), size=(count, dimension))
        return Directions(count, None, signs)
    owner = source.permutation(dimension) % count
    return Directions(
        count, owner, source.choice(np.array([-1.0, 1.0]), size=dimension)
    )


NORM_FACTOR = 10.0  # norm of a canary's update as a multiple of the clipping norm
MOST_CANARIES = (
    20_000  # most canaries over all groups if there are more canaries than coordinates
)


@dataclass(frozen=True)
class Canaries:
    """The canaries of a run."""

    seed: int  # the run's seed
    each: int  # number of canaries per group
    unit: Directions  # their directions, group by group
    included: np.ndarray  # whether each canary is included, one row per group [M, each]

    def sending(
        self, algorithm: Algorithm, index: int, group: GroupPlan, round_: int
    ) -> np.ndarray:
        """Positions of the group's canaries that take part in a round."""
        sampler, ratio = algorithm.sampler_of(group), group.sampling_ratio
        law = sampler.law
        if law is not None and law.law.whole_cohorts:
            ratio = math.floor(self.each * ratio) / self.each
        first = round_ if law is None else law.law.stream_round(round_)
        source = stream(self.seed, Purpose.CANARY, 2, first, index)
        drawn = sampler.draw(source, self.each, ratio, round_)
        chosen: np.ndarray = drawn[self.included[index][drawn]]
        return chosen

    def updates(self, index: int, which: np.ndarray, norm: float) -> np.ndarray:
        """Updates of canaries of a group [n, d]."""
        return NORM_FACTOR * norm * self.unit.rows(index * self.each + which)


def check_canaries(algorithm: Algorithm, each: int, dimension: int) -> None:
    """Raises if the algorithm or the dimension does not allow canaries."""
    if (
        algorithm.mechanism.release_client is not None
        or not dimension
        or extra_coordinates(algorithm)
    ):
        rule = "are only for algorithms that release sums of updates and nothing else"
        raise InputError.one("canaries", rule, algorithm.name)
    algorithm.plan.spec.require("canaries", "plan.spec.sampling")
    total = each * len(algorithm.plan.groups)
    if total > max(MOST_CANARIES, dimension):
        rule = f"must be at most {max(MOST_CANARIES, dimension)} in all groups together"
        raise InputError.one("canaries", rule, total)


def make_canaries(seed: int, each: int, groups: int, dimension: int) -> Canaries:
    """Returns the canaries of a run, which depend only on the seed and their number."""
    coins = [
        stream(seed, Purpose.CANARY, 1, index).random(each) < 0.5
        for index in range(groups)
    ]
    return Canaries(
        seed, each, directions(seed, each * groups, dimension), np.stack(coins)
    )


# --- Scores of each canary for an observer of the releases or of the final model. ----------------

LARGEST_NOISE_RATIO = (
    20.0  # of planned to booked noise in the observer's likelihood ratio
)


def initial_scores(canaries: Canaries) -> np.ndarray:
    """Scores before the first round [M, canaries per group]."""
    return np.zeros(canaries.included.shape)


def score_changes(
    canaries: Canaries | None,
    plan: Plan,
    sums: Sequence[GroupSum],
    releases: Sequence[Released],
    released: Tensor | None,
) -> np.ndarray | float:
    """Log-likelihood ratios of each canary's participation, from the releases of one round.

    The observer is the adversary of the guarantee: it knows the plan, every direction and the
    updates of all other clients, which it subtracts. Along a canary's direction the difference is
    normal with the planned standard deviation (or a smaller one if the ledger books it); its mean
    is the clipping bound, with the chance to take part in a round, or zero.
    """
    if canaries is None:
        return 0.0
    changes = np.zeros(canaries.included.shape)
    coordinates = None if released is None else released.cpu().numpy()
    for release in releases:
        within = {group.name for group in release.groups}
        difference = release.vector.double()
        for part in sums:
            if part.group.name in within and part.others is not None:
                difference = difference - part.others
        own = [index for index, part in enumerate(sums) if part.group.name in within]
        wanted = slice(own[0] * canaries.each, (own[-1] + 1) * canaries.each)
        found = canaries.unit.products(difference.cpu().numpy(), coordinates, wanted)
        projections = found.reshape(changes.shape)
        for index, part in enumerate(sums):
            if part.group.name in within:
                bound, group = plan.clip_bound(part.group), part.group
                least = group.noise_multiplier / LARGEST_NOISE_RATIO
                booked = max(release.record.noise_std / bound, least)
                sigma = min(group.noise_multiplier, booked)
                chance = group.sampling_ratio * plan.law_of(group).law.drawable(1)
                changes[index] += _log_ratio(projections[index] / bound, chance, sigma)
    return changes


def _log_ratio(projections: np.ndarray, ratio: float, sigma: float) -> np.ndarray:
    log_density_ratio = (2 * projections - 1) / (2 * sigma**2)
    if ratio >= 1:
        return log_density_ratio
    mixture: np.ndarray = np.logaddexp(
        np.log1p(-ratio), np.log(ratio) + log_density_ratio
    )
    return mixture


def final_scores(canaries: Canaries, start: Tensor, end: Tensor) -> np.ndarray:
    """Projections of the final minus the initial model on each canary [M, canaries per group]."""
    movement = (end.double() - start.to(end.device).double()).cpu().numpy()
    return canaries.unit.products(movement, None).reshape(canaries.included.shape)


def audit_evidence(
    canaries: Canaries, plan: Plan, chain: str, rounds: np.ndarray, final: np.ndarray
) -> AuditEvidence:
    """The evidence as it is stored in the run folder."""
    groups = tuple(
        GroupTraces(
            group=group.name,
            included="".join(
                "1" if included else "0" for included in canaries.included[index]
            ),
            rounds=tuple(rounds[index].tolist()),
            final=tuple(final[index].tolist()),
        )
        for index, group in enumerate(plan.groups)
    )
    return AuditEvidence(
        plan_digest=plan.digest,
        chain=chain,
        orthogonal=canaries.unit.orthogonal,
        groups=groups,
    )
