"""Specs with fixed noise multipliers: the epsilon of each group, or the rounds that fit."""

from __future__ import annotations

from typing import Any

from privplan.accounting.accountant import accountant
from privplan.accounting.calibrate import calibrate
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.accounting.target import NOISE_RANGE, least_certified
from privplan.errors import Fault, InputError, TooLittleNoiseError
from privplan.spec.base import BaseSpec
from privplan.spec.fields import Group
from privplan.spec.fixed_risk import most_rounds, own_budget
from privplan.values import parse

_GUARANTEE = "pld"


def with_fixed_noise(
    kind: type[BaseSpec], data: dict[str, Any], risky: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Plain data of a spec with what its fixed noise multipliers decide filled in.

    A group with a noise multiplier and without an epsilon gets the epsilon that it spends; where
    every group has both, ``rounds`` may be left out: the most that keep every budget. A risk is
    stated as the budget that implies it by the group's own trade-off curve.

    Args:
        kind: class of the spec.
        data: the spec's data; returned unchanged when nothing is to be filled in.
        risky: names of groups with a noise multiplier whose budget is a risk.

    Raises:
        InputError: for faults of the spec, or noise multipliers out of range.
        InfeasibleError: when not even one round keeps a budget.
    """
    groups = data.get("groups")
    if not isinstance(groups, list | tuple) or not all(isinstance(one, dict) for one in groups):
        return data
    fixed = [one.get("noise_multiplier") is not None for one in groups]
    without = [has and one.get("epsilon") is None for has, one in zip(fixed, groups, strict=True)]
    rounds = "rounds" not in data and bool(fixed) and all(fixed) and not any(without)
    if not rounds and not any(without) and not risky:
        return data
    assumed = [
        {**one, "epsilon": 1.0} if lacks else one
        for lacks, one in zip(without, groups, strict=True)
    ]
    trial = parse(kind, {**data, "groups": assumed, **({"rounds": _turns(data)} if rounds else {})})
    if rounds:
        most = min(_rounds(trial, group, group.name in risky) for group in trial.groups)
        data, trial = {**data, "rounds": most}, trial.model_copy(update={"rounds": most})
    filled = [
        {**one, "epsilon": _epsilon(trial, group)} if lacks else one
        for lacks, one, group in zip(without, groups, trial.groups, strict=True)
    ]
    stated = [
        {**one, **_budget(trial, group)} if group.name in risky else one
        for one, group in zip(filled, trial.groups, strict=True)
    ]
    return {**data, "groups": stated}


def _turns(data: dict[str, Any]) -> int:
    """The fewest rounds under the sampling law of plain data; 1 where it names none."""
    name = data.get("sampling")
    try:
        return SamplingLaw(name).law.turns if isinstance(name, str) else 1
    except (ValueError, InputError):
        return 1


def fixed_ratio(spec: BaseSpec, group: Group) -> float:
    """The sampling ratio of a group of a spec with given or uniform ratios."""
    if spec.planning.ratios == "given":
        return group.sampling_ratio or 0.0
    return spec.expected_cohort / spec.population


def noise_faults(spec: BaseSpec, group: Group) -> list[Fault]:
    """Faults of a group's fixed noise multiplier."""
    where, noise = f"groups.{group.name}.noise_multiplier", group.noise_multiplier
    if noise is None or spec.sampling.law.turns > 1:  # which refuses it, whatever the ratios
        return []
    if not NOISE_RANGE[0] <= noise <= NOISE_RANGE[1]:
        text = f"must be in [{NOISE_RANGE[0]:g}, {NOISE_RANGE[1]:g}]"
        return [Fault(where, text, noise)]
    if spec.planning.ratios not in ("given", "uniform"):
        return [Fault(where, "is only for planning.ratios: given, uniform", noise)]
    if spec.release != "per_group":
        return [Fault(where, "needs release: per_group", spec.release)]
    cohort = fixed_ratio(spec, group) * group.clients
    if spec.sampling.law.whole_cohorts and abs(cohort - round(cohort)) > 1e-6 * cohort:
        text = f"needs a whole cohort of the {group.clients} clients"
        return [Fault(where, text, f"{cohort:.6g}")]
    return []


def _history(spec: BaseSpec, group: Group, rounds: int) -> History:
    """What a client of a group with a fixed noise multiplier takes part in."""
    release = Release(group.noise_multiplier or 0.0, fixed_ratio(spec, group), spec.sampling)
    return History.repeated(release, rounds)


def _budget(spec: BaseSpec, group: Group) -> dict[str, float]:
    """Fields of the budget that implies a group's risk by its own curve; none if it is exceeded."""
    if group.risk is None:
        return {}
    history = _history(spec, group, spec.rounds)
    found = own_budget(group.risk, history, Relation(spec.relation))
    return {} if found is None else {"epsilon": found[0], "delta": found[1]}


def _epsilon(spec: BaseSpec, group: Group) -> float:
    """The epsilon that a group spends, by the guarantee's accountant."""
    history, relation = _history(spec, group, spec.rounds), Relation(spec.relation)
    try:
        found = accountant(_GUARANTEE).epsilon(history, spec.delta_of(group), relation)
    except TooLittleNoiseError:
        where = f"groups.{group.name}.noise_multiplier"
        least = least_certified(spec.sampling, relation)
        text = f"must be {least:.3g} or more to be certified under sampling"
        raise InputError.one(where, text, group.noise_multiplier) from None
    if not 0 < found.upper < float("inf"):
        where = f"groups.{group.name}.noise_multiplier"
        text = f"must give a positive and finite epsilon, gives {found.upper:g}"
        raise InputError.one(where, text, group.noise_multiplier)
    return found.upper


def _rounds(spec: BaseSpec, group: Group, risky: bool) -> int:
    """The most rounds that keep a group's budget, or its risk."""
    if risky and group.risk is not None:
        one_round = _history(spec, group, 1)
        if (most := most_rounds(group.risk, one_round, Relation(spec.relation))) is not None:
            return most
    return int(
        calibrate(
            "rounds",
            group.epsilon,
            spec.delta_of(group),
            noise_multiplier=group.noise_multiplier,
            sampling_ratio=fixed_ratio(spec, group),
            sampling=spec.sampling,
            relation=spec.relation,
        )
    )
