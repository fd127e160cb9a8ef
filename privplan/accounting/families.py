"""Families of noise: how a release of each is accounted for and its evidence tested.

A mechanism names its family in the ledger. The family states the noise multiplier that
a client sees and the dominating pairs of a release, so a new kind of noise is one
value: registered with ``NOISE_FAMILIES.register``, or through the entry-point group
``privplan.mechanisms``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.release import GAUSSIAN, History, Release, SamplingLaw
from privplan.errors import UnsupportedError
from privplan.laws.law import (
    AnyPair,
    DiscretePair,
    DominatingPairs,
    Kind,
    Pair,
    Relation,
)
from privplan.registry import Registry, instance_of

Floats = NDArray[np.float64]

_DIGITS = 12  # of a noise multiplier that follows from recorded numbers
_QUOTIENT = 1e-15  # relative error of a product and a quotient of two numbers


def noise_p_value(sum_squares: float, std: float, coordinates: int) -> float:
    """Two-sided chi-square test (exact) of a sum of squares of Gaussian draws.

    Args:
        sum_squares: of the draws.
        std: their stated standard deviation.
        coordinates: their number.
    """
    from scipy.special import chdtr, chdtrc

    if std == 0 or coordinates == 0:
        if sum_squares == 0:
            return 1.0
        return 0.0
    statistic = sum_squares / std**2
    smaller_tail = min(chdtr(coordinates, statistic), chdtrc(coordinates, statistic))
    return float(min(1.0, 2 * smaller_tail))


class NoiseFamily(ABC):
    """The noise of a release.

    Attributes:
        name: as the ledger writes it.
        noisy: whether noise is drawn; the evidence of the draw is then tested.
        silent: whether nothing leaves the clients.
        normal: whether tests and accountants of the normal law hold for it.
        on_grid: whether a release states the step of the grid that its noise lies on.
    """

    name: str
    noisy: bool = True
    silent: bool = False
    normal: bool = False
    on_grid: bool = False

    def equivalent_std(self, noise_std: float, grid: float | None) -> float:
        """Standard deviation that the noise multiplier follows from.

        Args:
            noise_std: that was drawn.
            grid: step of the grid that the noise lies on; None without one.
        """
        return noise_std

    def noise_multiplier(self, noise_std: float, bound: float | None) -> float:
        """Noise per coordinate over the bound on what one client adds.

        0 without noise or bound. A quotient of two recorded numbers is rounded down to
        twelve digits, so that equal releases of unequal bounds stay equal; a planned
        multiplier of fewer digits is recovered exactly.
        """
        if self.silent:
            return math.inf
        if not self.noisy or bound is None:
            return 0.0
        if bound == 0:
            return math.inf
        multiplier = noise_std / bound
        rounded = float(f"{multiplier:.{_DIGITS}g}")
        if rounded <= multiplier * (1 + _QUOTIENT):
            return rounded
        last_digit = 10.0 ** (math.floor(math.log10(rounded)) - _DIGITS + 1)
        return float(f"{rounded - last_digit:.{_DIGITS}g}")

    @abstractmethod
    def dominating_pairs(self, release: Release, relation: Relation) -> DominatingPairs:
        """The pairs that bound one release.

        Args:
            release: with a positive, finite noise multiplier and a positive ratio.
            relation: which data sets are neighbours.

        Raises:
            UnsupportedError: where the family does not cover the release.
        """

    @abstractmethod
    def p_value(self, sum_squares: float, std: float, coordinates: int) -> float:
        """A bound on the chance that honest noise has as odd a sum of squares."""


class Gaussian(NoiseFamily):
    """Independent normal noise; its pairs are those of the sampling law."""

    name = GAUSSIAN
    normal = True

    def dominating_pairs(self, release: Release, relation: Relation) -> DominatingPairs:
        """The pairs of the sampling law at shift 1 / sigma."""
        shift = 1 / release.noise_multiplier
        return release.sampling.law.dominating_pairs(
            relation, shift, release.sampling_ratio
        )

    def p_value(self, sum_squares: float, std: float, coordinates: int) -> float:
        """The two-sided chi-square test."""
        return noise_p_value(sum_squares, std, coordinates)


class DiscreteGaussian(Gaussian):
    """Independent discrete Gaussian noise N_Z(0, s^2) on a grid of step g.

    Here s = noise_std / g. Sums on the grid move by a vector v of whole steps, with the
    L2 bound C of a client. Let e = 2.01 exp(-2 pi^2 16), below 1e-136. By the Poisson
    summation formula the sum of exp(-(x - c)^2 / (2 r^2)) over the integers x is
    r sqrt(2 pi) (1 +- e) for every c and r >= 4. Hence, coordinate by coordinate and
    for all v at once (Peikert 2010, Theorem 3.1, gives the same argument for lattices):

    - Upper bound. Draw y from N(v, s^2 - 16) and round it to x with probabilities
      proportional to exp(-(x - y)^2 / 32). The law of x is that of v + N_Z(0, s^2) up
      to factors exp(+-3e). So the release is a post-processing of a normal one with
      s' = sqrt(s^2 - 16), up to factors exp(+-3 e d) for d coordinates. The equivalent
      noise multiplier is s' g / C, for every law of sampling, every relation, and under
      adaptive composition.
    - Lower bound. v + N_Z(0, s^2) plus N(0, t^2) with t^2 = 16 s^2 / (s^2 - 16) is
      N(v, s^2 + t^2), up to the same factors; with s >= 4096 that multiplier exceeds
      the other by less than a relative ``WIDTH``. It is attained by a client who moves
      one coordinate by C / g steps.

    After T rounds of d coordinates the factors are exp(+-3 e d T): with d T at most
    1e20 they move delta by less than 1e-110, less than the rounding of any delta above
    1e-90.

    Attributes:
        SMOOTHING: standard deviation of the rounding, in steps of the grid.
        FINEST: least standard deviation in such steps; coarser noise counts as none.
        WIDTH: relative distance between the noise multipliers of the two bounds.
    """

    name = "discrete_gaussian"
    on_grid = True
    SMOOTHING = 4.0
    FINEST = 4096
    WIDTH = 1e-6

    def equivalent_std(self, noise_std: float, grid: float | None) -> float:
        """Standard deviation of the normal noise of the upper bound, rounded down.

        2^-51 is two units of rounding: of the root and of the product.
        """
        if grid is None or not noise_std >= self.FINEST * grid:
            return 0.0
        steps = self.SMOOTHING * grid / noise_std
        return noise_std * math.sqrt(1 - steps * steps) * (1 - 2.0**-51)

    def dominating_pairs(self, release: Release, relation: Relation) -> DominatingPairs:
        """The normal pairs of the two bounds."""
        upper = super().dominating_pairs(release, relation).upper
        wider_noise = release.noise_multiplier * (1 + self.WIDTH)
        wider = replace(release, noise_multiplier=wider_noise)
        return DominatingPairs(upper, super().dominating_pairs(wider, relation).lower)


class NoNoise(NoiseFamily):
    """A release without noise: epsilon is infinite."""

    name = "none"
    noisy = False

    def dominating_pairs(self, release: Release, relation: Relation) -> DominatingPairs:
        """Refused: no pair dominates a release without noise."""
        raise UnsupportedError(
            f"{self.name}: a release without noise has no dominating pairs"
        )

    def p_value(self, sum_squares: float, std: float, coordinates: int) -> float:
        """1 where no noise was recorded, else 0."""
        if sum_squares == 0:
            return 1.0
        return 0.0


class Silent(NoNoise):
    """Nothing leaves the clients: epsilon is 0."""

    name = "silent"
    silent = True


# Counts beside training: releases that compose with those of training over the same
# clients. A client adds a number from 0 to 1 to a count, so that it moves it by 1 at
# most, whether it is removed or replaced. The pairs are alike in both directions by
# symmetry. Of each, the discrete loss is stated from above with masses and losses that
# exceed rounding, and from below with smaller ones.

# Margin of a mass (relative) and of a loss (also absolute), above rounding.
_ROUNDING = 1e-13
# Cells of the loss of Laplace noise: the bounds are about 1e-5 apart at epsilon 1.
CELLS = 400
# Least noise multiplier: an epsilon of 14 of a count, far beyond any use.
LEAST_OF_COUNTS = 0.1


class Count(NoNoise):
    """Noise on a count, at full participation.

    The simulator draws none of it: in a ledger it counts as without noise.

    Attributes:
        of_persons: whether the clients of one person move the same count together.
        normal_divergence: whether its Rényi divergences are at most those of the
            normal law.
    """

    of_persons = True
    normal_divergence = False

    def moved(self, release: Release) -> int:
        """The most that a person moves the count by, under every relation.

        Raises:
            UnsupportedError: where clients are drawn, or persons are not covered.
        """
        law = release.sampling.law
        everybody = {
            SamplingLaw.FULL.of_person(law.contributions, unit)
            for unit in ("client", "record")
        }
        if release.sampling_ratio != 1 or law.single not in everybody:
            raise UnsupportedError(f"{self.name}: covers full participation only")
        if law.contributions > 1 and not self.of_persons:
            raise UnsupportedError(f"{self.name}: covers single clients only")
        return law.contributions

    def dominating_pairs(self, release: Release, relation: Relation) -> DominatingPairs:
        """The pairs of the moved count; refused where clients are drawn."""
        moved = self.moved(release)
        if release.noise_multiplier < LEAST_OF_COUNTS:
            rule = f"covers noise multipliers of {LEAST_OF_COUNTS} or more"
            raise UnsupportedError(
                f"{self.name}: {rule}, found {release.noise_multiplier:g}"
            )
        return self.pairs(release.noise_multiplier, moved)

    @abstractmethod
    def pairs(self, noise_multiplier: float, moved: int) -> DominatingPairs:
        """Those of a count that moves by so much."""


class Laplace(Count):
    """Laplace noise of scale 1 / epsilon: noise multiplier sqrt(2) / epsilon.

    Between 0 and the move the loss l has density exp((l - epsilon) / 2) / 4 under P.
    Its cells of width h are split between their ends with their masses under P and Q
    kept, which is exp(-h / 2) to 1; from below all of a cell is at its middle, whose
    loss has the ratio of those masses.
    """

    name = "laplace"

    def pairs(self, noise_multiplier: float, moved: int) -> DominatingPairs:
        """From both sides, O(h^2) apart."""
        epsilon = moved * math.sqrt(2) / noise_multiplier
        ends = np.linspace(-epsilon, epsilon, CELLS + 1)
        half_cell = epsilon / CELLS
        mass = np.exp((ends[:-1] - epsilon) / 2) * math.expm1(half_cell) / 2

        # Of the values beyond 0 and beyond the move.
        lowest = math.exp(-epsilon) / 2
        highest = 0.5

        # The shares of a cell's mass at its upper and at its lower end.
        to_upper = mass / (1 + math.exp(-half_cell))
        to_lower = mass / (1 + math.exp(half_cell))
        upper = np.append(to_lower, highest) + np.insert(to_upper, 0, lowest)

        middles = np.concatenate([ends[:1], ends[:-1] + half_cell, ends[-1:]])
        lower = np.concatenate([[lowest], mass, [highest]])
        return _twice(stated(ends, upper, 1), stated(middles, lower, -1))


class DiscreteLaplace(Count):
    """Whole noise with P(k) proportional to exp(-epsilon |k|).

    Its noise multiplier is sqrt(2) / epsilon, as for Laplace noise.
    """

    name = "discrete_laplace"

    def pairs(self, noise_multiplier: float, moved: int) -> DominatingPairs:
        """Losses epsilon (moved - 2 k) at the values k, from 0 to the move."""
        epsilon = math.sqrt(2) / noise_multiplier
        values = np.arange(moved, -1, -1)
        masses: Floats = np.exp(-epsilon * values) * -math.expm1(-epsilon)

        # The first and the last have all values beyond them, too.
        masses[0] = math.exp(-epsilon * moved)
        masses[-1] = 1.0
        masses /= 1 + math.exp(-epsilon)
        losses = np.array(epsilon * (moved - 2 * values), np.float64)
        return _twice(stated(losses, masses, 1), stated(losses, masses, -1))


class RandomizedResponse(DiscreteLaplace):
    """One bit of each client, true with odds exp(epsilon).

    Its noise multiplier is sqrt(2) / epsilon, whoever is replaced, and its pair is that
    of discrete Laplace noise at a move of 1. Places are public: for a client that is
    absent the answer of a 0 is counted, so that the number of answers tells nothing.
    Clients of one person answer each for itself: so many releases.
    """

    name = "randomized_response"
    of_persons = False


class DiscreteGaussianCount(Count):
    """Whole noise with P(k) proportional to exp(-k^2 / (2 s^2)).

    Its noise multiplier is s. Exact up to ``EXACT`` (Canonne, Kamath, Steinke 2020);
    with more noise, the normal bounds of ``DiscreteGaussian``. Values beyond 37 s have
    a mass below 1e-290 and are left out; the Rényi divergences, to which these matter,
    are those of the normal law (their Proposition 5).

    Attributes:
        EXACT: largest s of which all values are summed.
    """

    name = "discrete_gaussian_count"
    EXACT = 192.0
    normal_divergence = True

    def pairs(self, noise_multiplier: float, moved: int) -> DominatingPairs:
        """Losses (moved^2 - 2 moved k) / (2 s^2) at the values k."""
        variance = noise_multiplier * noise_multiplier
        if noise_multiplier > self.EXACT:
            smoothed = math.sqrt(variance - 16)
            upper_shift = moved / smoothed * (1 + _ROUNDING)
            blurred = math.sqrt(variance + 16 * variance / (variance - 16))
            lower_shift = moved / blurred * (1 - _ROUNDING)
            return _twice(
                Pair(Kind.REMOVE, upper_shift, 1.0), Pair(Kind.REMOVE, lower_shift, 1.0)
            )
        reach = math.ceil(37 * noise_multiplier)
        values = np.arange(reach, -reach - 1, -1)
        masses = np.exp(-(values**2) / (2 * variance))
        masses /= math.fsum(masses)
        losses = moved * (moved - 2 * values) / (2 * variance)
        return _twice(stated(losses, masses, 1), stated(losses, masses, -1))


def stated(
    losses: Floats, masses: Floats, sign: int, margin: float = _ROUNDING
) -> DiscretePair:
    """A pair whose losses and masses exceed given ones, or fall below them.

    Args:
        losses: in any order, shape (points,).
        masses: likewise.
        sign: 1 for a pair from above, -1 for one from below.
        margin: relative, above all rounding.
    """
    moved = losses + sign * margin * (1 + np.abs(losses))
    losses, where = np.unique(moved, return_inverse=True)
    gathered = np.bincount(where, masses * (1 + sign * margin))
    return DiscretePair(
        tuple(losses.tolist()), tuple(gathered.tolist()), rest_below=sign < 0
    )


def _twice(upper: AnyPair, lower: AnyPair) -> DominatingPairs:
    return DominatingPairs((upper, upper), (lower, lower))


NOISE_FAMILIES: Registry[NoiseFamily] = Registry(
    "family", "privplan.mechanisms", check=instance_of(NoiseFamily)
)
"""Families of noise by name."""

for _family in (
    Gaussian(),
    DiscreteGaussian(),
    NoNoise(),
    Silent(),
    Laplace(),
    DiscreteLaplace(),
    RandomizedResponse(),
    DiscreteGaussianCount(),
):
    NOISE_FAMILIES.register(_family.name, _family)


def dominating_pairs(release: Release, relation: Relation) -> DominatingPairs:
    """The pairs that bound one release; noise multiplier and ratio are positive."""
    return NOISE_FAMILIES.get(release.family).dominating_pairs(release, relation)


def not_gaussian(history: History) -> str | None:
    """Why an accountant of Gaussian noise does not cover a history; None if it does."""
    families = {release.family for release, _ in history}
    other_names = sorted(
        name for name in families if not NOISE_FAMILIES.get(name).normal
    )
    if not other_names:
        return None
    return f"covers gaussian noise only, found {', '.join(other_names)}"
