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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privplan.planning.error import Allocation, error_terms, terms
from privplan.planning.noise import log_excess
from privplan.planning.noise_curves import NoiseCurves
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
_NODES = 5
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
        self._spent_by_group: dict[int, _SpentEpsilon] = {}

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
        groups: list[_Steps] = []
        for group in range(len(self._best.weights)):
            steps = self._steps(model, group, nu)
            if steps is None:
                return None
            groups.append(steps)
        cohorts = np.array([steps.cohorts[0] for steps in groups])
        unfilled = model.task.problem.cohort - float(cohorts.sum())
        if unfilled < 0:
            return None

        # The clients that are left take the steps that save most.
        owners = np.repeat(np.arange(len(groups)), [len(g.savings) for g in groups])
        order = np.argsort(-np.concatenate([g.savings for g in groups]), kind="stable")
        widths = np.concatenate([np.diff(g.cohorts) for g in groups])[order]
        earlier = np.cumsum(widths) - widths
        clients = np.clip(unfilled - earlier, 0.0, widths)
        np.add.at(cohorts, owners[order], clients)
        return cohorts

    def _steps(self, model: ErrorModel, group: int, nu: float) -> _Steps | None:
        """A group's cohorts at a noise of the mean; None if none keeps the budget.

        Args:
            model: the task with its noise curves.
            group: index of the group.
            nu: noise multiplier of the mean.
        """
        noise_per_client = nu / float(self._best.weights[group])
        cohorts = _kept_cohorts(model, group, noise_per_client)
        if cohorts is None:
            return None
        if len(cohorts) == 1 or cohorts[0] == cohorts[-1]:
            return _Steps(cohorts[:1], np.zeros(0))

        log_ratios = np.log(cohorts / model.task.clients[group])
        if group not in self._spent_by_group:
            noise = noise_per_client * cohorts
            spent_epsilon = _spent_epsilon(model, group, log_ratios, noise)
            self._spent_by_group[group] = spent_epsilon
        spent = self._spent_by_group[group].evaluate(log_ratios)
        savings = -np.diff(spent) / np.diff(cohorts)
        # They fall with the cohort, but for the error of the interpolation.
        return _Steps(cohorts, np.minimum.accumulate(savings))


def _kept_cohorts(
    model: ErrorModel, group: int, noise_per_client: float
) -> Floats | None:
    """Cohorts that keep a group's budget, ascending; None if none does.

    Args:
        model: the task with its noise curves.
        group: index of the group.
        noise_per_client: its noise multiplier over its cohort.
    """
    task = model.task
    low = task.limits.min_cohorts[group]
    high = task.limits.max_cohorts[group]
    cohorts = np.geomspace(low, high, _STEPS + 1)
    ratios = cohorts / task.clients[group]
    calibrated = NoiseCurves([model.curves.curves[group]]).evaluate(ratios[None, :])
    log_surplus = np.log(noise_per_client * cohorts / calibrated.noise[0])
    if log_surplus[-1] < 0:
        return None
    # From the first cohort that keeps the budget, all do. It lies between two of them.
    first_kept = int(np.argmax(log_surplus >= 0))
    start = cohorts[first_kept]
    if first_kept > 0:
        deficit = log_surplus[first_kept - 1]
        share = log_surplus[first_kept] / (log_surplus[first_kept] - deficit)
        start *= (cohorts[first_kept - 1] / start) ** share
    return np.append(start, cohorts[first_kept + 1 :])


class _Steps(NamedTuple):
    """Cohorts of a group that keep its budget, and what each client more saves.

    Attributes:
        cohorts: from the least one on, ascending.
        savings: fall of the spent epsilon from each to the next, for each client.
    """

    cohorts: Floats
    savings: Floats


@dataclass(frozen=True)
class _SpentEpsilon:
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


def _spent_epsilon(
    model: ErrorModel, group: int, log_ratios: Floats, noise: Floats
) -> _SpentEpsilon:
    """Spending interpolated through the estimates at Chebyshev's nodes.

    Args:
        model: the task with its noise curves.
        group: index of the group.
        log_ratios: log q, ascending, shape (ratios,).
        noise: sigma at each of them, shape (ratios,).
    """
    budget = model.curves.curves[group].budget
    middle = (log_ratios[0] + log_ratios[-1]) / 2
    half = (log_ratios[-1] - log_ratios[0]) / 2
    nodes = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
    log_spent: list[float] = []
    for log_ratio in middle + half * nodes:
        log_noise = float(np.interp(log_ratio, log_ratios, np.log(noise)))
        ratio = math.exp(log_ratio)
        excess, _ = log_excess(budget, ratio, log_noise, model.task.accountant, None)
        log_spent.append(min(max(excess, _LEAST_LOG_SPENT), 0.0))
    fitted = np.polynomial.chebyshev.chebfit(nodes, log_spent, _NODES - 1)
    coefficients = np.asarray(fitted, dtype=float)
    return _SpentEpsilon(budget.epsilon, float(middle), float(half), coefficients)
