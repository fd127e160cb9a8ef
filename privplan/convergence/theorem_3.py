"""The constants of GDPFed+'s Theorem 3, from the local learning rate and the local steps.

GDPFed+'s Theorem 3 as numbers, for given or estimated constants.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privplan.errors import InputError
from privplan.spec.spec import Spec
from privplan.values import Positive, Value


class StepConstants(Value):
    """Constants that only local training decides (GDPFed+, Theorem 3 and Appendix F).

    Attributes:
        progress: eta tau, the length of a client's path in a round, per unit of gradient.
        mu4: 32 eta tau + eta + eta / tau, the price of local variance; mu2 = L mu4.
        mu5: 4 / (eta tau), the price of privacy noise; mu3 = L mu5.
    """

    progress: Positive
    mu4: Positive
    mu5: Positive


def step_constants(learning_rate: float, steps: int) -> StepConstants:
    """The constants for a learning rate eta and tau local steps.

    Args:
        learning_rate: eta, positive.
        steps: tau, 1 or more.
    """
    progress = learning_rate * steps
    mu4 = 32 * progress + learning_rate + learning_rate / steps
    return StepConstants(progress=progress, mu4=mu4, mu5=4 / progress)


Floats = NDArray[np.float64]


def theorem_3_terms(spec: Spec, weights: Floats, kept: Floats, spread: float) -> dict[str, float]:
    """The right-hand side of Theorem 3, term by term, in squared norm of a gradient.

    The last term is mu3 sum k_m w_m^2 C^2 sigma_m^2 / r_m^2 as in its proof (the statement
    prints r_m q_m); for one release of all groups the sum becomes the maximum. With kept
    fractions that differ the largest is taken, which keeps it a bound.

    Args:
        spec: its constants, local training, rounds and model are used.
        weights: w_m, shape (groups,).
        kept: k_m / d, shape (groups,).
        spread: noise multiplier of the weighted mean update, a coordinate.

    Raises:
        InputError: when the spec has no constants.
    """
    constants = spec.planning.constants
    if constants is None:
        raise InputError.one("planning.constants", "is required for Theorem 3", "nothing")
    rate, steps = spec.local.learning_rate, spec.local.steps
    step = step_constants(rate, steps)
    smooth, dimension = constants.smoothness, spec.model.parameters
    mu1 = 4 * smooth * step.progress + 4 * smooth * rate + 64 * smooth
    lost = float(np.sum(weights * (1 + (1 - kept) ** 2)))
    noise = float(kept.max()) * dimension * (spec.clipping_norm * spread) ** 2
    return {
        "progress": 8 * constants.initial_gap / (step.progress * spec.rounds),
        "dissimilarity": mu1 * constants.dissimilarity,
        "local_variance": smooth * step.mu4 * lost * dimension * constants.local_variance,
        "privacy_noise": smooth * step.mu5 * noise,
    }
