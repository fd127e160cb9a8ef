"""Certified plans of the baseline algorithms, for the same spec.

Baselines either release a noisy sum per group (GDPFed, GDPFed-op, GDPFed+) or add all
updates to one noisy sum without scaling them. In that sum a client of group m adds at
most its bound C_m; the noise has one standard deviation std, so the group faces the
noise multiplier std / C_m. The server divides by the expected cohort r, so the weight
of a group is r_m / r.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.bracketing import largest_affordable
from privplan.accounting.calibrate import LEAST_RATIO, NOISE_RANGE, CalibrationTarget
from privplan.accounting.calibrate import solve as solve_target
from privplan.accounting.release import History, Release, SamplingLaw
from privplan.errors import InfeasibleError, InputError
from privplan.plan import GroupPlan, ObjectiveValue, Plan, Segment
from privplan.planning.adaptive_clipping import quantile_clipping
from privplan.planning.assemble import Decisions, assemble, make_plan
from privplan.planning.noise import GUARANTEE, calibrated, rounded_up
from privplan.planning.noise_certificate import FAST_ACCOUNTANTS, certify_noise
from privplan.planning.problem import (
    Problem,
    drawable,
    noise_provision,
    problem_of,
    uniform_cohorts,
)
from privplan.planning.published import closed_form_value, published_terms
from privplan.planning.records import local_steps, record_level, solve_records
from privplan.planning.solver import solve
from privplan.spec.planning import QuantileClipping
from privplan.spec.spec import Spec
from privplan.spec.training import without_recipe

Floats = NDArray[np.float64]


def one_sum(
    spec: Spec,
    problem: Problem,
    ratios: Floats,
    noise: Floats,
    method: str,
    *,
    clips: Floats | None = None,
    segments: Sequence[tuple[Segment, ...] | None] | None = None,
    warnings: tuple[str, ...] = (),
) -> Plan:
    """The certified plan of groups that share a noisy sum, where nothing is scaled.

    Args:
        spec: the planning problem, as ``plain`` makes it.
        problem: its problem.
        ratios: sampling ratios of the groups, shape (groups,).
        noise: noise multipliers that the groups face, shape (groups,).
        method: name of the rule, for the plan.
        clips: clipping norms C_m of the groups; the spec's for all, where left out.
        segments: ratios over the rounds, by group, where they change.
        warnings: those of the plan.
    """
    cohorts = ratios * np.asarray(problem.clients)
    weights = cohorts / cohorts.sum()
    if clips is None:
        norms = np.full(len(noise), spec.clipping_norm)
    else:
        norms = clips
    std = float(np.max(noise * norms))
    relative_std = std / spec.clipping_norm
    bound = published_terms(
        problem,
        weights,
        cohorts,
        np.full(len(noise), relative_std),
        np.ones(len(noise)),
        "joint",
        noise_provision(spec),
    )
    groups = tuple(
        GroupPlan(
            name=name,
            clients=problem.members[m],
            epsilon=problem.epsilons[m],
            delta=problem.deltas[m],
            contributions=spec.groups[m].contributions,
            sampling=spec.groups[m].sampling,
            sampling_ratio=float(ratios[m]),
            expected_cohort=float(cohorts[m]),
            noise_multiplier=float(noise[m]),
            kept_fraction=1.0,
            weight=float(weights[m]),
            clipping_norm=None if clips is None else float(clips[m]),
            segments=None if segments is None else segments[m],
        )
        for m, name in enumerate(problem.names)
    )
    return make_plan(
        spec,
        groups,
        release="joint",
        objective=ObjectiveValue(name=method, value=sum(bound.values())),
        bound=bound,
        mean_noise_std=std / float(cohorts.sum()) * math.sqrt(noise_provision(spec)),
        status=f"evaluated: the rule {method}",
        warnings=warnings,
        clipping=quantile_clipping(spec, relative_std),
    )


def uniform(spec: Spec) -> Plan:
    """GDPFed: one ratio for all groups, noise by group, no sparsification."""
    return solve(plain(spec, ratios="uniform"))


def unprotected(spec: Spec) -> Plan:
    """The ratios of ``uniform`` for methods without privacy, which clip nothing."""
    return solve(plain(spec, ratios="uniform", clipping=None))


def median_clipped(make: Callable[[Spec], Plan]) -> Callable[[Spec], Plan]:
    """The rule of ``make`` with a norm that follows a private median.

    The papers clip at a median whose privacy they do not pay for.
    """

    def plan(spec: Spec) -> Plan:
        """The plan of the rule, under adaptive clipping unless the spec has its own."""
        planning = spec.planning
        if planning.clipping is None:
            planning = planning.model_copy(update={"clipping": QuantileClipping()})
        return make(spec.model_copy(update={"planning": planning}))

    return plan


def optimised(spec: Spec) -> Plan:
    """GDPFed-op: the ratios of Problem 1, no sparsification."""
    return solve(plain(spec, ratios="gdpfed_plus"))


def strictest(spec: Spec) -> Plan:
    """DP-FedAvg: one sum, weights r_m / r, all under the least epsilon and delta."""
    even = plain(spec, ratios="uniform")
    problem = problem_of(even)
    cohorts = drawable(problem, uniform_cohorts(problem))
    highest = float(problem.ratios(cohorts).max())
    groups = len(problem.names)
    strict = replace(
        problem,
        epsilons=(min(problem.epsilons),) * groups,
        deltas=(min(problem.deltas),) * groups,
    )
    # One noise for all is that of the group which needs most, such as by persons with
    # several clients: where it differed, a group's updates would have to be scaled.
    of_groups = calibrated(strict, np.full(groups, highest), even.planning.accountant)
    noise = np.full(groups, of_groups.max())
    shares = cohorts / cohorts.sum()
    nothing_dropped = np.ones(groups)
    value = closed_form_value(problem, cohorts, sparsified=False)
    return assemble(
        even,
        problem,
        Decisions(
            cohorts=cohorts,
            noise=noise,
            weights=shares,
            kept_fractions=nothing_dropped,
            release="joint",
            objective=ObjectiveValue(name="strictest", value=value),
            bound=published_terms(
                problem,
                shares,
                cohorts,
                noise,
                nothing_dropped,
                "joint",
                noise_provision(even),
            ),
            status="evaluated: the strictest budget for everybody, uniform ratios",
        ),
    )


def published(spec: Spec) -> Plan:
    """GDPFed+: the ratios of Problem 1, sparsified as the spec says."""
    sparsification = spec.model_dump(mode="json")["planning"]["sparsification"]
    return solve(plain(spec, ratios="gdpfed_plus", sparsification=sparsification))


def by_record(
    plan: Plan, records: Mapping[str, int], *, weights: str, strict: bool = False
) -> Plan:
    """DP-SGD at every client under each group's budget.

    A plan of clients has as many passes over the records as are nearest to its local
    steps.

    Args:
        plan: a plan of clients or of records.
        records: records of each client, by group.
        weights: the name of a rule of ``planning.weights``.
        strict: whether all groups take the noise of the strictest budget.
    """
    if plan.spec.unit == "client":
        local = plan.spec.local
        fewest = min(records.values())
        steps_of_pass = local_steps(fewest, min(local.batch_size, fewest), 1)
        epochs = max(1, round(local.steps / steps_of_pass))
        return record_level(
            plan, records, weights=weights, epochs=epochs, strictest=strict
        )
    data = plan.spec.model_dump(mode="json")
    data["planning"]["weights"] = weights
    return solve_records(Spec.parse(data), strictest=strict)


def either(
    plan: Plan,
    records: Mapping[str, int],
    *,
    weights: str,
    of_clients: Callable[[Spec], Plan] = uniform,
) -> Plan:
    """``by_record`` for plans of records, another rule for plans of clients."""
    if plan.spec.unit == "client":
        return of_clients(plan.spec)
    return by_record(plan, records, weights=weights)


def plain(spec: Spec, **planning: Any) -> Spec:
    """The spec as the papers see it, with a release per group and no recipe.

    Args:
        spec: the planning problem.
        planning: fields of its ``planning`` to set besides.
    """
    data = without_recipe(spec.model_dump(mode="json"))
    cohort: float | None = spec.expected_cohort
    if spec.everyone and spec.expected_cohort < spec.population:
        cohort = None  # someone is missing by a limit that is removed below
    data["cohort"] = cohort
    limits_of_group = (
        "sampling_ratio",
        "min_sampling_ratio",
        "max_sampling_ratio",
        "min_weight",
        "least_share",
    )
    for group in data["groups"]:
        group.update(dict.fromkeys(limits_of_group))
    data["planning"] |= {
        "weights": "participation",
        "sparsification": "none",
        "release": "per_group",
        "free": ["ratios", "weights"],
        "least_share": None,
        "slack": None,
        **planning,
    }
    return Spec.parse(data)


# --- One noise multiplier for all groups: each group's ratio uses its budget up. ------
# For a noise multiplier sigma, the largest sampling ratio of a group is calibrated on
# its whole schedule of ratios. More noise allows larger ratios, so one sigma makes the
# expected cohort, averaged over the rounds, the cohort of the problem.

RATIO_TOLERANCE = 1e-4  # relative, of a group's ratio
NOISE_TOLERANCE = 5e-4  # relative, of the noise: above what errors of the ratios make


@dataclass(frozen=True)
class Schedule:
    """Sampling ratios of a group over the rounds, relative to its largest one.

    Attributes:
        phases: numbers of rounds, and their factor in (0, 1] on the largest ratio.
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


