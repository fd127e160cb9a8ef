"""Neighbouring relations, and the pairs of distributions that dominate one release.

A pair (P, Q) dominates a release when the hockey-stick divergence of the release on any two
neighbours is at most that of P from Q at every epsilon (Zhu, Dong and Wang 2022, Definition 7).
Sensitivities are in units of the clipping norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from itertools import pairwise

from privplan.errors import InputError


class Relation(StrEnum):
    """Which data sets are neighbours.

    ``ADD_REMOVE``: one client more or less. ``REPLACE_ONE``: one client's data replaced.
    ``ZERO_OUT``: one client's contribution replaced by zero, the population unchanged.
    """

    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"
    ZERO_OUT = "zero_out"


class Kind(IntEnum):
    """The shapes of Gaussian pairs; ``privplan.accounting.pld.dominating_pairs`` defines them."""

    REMOVE = 0
    ADD = 1
    SWAP = 2
    STITCHED = 3


@dataclass(frozen=True, order=True)
class Pair:
    """A pair of Gaussian mixtures: its shape, its shift (over the noise) and the sampling ratio."""

    kind: Kind
    shift: float
    ratio: float


@dataclass(frozen=True, order=True)
class DiscretePair:
    """A pair given by the finite distribution of its privacy loss under P.

    The mass of Q at a loss l is ``mass * exp(-l)``. A mechanism without a Gaussian pair supplies
    one of these, with losses rounded so that the pair still dominates.

    Attributes:
        losses: finite privacy losses, ascending, shape (points,).
        masses: probability of each under P, shape (points,); the rest, 1 less their sum, has an
            infinite loss.

    Raises:
        InputError: when the losses do not ascend, or the masses are no distribution.
    """

    losses: tuple[float, ...]
    masses: tuple[float, ...]

    def __post_init__(self) -> None:
        losses, masses = self.losses, self.masses
        ascending = all(a < b for a, b in pairwise(losses))
        if not losses or not ascending or not all(map(math.isfinite, losses)):
            raise InputError.one("losses", "must be finite and ascending", losses)
        total = math.fsum(masses)
        if len(masses) != len(losses) or min(masses) < 0 or not 0 < total <= 1 + 1e-12:
            rule = "must be one probability per loss, with a sum in (0, 1]"
            raise InputError.one("masses", rule, masses)
        if math.fsum(m * math.exp(-x) for m, x in zip(masses, losses, strict=True)) > 1 + 1e-9:
            raise InputError.one("masses", "must give Q a mass of at most 1", masses)

    @property
    def infinite(self) -> float:
        """Probability under P of an infinite loss."""
        return max(0.0, 1.0 - math.fsum(self.masses))


AnyPair = Pair | DiscretePair


@dataclass(frozen=True)
class DominatingPairs:
    """Pairs in each of two directions that bound one release.

    Attributes:
        upper: one dominating pair per direction.
        lower: one attained pair per direction; the same where the bound is exact.
    """

    upper: tuple[AnyPair, AnyPair]
    lower: tuple[AnyPair, AnyPair]


def exact(first: AnyPair, second: AnyPair) -> DominatingPairs:
    """Pairs that are attained, so that they bound a release from both sides."""
    return DominatingPairs((first, second), (first, second))


class Moments(StrEnum):
    """How the moments of a release's likelihood ratio are bounded.

    ``SAMPLED``: N(1) with probability q, else N(0), against N(0) (Mironov et al. 2019).
    ``SWAP``: (1-q)N(0) + qN(1) against (1-q)N(0) + qN(-1).
    ``WITHOUT_REPLACEMENT``: the bound of Wang et al. 2019, Theorem 9.
    """

    SAMPLED = "sampled"
    SWAP = "swap"
    WITHOUT_REPLACEMENT = "without_replacement"


@dataclass(frozen=True)
class RenyiBound:
    """The moments that bound the Rényi divergence of one release.

    Attributes:
        moments: which bound.
        noise_multiplier: noise standard deviation over the sensitivity.
        ratio: sampling ratio, in (0, 1].
    """

    moments: Moments
    noise_multiplier: float
    ratio: float


def renyi_of_pair(pair: AnyPair) -> RenyiBound | None:
    """The moment bound of a Gaussian pair; None where no bound is known.

    ``ADD`` has the bound of ``REMOVE``, whose divergence is never smaller (Mironov et al. 2019,
    Theorem 5).
    """
    if not isinstance(pair, Pair) or pair.kind == Kind.STITCHED:
        return None
    moments = Moments.SWAP if pair.kind == Kind.SWAP and pair.ratio < 1 else Moments.SAMPLED
    doubled = pair.kind == Kind.SWAP and pair.ratio == 1
    return RenyiBound(moments, (0.5 if doubled else 1.0) / pair.shift, pair.ratio)
