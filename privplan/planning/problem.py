"""The planning problem as numbers: constants, limits and feasible cohorts of a spec.

A ``Problem`` holds what the planner may not change, ``Limits`` the bounds on its decisions.
Cohorts of one sampling ratio, and cohorts that the sampling law can draw, follow from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.calibrate import LEAST_RATIO
from privplan.accounting.release import Relation, SamplingLaw, Unit
from privplan.errors import InfeasibleError
from privplan.planning.bounds import StepConstants, step_constants
from privplan.planning.error import Allocation, fill, mean_noise_multiplier
from privplan.spec.planning import LEAST_SHARE as FAIR
from privplan.spec.spec import Spec

Floats = NDArray[np.float64]

LEAST_SHARE = (
    1e-3  # least cohort of a group without a floor over an equal share of the cohort
)


@dataclass(frozen=True)
class Problem:
    """What the planner may not change. Sequences have one entry per group, in the spec's order."""

    names: tuple[str, ...]
    clients: tuple[float, ...]  # that a round can draw on average (N_m)
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    rounds: int  # those in which one client can be drawn (T); the most of all groups
    cohort: float  # expected clients per round (q n)
    sampling: SamplingLaw
    relation: Relation
    clipping_norm: float  # C
    dimension: int  # number of model parameters (d)
    constants: StepConstants  # those of Theorem 3 that local training decides
    calibration: str = (
        "exact"  # how noise multipliers are found, as in ``Planning.calibration``
    )
    unit: Unit = "client"
    fixed_noise: tuple[
        float | None, ...
    ] = ()  # None where calibrated; empty when all are
    laws: tuple[
        SamplingLaw, ...
    ] = ()  # with the persons of each group; empty for ``sampling``
    rounds_by_group: tuple[int, ...] = ()  # empty for ``rounds``
    members: tuple[int, ...] = ()  # clients that each group has; empty for ``clients``

    @property
    def population(self) -> float:
        """Clients of all groups (n), or as many as a round can draw."""
        return sum(self.clients)

    def rounds_of(self, group: int) -> int:
        """Those in which one client of a group can be drawn."""
        return self.rounds_by_group[group] if self.rounds_by_group else self.rounds

    def ratios(self, cohorts: Floats) -> Floats:
        """Sampling ratios of expected cohorts, shape (groups,)."""
        return np.asarray(
            np.minimum(cohorts / np.asarray(self.clients, dtype=float), 1.0)
        )

    @property
    def shares(self) -> Floats:
        """Of the groups among all clients, shape (groups,)."""
        members = np.asarray(self.members or self.clients, dtype=float)
        return np.asarray(members / members.sum())

    @property
    def closed_form_factors(self) -> tuple[float, ...]:
        """c_m of Theorem 1, where sigma_m^2 = c_m q_m^2: 7 T (eps + 2 log(1/delta)) / eps^2."""
        return tuple(
            7 * self.rounds_of(m) * (epsilon + 2 * math.log(1 / delta)) / epsilon**2
            for m, (epsilon, delta) in enumerate(
                zip(self.epsilons, self.deltas, strict=True)
            )
        )


def problem_of(spec: Spec) -> Problem:
    """The planning problem of a spec, as numbers."""
    laws = tuple(map(spec.law_of, spec.groups))
    rounds = tuple(law.law.rounds_of_client(spec.rounds) for law in laws)
    return Problem(
        names=tuple(group.name for group in spec.groups),
        clients=tuple(map(spec.drawable, spec.groups)),
        epsilons=tuple(group.epsilon for group in spec.groups),
        deltas=tuple(spec.delta_of(group) for group in spec.groups),
        rounds=max(rounds),
        cohort=spec.expected_cohort,
        sampling=spec.sampling,
        relation=Relation(spec.relation),
        clipping_norm=spec.clipping_norm,
        dimension=spec.model.parameters,
        constants=step_constants(spec.local.learning_rate, spec.local.steps),
        calibration=spec.planning.calibration,
        unit=spec.unit,
        fixed_noise=tuple(group.noise_multiplier for group in spec.groups),
        laws=laws,
        rounds_by_group=rounds,
        members=tuple(group.clients for group in spec.groups),
    )


def respecified(
    spec: Spec, planning: Mapping[str, Any] | None = None, **changes: Any
) -> Spec:
    """The spec with some fields changed, and some of its planning."""
    data = {**spec.model_dump(mode="json"), **changes}
    data["planning"] = {**data["planning"], **(planning or {})}
    return Spec.parse(data)