def shared_noise(
    problem: Problem, schedules: tuple[Schedule, ...], accountant: str
) -> tuple[float, Floats]:
    """The noise multiplier at which the largest ratios make the cohort, and the ratios.

    Args:
        problem: the planning problem; its cohort is averaged over the rounds.
        schedules: of each group.
        accountant: name of the one that calibrates.

    Raises:
        InputError: for a sampling law other than Poisson.
        InfeasibleError: where no noise multiplier in range makes the cohort.
    """
    if problem.sampling != SamplingLaw.POISSON:
        rule = "must be poisson where each group has a ratio of its own"
        raise InputError.one("sampling", rule, str(problem.sampling))
    means = np.array([schedule.mean for schedule in schedules])
    clients = np.asarray(problem.clients, dtype=float)
    largest_cohort = float(np.sum(means * clients))
    if largest_cohort < problem.cohort:
        raise InfeasibleError(
            f"cohort: must be at most {largest_cohort:g}, the largest average cohort of "
            f"the schedules, found {problem.cohort:g}"
        )
    uniform = uniform_cohorts(problem) / clients
    start = float(np.exp(np.mean(np.log(calibrated(problem, uniform, "rdp")))))
    ratios = uniform / means

    def cohort(log_noise: float) -> float:
        """Clients of an average round that the budgets afford at a noise multiplier."""
        nonlocal ratios  # those of one noise multiplier start the search at the next
        ratios = affordable_ratios(
            problem, schedules, math.exp(log_noise), accountant, ratios
        )
        return float(np.sum(ratios * means * clients))

    log_noise = largest_affordable(
        cohort,
        problem.cohort,
        start=math.log(start),
        low=math.log(NOISE_RANGE[0]),
        high=math.log(NOISE_RANGE[1]),
        tolerance=NOISE_TOLERANCE,
    )
    if log_noise is None:
        raise InfeasibleError(
            "cohort: must be larger, since the budgets afford more clients at the "
            f"smallest noise multiplier {NOISE_RANGE[0]:g}, found {problem.cohort:g}"
        )
    noise = rounded_up(math.exp(log_noise))
    return noise, affordable_ratios(problem, schedules, noise, accountant, ratios)


