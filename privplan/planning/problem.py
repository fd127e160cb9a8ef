"""The planning problem as numbers: constants, limits and feasible cohorts of a spec.

A ``Problem`` holds what the planner may not change, ``Limits`` the bounds on its
decisions. Cohorts of one sampling ratio, and cohorts that the sampling law can draw,
follow from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.audibility import AUDIBLE, audibility
from privplan.accounting.calibrate import LEAST_RATIO
from privplan.accounting.closed_form import squared_noise_factor
from privplan.accounting.release import Relation, SamplingLaw, Unit
from privplan.errors import InfeasibleError
from privplan.planning.error import Allocation, fill, mean_noise_multiplier
from privplan.planning.theorem_3 import StepConstants, step_constants
from privplan.spec.planning import LEAST_SHARE as LEAST_SHARE_OF_SPECS
from privplan.spec.spec import Spec

Floats = NDArray[np.float64]

# Least cohort of a group without a floor, over an equal share of the cohort.
LEAST_SHARE = 1e-3
# Sums of shares that differ from 1 by less are 1, but for rounding.
_ROUNDING_OF_SHARES = 1e-12
# Whole cohorts that miss a limit by less miss it by rounding.
_ROUNDING_OF_CLIENTS = 1e-9


@dataclass(frozen=True)
class Problem:
    """What the planner may not change. Sequences have one entry per group, in order.

    Attributes:
        names: names of the groups.
        clients: clients that a round can draw on average (N_m).
        epsilons: budgets.
        deltas: budgets.
        rounds: those in which one client can be drawn (T); the most of all groups.
        cohort: expected clients per round (q n).
        sampling: law of the spec.
        relation: which data sets are neighbours.
        clipping_norm: C.
        dimension: number of model parameters (d).
        constants: those of Theorem 3 that local training decides.
        calibration: how noise multipliers are found, as in ``Planning.calibration``.
        unit: what is protected.
        fixed_noise: noise multipliers, None where calibrated; empty when all are.
        laws: with the persons of each group; empty for ``sampling``.
        rounds_by_group: empty for ``rounds``.
        members: clients that each group has; empty for ``clients``.
    """

    names: tuple[str, ...]
    clients: tuple[float, ...]
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    rounds: int
    cohort: float
    sampling: SamplingLaw
    relation: Relation
    clipping_norm: float
    dimension: int
    constants: StepConstants
    calibration: str = "exact"
    unit: Unit = "client"
    fixed_noise: tuple[float | None, ...] = ()
    laws: tuple[SamplingLaw, ...] = ()
    rounds_by_group: tuple[int, ...] = ()
    members: tuple[int, ...] = ()

    @property
    def population(self) -> float:
        """Clients of all groups (n), or as many as a round can draw."""
        return sum(self.clients)

    def rounds_of(self, group: int) -> int:
        """Those in which one client of a group can be drawn."""
        if self.rounds_by_group:
            return self.rounds_by_group[group]
        return self.rounds

    def ratios(self, cohorts: Floats) -> Floats:
        """Sampling ratios of expected cohorts, at most 1, shape (groups,)."""
        clients = np.asarray(self.clients, dtype=float)
        return np.asarray(np.minimum(cohorts / clients, 1.0))

    @property
    def shares(self) -> Floats:
        """Of the groups among all clients, shape (groups,)."""
        members = np.asarray(self.members or self.clients, dtype=float)
        return np.asarray(members / members.sum())

    @property
    def closed_form_factors(self) -> tuple[float, ...]:
        """c_m of Theorem 1, where sigma_m^2 = c_m q_m^2 (GDPFed+)."""
        factors: list[float] = []
        for group, epsilon in enumerate(self.epsilons):
            delta = self.deltas[group]
            rounds = self.rounds_of(group)
            factors.append(squared_noise_factor(epsilon, delta, rounds))
        return tuple(factors)


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
    """Bounds on the decisions, shape (groups,).

    Attributes:
        min_cohorts: least expected cohorts, positive.
        max_cohorts: largest expected cohorts.
        min_weights: least weights.
    """

    min_cohorts: Floats
    max_cohorts: Floats
    min_weights: Floats


def limits_of(spec: Spec, problem: Problem) -> Limits:
    """The limits that a spec sets on cohorts and weights.

    A group without ``min_sampling_ratio`` still expects at least one participation over
    the whole run and a thousandth of an equal share of the cohort; below a ratio of
    delta / T its budget would need no noise at all. Where floors that groups state
    leave less than ``planning.least_share`` to the others, these share it by their
    clients.

    Raises:
        InfeasibleError: naming the limit that cannot hold, with the nearest that can.
    """
    clients = np.asarray(problem.clients, dtype=float)
    requested = np.array([spec.least_cohort(group) for group in spec.groups])
    ceilings = np.array([group.max_sampling_ratio or 1.0 for group in spec.groups])
    upper = ceilings * clients
    groups = len(clients)
    implied = max(1 / problem.rounds, LEAST_SHARE * problem.cohort / groups)
    implied = min(implied, problem.cohort / groups)
    if problem.sampling.law.whole_cohorts:
        requested = np.ceil(requested - _ROUNDING_OF_CLIENTS)
        upper = np.floor(upper + _ROUNDING_OF_CLIENTS)
        implied = 1.0
    # What is implied gives way to a group's ceiling, what a spec asks for does not.
    lower = np.maximum(requested, implied)
    lower = np.minimum(lower, np.maximum(upper, requested))

    floors = _stated_floors(spec, problem)
    _check_floors(floors)
    _check_ratios(problem, requested, upper)
    _check_cohort(problem, lower, upper)
    if spec.weighting == "optimal":
        if spec.release == "joint":
            _check_left_weight(problem, floors)
        floors = _with_least_share(spec, problem, floors)
    return Limits(lower, upper, floors)


def _stated_floors(spec: Spec, problem: Problem) -> Floats:
    """The least weights that groups state themselves, shape (groups,)."""
    floors: list[float] = []
    for group, share in zip(spec.groups, problem.shares, strict=True):
        least_weight = (group.least_share or 0.0) * share
        floors.append(max(group.min_weight or 0.0, least_weight))
    return np.array(floors)


def _with_least_share(spec: Spec, problem: Problem, floors: Floats) -> Floats:
    """Floors that give each group its least share, as far as the floors leave it."""
    least_weights = least_shares(spec) * problem.shares
    shares_out = least_weights > 0
    if not shares_out.any():
        return floors
    rates = least_weights[shares_out]
    none = np.zeros_like(rates)
    unclaimed = 1.0 - float(floors[~shares_out].sum())
    _, level = fill(none, rates, floors[shares_out], none + 1.0, unclaimed)
    return np.maximum(floors, min(1.0, level) * least_weights)


def least_shares(spec: Spec) -> Floats:
    """The least weight of each group over its share of the clients, shape (groups,).

    By the group itself, by ``planning.least_share``, or by default; a group that cannot
    be heard at any weight has none by default, since its floor would help nobody.
    """
    shares: list[float] = []
    for group in spec.groups:
        share = group.least_share
        if share is None:
            share = spec.planning.least_share
        if share is None:
            delta = spec.delta_of(group)
            heard = audibility(group.clients, group.epsilon, delta, group.contributions)
            share = LEAST_SHARE_OF_SPECS if heard >= AUDIBLE else 0.0
        shares.append(share)
    return np.array(shares)


def _check_floors(floors: Floats) -> None:
    """Raise InfeasibleError where least weights sum to more than 1."""
    if floors.sum() > 1 + _ROUNDING_OF_SHARES:
        raise InfeasibleError(
            f"groups.*.min_weight: the least weights sum to {floors.sum():.6g}, above 1; "
            f"the nearest that fit are {1 / floors.sum():.6g} of each"
        )


def _check_ratios(problem: Problem, requested: Floats, upper: Floats) -> None:
    """Raise InfeasibleError where a group's ceiling allows too few clients."""
    groups = zip(problem.names, problem.clients, requested, upper, strict=True)
    for name, clients, low, high in groups:
        if 0 < high < LEAST_RATIO * clients:
            raise InfeasibleError(
                f"groups.{name}.max_sampling_ratio: must be {LEAST_RATIO:g} or more, "
                f"found {high / clients:.6g}"
            )
        if high <= 0 or low > high * (1 + _ROUNDING_OF_SHARES):
            raise InfeasibleError(
                f"groups.{name}.max_sampling_ratio: allows {high:g} clients per round, "
                f"below the {max(low, 1.0):g} that the group needs"
            )


