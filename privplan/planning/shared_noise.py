"""One noise multiplier for all groups: each group's ratio is what its budget affords.

At a noise multiplier sigma, the largest sampling ratio that keeps a group's budget over its
whole schedule is found by composing that schedule. More noise affords larger ratios, so one
sigma makes the expected cohort, averaged over the rounds, the wanted one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.calibrate import LEAST_RATIO, NOISE_RANGE
from privplan.accounting.release import History, Release, SamplingLaw
from privplan.accounting.search import largest_affordable
from privplan.errors import InfeasibleError, InputError
from privplan.planning.group_noise import calibrated, rounded_up
from privplan.planning.problem import Problem, uniform_cohorts

Floats = NDArray[np.float64]

RATIO_TOLERANCE = 1e-4
NOISE_TOLERANCE = 5e-4
"""Relative precision of the ratios, and of the noise multiplier behind the cohort."""


@dataclass(frozen=True)
class Schedule:
    """How a group's sampling ratio moves over the rounds.

    Attributes:
        stretches: pairs of rounds and a factor in (0, 1] on the group's full ratio.
    """

    stretches: tuple[tuple[int, float], ...]

    @property
    def mean(self) -> float:
        """The factor averaged over the rounds."""
        rounds = sum(count for count, _ in self.stretches)
        return sum(count * factor for count, factor in self.stretches) / rounds

    def history(self, noise: float, ratio: float) -> History:
        """What a client takes part in."""
        return History(
            (Release(noise, ratio * factor, SamplingLaw.POISSON), count)
            for count, factor in self.stretches
        )


@dataclass(frozen=True)
class SharedNoise:
    """The noise multiplier, and each group's full ratio, shape (groups,)."""

    noise: float
    ratios: Floats


def shared_noise(problem: Problem, schedules: tuple[Schedule, ...], accountant: str) -> SharedNoise:
    """The noise multiplier at which the affordable ratios make the wanted cohort.

    Args:
        problem: what is given; Poisson sampling.
        schedules: one for each group.
        accountant: name of the accountant that composes.

    Returns:
        Ratios whose expected cohort, averaged over the rounds, is the problem's within
        ``NOISE_TOLERANCE``; a ratio is 1 where even that keeps the budget.

    Raises:
        InputError: when the sampling law has no ratios to choose freely.
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
            f"cohort: {problem.cohort:g} clients a round are out of reach; with what is saved "
            f"at most {most:g} take part on average"
        )
    even = uniform_cohorts(problem) / clients
    start = float(np.exp(np.mean(np.log(calibrated(problem, even, "rdp")))))
    guesses = even / means

    def cohort(log_noise: float) -> float:
        nonlocal guesses
        guesses = affordable(problem, schedules, math.exp(log_noise), accountant, guesses)
        return float(np.sum(guesses * means * clients))

    edge = largest_affordable(
        cohort,
        problem.cohort,
        start=math.log(start),
        low=math.log(NOISE_RANGE[0]),
        high=math.log(NOISE_RANGE[1]),
        tolerance=NOISE_TOLERANCE,
    )
    if edge.inside is None:
        raise InfeasibleError("cohort: the budgets afford more clients at any noise")
    noise = rounded_up(math.exp(edge.inside))
    return SharedNoise(noise, affordable(problem, schedules, noise, accountant, guesses))


def affordable(
    problem: Problem,
    schedules: tuple[Schedule, ...],
    noise: float,
    accountant: str,
    guesses: Floats,
) -> Floats:
    """The largest full ratio of each group that keeps its budget, shape (groups,).

    Args:
        problem: what is given.
        schedules: one for each group.
        noise: the noise multiplier of all groups.
        accountant: its name.
        guesses: ratios to start from, shape (groups,).

    Raises:
        InfeasibleError: naming the group that no ratio keeps within its budget.
    """
    one = by_name(accountant)
    found = []
    for m, schedule in enumerate(schedules):

        def cost(log_ratio: float, m: int = m, schedule: Schedule = schedule) -> float:
            history = schedule.history(noise, min(math.exp(log_ratio), 1.0))
            return one.epsilon(history, problem.deltas[m], problem.relation).upper

        edge = largest_affordable(
            cost,
            problem.epsilons[m],
            start=math.log(min(guesses[m], 1.0)),
            low=math.log(LEAST_RATIO),
            high=0.0,
            tolerance=RATIO_TOLERANCE,
        )
        if edge.inside is None:
            raise InfeasibleError(
                f"groups.{problem.names[m]}.epsilon: no sampling ratio keeps "
                f"{problem.epsilons[m]:g} at noise multiplier {noise:.5g}"
            )
        found.append(min(math.exp(edge.inside), 1.0))
    return np.array(found)