def affordable_ratios(
    problem: Problem,
    schedules: tuple[Schedule, ...],
    noise: float,
    accountant: str,
    starts: Floats,
) -> Floats:
    """The largest ratios that keep the budgets, shape (groups,)."""
    ratios = []
    for m, schedule in enumerate(schedules):
        target = CalibrationTarget(
            problem.epsilons[m],
            problem.deltas[m],
            problem.sampling,
            problem.relation,
            by_name(accountant),
        )

        def history(log_ratio: float, schedule: Schedule = schedule) -> History:
            """What a client sees of all rounds where the base ratio is that."""
            return schedule.history(noise, min(math.exp(log_ratio), 1.0))

        log_ratio = solve_target(
            target,
            history,
            start=math.log(min(starts[m], 1.0)),
            low=math.log(LEAST_RATIO),
            high=0.0,
            tolerance=RATIO_TOLERANCE,
            start_is_close=True,
        )
        if log_ratio is None:
            raise InfeasibleError(
                f"groups.{problem.names[m]}.epsilon: no sampling ratio keeps "
                f"{problem.epsilons[m]:g} at noise multiplier {noise:.5g}"
            )
        ratios.append(min(math.exp(log_ratio), 1.0))
    return np.array(ratios)


# --- Plans with one noisy sum whose norms or ratios follow the budgets. ---------------
# IDP-FedAvg (Boenisch, Mühl, Dziedzic, Rinberg, Papernot, NeurIPS 2023, "Have it your
# way", for records; here, as in Appendix B.2 of GDPFed+, for clients) has two variants.
#
# Scale: all clients have the same sampling ratio; sigma_m is calibrated to the group's
# budget, the noise on the sum is sigma C with sigma the harmonic mean of sigma_m over
# the clients, and C_m = C sigma / sigma_m. The group's noise multiplier is then sigma C
# / C_m = sigma_m, and the clipping norms average to C over the clients.
#
# Sample: all clients have the clipping norm C and the noise multiplier sigma; q_m uses
# the group's budget up, and sigma is such that the ratios make the cohort.
#
# Time-adaptive HDPFL (Kiani, Kulkarni, Dziedzic, Draper, Boenisch, ICLR 2025,
# "Differentially private federated learning with time-adaptive privacy spending")
# extends Sample: a group has a lower ratio in its first rounds and a higher one in the
# rounds after. The authors tune these schedules by hand; the one here, half of the
# later ratio in the first half of the rounds, is our choice.
#
# One accountant composes the whole schedule: the guarantee's unless another is named.
# In a comparison all methods calibrate with the accountant of the spec, else part of a
# lead is a tighter accountant.


