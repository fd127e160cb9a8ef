"""Empirical privacy audit: canaries, who takes part in rounds, and their scores.

Canaries are additional clients with known updates. Before the run a fair coin decides
for each canary whether it is included. An included canary is drawn in every round by
its group's sampling law, as any client of the group; an excluded one never sends.
Distinguishing the two cases means distinguishing neighbouring data sets, so the
canaries' empirical privacy loss is a lower bound on epsilon of the group. Under a
fixed-size law the canaries' places are drawn by that law among the canaries, with a
ratio not above the group's. Canaries send unit vectors (orthogonal if the dimension
allows it) times NORM_FACTOR times the clipping norm, so that only clipping limits their
influence.
"""

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

# Directions that are multiplied at a time: a block is converted inside the cache.
BLOCK_ROWS = 64
# Norm of a canary's update as a multiple of the clipping norm.
NORM_FACTOR = 10.0
# Most canaries over all groups, where they are more than the coordinates.
MAX_CANARIES = 20_000
# Of planned to booked noise, in the observer's likelihood ratio.
LARGEST_NOISE_RATIO = 20.0


@dataclass(frozen=True)
class Directions:
    """Unit vectors of equal entries up to signs.

    With at least as many coordinates as vectors, the vectors have disjoint supports and
    are orthogonal; else every vector spans all coordinates with random signs, and the
    product of two vectors is about 1 / sqrt(d).
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
        lengths = np.sqrt(sizes[self.owner[owned]])
        vectors[rows[owned], owned] = self.signs[owned] / lengths
        return vectors

    def products(
        self,
        released_vector: np.ndarray,
        released: np.ndarray | None,
        chosen: slice | None = None,
    ) -> np.ndarray:
        """Projections of a vector on the directions, without unreleased coordinates.

        Args:
            released_vector: the vector [k].
            released: its coordinates of the global vector [k]; None for all.
            chosen: the directions that are asked for; others may get 0. None for all.

        Returns:
            The projection on each direction [count].
        """
        if self.owner is None:
            chosen = chosen or slice(0, self.count)
            products = np.zeros(self.count)
            # No block has a single row, whose product would be summed in another order.
            bounds = [*range(0, max(1, self.count - 1), BLOCK_ROWS), self.count]
            for block in map(slice, bounds, bounds[1:]):
                if block.start < chosen.stop and chosen.start < block.stop:
                    signs = self.signs[block]
                    if released is not None:
                        signs = signs[:, released]
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
    signs = source.choice(np.array([-1.0, 1.0]), size=dimension)
    return Directions(count, owner, signs)


@dataclass(frozen=True)
class Canaries:
    """The canaries of a run."""

    seed: int  # of the run
    per_group: int  # number of canaries
    unit: Directions  # their directions, group by group
    included: np.ndarray  # whether each canary is included [M, per_group]

    def sending(
        self, algorithm: Algorithm, index: int, group: GroupPlan, round_: int
    ) -> np.ndarray:
        """Positions of the group's canaries that take part in a round."""
        sampler = algorithm.sampler_of(group)
        ratio = group.sampling_ratio
        stream_round = round_
        if sampler.law is not None:
            stream_round = sampler.law.law.stream_round(round_)
            if sampler.law.law.whole_cohorts:
                # With a larger ratio than the group's, a score would bound too much.
                ratio = math.floor(self.per_group * ratio) / self.per_group
        source = stream(self.seed, Purpose.CANARY, 2, stream_round, index)
        drawn = sampler.draw(source, self.per_group, ratio, round_)
        chosen: np.ndarray = drawn[self.included[index][drawn]]
        return chosen

    def updates(self, index: int, which: np.ndarray, norm: float) -> np.ndarray:
        """Updates of canaries of a group [n, d]."""
        return NORM_FACTOR * norm * self.unit.rows(index * self.per_group + which)


def check_canaries(algorithm: Algorithm, per_group: int, dimension: int) -> None:
    """Raise if the algorithm or the dimension does not allow canaries.

    Raises:
        InputError: when the run releases other things than sums of updates, or there
            are too many canaries.
    """
    releases_sums = algorithm.mechanism.release_client is None and dimension > 0
    if not releases_sums or extra_coordinates(algorithm):
        rule = "are only for algorithms that release sums of updates and nothing else"
        raise InputError.one("canaries", rule, algorithm.name)
    algorithm.plan.spec.require("canaries", "plan.spec.sampling")
    total = per_group * len(algorithm.plan.groups)
    limit = max(MAX_CANARIES, dimension)
    if total > limit:
        rule = f"must be at most {limit} in all groups together"
        raise InputError.one("canaries", rule, total)


