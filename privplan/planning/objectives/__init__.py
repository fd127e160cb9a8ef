"""Objectives: what the planner minimises over cohorts, noise multipliers and weights.

Each objective registers an instance of ``Objective`` under the name that
``planning.ratios`` takes. Objectives import the values of planning (problem, error
terms, published formulas) and the convergence bounds, never a search or a planner.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import MappingProxyType

import numpy as np

from privplan.errors import InputError
from privplan.planning.bounds import Bound, arrays, squared_noise, symbols
from privplan.planning.error import (
    Allocation,
    Coefficients,
    error_coefficients,
    error_terms,
    squared_noise_multiplier,
    terms,
)
from privplan.planning.problem import (
    Problem,
    noise_provision,
    provisioned_noise_multiplier,
)
from privplan.planning.published import kept_fractions
from privplan.planning.theorem_3 import Training, theorem_3_terms
from privplan.spec.planning import OBJECTIVES, ObjectiveRequirements
from privplan.spec.spec import Spec


class Objective(ObjectiveRequirements, ABC):
    """An objective.

    The planner searches the cohorts, noise multipliers and weights of least weighted
    error (``privplan.planning.error``); an objective gives the coefficients of that
    error, and the terms that the plan reports as its value.

    Attributes:
        unit: quantity and unit of the value, for tables.
    """

    unit: str

    @abstractmethod
    def coefficients(self, spec: Spec, problem: Problem) -> Coefficients:
        """The coefficients of the error that cohorts, noise and weights minimise."""

    @abstractmethod
    def terms(
        self, spec: Spec, problem: Problem, allocation: Allocation
    ) -> dict[str, float]:
        """The terms of the objective's value by name; the value is their sum."""

    def run_error(self, spec: Spec, problem: Problem, allocation: Allocation) -> float:
        """Error, remaining gap and squared clipping bias of a run, in squared norm."""
        error = terms(
            allocation.weights,
            allocation.cohorts,
            allocation.noise,
            self.coefficients(spec, problem),
            allocation.release,
        )
        return error.total + remaining_gap(spec) + clip_bias(spec) ** 2

    def bound(self, groups: int, joint: bool) -> Bound | None:
        """The objective as terms for ``privplan explain``, if it has any."""
        return None

    def symbols(self, spec: Spec) -> dict[str, float]:
        """Values of the symbols of ``bound`` that only this objective uses."""
        return {}


def objective_of(spec: Spec) -> Objective:
    """The objective that a spec minimises.

    Raises:
        InputError: for a name that no objective is registered under.
    """
    objective = OBJECTIVES.get(spec.planning.ratios)
    if not isinstance(objective, Objective):
        rule = "must name a privplan.planning.objectives.Objective"
        raise InputError.one("planning.ratios", rule, spec.planning.ratios)
    return objective


def all_objectives() -> dict[str, Objective]:
    """All registered objectives by name, sorted."""
    objectives: dict[str, Objective] = {}
    for name, objective in sorted(OBJECTIVES.items()):
        if isinstance(objective, Objective):
            objectives[name] = objective
    return objectives


def variance_coefficients(spec: Spec) -> tuple[float, float]:
    """Coefficients of the per-round variance by noise and by sampling.

    1/T without constants: over T rounds variance averages out; that of noise which is
    correlated over rounds, as far as the last model holds it. With constants eta tau
    times the curvature that the variance meets, as the descent lemma has it: the mean
    curvature for noise, which is isotropic, the one along differences of updates for
    sampling, and the smoothness where they are not known. Both multiply a squared norm
    of an update.
    """
    constants = spec.planning.constants
    if constants is None:
        return spec.noise_left**2 / spec.rounds, 1 / spec.rounds
    length = spec.local.learning_rate * spec.local.steps
    noise = constants.noise_curvature or constants.smoothness
    sampling = constants.sampling_curvature or constants.smoothness
    return length * noise, length * sampling


def remaining_gap(spec: Spec) -> float:
    """The gap's term, 2 (f(theta^0) - f*) eta tau / T; 0 if it is not known."""
    constants = spec.planning.constants
    if constants is None:
        return 0.0
    step = spec.local.learning_rate * spec.local.steps
    return 2 * constants.initial_gap * step / spec.rounds


def clip_bias(spec: Spec) -> float:
    """Bound on how far clipping moves the mean update: a pilot's mean excess."""
    norms = np.asarray(spec.planning.update_norms, dtype=float)
    if not norms.size:
        return 0.0
    return float(np.mean(np.maximum(norms - spec.clipping_norm, 0.0)))


# --- ``planning.ratios: noise``: the noise of the weighted mean update only. ----------


class Noise(Objective):
    """Standard deviation of the noise of the weighted mean update, per coordinate."""

    unit = "noise of the mean update, a coordinate"

    def coefficients(self, spec: Spec, problem: Problem) -> Coefficients:
        """A = price d C^2 times the provisions; sampling and bias cost nothing."""
        price, _ = variance_coefficients(spec)
        return error_coefficients(
            price * noise_provision(spec),
            problem.dimension,
            problem.clipping_norm,
            problem.shares,
        )

    def terms(
        self, spec: Spec, problem: Problem, allocation: Allocation
    ) -> dict[str, float]:
        """The standard deviation in units of the update."""
        noise_multiplier = provisioned_noise_multiplier(spec, allocation)
        return {"mean_noise_std": problem.clipping_norm * noise_multiplier}


OBJECTIVES.register("noise", Noise())


