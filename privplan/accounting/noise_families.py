"""Families of noise: how a release of each is accounted for, and how its evidence is tested.

A mechanism names its family in the ledger. The family states the noise multiplier that a client
sees and the dominating pairs of a release, so a new kind of noise is one value: registered with
``NOISE_FAMILIES.register``, or through the entry-point group ``privplan.mechanisms``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from scipy.special import chdtr, chdtrc

from privplan.accounting.release import GAUSSIAN, History, Release
from privplan.errors import UnsupportedError
from privplan.laws.pairs import DominatingPairs, Relation
from privplan.registry import Registry


def noise_p_value(sum_squares: float, std: float, coordinates: int) -> float:
    """Two-sided chi-square test of the variance of Gaussian noise.

    Args:
        sum_squares: sum of squares of the noise that was drawn.
        std: the standard deviation that the noise should have.
        coordinates: number of independent draws.

    Returns:
        The chance that honest noise has a sum of squares at least as far out (exact).
    """
    if std == 0 or coordinates == 0:
        return 1.0 if sum_squares == 0 else 0.0
    statistic = sum_squares / std**2
    return float(min(1.0, 2 * min(chdtr(coordinates, statistic), chdtrc(coordinates, statistic))))


class NoiseFamily(ABC):
    """The noise of a release.

    Attributes:
        name: as the ledger writes it.
        noisy: whether noise is drawn; the evidence of the draw is then tested.
        silent: whether nothing leaves the clients.
    """

    name: str
    noisy: bool = True
    silent: bool = False

    def noise_multiplier(self, noise_std: float, bound: float | None) -> float:
        """Noise over the bound on what one client adds.

        A quotient of two recorded numbers is rounded to twelve digits, so that a planned
        multiplier of fewer digits is recovered exactly.

        Args:
            noise_std: standard deviation of the noise, per coordinate.
            bound: norm that a client adds at most; None without one.

        Returns:
            0 without noise or bound, ``inf`` where nothing was released.
        """
        if self.silent:
            return math.inf
        if not self.noisy or bound is None:
            return 0.0
        return math.inf if bound == 0 else float(f"{noise_std / bound:.12g}")

    @abstractmethod
    def dominating_pairs(self, release: Release, relation: Relation) -> DominatingPairs:
        """The pairs that bound one release.

        Args:
            release: with a positive, finite noise multiplier and a positive ratio.
            relation: which data sets are neighbours.

        Raises:
            UnsupportedError: for a sampling law or relation that the family does not cover.
        """

    @abstractmethod
    def p_value(self, sum_squares: float, std: float, coordinates: int) -> float:
        """A bound on the chance that honest noise has a sum of squares at least as odd.

        Args:
            sum_squares: sum of squares of the noise that was drawn.
            std: standard deviation that the noise should have.
            coordinates: number of independent draws.
        """


class Gaussian(NoiseFamily):
    """Independent normal noise; its pairs are those of the sampling law."""

    name = GAUSSIAN

    def dominating_pairs(self, release: Release, relation: Relation) -> DominatingPairs:
        """The pairs of the sampling law at shift 1 / sigma."""
        shift = 1 / release.noise_multiplier
        return release.sampling.law.dominating_pairs(relation, shift, release.sampling_ratio)

    def p_value(self, sum_squares: float, std: float, coordinates: int) -> float:
        """The two-sided chi-square test."""
        return noise_p_value(sum_squares, std, coordinates)


class NoNoise(NoiseFamily):
    """A release without noise: epsilon is infinite."""

    name = "none"
    noisy = False

    def dominating_pairs(self, release: Release, relation: Relation) -> DominatingPairs:
        """Refused: no pair dominates a release without noise."""
        raise UnsupportedError(f"{self.name}: a release without noise has no dominating pairs")

    def p_value(self, sum_squares: float, std: float, coordinates: int) -> float:
        """1 where no noise was recorded, else 0."""
        return 1.0 if sum_squares == 0 else 0.0


class Silent(NoNoise):
    """Nothing leaves the clients: epsilon is 0."""

    name = "silent"
    silent = True


def _family(component: object) -> NoiseFamily:
    """A family from an entry point, which names a family or its class."""
    found = component() if isinstance(component, type) else component
    if not isinstance(found, NoiseFamily):
        raise TypeError("must be a subclass of NoiseFamily, or an instance of one")
    return found


NOISE_FAMILIES: Registry[NoiseFamily] = Registry("family", "privplan.mechanisms", check=_family)
"""Families of noise by name."""

for _one in (Gaussian(), NoNoise(), Silent()):
    NOISE_FAMILIES.register(_one.name, _one)


def dominating_pairs(release: Release, relation: Relation) -> DominatingPairs:
    """The pairs that bound one release; its noise multiplier and its ratio must be positive.

    Raises:
        UnsupportedError: when the family does not cover the release.
        InputError: when no such family is registered.
    """
    return NOISE_FAMILIES.get(release.family).dominating_pairs(release, relation)


def not_gaussian(history: History) -> str | None:
    """Why an accountant of Gaussian noise does not cover a history; None when it does."""
    families = {one.family for one, _ in history} - {GAUSSIAN}
    return f"covers gaussian noise only, found {', '.join(sorted(families))}" if families else None
