"""Which dominating pairs bound a release, for every sampling law and neighbouring relation.

Sensitivities are in units of the clipping norm, so a contribution shifts the release by
``1 / noise_multiplier``; replacing one turns it round or moves it by twice that.

- full: one Gaussian, shift 1 (add/remove, zero-out) or 2 (replace-one) over sigma; exact.
- Poisson, add/remove and zero-out: ``REMOVE`` and ``ADD``, composed apart; exact (Zhu, Dong
  and Wang 2022, Theorem 11). Under zero-out, too, a client contributes or does not.
- Poisson, replace-one: ``SWAP``; exact.
- fixed size, add/remove: ``REMOVE`` and ``ADD`` at half the noise; exact. The cohort of m is
  kept full, so a client that takes part displaces another: a distance of 2 C, also where
  everybody takes part and one client more would push one of them out.
- fixed size, replace-one and zero-out: open. From above the stitched pair at distance 2 C
  (Proposition 30 of the same paper; a client that is zeroed or replaced differs from any
  other outcome by at most 2 C). From below a pair that is reached: for replace-one
  all others at -C and one at +C against its replacement by -C, ``REMOVE`` and ``ADD`` at 2 C;
  for zero-out all others at 0, ``REMOVE`` and ``ADD`` at C.
"""

from __future__ import annotations

from dataclasses import dataclass

from privplan.accounting.pld.dominating_pairs import Kind, Pair
from privplan.accounting.release import Relation, Release, SamplingLaw


@dataclass(frozen=True)
class Bounds:
    """Pairs in each of two directions that bound a release.

    Attributes:
        upper: one dominating pair a direction.
        lower: one reachable pair a direction; the same where the cell is exact.
    """

    upper: tuple[Pair, Pair]
    lower: tuple[Pair, Pair]


def bounds_of(release: Release, relation: Relation) -> Bounds:
    """The pairs of one round; the noise multiplier and the ratio must be positive."""
    shift, ratio = 1 / release.noise_multiplier, release.sampling_ratio
    twice = relation == Relation.REPLACE_ONE or (
        relation == Relation.ADD_REMOVE and release.sampling == SamplingLaw.FIXED_SIZE
    )
    distance = 2 * shift if twice else shift
    if release.sampling == SamplingLaw.FULL or ratio == 1:
        return _exact(Kind.REMOVE, Kind.REMOVE, distance, 1.0)
    if release.sampling == SamplingLaw.POISSON:
        if relation == Relation.REPLACE_ONE:
            return _exact(Kind.SWAP, Kind.SWAP, shift, ratio)
        return _exact(Kind.REMOVE, Kind.ADD, shift, ratio)
    if relation == Relation.ADD_REMOVE:
        return _exact(Kind.REMOVE, Kind.ADD, distance, ratio)
    stitched = Pair(Kind.STITCHED, 2 * shift, ratio)
    reached = Pair(Kind.REMOVE, distance, ratio), Pair(Kind.ADD, distance, ratio)
    return Bounds((stitched, stitched), reached)


def _exact(first: Kind, second: Kind, shift: float, ratio: float) -> Bounds:
    both = Pair(first, shift, ratio), Pair(second, shift, ratio)
    return Bounds(both, both)
