"""``planning.ratios: bound``: the right-hand side of GDPFed+'s Theorem 3 for given constants."""

from __future__ import annotations

import numpy as np

from privplan.convergence.bounds import step_constants
from privplan.errors import InputError
from privplan.planning.error_terms import Allocation
from privplan.planning.objectives.noise import Noise
from privplan.planning.problem import Floats, Problem, provisioned_noise_multiplier
from privplan.planning.published import kept_fractions
from privplan.spec.objectives import OBJECTIVES
from privplan.spec.spec import Spec


class TheoremBound(Noise):
    """Theorem 3, in squared norm of a gradient; of its terms the search moves the noise."""

    unit = "bound (Theorem 3, squared norm of a gradient)"
    default_release = "per_group"
    required = ("constants",)

    def terms(self, spec: Spec, problem: Problem, found: Allocation) -> dict[str, float]:
        """Theorem 3's right-hand side, term by term."""
        kept = kept_fractions(spec, problem, found.cohorts, found.noise, found.weights)
        multiplier = provisioned_noise_multiplier(spec, found)
        return theorem_3_terms(spec, found.weights, kept, multiplier)

    def run_error(self, spec: Spec, problem: Problem, found: Allocation) -> float:
        """The value itself: Theorem 3 has a term for the progress over the rounds."""
        return sum(self.terms(spec, problem, found).values())


def theorem_3_terms(
    spec: Spec, weights: Floats, kept: Floats, noise_multiplier: float
) -> dict[str, float]:
    """The right-hand side of Theorem 3, term by term, in squared norm of a gradient.

    The last term is mu3 sum k_m w_m^2 C^2 sigma_m^2 / r_m^2 as in its proof (the statement
    prints r_m q_m); for one release of all groups the sum becomes the maximum. With kept
    fractions that differ the largest is taken, which keeps it a bound.

    Args:
        spec: its constants, local training, rounds and model are used.
        weights: w_m, shape (groups,).
        kept: k_m / d, shape (groups,).
        noise_multiplier: noise multiplier of the weighted mean update, with all provisions.

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
    noise = float(kept.max()) * dimension * (spec.clipping_norm * noise_multiplier) ** 2
    return {
        "progress": 8 * constants.initial_gap / (step.progress * spec.rounds),
        "dissimilarity": mu1 * constants.dissimilarity,
        "local_variance": smooth * step.mu4 * lost * dimension * constants.local_variance,
        "privacy_noise": smooth * step.mu5 * noise,
    }


OBJECTIVES.register("bound", TheoremBound())