@dataclass(frozen=True)
class Limits:
    """Bounds on the decisions, shape (groups,)."""

    min_cohorts: Floats  # least expected cohorts, positive
    max_cohorts: Floats
    min_weights: Floats


def limits_of(spec: Spec, problem: Problem) -> Limits:
    """The limits that a spec sets on cohorts and weights.

    A group without ``min_sampling_ratio`` still expects at least one participation over the
    whole run and a thousandth of an equal share of the cohort; below a ratio of delta / T its
    budget would need no noise at all. Where ``min_weight`` of some groups leaves less than
    ``planning.least_share`` to the others, these share it by their clients.
    """
    clients = np.asarray(problem.clients, dtype=float)
    most_ratio = np.array([group.max_sampling_ratio or 1.0 for group in spec.groups])
    floors = np.array([group.min_weight or 0.0 for group in spec.groups])
    groups = len(clients)
    implied = max(1 / problem.rounds, LEAST_SHARE * problem.cohort / groups)
    implied = min(implied, problem.cohort / groups)
    least, most = np.array([*map(spec.least_cohort, spec.groups)]), most_ratio * clients
    if problem.sampling.law.whole_cohorts:
        least, most = np.ceil(least - 1e-9), np.floor(most + 1e-9)
        implied = 1.0
    requested = least.copy()
    least = np.minimum(np.maximum(least, implied), np.maximum(most, requested))
    _check_feasible(problem, floors, requested, least, most)
    if spec.weighting == "optimal":
        if spec.release == "joint":
            _check_left_weight(problem, floors)
        share = FAIR if spec.planning.least_share is None else spec.planning.least_share
        by_number, none = problem.shares, np.zeros(groups)
        possible = fill(none, by_number, floors, np.ones(groups), 1.0)[1]
        floors = np.maximum(floors, min(share, possible) * by_number)
    return Limits(least, most, floors)


def _check_feasible(
    problem: Problem, floors: Floats, requested: Floats, least: Floats, most: Floats
) -> None:
    if floors.sum() > 1 + 1e-12:
        raise InfeasibleError(
            f"groups.*.min_weight: the least weights sum to {floors.sum():.6g}, above 1; the "
            f"nearest that fit are {1 / floors.sum():.6g} of each"
        )
    each = zip(problem.names, problem.clients, requested, most, strict=True)
    for name, clients, low, high in each:
        if 0 < high < LEAST_RATIO * clients:
            raise InfeasibleError(
                f"groups.{name}.max_sampling_ratio: must be {LEAST_RATIO:g} or more, found "
                f"{high / clients:.6g}"
            )
        if high <= 0 or low > high * (1 + 1e-12):
            raise InfeasibleError(
                f"groups.{name}.max_sampling_ratio: allows {high:g} clients per round, below the "
                f"{max(low, 1.0):g} that the group needs"
            )
    if least.sum() > problem.cohort * (1 + 1e-12):
        raise InfeasibleError(
            f"groups.*.min_sampling_ratio: the least cohorts sum to {least.sum():.6g}, above the "
            f"cohort of {problem.cohort:g}; the nearest feasible cohort is {least.sum():.6g}"
        )
    if most.sum() < problem.cohort * (1 - 1e-12):
        raise InfeasibleError(
            f"groups.*.max_sampling_ratio: the largest cohorts sum to {most.sum():.6g}, below the "
            f"cohort of {problem.cohort:g}; the nearest feasible cohort is {most.sum():.6g}"
        )


def _check_left_weight(problem: Problem, floors: Floats) -> None:
    """Raise InfeasibleError where a group would have weight 0 in one sum of all."""
    if np.all(floors > 0) or 1 - floors.sum() > 1e-12:
        return
    first, without = int(np.argmax(floors)), problem.names[int(np.argmin(floors))]
    name = problem.names[first] if np.sum(floors > 0) == 1 else "*"
    raise InfeasibleError(
        f"groups.{name}.min_weight: must leave group {without} a weight in one sum of all groups, "
        f"found {floors.sum():.6g} in all; lower it or choose planning.release: per_group"
    )


def uniform_cohorts(problem: Problem) -> Floats:
    """Expected cohort of each group when all sampling ratios that can be planned are equal."""
    clients = np.asarray(problem.clients, dtype=float)
    laws = problem.laws or [problem.sampling] * len(clients)
    drawn = clients * [not law.law.everyone for law in laws]
    left = problem.cohort - sum(clients - drawn)
    return np.where(drawn > 0, left * drawn / (sum(drawn) or 1.0), clients)


