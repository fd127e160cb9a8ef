"""``planning.ratios: noise``: the noise of the weighted mean update and nothing else."""

from __future__ import annotations

import numpy as np

from privplan.planning.error_terms import Allocation, Coefficients
from privplan.planning.objectives import Objective, variance_coefficients
from privplan.planning.problem import Problem, noise_provision, provisioned_noise_multiplier
from privplan.spec.objectives import OBJECTIVES
from privplan.spec.spec import Spec


class Noise(Objective):
    """Standard deviation of the noise of the weighted mean update, per coordinate."""

    unit = "noise of the mean update, a coordinate"

    def coefficients(self, spec: Spec, problem: Problem) -> Coefficients:
        """A = price d C^2 times the provisions; sampling and bias cost nothing."""
        price, _ = variance_coefficients(spec)
        noise = price * problem.dimension * problem.clipping_norm**2 * noise_provision(spec)
        shares = np.asarray(problem.clients, dtype=float) / problem.population
        return Coefficients(noise, 0.0, 0.0, shares)

    def terms(self, spec: Spec, problem: Problem, found: Allocation) -> dict[str, float]:
        """The standard deviation in units of the update."""
        return {"noise_std": problem.clipping_norm * provisioned_noise_multiplier(spec, found)}


OBJECTIVES.register("noise", Noise())
