"""Plans with one noisy sum in which clipping norms or sampling ratios follow the budgets.

IDP-FedAvg (Boenisch, Mühl, Dziedzic, Rinberg, Papernot, NeurIPS 2023, "Have it your way", for
records; here, as in Appendix B.2 of GDPFed+, for clients) has two variants. Scale: all clients have
the same sampling ratio; sigma_m is calibrated to the group's budget, the noise on the sum is
sigma C with sigma the harmonic mean of sigma_m over the clients, and C_m = C sigma / sigma_m. The
group's noise multiplier is then sigma C / C_m = sigma_m, and the clipping norms average to C over
the clients. Sample: all clients have the clipping norm C and the noise multiplier sigma; q_m uses
the group's budget up, and sigma is such that the ratios make the cohort. Time-adaptive HDPFL
(Kiani, Kulkarni, Dziedzic, Draper, Boenisch, ICLR 2025, "Differentially private federated learning
with time-adaptive privacy spending") extends Sample: a group has a lower ratio in its first rounds
and a higher one in the rounds after. The authors tune these schedules by hand; the default here,
half of the later ratio in the first half of the rounds, is our choice. One accountant composes the
whole schedule: the guarantee's unless another is named. In a comparison all methods calibrate with
the accountant of the spec, else part of a lead is a tighter accountant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privplan.errors import Fault, InputError
from privplan.plan import GroupPlan, Plan, Segment
from privplan.planning.baselines import one_sum, plain
from privplan.planning.group_noise import FAST_ACCOUNTANTS, GUARANTEE, calibrated, certify_noise
from privplan.planning.problem import Problem, drawable, problem_of, uniform_cohorts
from privplan.planning.shared_noise import Schedule, shared_noise
from privplan.spec.spec import Spec

Floats = NDArray[np.float64]


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
    """The time-adaptive plan.

    Args:
        spec: the planning problem, with Poisson sampling.
        saving: for all groups, or group name -> saving; a group without one has a constant ratio.
        accountant: as for ``individual_sample``.

    Returns:
        A plan whose groups have ``segments``. Their expected cohort, averaged over the rounds,
        is the spec's.

    Raises:
        InputError: when the sampling law is not Poisson, or a group name is unknown.
        InfeasibleError: when budgets, schedules and cohort are incompatible.
    """
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
    """The plan of IDP-FedAvg, Scale: one clipping norm per group.

    Returns:
        A plan with one noisy sum, whose groups have ``clipping_norm`` and ``scale`` 1.

    Raises:
        InfeasibleError: naming the group whose budget no noise meets.
        UnsupportedError: when the spec's accountant does not cover its law and relation.
    """
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
    """C_m = C sigma / sigma_m with 1 / sigma the mean of 1 / sigma_m over the clients.

    Args:
        noise: sigma_m, shape (groups,).
        clients: N_m, shape (groups,).
        clip: C, the average of the clipping norms over the clients.

    Returns:
        Clipping norms, shape (groups,); sigma_m C_m is the same for all groups.
    """
    mean_noise = clients.sum() / np.sum(clients / noise)
    return np.asarray(clip * mean_noise / noise)


def individual_sample(spec: Spec, accountant: str = GUARANTEE) -> Plan:
    """The plan of IDP-FedAvg, Sample: one sampling ratio per group.

    Args:
        spec: the planning problem, with Poisson sampling.
        accountant: calibrates the ratios; the guarantee's accountant uses the budgets up.

    Returns:
        A plan with one noisy sum, one noise multiplier, and a ratio per group.

    Raises:
        InputError: when the sampling law is not Poisson.
        InfeasibleError: when budgets and cohort are incompatible, or the accountant's ratios
            overspend a budget according to the guarantee.
    """
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
    """Group plans of one sum with scale 1, without the weights, which ``one_sum`` sets.

    Args:
        problem: names, clients and budgets of the groups.
        ratios: sampling ratios, averaged over the rounds, shape (groups,).
        noise: noise multipliers of the groups, shape (groups,).
        clips: clipping norms, shape (groups,); None when all groups have the spec's.
    """
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