def _check_cohort(problem: Problem, lower: Floats, upper: Floats) -> None:
    """Raise InfeasibleError where groups' limits do not allow the cohort."""
    fewest = lower.sum()
    largest = upper.sum()
    if fewest > problem.cohort * (1 + _ROUNDING_OF_SHARES):
        raise InfeasibleError(
            f"groups.*.min_sampling_ratio: the least cohorts sum to {fewest:.6g}, above "
            f"the cohort of {problem.cohort:g}; the nearest feasible cohort is "
            f"{fewest:.6g}"
        )
    if largest < problem.cohort * (1 - _ROUNDING_OF_SHARES):
        raise InfeasibleError(
            f"groups.*.max_sampling_ratio: the largest cohorts sum to {largest:.6g}, below "
            f"the cohort of {problem.cohort:g}; the nearest feasible cohort is "
            f"{largest:.6g}"
        )


def _check_left_weight(problem: Problem, floors: Floats) -> None:
    """Raise InfeasibleError where a group would have weight 0 in one sum of all."""
    if np.all(floors > 0) or 1 - floors.sum() > _ROUNDING_OF_SHARES:
        return
    without = problem.names[int(np.argmin(floors))]
    name = "*"
    if np.sum(floors > 0) == 1:
        name = problem.names[int(np.argmax(floors))]
    raise InfeasibleError(
        f"groups.{name}.min_weight: must leave group {without} a weight in one sum of all "
        f"groups, found {floors.sum():.6g} in all; lower it or choose planning.release: "
        "per_group"
    )


