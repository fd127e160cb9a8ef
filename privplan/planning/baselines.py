"""Certified plans of the baseline algorithms, for the same spec.

Baselines either release a noisy sum per group (GDPFed, GDPFed-op, GDPFed+) or add all updates to
one noisy sum without scaling them. In that sum a client of group m adds at most its bound C_m;
the noise has one standard deviation std, so the group faces the noise multiplier std / C_m. The
server divides by the expected cohort r, so the weight of a group is r_m / r.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.accountant import accountant as by_name
from privplan.accounting.calibrate import LEAST_RATIO, NOISE_RANGE, CalibrationTarget
from privplan.accounting.calibrate import solve as shared_noise_solve
from privplan.accounting.gdp import largest_affordable
from privplan.accounting.release import History, Release, SamplingLaw
from privplan.errors import Fault, InfeasibleError, InputError
from privplan.plan import GroupPlan, ObjectiveValue, Plan, Segment
from privplan.planning.assemble import Decisions, assemble, make_plan, quantile_clipping
from privplan.planning.noise import (
    FAST_ACCOUNTANTS,
    GUARANTEE,
    calibrated,
    certify_noise,
    rounded_up,
)
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
    groups: tuple[GroupPlan, ...],
    method: str,
    warnings: tuple[str, ...] = (),
) -> Plan:
    """The certified plan of groups that share one noisy sum."""
    cohorts = np.array([group.expected_cohort for group in groups])
    weights = cohorts / cohorts.sum()
    mean_clip = spec.clipping_norm
    stds = [g.noise_multiplier * (g.clipping_norm or mean_clip) for g in groups]
    noise = np.full(len(groups), max(stds) / mean_clip)
    kept = np.ones(len(groups))
    bound = published_terms(problem, weights, cohorts, noise, kept, "joint")
    provision = 1 / math.sqrt(noise_provision(spec))
    return make_plan(
        spec,
        tuple(
            group.model_copy(update={"weight": float(weight)})
            for group, weight in zip(groups, weights, strict=True)
        ),
        release="joint",
        objective=ObjectiveValue(name=method, value=sum(bound.values())),
        bound=bound,
        noise_std=max(stds) / float(cohorts.sum()) / provision,
        status=f"evaluated: the rule {method}",
        warnings=warnings,
        clipping=quantile_clipping(spec, max(stds) / mean_clip),
    )


def uniform(spec: Spec) -> Plan:
    """GDPFed: the same ratio for every group, each with its own noise, no sparsification."""
    return solve(plain(spec, ratios="uniform"))


def unprotected(spec: Spec) -> Plan:
    """The ratios of ``uniform`` for methods without privacy, which clip nothing."""
    return solve(plain(spec, ratios="uniform", clipping=None))


def median_clipped(make: Callable[[Spec], Plan]) -> Callable[[Spec], Plan]:
    """A plan whose clipping norm follows a private median, unless the spec says otherwise.

    For methods whose paper clips at the median of the round's norms, which is a release of its
    own that the paper does not pay for.
    """

    def plan(spec: Spec) -> Plan:
        planning = spec.planning
        if planning.clipping is None:
            planning = planning.model_copy(update={"clipping": QuantileClipping()})
        return make(spec.model_copy(update={"planning": planning}))

    return plan


def optimised(spec: Spec) -> Plan:
    """GDPFed-op: the ratios of Problem 1, no sparsification."""
    return solve(plain(spec, ratios="gdpfed_plus"))


def strictest(spec: Spec) -> Plan:
    """DP-FedAvg: one sum of all groups, every client under the strictest budget.

    The noise multiplier is that of the smallest epsilon and the smallest delta; the weights
    r_m / r make the step the mean over the cohort.
    """
    even = plain(spec, ratios="uniform")
    problem = problem_of(even)
    cohorts = drawable(problem, uniform_cohorts(problem))
    highest = np.max(cohorts / np.asarray(problem.clients, dtype=float))
    groups = len(problem.names)
    strict = replace(
        problem,
        epsilons=(min(problem.epsilons),) * groups,
        deltas=(min(problem.deltas),) * groups,
    )
    noise = calibrated(strict, np.array([min(highest, 1.0)]), even.planning.accountant)
    shares = cohorts / cohorts.sum()
    return assemble(
        even,
        problem,
        Decisions(
            cohorts=cohorts,
            noise=np.full(groups, noise[0]),
            weights=shares,
            kept_fractions=np.ones(groups),
            release="joint",
            objective=ObjectiveValue(
                name="strictest", value=closed_form_value(problem, cohorts, sparsified=False)
            ),
            bound=published_terms(
                problem, shares, cohorts, np.full(groups, noise[0]), np.ones(groups), "joint"
            ),
            status="evaluated: the strictest budget for everybody, uniform ratios",
        ),
    )


def published(spec: Spec) -> Plan:
    """GDPFed+: the ratios of Problem 1, a release per group, the spec's kept fractions."""
    kept = spec.model_dump(mode="json")["planning"]["sparsification"]
    return solve(plain(spec, ratios="gdpfed_plus", sparsification=kept))


