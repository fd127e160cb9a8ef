"""Objectives: what the planner minimises over cohorts, noise multipliers and weights.

One module per objective; each registers an instance of ``Objective`` under the name that
``planning.ratios`` takes. They import the values of planning (problem, error terms, published
formulas) and the convergence bounds, never a search or a planner.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from privplan.errors import InputError
from privplan.planning.bounds import (
    Bound,
    per_group,
    squared_noise_multiplier,
    step_constants,
    symbols,
)
from privplan.planning.error import Allocation, Coefficients, terms
from privplan.planning.problem import (
    Floats,
    Problem,
    noise_provision,
    provisioned_noise_multiplier,
)
from privplan.planning.published import kept_fractions
from privplan.spec.planning import OBJECTIVES, ObjectiveRequirements
from privplan.spec.spec import Spec


class Objective(ObjectiveRequirements, ABC):
    """An objective.

    The planner searches the cohorts, noise multipliers and weights of least weighted error
    (``privplan.planning.error``); an objective gives the coefficients of that error, and
    the terms that the plan reports as its value.
    """

    unit: str  # quantity and unit of the value, for tables

    @abstractmethod
    def coefficients(self, spec: Spec, problem: Problem) -> Coefficients:
        """The coefficients of the error that cohorts, noise and weights minimise."""

    @abstractmethod
    def terms(
        self, spec: Spec, problem: Problem, found: Allocation
    ) -> dict[str, float]:
        """The terms of the objective's value by name; the value is their sum."""

    def run_error(self, spec: Spec, problem: Problem, found: Allocation) -> float:
        """Weighted error, remaining gap and squared clipping bias of a run, in squared norm."""
        error = terms(
            found.weights,
            found.cohorts,
            found.noise,
            self.coefficients(spec, problem),
            found.release,
        )
        return error.total + remaining_gap(spec) + clip_bias(spec) ** 2

    def bound(self, groups: int, joint: bool) -> Bound | None:
        """The objective over so many groups as terms for ``privplan explain``; None without any."""
        return None

    def symbols(self, spec: Spec) -> dict[str, float]:
        """Values of the symbols of ``bound`` that only this objective uses."""
        return {}


def objective_of(spec: Spec) -> Objective:
    """The objective that a spec minimises."""
    found = OBJECTIVES.get(spec.planning.ratios)
    if not isinstance(found, Objective):
        rule = "must name a privplan.planning.objectives.Objective"
        raise InputError.one("planning.ratios", rule, spec.planning.ratios)
    return found


def all_objectives() -> dict[str, Objective]:
    """All registered objectives by name, sorted."""
    found = sorted(OBJECTIVES.items())
    return {name: one for name, one in found if isinstance(one, Objective)}


def variance_coefficients(spec: Spec) -> tuple[float, float]:
    """Coefficients of the per-round variance by noise and by sampling.

    1/T without constants: over T rounds variance averages out; that of noise which is correlated
    over rounds, as far as the last model holds it. With constants eta tau times
    the curvature that the variance meets, as the descent lemma has it: the mean curvature for
    noise, which is isotropic, the one along differences of updates for sampling, and the
    smoothness where they are not known. Both multiply a squared norm of an update.
    """
    constants = spec.planning.constants
    if constants is None:
        return spec.noise_left**2 / spec.rounds, 1 / spec.rounds
    length = spec.local.learning_rate * spec.local.steps
    noise = constants.noise_curvature or constants.smoothness
    sampling = constants.sampling_curvature or constants.smoothness
    return length * noise, length * sampling


def remaining_gap(spec: Spec) -> float:
    """The optimality gap term 2 (f(theta^0) - f*) eta tau / T; 0 if the gap is not known."""
    constants = spec.planning.constants
    if constants is None:
        return 0.0
    step = spec.local.learning_rate * spec.local.steps
    return 2 * constants.initial_gap * step / spec.rounds


def clip_bias(spec: Spec) -> float:
    """Bound on how far clipping moves the mean update: mean excess of a pilot's norms."""
    norms = np.asarray(spec.planning.update_norms, dtype=float)
    if not norms.size:
        return 0.0
    return float(np.mean(np.maximum(norms - spec.clipping_norm, 0.0)))


# --- ``planning.ratios: noise``: the noise of the weighted mean update and nothing else. ---------


