"""Objectives: what the planner minimises over cohorts, noise multipliers and weights.

One module per objective; each registers an instance of ``Objective`` under the name that
``planning.ratios`` takes. They import the values of planning (problem, error terms, published
formulas) and the convergence bounds, never a search or a planner.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from privplan.accounting.release import Relation
from privplan.convergence.bounds import Bound
from privplan.errors import InfeasibleError, InputError
from privplan.planning.error_terms import Allocation, Coefficients, terms
from privplan.planning.problem import Problem, problem_of
from privplan.spec.grouping_costs import Costs
from privplan.spec.objectives import OBJECTIVES, ObjectiveRequirements
from privplan.spec.spec import Spec
from privplan.spec.turns import noise_left


class Objective(ObjectiveRequirements, ABC):
    """An objective.

    The planner searches the cohorts, noise multipliers and weights of least weighted error
    (``privplan.planning.error_terms``); an objective gives the coefficients of that error, and
    the terms that the plan reports as its value.

    Attributes:
        unit: quantity and unit of the value, for tables.
        assumed: coefficients that rest on assumed constants: attribute of ``Coefficients``
            to symbol of the constant, whose square the coefficient is proportional to.
    """

    unit: str
    assumed: Mapping[str, str] = MappingProxyType({})

    @abstractmethod
    def coefficients(self, spec: Spec, problem: Problem) -> Coefficients:
        """The coefficients of the error that cohorts, noise and weights minimise."""

    @abstractmethod
    def terms(self, spec: Spec, problem: Problem, found: Allocation) -> dict[str, float]:
        """The terms of the objective's value by name; the value is their sum."""

    def run_error(self, spec: Spec, problem: Problem, found: Allocation) -> float:
        """The error of a whole run, which free rounds and a free clipping norm minimise.

        The weighted error, the gap that remains after the rounds, and the squared bias of
        clipping, in squared norm of an update.
        """
        error = terms(
            found.weights,
            found.cohorts,
            found.noise,
            self.coefficients(spec, problem),
            found.release,
        )
        return error.total + remaining_gap(spec) + clip_bias(spec) ** 2

    def grouping_costs(self, spec: Spec) -> Costs | None:
        """Costs of noise, and of sampling and bias per client, at equal sampling ratios."""
        if spec.release != "joint":
            return None
        costs = self.coefficients(spec, problem_of(spec))
        return Costs(
            noise=costs.noise,
            sampling=costs.sampling * spec.population / spec.expected_cohort,
            bias=costs.bias,
            cohort=spec.expected_cohort,
            rounds=spec.rounds,
            everyone=spec.expected_cohort >= spec.population,
            sensitivity=float(spec.sampling.law.sensitivity(Relation(spec.relation))),
        )

    def grouping_error(self, spec: Spec) -> float | None:
        """Estimated error under weights by a rule or with a release per group, otherwise None."""
        from privplan.planning.allocate import error_of, estimated
        from privplan.planning.optimised import task_of

        if spec.release == "joint" and spec.weighting == "optimal":
            return None
        try:
            task = task_of(spec, problem_of(spec))
            found = estimated(task)
        except InfeasibleError:
            return math.inf
        return error_of(task, found.cohorts, found.noise)

    def bound(self, groups: int, joint: bool) -> Bound | None:
        """The objective as symbolic terms for ``privplan explain``; None when it has none.

        Args:
            groups: how many groups its sums run over.
            joint: whether all groups share one noisy sum.
        """
        return None

    def symbols(self, spec: Spec) -> dict[str, float]:
        """Values of the symbols of ``bound`` that only this objective uses."""
        return {}


def objective_of(spec: Spec) -> Objective:
    """The objective that a spec minimises.

    Raises:
        InputError: when ``planning.ratios`` is a fixed rule, or no ``Objective``.
    """
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
        return noise_left(spec) ** 2 / spec.rounds, 1 / spec.rounds
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
    """A bound on how far clipping moves the mean update, in norm; 0 without a pilot.

    The mean excess of the pilot's update norms over the clipping norm: clipping shortens the
    update of client i by the excess of its norm, in the direction of the update. Multiplied by
    the coherence of the updates where a pilot measured it.
    """
    norms = np.asarray(spec.planning.update_norms, dtype=float)
    if not norms.size:
        return 0.0
    coherence = spec.planning.update_coherence or 1.0
    return coherence * float(np.mean(np.maximum(norms - spec.clipping_norm, 0.0)))