def time_adaptive(spec: Spec, accountant: str = GUARANTEE) -> Plan:
    """The time-adaptive plan: the first half of the rounds at half of the ratio."""
    early = min(round(spec.rounds / 2), spec.rounds - 1)
    phases: tuple[tuple[int, float], ...] = ((spec.rounds - early, 1.0),)
    if early:
        phases = ((early, 0.5), *phases)
    schedule = Schedule(phases)
    return scheduled(spec, (schedule,) * len(spec.groups), "time_adaptive", accountant)


def individual_scale(spec: Spec) -> Plan:
    """The plan of IDP-FedAvg, Scale: one clipping norm per group."""
    plain_spec = plain(spec, ratios="uniform")
    problem = problem_of(plain_spec)
    clients = np.asarray(problem.clients, dtype=float)
    ratios = problem.ratios(drawable(problem, uniform_cohorts(problem)))
    accountant = plain_spec.planning.accountant
    noise = calibrated(problem, ratios, accountant)
    certified = certify_noise(problem, ratios, noise, accountant, FAST_ACCOUNTANTS)
    clips = individual_clips(certified.noise, clients, spec.clipping_norm)
    return one_sum(
        plain_spec,
        problem,
        ratios,
        certified.noise,
        "individual_scale",
        clips=clips,
        warnings=certified.warnings,
    )


def individual_clips(noise: Floats, clients: Floats, clip: float) -> Floats:
    """C_m = C sigma / sigma_m; 1 / sigma is the mean of 1 / sigma_m over clients."""
    mean_noise = clients.sum() / np.sum(clients / noise)
    return np.asarray(clip * mean_noise / noise)


def individual_sample(spec: Spec, accountant: str = GUARANTEE) -> Plan:
    """The plan of IDP-FedAvg, Sample: one sampling ratio per group."""
    constant = (Schedule(((spec.rounds, 1.0),)),) * len(spec.groups)
    return scheduled(spec, constant, "individual_sample", accountant)


def scheduled(
    spec: Spec, schedules: tuple[Schedule, ...], method: str, accountant: str
) -> Plan:
    """The plan of a noisy sum with one noise multiplier, and a schedule per group."""
    plain_spec = plain(
        spec, ratios="uniform", accountant=accountant, calibration="exact"
    )
    problem = problem_of(plain_spec)
    noise, ratios = shared_noise(problem, schedules, accountant)
    segments: list[tuple[Segment, ...] | None] = []
    for schedule, ratio in zip(schedules, ratios.tolist(), strict=True):
        if len(schedule.phases) == 1:
            segments.append(None)
            continue
        phases = [
            Segment(rounds=count, sampling_ratio=ratio * factor, noise_multiplier=noise)
            for count, factor in schedule.phases
        ]
        segments.append(tuple(phases))
    means = ratios * np.array([schedule.mean for schedule in schedules])
    noises = np.full(len(means), noise)
    return one_sum(plain_spec, problem, means, noises, method, segments=segments)
