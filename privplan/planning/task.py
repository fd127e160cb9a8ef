"""The search task, and the error of a choice of cohorts.

A ``Task`` is what a spec asks for, and ``ErrorModel`` is a task with its noise curves:
the error as a function of the cohorts alone, since noise and best weights follow from
them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privplan.planning.error import (
    Allocation,
    Coefficients,
    ReleaseKind,
    best,
    fill,
    terms,
)
from privplan.planning.noise_curves import NoiseCurves
from privplan.planning.problem import Limits, Problem

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """Everything that the error of a choice of cohorts depends on.

    Attributes:
        problem: the planning problem.
        limits: bounds on the decisions.
        coefficients: coefficients of the error terms.
        release: one noisy sum of all groups, or one per group.
        accountant: name of the accountant that calibrates.
        slack: by how much the error may exceed the least one, relatively.
    """

    problem: Problem
    limits: Limits
    coefficients: Coefficients
    release: ReleaseKind
    accountant: str
    slack: float = 0.0

    @property
    def clients(self) -> Floats:
        """N_m, shape (groups,)."""
        return np.asarray(self.problem.clients, dtype=float)

    def nearest(self, cohorts: Floats) -> Floats:
        """The nearest cohorts within the limits that sum to the cohort."""
        limits = self.limits
        total = self.problem.cohort
        return project(cohorts, limits.min_cohorts, limits.max_cohorts, total)


def project(values: Floats, lower: Floats, upper: Floats, total: float) -> Floats:
    """Projects values onto [lower, upper] and the sum ``total``, in Euclidean norm."""
    projected, _ = fill(values, np.ones_like(values), lower, upper, total)
    return projected


def weights_of(task: Task, cohorts: Floats, noise: Floats) -> Floats:
    """The best weights for given cohorts and noise, shape (groups,)."""
    floors = task.limits.min_weights
    return best(cohorts, noise, task.coefficients, task.release, floors)


def error_of(task: Task, cohorts: Floats, noise: Floats) -> float:
    """The error of cohorts and noise with the best weights, in squared update norm."""
    weights = weights_of(task, cohorts, noise)
    return terms(weights, cohorts, noise, task.coefficients, task.release).total


@dataclass(frozen=True)
class ErrorModel:
    """A task with the noise curves of its groups."""

    task: Task
    curves: NoiseCurves

    def noise(self, cohorts: Floats) -> Floats:
        """Noise multipliers by the curves, shape (groups,)."""
        return self.curves.evaluate(cohorts / self.task.clients).noise

    def weights(self, cohorts: Floats) -> Floats:
        """The best weights for cohorts, shape (groups,)."""
        return weights_of(self.task, cohorts, self.noise(cohorts))

    def error(self, cohorts: Floats) -> float:
        """The error of cohorts with their noise and best weights."""
        return error_of(self.task, cohorts, self.noise(cohorts))

    def with_bias(self, bias: float) -> ErrorModel:
        """The model for another coefficient of the bias (h^2)."""
        coefficients = replace(self.task.coefficients, bias=bias)
        return ErrorModel(replace(self.task, coefficients=coefficients), self.curves)

    def allocation(self, cohorts: Floats, noise: Floats, status: str) -> Allocation:
        """Cohorts and noise with their best weights."""
        weights = weights_of(self.task, cohorts, noise)
        return Allocation(cohorts, noise, weights, self.task.release, status)