def drawable(problem: Problem, cohorts: Floats) -> Floats:
    """The nearest cohorts that the sampling law can draw."""
    clients = np.asarray(problem.clients, dtype=float)
    if problem.sampling.law.whole_cohorts:
        return whole_cohorts(cohorts, clients, round(problem.cohort))
    return np.asarray(np.minimum(cohorts, clients), dtype=float)


def whole_cohorts(cohorts: Floats, clients: Floats, total: int) -> Floats:
    """Rounds cohorts to whole numbers in [1, N_m] that sum to ``total``, by largest remainder."""
    if not len(cohorts) <= total <= clients.sum():
        raise InfeasibleError(
            f"cohort: {total} clients per round cannot be one or more from each of "
            f"{len(cohorts)} groups; the nearest that can is "
            f"{int(np.clip(total, len(cohorts), clients.sum()))}"
        )
    whole = np.clip(np.floor(cohorts), 1, clients)
    while whole.sum() != total:
        lacks = cohorts - whole
        if whole.sum() < total:
            whole[np.argmax(np.where(whole < clients, lacks, -np.inf))] += 1
        else:
            whole[np.argmin(np.where(whole > 1, lacks, np.inf))] -= 1
    return np.asarray(whole, dtype=float)


def noise_provision(spec: Spec) -> float:
    """Factor on the noise variance beyond what the noise multipliers ask for.

    With dropout tolerance x, the noise shares of a fraction x of the cohort may be missing, so
    every share is larger by 1 / (1 - x); with adaptive clipping, the noisy count of updates
    below the clipping norm takes a share a of the precision, and the sum gets 1 / (1 - a).
    """
    clipping = spec.planning.clipping
    counted = 0.0 if clipping is None else clipping.share
    return 1 / ((1 - spec.planning.dropout_tolerance) * (1 - counted))


def provisioned_noise_multiplier(spec: Spec, found: Allocation) -> float:
    """Noise multiplier of the weighted mean update per coordinate, with all provisions."""
    nu = mean_noise_multiplier(found.weights, found.cohorts, found.noise, found.release)
    return nu * math.sqrt(noise_provision(spec))


# --- What a spec's limits on a whole run allow: rounds and client uploads. -----------------------

ROUNDING = 1e-9  # by how much uploads may exceed their limit, relatively, by rounding


def check_limits(spec: Spec) -> None:
    """Raises InfeasibleError for a cohort or rounds beyond their limits."""
    planning, cohort = spec.planning, spec.expected_cohort
    if planning.max_rounds is not None and spec.rounds > planning.max_rounds:
        raise InfeasibleError(
            f"planning.max_rounds: {planning.max_rounds} is below the {spec.rounds} rounds; the "
            f"nearest feasible value is {spec.rounds}"
        )
    uploads = spec.rounds * cohort
    if planning.max_uploads is not None and uploads > planning.max_uploads * (
        1 + ROUNDING
    ):
        raise InfeasibleError(
            f"planning.max_uploads: {planning.max_uploads:g} is below the {uploads:g} uploads of "
            f"{spec.rounds} rounds with {cohort:g} clients; the nearest feasible value is "
            f"{above(uploads)}"
        )


def above(value: float, digits: int = 6) -> str:
    """Some digits of a value, rounded up, so that a limit of what is printed is enough."""
    shown = f"{value:.{digits}g}"
    return (
        shown
        if float(shown) >= value
        else f"{value * (1 + 5 * 10.0**-digits):.{digits}g}"
    )


def largest_cohort(spec: Spec, rounds: int) -> float:
    """The largest cohort within the limits, where it is free; at least ``fewest_clients``."""
    ceilings = sum(
        (one.max_sampling_ratio or 1.0) * spec.drawable(one) for one in spec.groups
    )
    most = min(ceilings, (spec.planning.max_uploads or math.inf) / rounds)
    if spec.sampling.law.whole_cohorts:
        most = math.floor(most * (1 + ROUNDING))
    return max(most, fewest_clients(spec, rounds))


def fewest_clients(spec: Spec, rounds: int) -> float:
    """The smallest cohort that is planned: client of each group, and the least ratios of groups."""
    least = [*map(spec.least_cohort, spec.groups)]
    if spec.sampling.law.whole_cohorts:
        return float(sum(max(math.ceil(one - 1e-9), 1) for one in least))
    one_each = float(len(spec.groups))
    if not any(least):
        return one_each
    return max(sum(max(one, 1 / rounds) for one in least) / (1 - LEAST_SHARE), one_each)