class Noise(Objective):
    """Standard deviation of the noise of the weighted mean update, per coordinate."""

    unit = "noise of the mean update, a coordinate"

    def coefficients(self, spec: Spec, problem: Problem) -> Coefficients:
        """A = price d C^2 times the provisions; sampling and bias cost nothing."""
        price, _ = variance_coefficients(spec)
        noise = (
            price * problem.dimension * problem.clipping_norm**2 * noise_provision(spec)
        )
        return Coefficients(noise, 0.0, 0.0, problem.shares)

    def terms(
        self, spec: Spec, problem: Problem, found: Allocation
    ) -> dict[str, float]:
        """The standard deviation in units of the update."""
        return {
            "mean_noise_std": problem.clipping_norm
            * provisioned_noise_multiplier(spec, found)
        }


OBJECTIVES.register("noise", Noise())


# --- ``planning.ratios: balanced``: noise, sampling, and bias from non-population weights. -------
# docs/planning.md derives the error from one descent lemma whose target is fixed at the mean over
# all clients, so that no choice of weights changes what is minimised.

DEFAULT_HETEROGENEITY = MappingProxyType({"joint": 1 / 6, "per_group": 1 / 3})
"""Default heterogeneity h, in clipping norms, by kind of release; see docs/planning.md."""


class Balanced(Noise):
    """Squared error of the mean update: noise, sampling, bias from non-population weights."""

    unit = "error of the mean update (squared norm of an update)"

    def coefficients(self, spec: Spec, problem: Problem) -> Coefficients:
        """A as for ``noise``, price s^2 for sampling, h^2 for bias."""
        _, sampling = variance_coefficients(spec)
        return replace(
            super().coefficients(spec, problem),
            sampling=sampling * update_norm_of(spec) ** 2,
            bias=heterogeneity_of(spec) ** 2,
        )

    def terms(
        self, spec: Spec, problem: Problem, found: Allocation
    ) -> dict[str, float]:
        """The three terms of the error, in squared norm of an update."""
        coefficients = self.coefficients(spec, problem)
        error = terms(
            found.weights, found.cohorts, found.noise, coefficients, found.release
        )
        return {"noise": error.noise, "sampling": error.sampling, "bias": error.bias}

    def bound(self, groups: int, joint: bool) -> Bound:
        """The three terms as expressions."""
        dim, clip, price, scatter, update, heterogeneity = symbols("d C rho rho_s s h")
        weights, cohorts, shares = per_group(groups, "w r p")
        rows = list(zip(weights, cohorts, shares, strict=True))
        return Bound(
            "balanced",
            "privplan, docs/planning.md",
            "squared norm of an update",
            {
                "noise": price
                * dim
                * clip**2
                * squared_noise_multiplier(groups, joint),
                "sampling": scatter * update**2 * sum(w**2 / r for w, r, _ in rows),
                "bias": heterogeneity**2 * sum((w - p) ** 2 / p for w, _, p in rows),
            },
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
    given, norms = spec.planning.heterogeneity, np.asarray(spec.planning.update_norms)
    if given is None:
        return DEFAULT_HETEROGENEITY[spec.release] * spec.clipping_norm
    norm = (
        float(np.sqrt(np.mean(norms**2))) if norms.size else spec.planning.update_norm
    )
    clipped = spec.recipe is not None and "clipping_norm" in spec.recipe.decides
    return (
        given * update_norm_of(spec) / norm if clipped and norm is not None else given
    )


OBJECTIVES.register("balanced", Balanced())


# ``planning.ratios: bound``: the right-hand side of GDPFed+'s Theorem 3 for given constants.


class TheoremBound(Noise):
    """Theorem 3, in squared norm of a gradient; of its terms the search moves the noise."""

    unit = "bound (Theorem 3, squared norm of a gradient)"
    default_release = "per_group"
    required = ("constants",)

    def terms(
        self, spec: Spec, problem: Problem, found: Allocation
    ) -> dict[str, float]:
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
    fractions k_m / d that differ the largest is taken, which keeps it a bound.
    """
    constants = spec.planning.constants
    if constants is None:
        raise InputError.one(
            "planning.constants", "is required for Theorem 3", "nothing"
        )
    rate, steps = spec.local.learning_rate, spec.local.steps
    step = step_constants(rate, steps)
    smooth, dimension = constants.smoothness, spec.model.parameters
    mu1 = 4 * smooth * step.progress + 4 * smooth * rate + 64 * smooth
    lost = float(np.sum(weights * (1 + (1 - kept) ** 2)))
    noise = float(kept.max()) * dimension * (spec.clipping_norm * noise_multiplier) ** 2
    return {
        "progress": 8 * constants.initial_gap / (step.progress * spec.rounds),
        "dissimilarity": mu1 * constants.dissimilarity,
        "local_variance": smooth
        * step.mu4
        * lost
        * dimension
        * constants.local_variance,
        "privacy_noise": smooth * step.mu5 * noise,
    }


OBJECTIVES.register("bound", TheoremBound())
