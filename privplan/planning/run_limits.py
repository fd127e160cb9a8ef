"""What a spec's limits on a whole run allow: rounds, clients, uploads, local steps, device time."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from privplan.errors import InfeasibleError
from privplan.planning.problem import LEAST_SHARE, drawable_clients
from privplan.spec.spec import Spec

ROUNDING = 1e-15
"""By how much a product of numbers that a spec gives may seem to exceed a limit, relatively, since
decimals such as 0.1 are rounded. What is decided here exceeds none."""


def check_limits(spec: Spec) -> None:
    """Raises InfeasibleError for a cohort or rounds beyond their limits."""
    planning, cohort = spec.planning, spec.expected_cohort
    if planning.max_cohort is not None and cohort > planning.max_cohort * (1 + ROUNDING):
        raise InfeasibleError(
            f"planning.max_cohort: {planning.max_cohort:g} is below the cohort of {cohort:g}; the "
            f"nearest feasible value is {above(cohort)}"
        )
    if planning.max_rounds is not None and spec.rounds > planning.max_rounds:
        raise InfeasibleError(
            f"planning.max_rounds: {planning.max_rounds} is below the {spec.rounds} rounds; the "
            f"nearest feasible value is {spec.rounds}"
        )
    uploads = spec.rounds * cohort
    if planning.max_uploads is not None and uploads > planning.max_uploads * (1 + ROUNDING):
        raise InfeasibleError(
            f"planning.max_uploads: {planning.max_uploads:g} is below the {uploads:g} uploads of "
            f"{spec.rounds} rounds with {cohort:g} clients; the nearest feasible value is "
            f"{above(uploads)}{_fewer_clients(spec, planning.max_uploads)}"
        )
    steps = uploads * spec.local.steps
    if planning.max_local_steps is not None and steps > planning.max_local_steps * (1 + ROUNDING):
        raise InfeasibleError(
            f"planning.max_local_steps: {planning.max_local_steps:g} is below the {steps:g} steps "
            f"of {uploads:g} uploads, {spec.local.steps} each; the nearest feasible value is "
            f"{above(steps)}"
        )
    if planning.max_device_seconds is not None and planning.step_seconds is not None:
        seconds = steps * planning.step_seconds
        if seconds > planning.max_device_seconds * (1 + ROUNDING):
            raise InfeasibleError(
                f"planning.max_device_seconds: {planning.max_device_seconds:g} is below the "
                f"{seconds:g} seconds of {steps:g} steps, {planning.step_seconds:g} each; the "
                f"nearest feasible value is {above(seconds)}"
            )


def _fewer_clients(spec: Spec, uploads: float) -> str:
    """The cohort that keeps a limit on uploads in words; empty where it is too small to plan."""
    cohort = uploads / spec.rounds
    cohort = float(math.floor(cohort)) if spec.sampling.law.whole_cohorts else cohort
    if cohort < fewest_clients(spec, spec.rounds):
        return ""
    unit = 10.0 ** (math.floor(math.log10(cohort)) - 3)
    return f", or {math.floor(cohort / unit + 1e-9) * unit:.4g} clients per round"


def above(value: float, digits: int = 6) -> str:
    """Some digits of a value, rounded up, so that a limit of what is printed is enough."""
    shown = f"{value:.{digits}g}"
    return shown if float(shown) >= value else f"{value * (1 + 5 * 10.0**-digits):.{digits}g}"


def most_steps(spec: Spec) -> float:
    """Most local steps of all devices over the whole run by the limits on them and their time."""
    planning = spec.planning
    by_time = (planning.max_device_seconds or math.inf) / (planning.step_seconds or 1.0)
    return min(planning.max_local_steps or math.inf, by_time)


def most_uploads(spec: Spec, steps: int) -> float:
    """Most uploads over the whole run by the limits on uploads, local steps and device time.

    Args:
        spec: the spec with its limits.
        steps: local steps of an upload.
    """
    return min(spec.planning.max_uploads or math.inf, most_steps(spec) / steps)


def largest_cohort(spec: Spec, rounds: int, steps: int) -> float:
    """The largest cohort within the limits, where it is free; at least ``fewest_clients``.

    Args:
        spec: the spec with its limits.
        rounds: decided rounds.
        steps: decided local steps.
    """
    ceilings = sum(
        (group.max_sampling_ratio or 1.0) * drawable_clients(spec, group.clients)
        for group in spec.groups
    )
    everybody = float(drawable_clients(spec, spec.population))
    most = min(spec.planning.max_cohort or math.inf, ceilings, everybody)
    most = min(most, most_uploads(spec, steps) / rounds)
    step, whole = spec.planning.step_seconds or 1.0, spec.sampling.law.whole_cohorts
    most = math.floor(most) if whole else most
    totals: list[tuple[float | None, tuple[float, ...]]] = [
        (spec.planning.max_uploads, (rounds,)),
        (spec.planning.max_local_steps, (rounds, steps)),
        (spec.planning.max_device_seconds, (rounds, steps, step)),
    ]
    for limit, factors in totals:
        while limit is not None and _product(most, *factors) > limit:
            most = most - 1 if whole else math.nextafter(most, 0)
    return max(most, fewest_clients(spec, rounds))


def _product(*factors: float) -> float:
    """The largest product of numbers over the orders in which they can be multiplied."""
    return max(math.prod(order) for order in permutations(factors))


def not_above(spec: Spec, cohorts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The cohorts, rounded down where their sum would exceed that of a spec with limits.

    Args:
        spec: the spec with its limits and its cohort.
        cohorts: expected clients r_m, shape (groups,), that sum to the cohort but for rounding.
    """
    planning, total = spec.planning, spec.expected_cohort
    limits = (planning.max_cohort, planning.max_uploads, planning.max_local_steps)
    if (*limits, planning.max_device_seconds) == (None,) * 4:
        return cohorts
    while (excess := _sum(cohorts) - total) > 0:
        cohorts = np.minimum(np.nextafter(cohorts, 0), cohorts * (1 - excess / total))
    return cohorts


def _sum(values: NDArray[np.float64]) -> float:
    """The largest of the ways to add numbers."""
    return max(float(values.sum()), math.fsum(values), float(sum(values.tolist())))


def fewest_clients(spec: Spec, rounds: int) -> float:
    """The smallest cohort that is planned: a client of each group, and the least ratios of groups.

    Args:
        spec: the spec with its groups.
        rounds: decided rounds; every group expects at least one participation over all of them.
    """
    least = [
        (group.min_sampling_ratio or 0.0) * drawable_clients(spec, group.clients)
        for group in spec.groups
    ]
    if spec.sampling.law.whole_cohorts:
        return float(sum(max(math.ceil(one - 1e-9), 1) for one in least))
    one_each = float(len(spec.groups))
    if not any(least):
        return one_each
    return max(sum(max(one, 1 / rounds) for one in least) / (1 - LEAST_SHARE), one_each)