def uniform_cohorts(problem: Problem) -> Floats:
    """Expected cohorts when all sampling ratios that can be planned are equal.

    Groups of which everyone takes part have no ratio to plan. Shape (groups,).
    """
    clients = np.asarray(problem.clients, dtype=float)
    laws = problem.laws or [problem.sampling] * len(clients)
    drawn = clients * [not law.law.everyone for law in laws]
    drawn_cohort = problem.cohort - sum(clients - drawn)
    return np.where(drawn > 0, drawn_cohort * drawn / (sum(drawn) or 1.0), clients)


def drawable(problem: Problem, cohorts: Floats) -> Floats:
    """The nearest cohorts that the sampling law can draw."""
    clients = np.asarray(problem.clients, dtype=float)
    if problem.sampling.law.whole_cohorts:
        return whole_cohorts(cohorts, clients, round(problem.cohort))
    return np.asarray(np.minimum(cohorts, clients), dtype=float)


def whole_cohorts(cohorts: Floats, clients: Floats, total: int) -> Floats:
    """Whole numbers in [1, N_m] that sum to ``total``, by largest remainder.

    Raises:
        InfeasibleError: with the nearest total that can be.
    """
    if not len(cohorts) <= total <= clients.sum():
        nearest = int(np.clip(total, len(cohorts), clients.sum()))
        raise InfeasibleError(
            f"cohort: {total} clients per round cannot be one or more from each of "
            f"{len(cohorts)} groups; the nearest that can is {nearest}"
        )
    rounded = np.clip(np.floor(cohorts), 1, clients)
    while rounded.sum() != total:
        lacks = cohorts - rounded
        if rounded.sum() < total:
            rounded[np.argmax(np.where(rounded < clients, lacks, -np.inf))] += 1
        else:
            rounded[np.argmin(np.where(rounded > 1, lacks, np.inf))] -= 1
    return np.asarray(rounded, dtype=float)