def make_canaries(seed: int, per_group: int, groups: int, dimension: int) -> Canaries:
    """The canaries of a run, which depend only on the seed and their number."""
    coins = [
        stream(seed, Purpose.CANARY, 1, index).random(per_group) < 0.5
        for index in range(groups)
    ]
    unit = directions(seed, per_group * groups, dimension)
    return Canaries(seed, per_group, unit, np.stack(coins))


# --- Scores of each canary for an observer of the releases or of the final model. -----


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
    """Log-likelihood ratios of each canary's participation, from a round's releases.

    The observer is the adversary of the guarantee: it knows the plan, every direction
    and the updates of all other clients, which it subtracts. Along a canary's direction
    the difference is normal with the planned standard deviation (or a smaller one if
    the ledger books it); its mean is the clipping bound, with the chance to take part
    in a round, or zero.

    Args:
        canaries: of the run; None without.
        plan: of the run.
        sums: of the round, with the sums without canaries.
        releases: of the round.
        released: the released coordinates of the global vector [k]; None for all.

    Returns:
        What each score changes by [M, canaries per group]; 0 without canaries.
    """
    if canaries is None:
        return 0.0
    changes = np.zeros(canaries.included.shape)
    coordinates = None if released is None else released.cpu().numpy()
    for release in releases:
        names = {group.name for group in release.groups}
        within = [
            index
            for index, group_sum in enumerate(sums)
            if group_sum.group.name in names
        ]
        difference = release.vector.double()
        for index in within:
            clear_sum = sums[index].without_canaries
            if clear_sum is not None:
                difference = difference - clear_sum

        # The groups of a release follow one another, and so do their canaries.
        per_group = canaries.per_group
        chosen = slice(within[0] * per_group, (within[-1] + 1) * per_group)
        products = canaries.unit.products(difference.cpu().numpy(), coordinates, chosen)
        projections = products.reshape(changes.shape)
        for index in within:
            group = sums[index].group
            noise_std = release.record.noise_std
            changes[index] += _change(plan, group, projections[index], noise_std)
    return changes


def _change(
    plan: Plan, group: GroupPlan, projections: np.ndarray, noise_std: float
) -> np.ndarray:
    """Log-likelihood ratios of a group's canaries, from projections of a release."""
    bound = plan.clip_bound(group)
    lowest = group.noise_multiplier / LARGEST_NOISE_RATIO
    booked = max(noise_std / bound, lowest)
    noise_multiplier = min(group.noise_multiplier, booked)
    chance = group.sampling_ratio * plan.law_of(group).law.drawable(1)
    return _log_ratio(projections / bound, chance, noise_multiplier)


def _log_ratio(projections: np.ndarray, ratio: float, sigma: float) -> np.ndarray:
    """log(1 - q + q p_1 / p_0), for normal densities p_0 and p_1 of means 0 and 1.

    Args:
        projections: where it is evaluated, in units of the bound.
        ratio: q, the chance to take part.
        sigma: standard deviation of both densities.
    """
    log_density_ratio = (2 * projections - 1) / (2 * sigma**2)
    if ratio >= 1:
        return log_density_ratio
    with_canary = np.log(ratio) + log_density_ratio
    mixture: np.ndarray = np.logaddexp(np.log1p(-ratio), with_canary)
    return mixture


def final_scores(canaries: Canaries, start: Tensor, end: Tensor) -> np.ndarray:
    """Projections of the model's movement on the canaries [M, canaries per group]."""
    movement = (end.double() - start.to(end.device).double()).cpu().numpy()
    return canaries.unit.products(movement, None).reshape(canaries.included.shape)


def audit_evidence(
    canaries: Canaries, plan: Plan, chain: str, rounds: np.ndarray, final: np.ndarray
) -> AuditEvidence:
    """The evidence as it is stored in the run folder."""
    groups = []
    for index, group in enumerate(plan.groups):
        bits = canaries.included[index]
        traces = GroupTraces(
            group=group.name,
            included="".join("1" if bit else "0" for bit in bits),
            rounds=tuple(rounds[index].tolist()),
            final=tuple(final[index].tolist()),
        )
        groups.append(traces)
    return AuditEvidence(
        plan_digest=plan.digest,
        chain=chain,
        orthogonal=canaries.unit.orthogonal,
        groups=tuple(groups),
    )
