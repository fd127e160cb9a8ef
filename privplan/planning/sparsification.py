"""Kept fractions: how much of a group's released sum survives top-k."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privplan.convergence.theorem_3 import StepConstants
from privplan.planning.problem import Problem
from privplan.spec.spec import Spec

Floats = NDArray[np.float64]


def error(kept: Floats) -> Floats:
    """phi_m = (1 - k_m/d)^2, the error of top-k that GDPFed+ takes (Lemma 3)."""
    return (1 - kept) ** 2


def best_kept(
    weights: Floats, noise: Floats, cohorts: Floats, constants: StepConstants, dimension: int
) -> Floats:
    """Remark 3's kept fractions, clamped to at least one coordinate.

    k*_m/d = 1 - 2 w_m sigma_m^2 / (eta tau mu4 r_m^2).

    Args:
        weights: w_m, shape (groups,).
        noise: noise multipliers sigma_m, shape (groups,).
        cohorts: expected clients r_m, shape (groups,).
        constants: what local training contributes.
        dimension: number of model parameters (d).

    Returns:
        Kept fractions in [1/d, 1], shape (groups,).
    """
    shrink = 2 * weights * noise**2 / (constants.progress * constants.mu4 * cohorts**2)
    return np.clip(1 - shrink, 1 / dimension, 1.0)


def kept_fractions(
    spec: Spec, problem: Problem, cohorts: Floats, noise: Floats, weights: Floats
) -> Floats:
    """Kept fractions as the spec asks for them, shape (groups,)."""
    given = spec.kept_fractions()
    if given is not None:
        return np.array(given)
    return best_kept(weights, noise, cohorts, problem.constants, problem.dimension)
