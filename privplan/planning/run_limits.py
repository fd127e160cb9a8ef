"""What a spec's limits on a whole run allow: rounds, clients, uploads, local steps, device time."""

from __future__ import annotations

import math

from privplan.errors import InfeasibleError
from privplan.planning.problem import LEAST_SHARE
from privplan.spec.spec import Spec


def check_limits(spec: Spec) -> None:
    """Raises InfeasibleError for a cohort or rounds beyond their limits."""
    planning, cohort = spec.planning, spec.expected_cohort
    if planning.max_cohort is not None and cohort > planning.max_cohort * (1 + 1e-12):
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
    if planning.max_uploads is not None and uploads > planning.max_uploads * (1 + 1e-12):
        raise InfeasibleError(
            f"planning.max_uploads: {planning.max_uploads:g} is below the {uploads:g} uploads of "
            f"{spec.rounds} rounds with {cohort:g} clients; the nearest feasible value is "
            f"{above(uploads)}, or {planning.max_uploads / spec.rounds:.4g} clients per round"
        )
    steps = uploads * spec.local.steps
    if planning.max_local_steps is not None and steps > planning.max_local_steps * (1 + 1e-12):
        raise InfeasibleError(
            f"planning.max_local_steps: {planning.max_local_steps:g} is below the {steps:g} steps "
            f"of {uploads:g} uploads, {spec.local.steps} each; the nearest feasible value is "
            f"{above(steps)}"
        )
    if planning.max_device_seconds is not None and planning.step_seconds is not None:
        seconds = steps * planning.step_seconds
        if seconds > planning.max_device_seconds * (1 + 1e-12):
            raise InfeasibleError(
                f"planning.max_device_seconds: {planning.max_device_seconds:g} is below the "
                f"{seconds:g} seconds of {steps:g} steps, {planning.step_seconds:g} each; the "
                f"nearest feasible value is {above(seconds)}"
            )


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
    ceilings = sum((group.max_sampling_ratio or 1.0) * group.clients for group in spec.groups)
    most = min(spec.planning.max_cohort or math.inf, ceilings, float(spec.population))
    most = min(most, most_uploads(spec, steps) / rounds)
    if spec.sampling.law.whole_cohorts:
        most = math.floor(most)
    return max(most, fewest_clients(spec, rounds))


def fewest_clients(spec: Spec, rounds: int) -> float:
    """The smallest cohort that is planned: a client of each group, and the least ratios of groups.

    Args:
        spec: the spec with its groups.
        rounds: decided rounds; every group expects at least one participation over all of them.
    """
    least = [(group.min_sampling_ratio or 0.0) * group.clients for group in spec.groups]
    if spec.sampling.law.whole_cohorts:
        return float(sum(max(math.ceil(one - 1e-9), 1) for one in least))
    one_each = float(len(spec.groups))
    if not any(least):
        return one_each
    return max(sum(max(one, 1 / rounds) for one in least) / (1 - LEAST_SHARE), one_each)
