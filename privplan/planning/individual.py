"""Time-adaptive HDPFL: clients spend little of their budget early and more of it late.

Kiani, Kulkarni, Dziedzic, Draper, Boenisch (ICLR 2025), "Differentially private federated
learning with time-adaptive privacy spending": under one noise multiplier, a group saves by a
lower sampling ratio in its first rounds and spends what it saved by a higher one afterwards.
They tune the schedules by hand. Ours, where none is given, saves in the first half of the
rounds, at half of the later ratio; that is our choice and not theirs. The whole schedule is
composed by the accountant of the guarantee, and each group's ratio is the largest that keeps
its budget.

IDP-FedAvg: one noisy sum in which each group's bound or ratio follows its budget.

Boenisch, Mühl, Dziedzic, Rinberg, Papernot (NeurIPS 2023), "Have it your way", for records;
here, as in the comparisons of GDPFed+ (Appendix B.2), for clients.

- Scale: all clients take part equally often. sigma_m is what the group's budget needs at that
  ratio; the noise on the sum is sigma C with sigma the harmonic mean of sigma_m over the
  clients, and the group's clipping norm is C_m = C sigma / sigma_m. So the group faces exactly
  sigma C / C_m = sigma_m, and the clipping norms average to C over the clients.
- Sample: all clients have the clipping norm C and face one sigma; q_m is the ratio at which
  the group's budget is used up, and sigma is such that the ratios make the wanted cohort.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privplan.errors import Fault, InputError
from privplan.plan import GroupPlan, Plan, Segment
from privplan.planning.baselines import one_sum, plain
from privplan.planning.group_noise import GUARANTEE, QUICK, calibrated, certify_noise
from privplan.planning.problem import Problem, drawable, problem_of, uniform_cohorts
from privplan.planning.shared_noise import Schedule, shared_noise
from privplan.spec.spec import Spec


@dataclass(frozen=True)
class Saving:
    """How a group saves.

    Attributes:
        rounds: share of the rounds, from the first, in which it saves, in [0, 1).
        factor: its sampling ratio then over the one that follows, in (0, 1].

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
        """The saving rounds and the rest; the last round is never a saving one."""
        early = min(round(self.rounds * rounds), rounds - 1)
        if early == 0:
            return Schedule(((rounds, 1.0),))
        return Schedule(((early, self.factor), (rounds - early, 1.0)))


DEFAULT = Saving()


def time_adaptive(spec: Spec, saving: Saving | Mapping[str, Saving] = DEFAULT) -> Plan:
    """The plan of one noisy sum under schedules of saving and spending.

    Args:
        spec: the planning problem, with Poisson sampling.
        saving: one for all groups, or by name of the group; a group without one does not save.

    Returns:
        A plan whose groups have ``segments``. Their expected cohort, averaged over the rounds,
        is the spec's.

    Raises:
        InputError: when the sampling law is not Poisson, or a name is of no group.
        InfeasibleError: when budgets, schedules and cohort do not fit.
    """
    names = [group.name for group in spec.groups]
    if isinstance(saving, Saving):
        saving = dict.fromkeys(names, saving)
    unknown = sorted(set(saving) - set(names))
    if unknown:
        rule = f"must be of groups among {', '.join(names)}"
        raise InputError([Fault("saving", rule, name) for name in unknown])
    steady = Saving(rounds=0.0)
    schedules = tuple(saving.get(name, steady).schedule(spec.rounds) for name in names)
    return scheduled(spec, schedules, "time_adaptive", GUARANTEE)


Floats = NDArray[np.float64]


def individual_scale(spec: Spec) -> Plan:
    """IDP-FedAvg, Scale: a clipping norm of its own for each group.

    Returns:
        A plan with one noisy sum, whose groups have ``clipping_norm`` and ``scale`` 1.

    Raises:
        InfeasibleError: naming the group whose budget no noise meets.
        UnsupportedError: when the spec's accountant does not cover its law and relation.
    """
    even = plain(spec, ratios="uniform")
    problem = problem_of(even)
    clients = np.asarray(problem.clients, dtype=float)
    cohorts = drawable(problem, uniform_cohorts(problem))
    ratios = np.minimum(cohorts / clients, 1.0)
    accountant = even.planning.accountant
    sure = certify_noise(
        problem, ratios, calibrated(problem, ratios, accountant), accountant, QUICK
    )
    clips = individual_clips(sure.noise, clients, spec.clipping_norm)
    groups = shared_groups(problem, ratios, sure.noise, clips)
    return one_sum(even, problem, groups, "individual_scale", sure.warnings)


def individual_clips(noise: Floats, clients: Floats, clip: float) -> Floats:
    """C_m = C sigma / sigma_m with 1 / sigma the mean of 1 / sigma_m over the clients.

    Args:
        noise: sigma_m, shape (groups,).
        clients: N_m, shape (groups,).
        clip: C, which the clipping norms average to.

    Returns:
        Clipping norms, shape (groups,); sigma_m C_m is one number.
    """
    shared = clients.sum() / np.sum(clients / noise)
    return np.asarray(clip * shared / noise)


def individual_sample(spec: Spec, accountant: str = GUARANTEE) -> Plan:
    """IDP-FedAvg, Sample: a sampling ratio of its own for each group.

    Args:
        spec: the planning problem, with Poisson sampling.
        accountant: which one the ratios are found with; with the guarantee they use the
            budgets up, whatever the spec calibrates with.

    Returns:
        A plan with one noisy sum, one noise multiplier, and a ratio for each group.

    Raises:
        InputError: when the sampling law is not Poisson.
        InfeasibleError: when the budgets and the cohort do not fit, or the accountant's ratios
            overspend a budget by the guarantee.
    """
    steady = (Schedule(((spec.rounds, 1.0),)),) * len(spec.groups)
    return scheduled(spec, steady, "individual_sample", accountant)


def scheduled(spec: Spec, schedules: tuple[Schedule, ...], method: str, accountant: str) -> Plan:
    """The plan of one sum and one noise multiplier under a schedule for each group.

    Args and errors are those of ``individual_sample``; ``method`` names the rule.
    """
    even = plain(spec, ratios="uniform", accountant=accountant, calibration="exact")
    problem = problem_of(even)
    found = shared_noise(problem, schedules, accountant)
    means = found.ratios * np.array([schedule.mean for schedule in schedules])
    noise = np.full(len(means), found.noise)
    groups = shared_groups(problem, means, noise, None)
    moving = tuple(
        group.model_copy(update={"segments": _segments(schedule, found.noise, float(ratio))})
        for group, schedule, ratio in zip(groups, schedules, found.ratios, strict=True)
    )
    return one_sum(even, problem, moving, method)


def _segments(schedule: Schedule, noise: float, ratio: float) -> tuple[Segment, ...] | None:
    """The stretches as segments; None when there is but one."""
    if len(schedule.stretches) == 1:
        return None
    return tuple(
        Segment(rounds=count, sampling_ratio=ratio * factor, noise_multiplier=noise)
        for count, factor in schedule.stretches
    )


def shared_groups(
    problem: Problem, ratios: Floats, noise: Floats, clips: Floats | None
) -> tuple[GroupPlan, ...]:
    """Groups that add to one sum at scale 1; their weights are left to ``one_sum``.

    Args:
        problem: what is given.
        ratios: sampling ratios, averaged over the rounds, shape (groups,).
        noise: noise multipliers that the groups face, shape (groups,).
        clips: clipping norms of their own, shape (groups,), or None.
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
