"""The cohorts that spend least among those nearly as good as the best ones.

The weights stay those of the best plan, since they are what the groups were promised.
With them fixed, the noise of the mean may be as large as the slack of the objective
allows:

    A nu^2 + s^2 sum_m w_m^2 / r_m + h^2 sum_m (w_m - p_m)^2 / p_m = (1 + slack) E,

where E is the least error. A group with cohort r has the noise multiplier nu r / w then
and spends some epsilon of its budget: the less, the larger its cohort, since noise
multiplier and ratio grow alike. What is made small is the sum of the groups' epsilons,
each the logarithm of a factor on an attacker's odds: each client more goes to the group
that it saves most.

What a group spends is estimated by its accountant at few cohorts and interpolated, once
for all passes, since these change the noise of the mean by a thousandth at most. An
error of that moves savings between groups, and never a guarantee: the certificate is of
the noise that is planned in the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privplan.planning.error import Allocation, error_terms, terms
from privplan.planning.noise import log_excess
from privplan.planning.task import ErrorModel

Floats = NDArray[np.float64]

# Cohorts of a group between its least and its largest one at which spending is known.
_STEPS = 400
# The sampling term of the error follows the cohorts, and they the noise it leaves: it
# is a hundredth of the error, so that each pass leaves a hundredth of the last change.
_PASSES = 2
# Part of the slack that is left to the error of the noise curves, some 1e-5 of noise.
_MARGIN = 0.01
# Cohorts at which an accountant says what a group spends: its logarithm is nearly a
# parabola in that of the cohort.
_NODES = 4
_LEAST_LOG_SPENT = math.log(1e-3)  # spending less of a budget is as good as nothing
# With more groups their cohorts stay, since an accountant would be asked too often.
_MOST_GROUPS = 50


def allowed_noise(model: ErrorModel, best: Allocation, cohorts: Floats) -> float:
    """The nu at which the error of other cohorts uses up the slack; 0 if none does.

    Args:
        model: the task with its slack.
        best: the allocation of least error, whose weights stay.
        cohorts: r_m, shape (groups,).
    """
    coefficients = model.task.coefficients
    error = terms(best.weights, best.cohorts, best.noise, coefficients, "joint")
    without_noise = error_terms(best.weights, cohorts, 0.0, coefficients).total
    allowed_error = (1 + model.task.slack * (1 - _MARGIN)) * error.total
    squared_nu = (allowed_error - without_noise) / coefficients.noise
    return math.sqrt(max(squared_nu, 0.0))


class CheaperCohorts:
    """The search for cohorts that spend least within the slack, at the best weights."""

    def __init__(self, best: Allocation) -> None:
        """Start from the allocation of least error."""
        self._best = best
        self._spent_by_group: dict[int, _SpentCurve] = {}

    def search(self, model: ErrorModel) -> Floats:
        """The cohorts by the noise curves of a model, shape (groups,).

        Args:
            model: the task with its slack, and noise curves.
        """
        cohorts = self._best.cohorts
        if len(cohorts) > _MOST_GROUPS:
            return cohorts
        for _ in range(_PASSES):
            nu = allowed_noise(model, self._best, cohorts)
            following = self._filled(model, nu)
            if following is None:
                break
            cohorts = following
        return cohorts

    def _filled(self, model: ErrorModel, nu: float) -> Floats | None:
        """The cohorts of least spending at a noise of the mean, if any keep it."""
        noise_per_client = nu / self._best.weights
        cohorts = _least_cohorts(model, noise_per_client)
        unfilled = model.task.problem.cohort - float(cohorts.sum())
        if not unfilled >= 0:
            return None

        # The clients that are left take the steps that save most.
        largest = np.minimum(model.task.limits.max_cohorts, cohorts + unfilled)
        steps = np.geomspace(cohorts, largest, _STEPS + 1, axis=1)
        widths = np.zeros((len(cohorts), _STEPS))
        savings = np.zeros_like(widths)
        for group in np.flatnonzero(largest > cohorts).tolist():
            noise = noise_per_client[group] * steps[group]
            spent = self._spent_epsilons(model, group, steps[group], noise)
            widths[group] = np.diff(steps[group])
            # They fall with the cohort, but for the error of the interpolation.
            savings[group] = np.minimum.accumulate(-np.diff(spent) / widths[group])
        order = np.argsort(-savings.ravel(), kind="stable")
        widths = widths.ravel()[order]
        earlier = np.cumsum(widths) - widths
        np.add.at(cohorts, order // _STEPS, np.clip(unfilled - earlier, 0.0, widths))
        return np.minimum(cohorts, largest)

    def _spent_epsilons(
        self, model: ErrorModel, group: int, cohorts: Floats, noise: Floats
    ) -> Floats:
        """Estimated epsilon of a group, of the shape of ``cohorts``."""
        log_ratios = np.log(cohorts / model.task.clients[group])
        if group not in self._spent_by_group:
            curve = _spent_curve(model, group, log_ratios, np.log(noise))
            self._spent_by_group[group] = curve
        return self._spent_by_group[group].evaluate(log_ratios)


def _least_cohorts(model: ErrorModel, noise_per_client: Floats) -> Floats:
    """The least cohorts that keep the budgets; NaN of a group in which none does.

    Args:
        model: the task with its noise curves.
        noise_per_client: noise multipliers over cohorts, shape (groups,).
    """
    task = model.task
    limits = task.limits
    cohorts = np.geomspace(limits.min_cohorts, limits.max_cohorts, _STEPS + 1, axis=1)
    calibrated = model.curves.evaluate(cohorts / task.clients[:, None]).noise
    log_surplus = np.log(noise_per_client[:, None] * cohorts / calibrated)

    smallest = np.full(len(cohorts), np.nan)
    for group, surplus in enumerate(log_surplus):
        if surplus[-1] < 0:
            continue
        # From the first cohort that keeps the budget, all do. It lies between two.
        first_kept = int(np.argmax(surplus >= 0))
        smallest[group] = cohorts[group, first_kept]
        if first_kept > 0:
            before = cohorts[group, first_kept - 1]
            share = surplus[first_kept] / (
                surplus[first_kept] - surplus[first_kept - 1]
            )
            smallest[group] *= (before / smallest[group]) ** share
    return smallest


@dataclass(frozen=True)
class _SpentCurve:
    """Estimated epsilon of a group as its cohort and its noise grow alike.

    Attributes:
        epsilon: the budget.
        middle: log q in the middle of the interpolated range.
        half: half of its width in log q.
        coefficients: of Chebyshev's polynomials on the range as [-1, 1]; their sum is
            the logarithm of what is spent over the budget.
    """

    epsilon: float
    middle: float
    half: float
    coefficients: Floats

    def evaluate(self, log_ratios: Floats) -> Floats:
        """Epsilon at logarithms of sampling ratios, of the same shape."""
        x = (log_ratios - self.middle) / self.half
        log_spent = np.polynomial.chebyshev.chebval(x, self.coefficients)
        return np.asarray(self.epsilon * np.exp(log_spent))


def _spent_curve(
    model: ErrorModel, group: int, log_ratios: Floats, log_noise: Floats
) -> _SpentCurve:
    """Spending interpolated through the estimates at Chebyshev's nodes.

    Args:
        model: the task with its noise curves.
        group: index of the group.
        log_ratios: log q, ascending, shape (ratios,).
        log_noise: log sigma at each of them, shape (ratios,).
    """
    budget = model.curves.curves[group].budget
    middle = (log_ratios[0] + log_ratios[-1]) / 2
    half = (log_ratios[-1] - log_ratios[0]) / 2
    nodes = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
    log_spent: list[float] = []
    for log_ratio in middle + half * nodes:
        node_noise = float(np.interp(log_ratio, log_ratios, log_noise))
        ratio = math.exp(log_ratio)
        excess, _ = log_excess(budget, ratio, node_noise, model.task.accountant, None)
        log_spent.append(min(max(excess, _LEAST_LOG_SPENT), 0.0))
    fitted = np.polynomial.chebyshev.chebfit(nodes, log_spent, _NODES - 1)
    coefficients = np.asarray(fitted, dtype=float)
    return _SpentCurve(budget.epsilon, float(middle), float(half), coefficients)
