"""Theorem 3 of GDPFed+ and Problem 1, its part that a plan can move: each written once.

The planner computes these formulas with numbers, and ``privplan.planning.bounds`` with
SymPy symbols in their place: what ``explain`` shows is what was minimised. Values by
group are arrays of either. tests/planning/test_one_writing.py finds a second writing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StepConstants:
    """Constants that depend on local training only.

    Source: GDPFed+, Theorem 3 and Appendix F.

    Attributes:
        progress: eta tau, the length of local training per unit of gradient.
        mu4: 32 eta tau + eta + eta / tau, factor of local variance; mu2 = L mu4.
        mu5: 4 / (eta tau), factor of privacy noise; mu3 = L mu5.
    """

    progress: float
    mu4: float
    mu5: float


def step_constants(learning_rate: float, steps: float) -> StepConstants:
    """Returns the constants for a learning rate eta and tau local steps."""
    progress = learning_rate * steps
    mu4 = 32 * progress + learning_rate + learning_rate / steps
    return StepConstants(progress=progress, mu4=mu4, mu5=4 / progress)


def dissimilarity_factor(learning_rate: Any, steps: Any, smoothness: Any) -> Any:
    """Mu1 = 4 L eta tau + 4 L eta + 64 L."""
    return smoothness * (4 * learning_rate * steps + 4 * learning_rate + 64)


def lost_coordinates(weights: Any, kept_fractions: Any) -> Any:
    """Sum of w_m (1 - k_m)^2, what sparsification adds to the local variance."""
    return (weights * (1 - kept_fractions) ** 2).sum()


def problem_1_terms(
    constants: StepConstants, weights: Any, kept_fractions: Any, squared_noise: Any
) -> dict[str, Any]:
    """The terms that depend on the plan, in units of L d C^2 (Appendix F).

    The local variance is at its bound C^2.

    Args:
        constants: those of local training.
        weights: w_m, shape (groups,).
        kept_fractions: k_m / d, shape (groups,).
        squared_noise: of the sparse weighted mean, as a squared noise multiplier:
            sum of k_m w_m^2 sigma_m^2 / r_m^2 as in the proof, where the statement
            prints r_m q_m; its maximum for one release of all groups.
    """
    lost = lost_coordinates(weights, kept_fractions)
    return {
        "local_variance": constants.mu4 * weights.sum(),
        "sparsification": constants.mu4 * lost,
        "privacy_noise": constants.mu5 * squared_noise,
    }


@dataclass(frozen=True)
class Training:
    """What Theorem 3 asks of a training.

    Attributes:
        learning_rate: eta.
        steps: tau, of a client in a round.
        rounds: T.
        dimension: d, parameters of the model.
        clipping_norm: C.
        smoothness: L.
        initial_gap: Delta, from the first loss to the least.
        squared_dissimilarity: kappa^2.
    """

    learning_rate: Any
    steps: Any
    rounds: Any
    dimension: Any
    clipping_norm: Any
    smoothness: Any
    initial_gap: Any
    squared_dissimilarity: Any


def theorem_3_terms(
    training: Training,
    weights: Any,
    kept_fractions: Any,
    local_variance: Any,
    squared_noise: Any,
) -> dict[str, Any]:
    """The right-hand side of Theorem 3, term by term, in squared norm of a gradient.

    Args:
        training: the quantities that groups share.
        weights: w_m, shape (groups,).
        kept_fractions: k_m / d, shape (groups,).
        local_variance: zeta_m^2 of a coordinate, shape (groups,) or one of all.
        squared_noise: as of ``problem_1_terms``.
    """
    rate = training.learning_rate
    steps = training.steps
    smooth = training.smoothness
    dimension = training.dimension
    constants = step_constants(rate, steps)
    variances = weights * local_variance
    lost = lost_coordinates(variances, kept_fractions)
    noise = dimension * training.clipping_norm**2 * squared_noise
    mu1 = dissimilarity_factor(rate, steps, smooth)
    return {
        "progress": 8 * training.initial_gap / (constants.progress * training.rounds),
        "dissimilarity": mu1 * training.squared_dissimilarity,
        "local_variance": smooth * constants.mu4 * dimension * (variances.sum() + lost),
        "privacy_noise": smooth * constants.mu5 * noise,
    }
