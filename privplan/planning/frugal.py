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

What a group spends is estimated by its accountant at few cohorts and interpolated. An
error of that moves savings between groups, and never a guarantee: the certificate is of
the noise that is planned in the end.
"""

from __future__ import annotations

import math
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


def cheaper_cohorts(model: ErrorModel, best: Allocation) -> Floats:
    """Cohorts that spend least within the slack, at the best weights, shape (groups,).

    Args:
        model: the task with its slack, and noise curves.
        best: the allocation of least error.
    """
    cohorts = best.cohorts
    if len(cohorts) > _MOST_GROUPS:
        return cohorts
    for _ in range(_PASSES):
        nu = allowed_noise(model, best, cohorts)
        following = _filled(model, best.weights, nu)
        if following is None:
            break
        cohorts = following
    return cohorts


class _Steps(NamedTuple):
    """Cohorts of a group that keep its budget, and what each client more saves.

    Attributes:
        cohorts: from the least one on, ascending.
        savings: fall of the spent epsilon from each to the next, for each client.
    """

    cohorts: Floats
    savings: Floats


def _steps(model: ErrorModel, group: int, weight: float, nu: float) -> _Steps | None:
    """The cohorts of a group at a noise of the mean; None where none keeps the budget.

    Args:
        model: the task with its noise curves.
        group: index of the group.
        weight: of the group (w).
        nu: noise multiplier of the mean.
    """
    task = model.task
    low = task.limits.min_cohorts[group]
    high = task.limits.max_cohorts[group]
    cohorts = np.geomspace(low, high, _STEPS + 1)
    ratios = cohorts / task.clients[group]
    calibrated = NoiseCurves([model.curves.curves[group]]).evaluate(ratios[None, :])
    log_surplus = np.log(nu * cohorts / weight / calibrated.noise[0])
    if log_surplus[-1] < 0:
        return None
    # From the first cohort that keeps the budget, all do. It lies between two of them.
    first_kept = int(np.argmax(log_surplus >= 0))
    start = cohorts[first_kept]
    if first_kept > 0:
        deficit = log_surplus[first_kept - 1]
        share = log_surplus[first_kept] / (log_surplus[first_kept] - deficit)
        start *= (cohorts[first_kept - 1] / start) ** share
    cohorts = np.append(start, cohorts[first_kept + 1 :])
    if len(cohorts) == 1 or cohorts[0] == cohorts[-1]:
        return _Steps(cohorts[:1], np.zeros(0))
    noise = nu * cohorts / weight
    spent = _spent_epsilons(model, group, cohorts / task.clients[group], noise)
    savings = -np.diff(spent) / np.diff(cohorts)
    # They fall with the cohort, but for the error of the interpolation.
    return _Steps(cohorts, np.minimum.accumulate(savings))


def _filled(model: ErrorModel, weights: Floats, nu: float) -> Floats | None:
    """The cohorts of least spending at a noise of the mean; None where none keep it."""
    groups: list[_Steps] = []
    for group, weight in enumerate(weights):
        steps = _steps(model, group, float(weight), nu)
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


def _spent_epsilons(
    model: ErrorModel, group: int, ratios: Floats, noise: Floats
) -> Floats:
    """Estimated epsilon of a group, shape (ratios,).

    By a polynomial in log q through the estimates at Chebyshev's nodes.
    """
    task = model.task
    budget = model.curves.curves[group].budget
    log_ratios = np.log(ratios)
    middle = (log_ratios[0] + log_ratios[-1]) / 2
    half = (log_ratios[-1] - log_ratios[0]) / 2
    places = np.cos(np.pi * (np.arange(_NODES) + 0.5) / _NODES)
    spent: list[float] = []
    for log_ratio in middle + half * places:
        log_noise = np.interp(log_ratio, log_ratios, np.log(noise))
        spent_part, _ = log_excess(
            budget, math.exp(log_ratio), float(log_noise), task.accountant, None
        )
        spent.append(min(max(spent_part, _LEAST_LOG_SPENT), 0.0))
    coefficients = np.polynomial.chebyshev.chebfit(places, spent, _NODES - 1)
    x = (log_ratios - middle) / half
    log_spent = np.polynomial.chebyshev.chebval(x, coefficients)
    return np.asarray(budget.epsilon * np.exp(log_spent))