def by_record(
    plan: Plan, records: Mapping[str, int], *, weights: str, strict: bool = False
) -> Plan:
    """DP-SGD at every client: the plan that protects records, with each group's budget.

    A plan of clients is turned into one with as many passes as come nearest to its local steps.
    """
    if plan.spec.unit == "client":
        local, fewest = plan.spec.local, min(records.values())
        a_pass = local_steps(fewest, min(local.batch_size, fewest), 1)
        epochs = max(1, round(local.steps / a_pass))
        return record_level(plan, records, weights=weights, epochs=epochs, strictest=strict)
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
    """The spec as the papers' methods see it, with other planning choices.

    A release per group, participation weights, no sparsification, and none of the limits and
    free variables that only objectives support. What a recipe decided is left out.
    """
    data = without_recipe(spec.model_dump(mode="json"))
    data["cohort"] = spec.expected_cohort
    own = ("sampling_ratio", "min_sampling_ratio", "max_sampling_ratio", "min_weight")
    for group in data["groups"]:
        group.update(dict.fromkeys(own))
    changes = {
        "weights": "participation",
        "sparsification": "none",
        "release": "per_group",
        "free": ["ratios", "weights"],
        **planning,
    }
    data["planning"] = {**data["planning"], **changes}
    return Spec.parse(data)


