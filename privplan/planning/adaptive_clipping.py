"""Noise multipliers of adaptive clipping: the sum of updates and the count share one budget.

Source: G. Andrew, O. Thakkar, H. B. McMahan, S. Ramaswamy, Differentially Private Learning with
Adaptive Clipping, NeurIPS 2021. Beside the sum of updates clipped at C, each round releases a noisy
count of the updates not longer than C, and C moves towards a quantile of their norms.

Both releases are of the same cohort and form one Gaussian mechanism with two components: a client
with indicator b in {0, 1} changes the count of b - 1/2 by at most 1/2. A noise multiplier z of the
sum and a standard deviation z_b of the noise on the count are as private as one sum with

    (z^-2 + (2 z_b)^-2)^(-1/2)

for every accountant and sampling law, because a rotation maps the two components to one. A share a
of the precision 1 / sigma^2 goes to the count, and the rest to the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from privplan.errors import Fault, InputError
from privplan.planning.group_noise import rounded_up


@dataclass(frozen=True)
class NoiseSplit:
    """Noise of the two releases of a round.

    Attributes:
        update: noise multiplier of the sum of updates, over the clipping norm.
        count: standard deviation of the noise on the count of b - 1/2.
    """

    update: float
    count: float


def split_noise(noise_multiplier: float, share: float) -> NoiseSplit:
    """The pair with the epsilon of one sum with the noise multiplier; never more.

    Args:
        noise_multiplier: sigma, positive.
        share: fraction of the precision for the count, in (0, 1).

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
    """The noise multiplier of one sum with the epsilon of the pair.

    Args:
        update: noise multiplier of the sum of updates.
        count: standard deviation of the noise on the count of b - 1/2.
    """
    return 1 / math.hypot(1 / update, 1 / (2 * count))


def update_noise(noise_multiplier: float, count: float) -> float:
    """z_Delta = (z^-2 - (2 z_b)^-2)^(-1/2), Andrew et al., Theorem 1.

    Args:
        noise_multiplier: z, noise multiplier of one sum with the epsilon of the pair.
        count: z_b, standard deviation of the noise on the count of b - 1/2.

    Raises:
        InputError: when the count without the sum has this epsilon.
    """
    if not 2 * count > noise_multiplier:
        rule = f"must be above {noise_multiplier / 2:g}, half the noise multiplier that it shares"
        raise InputError.one("count_noise_multiplier", rule, count)
    return 1 / math.sqrt(noise_multiplier**-2 - (2 * count) ** -2)
