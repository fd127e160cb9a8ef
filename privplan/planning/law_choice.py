"""Chooses the sampling law: of those that a fleet can follow, the one of least noise.

A fleet is the spec's rounds and cohorts. What its clients can do
(``planning.participation``) says whose draws a law may rest on: where a server draws,
clients can choose as well, and who chooses can as well come when it can.

Laws are compared by the number that ``solve`` prints, ``recipe.relative_noise``: the
noise of the last model as independent noise of the mean update, in norm over the
clipping norm. Of each family the members are tried whose cohorts are at most the
spec's, at the spec's rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import get_args

from privplan.errors import InfeasibleError, InputError, PrivplanError
from privplan.laws.law import FAMILIES, Fleet, Participation
from privplan.laws.sampling_law import SamplingLaw
from privplan.plan import ComparedLaw, Plan
from privplan.planning.choices import task_of
from privplan.planning.problem import check_limits, problem_of, respecified
from privplan.planning.recipe import relative_noise, relative_noise_of
from privplan.planning.search import estimated
from privplan.spec.spec import Spec

_ORDER: tuple[Participation, ...] = get_args(Participation)
# Members of a family are tried until so many in a row are worse than its best.
_WORSE_MEMBERS = 3
_DIGITS = 9  # of clients over a cohort, which is a whole number but for rounding


def with_best_law(spec: Spec) -> tuple[Spec, tuple[ComparedLaw, ...]]:
    """The spec under the law of least noise, and all that were compared.

    A spec whose law is stated itself, and none.

    Raises:
        InfeasibleError: where no law has a plan.
    """
    if "sampling" not in spec.planning.free:
        return spec, ()
    compared: list[ComparedLaw] = []
    for family, names in _families(spec):
        compared += _compared_members(spec, family, names)
    planned = [law for law in compared if law.noise is not None]
    if not planned:
        reasons = "; ".join(f"{law.sampling}: {law.reason}" for law in compared)
        raise InfeasibleError(f"planning.free: no sampling law has a plan: {reasons}")
    best = min(planned, key=lambda law: law.noise or math.inf)
    return _under(spec, best.sampling), tuple(compared)


def with_compared(plan: Plan, compared: Sequence[ComparedLaw]) -> Plan:
    """The plan with the laws that it was chosen from, its own with its exact noise."""
    if not compared:
        return plan
    laws: list[ComparedLaw] = []
    for law in compared:
        if law.sampling == plan.spec.sampling:
            law = law.model_copy(update={"noise": relative_noise(plan)})
        laws.append(law)
    return plan.model_copy(update={"compared_laws": tuple(laws)})


def _families(spec: Spec) -> Iterator[tuple[str, list[str]]]:
    """Names of families with those of the members that fit the fleet."""
    period = round(spec.population / spec.expected_cohort, _DIGITS)
    fleet = Fleet(spec.rounds, period)
    tried: list[str] = [SamplingLaw.POISSON]
    yield SamplingLaw.POISSON, tried
    for family, laws in FAMILIES.items():
        if laws.fitting is not None:
            members = [f"{family}:{numbers}" for numbers in laws.fitting(fleet)]
            tried += members
            yield family, members
    # The spec's own law has a place, too, whatever its family.
    if spec.sampling not in tried:
        yield spec.sampling, [spec.sampling]


def _compared_members(
    spec: Spec, family: str, names: Sequence[str]
) -> list[ComparedLaw]:
    """The members of a family; the family itself where one reason excludes them all."""
    if not names:
        share = spec.population / spec.expected_cohort
        reason = (
            f"has no turns for {spec.rounds} rounds and cohorts of 1 in {share:.4g}"
        )
        return [ComparedLaw(sampling=family, reason=reason)]
    members: list[ComparedLaw] = []
    worse_in_a_row = 0
    lowest_noise = math.inf
    for name in names:
        if worse_in_a_row == _WORSE_MEMBERS:
            reason = f"was not tried, since the {_WORSE_MEMBERS} before it are worse"
            members.append(ComparedLaw(sampling=name, reason=reason))
            continue
        member = _compared(spec, name)
        members.append(member)
        noise = member.noise
        if noise is None:
            continue
        if noise > lowest_noise:
            worse_in_a_row = worse_in_a_row + 1
        else:
            worse_in_a_row = 0
        lowest_noise = min(lowest_noise, noise)
    reasons = {member.reason for member in members}
    if len(reasons) == 1 and None not in reasons:
        return [ComparedLaw(sampling=family, reason=members[0].reason)]
    return members


def _compared(spec: Spec, name: str) -> ComparedLaw:
    """A law with the noise of its plan, within 0.5%, or why there is none."""
    required = SamplingLaw(name).law.participation
    possible = spec.planning.participation or spec.sampling.law.participation
    if _ORDER.index(required) < _ORDER.index(possible):
        return ComparedLaw(sampling=name, reason=f"needs participation: {required}")
    if not _keeps_cap(spec, name):
        return ComparedLaw(sampling=name, reason="has no cap on cohorts")
    try:
        changed = _under(spec, name)
        check_limits(changed)
        allocation = estimated(task_of(changed, problem_of(changed)))
    except InputError as error:
        fault = error.faults[0]
        rule = f"{fault.field} {fault.rule}".partition(" under ")[0]
        return ComparedLaw(sampling=name, reason=rule)
    except PrivplanError as error:
        return ComparedLaw(sampling=name, reason=str(error))
    return ComparedLaw(sampling=name, noise=relative_noise_of(changed, allocation))


def _keeps_cap(spec: Spec, name: str) -> bool:
    """Whether a law has the cap on cohorts that the spec's law has, if any."""
    ratio = spec.expected_cohort / spec.population
    is_capped = spec.sampling.law.cap(spec.population, ratio) is not None
    return not is_capped or name == spec.sampling


def _under(spec: Spec, name: str) -> Spec:
    """The spec under a law that is stated, with the cohort where the law leaves it."""
    cohort = None if SamplingLaw(name).law.everyone else spec.expected_cohort
    searched = [choice for choice in spec.planning.free if choice != "sampling"]
    planning = {"free": searched, "participation": None}
    return respecified(spec, planning=planning, sampling=name, cohort=cohort)
