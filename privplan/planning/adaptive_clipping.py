"""A clipping norm that follows a private quantile, paid for out of each round's noise.

G. Andrew, O. Thakkar, H. B. McMahan, S. Ramaswamy, Differentially Private Learning with Adaptive
Clipping, NeurIPS 2021: beside the sum of updates clipped at C, a round releases how many of
them were not longer than C, with noise, and C moves towards the quantile that was asked for.

Both come from the same cohort, so together they are one Gaussian of two parts: a client of
indicator b in {0, 1} moves the count of b - 1/2 by at most 1/2, and multipliers z of the sum
and z_b of the count (its standard deviation) make a pair as private as one sum with

    (z^-2 + (2 z_b)^-2)^(-1/2)

by every accountant and law, since the two parts turn into one by a rotation. So a share a of the
precision 1 / sigma^2 that a budget buys goes to the count, and the rest to the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from privplan.errors import Fault, InputError
from privplan.planning.group_noise import rounded_up


@dataclass(frozen=True)
class NoiseSplit:
    """What becomes of one noise multiplier.

    Attributes:
        update: noise multiplier of the sum of updates, over the clipping norm.
        count: standard deviation of the noise on the count of b - 1/2.
    """

    update: float
    count: float


def split_noise(noise_multiplier: float, share: float) -> NoiseSplit:
    """The pair that costs what one sum with the noise multiplier costs; never more.

    Args:
        noise_multiplier: sigma, positive.
        share: part of the precision that the count takes, in (0, 1).

    Raises:
        InputError: when a value is out of range.
    """
    faults = []
    if not 0 < noise_multiplier < math.inf:
        rule = "must be positive and finite"
        faults.append(Fault("noise_multiplier", rule, noise_multiplier))
    if not 0 < share < 1:
        faults.append(Fault("share", "must be in (0, 1)", share))
    if faults:
        raise InputError(faults)
    update = rounded_up(noise_multiplier / math.sqrt(1 - share))
    return NoiseSplit(update, rounded_up(noise_multiplier / (2 * math.sqrt(share))))


def combined_noise_multiplier(update: float, count: float) -> float:
    """The noise multiplier of one sum that costs what the pair costs.

    Args:
        update: noise multiplier of the sum of updates.
        count: standard deviation of the noise on the count of b - 1/2.
    """
    return 1 / math.hypot(1 / update, 1 / (2 * count))


def update_noise(noise_multiplier: float, count: float) -> float:
    """z_Delta = (z^-2 - (2 z_b)^-2)^(-1/2), Andrew et al., Theorem 1.

    Args:
        noise_multiplier: z, what the pair may cost.
        count: z_b, standard deviation of the noise on the count of b - 1/2.

    Raises:
        InputError: when the count alone costs as much.
    """
    if not 2 * count > noise_multiplier:
        rule = f"must be above {noise_multiplier / 2:g}, half the noise multiplier that it shares"
        raise InputError.one("count_noise_multiplier", rule, count)
    return 1 / math.sqrt(noise_multiplier**-2 - (2 * count) ** -2)
