"""One noise multiplier for all groups: the sampling ratio of each group uses its budget up.

For a noise multiplier sigma, the largest sampling ratio of a group is calibrated on its whole
schedule of ratios. More noise allows larger ratios, so one sigma makes the expected cohort,
averaged over the rounds, the cohort of the problem.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.release import History, Release, SamplingLaw
from privplan.accounting.search import largest_affordable
from privplan.accounting.target import LEAST_RATIO, NOISE_RANGE, CalibrationTarget, solve
from privplan.errors import InfeasibleError, InputError
from privplan.planning.group_noise import calibrated, rounded_up
from privplan.planning.problem import Problem, uniform_cohorts

Floats = NDArray[np.float64]

RATIO_TOLERANCE = 1e-4
NOISE_TOLERANCE = 5e-4
"""Relative precision of the ratios, and of the noise multiplier that makes the cohort."""


@dataclass(frozen=True)
class Schedule:
    """Sampling ratios of a group over the rounds, relative to its largest one.

    Attributes:
        phases: pairs of a number of rounds and a factor in (0, 1] on the largest ratio.
    """

    phases: tuple[tuple[int, float], ...]

    @property
    def mean(self) -> float:
        """The factor averaged over the rounds."""
        rounds = sum(count for count, _ in self.phases)
        return sum(count * factor for count, factor in self.phases) / rounds

    def history(self, noise: float, ratio: float) -> History:
        """Releases in which a client takes part, for the largest ratio ``ratio``."""
        return History(
            (Release(noise, ratio * factor, SamplingLaw.POISSON), count)
            for count, factor in self.phases
        )


@dataclass(frozen=True)
class SharedNoise:
    """The noise multiplier, and the largest ratio of each group, shape (groups,)."""

    noise: float
    ratios: Floats


def shared_noise(problem: Problem, schedules: tuple[Schedule, ...], accountant: str) -> SharedNoise:
    """The noise multiplier at which the largest affordable ratios make the problem's cohort.

    Args:
        problem: budgets, cohort and relation; Poisson sampling.
        schedules: one per group.
        accountant: name of the accountant that composes.

    Returns:
        Ratios whose expected cohort, averaged over the rounds, is the problem's within
        ``NOISE_TOLERANCE``; a ratio is 1 where even that keeps the budget.

    Raises:
        InputError: when the sampling law is not Poisson.
        InfeasibleError: when the schedules cannot make the cohort.
    """
    if problem.sampling != SamplingLaw.POISSON:
        rule = "must be poisson where each group has a ratio of its own"
        raise InputError.one("sampling", rule, str(problem.sampling))
    means = np.array([schedule.mean for schedule in schedules])
    clients = np.asarray(problem.clients, dtype=float)
    most = float(np.sum(means * clients))
    if most < problem.cohort:
        raise InfeasibleError(
            f"cohort: must be at most {most:g}, the largest average cohort of the schedules, "
            f"found {problem.cohort:g}"
        )
    uniform = uniform_cohorts(problem) / clients
    start = float(np.exp(np.mean(np.log(calibrated(problem, uniform, "rdp")))))
    ratios = uniform / means

    def cohort(log_noise: float) -> float:
        nonlocal ratios  # those of one noise multiplier start the search at the next
        ratios = affordable_ratios(problem, schedules, math.exp(log_noise), accountant, ratios)
        return float(np.sum(ratios * means * clients))

    result = largest_affordable(
        cohort,
        problem.cohort,
        start=math.log(start),
        low=math.log(NOISE_RANGE[0]),
        high=math.log(NOISE_RANGE[1]),
        tolerance=NOISE_TOLERANCE,
    )
    if result.feasible is None:
        raise InfeasibleError(
            "cohort: must be larger, since the budgets afford more clients at the smallest noise "
            f"multiplier {NOISE_RANGE[0]:g}, found {problem.cohort:g}"
        )
    noise = rounded_up(math.exp(result.feasible))
    return SharedNoise(noise, affordable_ratios(problem, schedules, noise, accountant, ratios))


def affordable_ratios(
    problem: Problem,
    schedules: tuple[Schedule, ...],
    noise: float,
    accountant: str,
    starts: Floats,
) -> Floats:
    """The largest ratio of each group's schedule that keeps its budget, shape (groups,).

    Args:
        problem: budgets and relation.
        schedules: one per group.
        noise: the noise multiplier of all groups.
        accountant: name of the accountant that composes.
        starts: ratios at which the searches start, shape (groups,).

    Raises:
        InfeasibleError: naming the first group whose budget no ratio keeps.
    """
    ratios = []
    for m, schedule in enumerate(schedules):
        budget = problem.epsilons[m], problem.deltas[m]
        target = CalibrationTarget(*budget, problem.sampling, problem.relation, by_name(accountant))

        def history(log_ratio: float, schedule: Schedule = schedule) -> History:
            return schedule.history(noise, min(math.exp(log_ratio), 1.0))

        result = solve(
            target,
            history,
            start=math.log(min(starts[m], 1.0)),
            low=math.log(LEAST_RATIO),
            high=0.0,
            tolerance=RATIO_TOLERANCE,
            start_is_close=True,
        )
        if result.feasible is None:
            raise InfeasibleError(
                f"groups.{problem.names[m]}.epsilon: no sampling ratio keeps "
                f"{problem.epsilons[m]:g} at noise multiplier {noise:.5g}"
            )
        ratios.append(min(math.exp(result.feasible), 1.0))
    return np.array(ratios)
