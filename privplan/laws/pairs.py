"""Neighbouring relations, and the pairs of distributions that dominate one release.

A pair (P, Q) dominates a release when the hockey-stick divergence of the release on any
two neighbours is at most that of P from Q at every epsilon (Zhu, Dong and Wang 2022,
Definition 7). Sensitivities are in units of the clipping norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import EnumMeta, IntEnum, StrEnum
from functools import cached_property
from typing import Never

import numpy as np

from privplan.errors import InputError, did_you_mean
from privplan.guidance import GuidedKind, GuidedName

# Slack for the rounding of sums of many probabilities: of P, whose masses are stated,
# and of Q, where each is multiplied by an exponential.
_MASS_TOLERANCE = 1e-12
_MASS_OF_Q_TOLERANCE = 1e-9
# exp(709) is near the largest float. A mass of Q that large is refused anyway.
_LARGEST_EXPONENT = 700.0


class _RelationKind(GuidedKind, EnumMeta):
    """The class of relations, whose missing names say what to write."""


class Relation(GuidedName, StrEnum, metaclass=_RelationKind):
    """Which data sets are neighbours.

    ``ADD_REMOVE``: one client more or less. ``REPLACE_ONE``: one client's data
    replaced. ``ZERO_OUT``: one client's contribution replaced by zero, the population
    unchanged.
    """

    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"
    ZERO_OUT = "zero_out"

    @classmethod
    def _missing_(cls, value: object) -> Never:
        """Name the relations where a value is none."""
        rule = f"must be one of {', '.join(cls)}{did_you_mean(value, cls)}"
        raise ValueError(f"relation: {rule}, found {value!r}")


class Kind(IntEnum):
    """The shapes of Gaussian pairs; ``privplan.accounting.pld.pairs`` defines them."""

    REMOVE = 0
    ADD = 1
    SWAP = 2
    STITCHED = 3


@dataclass(frozen=True, order=True)
class Pair:
    """A pair of Gaussian mixtures."""

    kind: Kind  # its shape
    shift: float  # distance of the means over the noise standard deviation
    ratio: float  # sampling ratio, in (0, 1]


@dataclass(frozen=True, order=True)
class DiscretePair:
    """A pair given by the finite distribution of its privacy loss under P.

    The mass of Q at a loss l is ``mass * exp(-l)``. A mechanism without a Gaussian pair
    supplies one of these, with losses rounded so that the pair still dominates.

    Attributes:
        losses: finite privacy losses, ascending, shape (points,).
        masses: probability of each under P, shape (points,). The rest, 1 less their
            sum, has an infinite loss.
        rest_below: the rest has a loss of minus infinity instead: in lower bounds.
    """

    losses: tuple[float, ...]
    masses: tuple[float, ...]
    rest_below: bool = False

    def __post_init__(self) -> None:
        losses = np.array(self.losses)
        is_ascending = np.isfinite(losses).all() and (np.diff(losses) > 0).all()
        if not len(losses) or not is_ascending:
            raise InputError.one("losses", "must be finite and ascending", self.losses)

        masses = np.array(self.masses)
        total = float(masses.sum())
        has_a_mass_each = masses.shape == losses.shape and (masses >= 0).all()
        if not has_a_mass_each or not 0 < total <= 1 + _MASS_TOLERANCE:
            rule = "must be one probability per loss, with a sum in (0, 1]"
            raise InputError.one("masses", rule, self.masses)

        mass_of_q = float(masses @ np.exp(np.minimum(-losses, _LARGEST_EXPONENT)))
        if mass_of_q > 1 + _MASS_OF_Q_TOLERANCE:
            rule = "must give Q a mass of at most 1"
            raise InputError.one("masses", rule, self.masses)

    @cached_property
    def infinite(self) -> float:
        """Probability under P of an infinite loss."""
        if self.rest_below:
            return 0.0
        # 1 less the sum of the masses, rounded once: the rest may be tiny.
        return max(0.0, -math.fsum((*self.masses, -1.0)))


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
    """The moments that bound the Rényi divergence of one release."""

    moments: Moments  # which bound
    noise_multiplier: float  # noise standard deviation over the sensitivity
    ratio: float  # sampling ratio, in (0, 1]


def renyi_of_pair(pair: AnyPair) -> RenyiBound | None:
    """The moment bound of a Gaussian pair; None where no bound is known.

    ``ADD`` has the bound of ``REMOVE``, whose divergence is never smaller (Mironov et
    al. 2019, Theorem 5).
    """
    if not isinstance(pair, Pair) or pair.kind == Kind.STITCHED:
        return None
    if pair.kind == Kind.SWAP and pair.ratio < 1:
        return RenyiBound(Moments.SWAP, 1.0 / pair.shift, pair.ratio)
    if pair.kind == Kind.SWAP:
        # Where nothing is sampled, N(1) stands against N(-1): twice the sensitivity.
        return RenyiBound(Moments.SAMPLED, 0.5 / pair.shift, pair.ratio)
    return RenyiBound(Moments.SAMPLED, 1.0 / pair.shift, pair.ratio)
