"""Noise multipliers of adaptive clipping: sum and count of updates share one budget.

Each round releases the sum of updates clipped at C, and a noisy count of the updates
not longer than C, by which C moves towards a quantile of their norms.

Both releases are of the same cohort and form one Gaussian mechanism with two
components: a client with indicator b in {0, 1} changes the count of b - 1/2 by at most
1/2. A noise multiplier z of the sum and a standard deviation z_b of the noise on the
count are as private as one sum with

    (z^-2 + (2 z_b)^-2)^(-1/2)

for every accountant and sampling law, because a rotation maps the two components to
one. A share a of the precision 1 / sigma^2 goes to the count, and the rest to the sum.

Source: G. Andrew, O. Thakkar, H. B. McMahan, S. Ramaswamy, Differentially Private
Learning with Adaptive Clipping, NeurIPS 2021.
"""

from __future__ import annotations

import math

from privplan.errors import InputError
from privplan.plan import Clipping
from privplan.planning.noise import rounded_up
from privplan.spec.spec import Spec


def split_noise(noise_multiplier: float, share: float) -> tuple[float, float]:
    """Noise multiplier of the sum, and deviation of the count, as private as one sum.

    Args:
        noise_multiplier: that of the one sum (sigma).
        share: part of the precision that goes to the count (a), in (0, 1).
    """
    update = rounded_up(noise_multiplier / math.sqrt(1 - share))
    count = rounded_up(noise_multiplier / (2 * math.sqrt(share)))
    return update, count


def update_noise(noise_multiplier: float, count: float) -> float:
    """Z = (sigma^-2 - (2 z_b)^-2)^(-1/2), Andrew et al., Theorem 1.

    Raises:
        InputError: where the count alone would spend more than the budget.
    """
    if not 2 * count > noise_multiplier:
        rule = (
            f"must be above {noise_multiplier / 2:g}, half the noise multiplier that it "
            "shares"
        )
        raise InputError.one("count_noise_multiplier", rule, count)
    return 1 / math.sqrt(noise_multiplier**-2 - (2 * count) ** -2)


def quantile_clipping(spec: Spec, noise: float) -> Clipping | None:
    """Parameters of adaptive clipping; None where the spec's clipping norm is fixed."""
    requested = spec.planning.clipping
    if requested is None:
        return None
    update, count = split_noise(noise, requested.share)
    return Clipping(
        quantile=requested.quantile,
        count_noise_multiplier=count,
        update_noise_multiplier=update,
        learning_rate=requested.learning_rate,
    )