def noise_provision(spec: Spec) -> float:
    """Factor on the noise variance beyond what the noise multipliers ask for.

    With dropout tolerance x, the noise shares of a fraction x of the cohort may be
    missing, so every share is larger by 1 / (1 - x); with adaptive clipping, the noisy
    count of updates below the clipping norm takes a share a of the precision, and the
    sum gets 1 / (1 - a).
    """
    clipping = spec.planning.clipping
    count_share = 0.0 if clipping is None else clipping.share
    return 1 / ((1 - spec.planning.dropout_tolerance) * (1 - count_share))


def provisioned_noise_multiplier(spec: Spec, allocation: Allocation) -> float:
    """Noise multiplier of the weighted mean update per coordinate, with provisions."""
    nu = mean_noise_multiplier(
        allocation.weights, allocation.cohorts, allocation.noise, allocation.release
    )
    return nu * math.sqrt(noise_provision(spec))


# What a spec's limits on a whole run allow: rounds and client uploads.

# By how much uploads may exceed their limit, relatively, by rounding.
ROUNDING = 1e-9


def check_limits(spec: Spec) -> None:
    """Raise InfeasibleError for a cohort or rounds beyond their limits."""
    planning = spec.planning
    if planning.max_rounds is not None and spec.rounds > planning.max_rounds:
        raise InfeasibleError(
            f"planning.max_rounds: {planning.max_rounds} is below the {spec.rounds} "
            f"rounds; the nearest feasible value is {spec.rounds}"
        )
    if planning.max_uploads is None:
        return
    cohort = spec.expected_cohort
    uploads = spec.rounds * cohort
    if uploads > planning.max_uploads * (1 + ROUNDING):
        raise InfeasibleError(
            f"planning.max_uploads: {planning.max_uploads:g} is below the {uploads:g} "
            f"uploads of {spec.rounds} rounds with {cohort:g} clients; the nearest "
            f"feasible value is {above(uploads)}"
        )


def above(value: float, digits: int = 6) -> str:
    """Some digits of a value, rounded up: a limit of what is shown is enough."""
    shown = f"{value:.{digits}g}"
    if float(shown) >= value:
        return shown
    return f"{value * (1 + 5 * 10.0**-digits):.{digits}g}"


def largest_cohort(spec: Spec, rounds: int) -> float:
    """The largest free cohort within the limits; at least ``fewest_clients``."""
    ceiling = 0.0
    for group in spec.groups:
        ceiling += (group.max_sampling_ratio or 1.0) * spec.drawable(group)
    largest = min(ceiling, (spec.planning.max_uploads or math.inf) / rounds)
    if spec.sampling.law.whole_cohorts:
        largest = math.floor(largest * (1 + ROUNDING))
    return max(largest, fewest_clients(spec, rounds))


def fewest_clients(spec: Spec, rounds: int) -> float:
    """The smallest cohort that is planned: a client of each group, and least ratios.

    Groups without a least ratio get what ``limits_of`` implies for them.
    """
    requested = [spec.least_cohort(group) for group in spec.groups]
    if spec.sampling.law.whole_cohorts:
        rounded_up = [math.ceil(cohort - _ROUNDING_OF_CLIENTS) for cohort in requested]
        return float(sum(max(cohort, 1) for cohort in rounded_up))
    client_of_each = float(len(spec.groups))
    if not any(requested):
        return client_of_each
    participations = sum(max(cohort, 1 / rounds) for cohort in requested)
    return max(participations / (1 - LEAST_SHARE), client_of_each)