# --- ``planning.ratios: balanced``: noise, sampling, and bias of weights. -------------
# docs/planning.md derives the error from one descent lemma whose target is fixed at the
# mean over all clients, so that no choice of weights changes what is minimised.

DEFAULT_HETEROGENEITY = MappingProxyType({"joint": 1 / 6, "per_group": 1 / 3})
"""Default heterogeneity h, in clipping norms, by kind of release; see docs/planning.md."""


class Balanced(Noise):
    """Squared error of the mean update: noise, sampling, bias by other weights."""

    unit = "error of the mean update (squared norm of an update)"

    def coefficients(self, spec: Spec, problem: Problem) -> Coefficients:
        """A as for ``noise``, price s^2 for sampling, h^2 for bias."""
        noise, sampling = variance_coefficients(spec)
        return error_coefficients(
            noise * noise_provision(spec),
            problem.dimension,
            problem.clipping_norm,
            problem.shares,
            sampling_price=sampling,
            update_norm=update_norm_of(spec),
            heterogeneity=heterogeneity_of(spec),
        )

    def terms(
        self, spec: Spec, problem: Problem, allocation: Allocation
    ) -> dict[str, float]:
        """The three terms of the error, in squared norm of an update."""
        coefficients = self.coefficients(spec, problem)
        error = terms(
            allocation.weights,
            allocation.cohorts,
            allocation.noise,
            coefficients,
            allocation.release,
        )
        return {"noise": error.noise, "sampling": error.sampling, "bias": error.bias}

    def bound(self, groups: int, joint: bool) -> Bound:
        """The three terms as expressions."""
        dim, clip, price, scatter, update, heterogeneity = symbols("d C rho rho_s s h")
        weights, cohorts, shares = arrays(groups, "w r p")
        coefficients = error_coefficients(
            price, dim, clip, shares, scatter, update, heterogeneity
        )
        error = error_terms(
            weights, cohorts, squared_noise(groups, joint), coefficients
        )
        return Bound(
            "balanced",
            "privplan, docs/planning.md",
            "squared norm of an update",
            {"noise": error.noise, "sampling": error.sampling, "bias": error.bias},
        )

    def symbols(self, spec: Spec) -> dict[str, float]:
        """s, h, the provision v, and the prices rho of noise and rho_s of sampling."""
        noise, sampling = variance_coefficients(spec)
        return {
            "s": update_norm_of(spec),
            "h": heterogeneity_of(spec),
            "v": noise_provision(spec),
            "rho": noise,
            "rho_s": sampling,
        }


def update_norm_of(spec: Spec) -> float:
    """s: root mean square of a clipped update's norm, at most the clipping norm."""
    if spec.planning.update_norms:
        norms = np.minimum(np.asarray(spec.planning.update_norms), spec.clipping_norm)
        return float(np.sqrt(np.mean(norms**2)))
    return min(spec.planning.update_norm or spec.clipping_norm, spec.clipping_norm)


def heterogeneity_of(spec: Spec) -> float:
    """h: how much the mean updates of groups may differ, in norm, after clipping."""
    heterogeneity = spec.planning.heterogeneity
    if heterogeneity is None:
        return DEFAULT_HETEROGENEITY[spec.release] * spec.clipping_norm
    if spec.recipe is None or "clipping_norm" not in spec.recipe.decides:
        return heterogeneity

    # A spec states h of whole updates, before a recipe chooses where they are clipped.
    norm = spec.planning.update_norm
    norms = np.asarray(spec.planning.update_norms)
    if norms.size:
        norm = float(np.sqrt(np.mean(norms**2)))
    if norm is None:
        return heterogeneity
    return heterogeneity * update_norm_of(spec) / norm


OBJECTIVES.register("balanced", Balanced())


# --- ``planning.ratios: bound``: the right-hand side of GDPFed+'s Theorem 3. ----------


class TheoremBound(Noise):
    """Theorem 3; of its terms the search moves the noise."""

    unit = "bound (Theorem 3, squared norm of a gradient)"
    default_release = "per_group"
    required = ("constants",)

    def terms(
        self, spec: Spec, problem: Problem, allocation: Allocation
    ) -> dict[str, float]:
        """Theorem 3's right-hand side, term by term."""
        constants = spec.planning.constants
        if constants is None:
            rule = "is required for Theorem 3"
            raise InputError.one("planning.constants", rule, "nothing")
        weights = allocation.weights
        fractions = kept_fractions(
            spec, problem, allocation.cohorts, allocation.noise, weights
        )
        squared_noise_of_mean = noise_provision(spec) * squared_noise_multiplier(
            weights, allocation.cohorts, allocation.noise, allocation.release, fractions
        )
        training = Training(
            learning_rate=spec.local.learning_rate,
            steps=spec.local.steps,
            rounds=spec.rounds,
            dimension=problem.dimension,
            clipping_norm=problem.clipping_norm,
            smoothness=constants.smoothness,
            initial_gap=constants.initial_gap,
            squared_dissimilarity=constants.dissimilarity,
        )
        right_side = theorem_3_terms(
            training,
            weights,
            fractions,
            constants.local_variance,
            squared_noise_of_mean,
        )
        return {name: float(value) for name, value in right_side.items()}

    def run_error(self, spec: Spec, problem: Problem, allocation: Allocation) -> float:
        """The value itself: Theorem 3 has a term for the progress over the rounds."""
        return sum(self.terms(spec, problem, allocation).values())


OBJECTIVES.register("bound", TheoremBound())