# --- One noise multiplier for all groups: the sampling ratio of each group uses its budget up. ---
#
# For a noise multiplier sigma, the largest sampling ratio of a group is calibrated on its whole
# schedule of ratios. More noise allows larger ratios, so one sigma makes the expected cohort,
# averaged over the rounds, the cohort of the problem.

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
    """The noise multiplier at which the largest affordable ratios make the problem's cohort."""
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
    """The largest ratio of each group's schedule that keeps its budget, shape (groups,)."""
    ratios = []
    for m, schedule in enumerate(schedules):
        budget = problem.epsilons[m], problem.deltas[m]
        target = CalibrationTarget(*budget, problem.sampling, problem.relation, by_name(accountant))

        def history(log_ratio: float, schedule: Schedule = schedule) -> History:
            return schedule.history(noise, min(math.exp(log_ratio), 1.0))

        result = shared_noise_solve(
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


# --- Plans with one noisy sum in which clipping norms or sampling ratios follow the budgets. -----
#
# IDP-FedAvg (Boenisch, Mühl, Dziedzic, Rinberg, Papernot, NeurIPS 2023, "Have it your way", for
# records; here, as in Appendix B.2 of GDPFed+, for clients) has two variants. Scale: all clients
# have the same sampling ratio; sigma_m is calibrated to the group's budget, the noise on the sum
# is sigma C with sigma the harmonic mean of sigma_m over the clients, and C_m = C sigma /
# sigma_m. The group's noise multiplier is then sigma C / C_m = sigma_m, and the clipping norms
# average to C over the clients. Sample: all clients have the clipping norm C and the noise
# multiplier sigma; q_m uses the group's budget up, and sigma is such that the ratios make the
# cohort. Time-adaptive HDPFL (Kiani, Kulkarni, Dziedzic, Draper, Boenisch, ICLR 2025,
# "Differentially private federated learning with time-adaptive privacy spending") extends Sample:
# a group has a lower ratio in its first rounds and a higher one in the rounds after. The authors
# tune these schedules by hand; the default here, half of the later ratio in the first half of the
# rounds, is our choice. One accountant composes the whole schedule: the guarantee's unless
# another is named. In a comparison all methods calibrate with the accountant of the spec, else
# part of a lead is a tighter accountant.


@dataclass(frozen=True)
class Saving:
    """Rounds in which a group saves privacy budget by a lower sampling ratio.

    Attributes:
        rounds: fraction of the rounds, from the first, with the lower ratio, in [0, 1).
        factor: the lower ratio over the later one, in (0, 1].

    Raises:
        InputError: when a value is out of range.
    """

    rounds: float = 0.5
    factor: float = 0.5

    def __post_init__(self) -> None:
        faults = []
        if not 0 <= self.rounds < 1:
            faults.append(Fault("saving.rounds", "must be in [0, 1)", self.rounds))
        if not 0 < self.factor <= 1:
            faults.append(Fault("saving.factor", "must be in (0, 1]", self.factor))
        if faults:
            raise InputError(faults)

    def schedule(self, rounds: int) -> Schedule:
        """The group's schedule; the last round always has the higher ratio."""
        early = min(round(self.rounds * rounds), rounds - 1)
        if early == 0:
            return Schedule(((rounds, 1.0),))
        return Schedule(((early, self.factor), (rounds - early, 1.0)))


DEFAULT = Saving()


def time_adaptive(
    spec: Spec, saving: Saving | Mapping[str, Saving] = DEFAULT, accountant: str = GUARANTEE
) -> Plan:
    """The time-adaptive plan."""
    names = [group.name for group in spec.groups]
    if isinstance(saving, Saving):
        saving = dict.fromkeys(names, saving)
    unknown = sorted(set(saving) - set(names))
    if unknown:
        rule = f"must be of groups among {', '.join(names)}"
        raise InputError([Fault("saving", rule, name) for name in unknown])
    constant = Saving(rounds=0.0)
    schedules = tuple(saving.get(name, constant).schedule(spec.rounds) for name in names)
    return scheduled(spec, schedules, "time_adaptive", accountant)


def individual_scale(spec: Spec) -> Plan:
    """The plan of IDP-FedAvg, Scale: one clipping norm per group."""
    plain_spec = plain(spec, ratios="uniform")
    problem = problem_of(plain_spec)
    clients = np.asarray(problem.clients, dtype=float)
    cohorts = drawable(problem, uniform_cohorts(problem))
    ratios = np.minimum(cohorts / clients, 1.0)
    accountant = plain_spec.planning.accountant
    certified = certify_noise(
        problem, ratios, calibrated(problem, ratios, accountant), accountant, FAST_ACCOUNTANTS
    )
    clips = individual_clips(certified.noise, clients, spec.clipping_norm)
    groups = shared_groups(problem, ratios, certified.noise, clips)
    return one_sum(plain_spec, problem, groups, "individual_scale", certified.warnings)


def individual_clips(noise: Floats, clients: Floats, clip: float) -> Floats:
    """C_m = C sigma / sigma_m with 1 / sigma the mean of 1 / sigma_m over the clients."""
    mean_noise = clients.sum() / np.sum(clients / noise)
    return np.asarray(clip * mean_noise / noise)


def individual_sample(spec: Spec, accountant: str = GUARANTEE) -> Plan:
    """The plan of IDP-FedAvg, Sample: one sampling ratio per group."""
    constant = (Schedule(((spec.rounds, 1.0),)),) * len(spec.groups)
    return scheduled(spec, constant, "individual_sample", accountant)


def scheduled(spec: Spec, schedules: tuple[Schedule, ...], method: str, accountant: str) -> Plan:
    """The plan of one noisy sum and one noise multiplier, with one schedule per group.

    Arguments and errors are those of ``individual_sample``; ``method`` names the rule.
    """
    plain_spec = plain(spec, ratios="uniform", accountant=accountant, calibration="exact")
    problem = problem_of(plain_spec)
    shared = shared_noise(problem, schedules, accountant)
    means = shared.ratios * np.array([schedule.mean for schedule in schedules])
    noise = np.full(len(means), shared.noise)
    groups = shared_groups(problem, means, noise, None)
    with_segments = tuple(
        group.model_copy(update={"segments": _segments(schedule, shared.noise, float(ratio))})
        for group, schedule, ratio in zip(groups, schedules, shared.ratios, strict=True)
    )
    return one_sum(plain_spec, problem, with_segments, method)


def _segments(schedule: Schedule, noise: float, ratio: float) -> tuple[Segment, ...] | None:
    """The phases as segments; None when there is only one."""
    if len(schedule.phases) == 1:
        return None
    return tuple(
        Segment(rounds=count, sampling_ratio=ratio * factor, noise_multiplier=noise)
        for count, factor in schedule.phases
    )


def shared_groups(
    problem: Problem, ratios: Floats, noise: Floats, clips: Floats | None
) -> tuple[GroupPlan, ...]:
    """Group plans of one sum with scale 1, without the weights, which ``one_sum`` sets."""
    return tuple(
        GroupPlan(
            name=problem.names[m],
            clients=problem.clients[m],
            epsilon=problem.epsilons[m],
            delta=problem.deltas[m],
            sampling_ratio=float(ratios[m]),
            expected_cohort=float(ratios[m] * problem.clients[m]),
            noise_multiplier=float(noise[m]),
            kept_fraction=1.0,
            weight=0.0,
            clipping_norm=None if clips is None else float(clips[m]),
        )
        for m in range(len(problem.names))
    )
