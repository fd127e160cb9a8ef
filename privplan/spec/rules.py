"""What must hold between the fields of a spec: every rule that one field alone cannot show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from privplan.accounting.release import SamplingLaw
from privplan.errors import Fault
from privplan.spec.objectives import OBJECTIVES, is_objective, objective_names
from privplan.values import LEAST

if TYPE_CHECKING:
    from privplan.spec.spec import Group, Spec

Rule = Callable[["Spec"], Iterator[Fault]]
GroupRule = Callable[["Spec", "Group"], Iterator[Fault]]

RECORD_WEIGHTS = (None, "inverse_variance", "population", "uniform", "epsilon")
"""Weights of single clients that a spec of records can ask for."""

_LIMITS = ("min_sampling_ratio", "max_sampling_ratio", "min_weight")
_ONLY_RECORDS = "is only for unit: record"
_ONLY_CLIENTS = "is only for unit: client"


def faults_between_fields(spec: Spec, *unread: type[Exception]) -> list[Fault]:
    """Every fault that shows only when fields are read together.

    Args:
        spec: the spec.
        unread: what reading a field raises that has a fault of its own; a rule is left there.
    """
    found: list[Fault] = []
    for rule in _COMMON:
        _apply(found, rule(spec), unread)
    with suppress(*unread):
        rules, of_groups = _OF_UNIT[spec.unit]
        for rule in rules:
            _apply(found, rule(spec), unread)
        for of_group in of_groups:
            for group in spec.groups:
                _apply(found, of_group(spec, group), unread)
    return found


def _only_objectives() -> str:
    return f"is only for planning.ratios: {', '.join(objective_names())}"


def _apply(
    found: list[Fault], faults: Iterator[Fault], unread: tuple[type[Exception], ...]
) -> None:
    with suppress(*unread):
        found.extend(faults)


def _names(spec: Spec) -> Iterator[Fault]:
    if not spec.groups:
        yield Fault("groups", "must name at least one group", [])
    names = [group.name for group in spec.groups if hasattr(group, "name")]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Fault("groups", "must have unique names", name)


def _delta_law(spec: Spec) -> Iterator[Fault]:
    """A law of the number of clients or records that gives no probability."""
    counted = [group for group in spec.groups if spec.unit == "client" or group.records]
    found = {spec.delta_of(group) for group in counted if group.delta is None}
    rule = f"must be in [{LEAST:g}, 1) for these groups; {spec.delta} is not"
    for delta in sorted(found):
        if not LEAST <= delta < 1:
            yield Fault("delta", rule, delta)


def _cohort_fits(spec: Spec) -> Iterator[Fault]:
    if spec.cohort is None or not spec.groups:
        return
    population = spec.population
    if spec.cohort > population:
        rule = f"must not exceed the population of {population} clients"
        yield Fault("cohort", rule, spec.cohort)
    elif spec.sampling == SamplingLaw.FULL and spec.cohort != population and spec.unit == "client":
        rule = f"must be the population ({population}) under full participation"
        yield Fault("cohort", rule, spec.cohort)


def _cohort_given(spec: Spec) -> Iterator[Fault]:
    drawn = spec.cohort is None and spec.sampling != SamplingLaw.FULL
    if drawn and spec.planning.ratios != "given":
        yield Fault("cohort", "is required", "nothing")


def _cohort_whole(spec: Spec) -> Iterator[Fault]:
    fixed = spec.sampling == SamplingLaw.FIXED_SIZE
    if fixed and spec.cohort is not None and spec.cohort != round(spec.cohort):
        yield Fault("cohort", "must be a whole number under fixed_size sampling", spec.cohort)


def _cohort_shared(spec: Spec) -> Iterator[Fault]:
    if spec.cohort is not None and spec.cohort < len(spec.groups):
        rule = f"must be at least one client a group ({len(spec.groups)})"
        yield Fault("cohort", rule, spec.cohort)


def _cohort_agrees(spec: Spec) -> Iterator[Fault]:
    if spec.cohort is None or spec.planning.ratios != "given" or not spec.groups:
        return
    if any(group.sampling_ratio is None for group in spec.groups):
        return
    if not math.isclose(spec.cohort, spec.expected_cohort, rel_tol=0.01):
        rule = f"must agree with the given ratios, which expect {spec.expected_cohort:g} clients"
        yield Fault("cohort", rule, spec.cohort)


def _ratio(spec: Spec, group: Group) -> Iterator[Fault]:
    where, ratio = f"groups.{group.name}.sampling_ratio", group.sampling_ratio
    if spec.planning.ratios != "given":
        if ratio is not None:
            yield Fault(where, "is only for planning.ratios: given", ratio)
    elif ratio is None:
        yield Fault(where, "is required with planning.ratios: given", "nothing")
    else:
        yield from _law(spec.sampling, group.clients, where, ratio)


def _law(law: SamplingLaw, clients: int, where: str, ratio: float) -> Iterator[Fault]:
    if law == SamplingLaw.FULL and ratio != 1:
        yield Fault(where, "must be 1 under full participation", ratio)
    whole = round(ratio * clients)
    if law == SamplingLaw.FIXED_SIZE and (
        whole == 0 or not math.isclose(whole, ratio * clients, rel_tol=1e-6)
    ):
        yield Fault(where, f"must give a whole cohort of the {clients} clients", ratio)


def _kept_fractions(spec: Spec) -> Iterator[Fault]:
    kept = spec.planning.sparsification
    if isinstance(kept, tuple) and spec.groups and len(kept) != len(spec.groups):
        rule = f"must have one kept fraction a group ({len(spec.groups)})"
        yield Fault("planning.sparsification", rule, list(kept))


def _calibration(spec: Spec) -> Iterator[Fault]:
    if spec.planning.calibration == "exact":
        return
    if is_objective(spec.planning.ratios):
        rule = f"published is not for planning.ratios: {', '.join(objective_names())}"
        yield Fault("planning.calibration", rule, "published")
        return
    cell = (spec.planning.accountant, str(spec.sampling), str(spec.relation))
    if cell != ("rdp", "poisson", "add_remove"):
        rule = "published goes with accountant rdp, poisson sampling and add_remove"
        yield Fault("planning.calibration", rule, ", ".join(cell))


def _limits(spec: Spec, group: Group) -> Iterator[Fault]:
    if not is_objective(spec.planning.ratios):
        yield from _set(group, _LIMITS, _only_objectives())


def _set(group: Group, fields: tuple[str, ...], rule: str) -> Iterator[Fault]:
    """A fault for each of the fields that is given though the rule forbids it."""
    for field in fields:
        value: Any = getattr(group, field, None)
        if value is not None:
            yield Fault(f"groups.{group.name}.{field}", rule, value)


def _weights(spec: Spec) -> Iterator[Fault]:
    weights = spec.planning.weights
    if weights == "optimal" and not is_objective(spec.planning.ratios):
        yield Fault("planning.weights", f"optimal {_only_objectives()}", weights)
    if weights == "epsilon":
        yield Fault("planning.weights", f"epsilon {_ONLY_RECORDS}", weights)


def _free_groups(spec: Spec) -> Iterator[Fault]:
    if "groups" in spec.planning.free and spec.groups_from is None:
        yield Fault("planning.free", "can name groups only with groups_from", "groups")


def _free_choices(spec: Spec) -> Iterator[Fault]:
    free = spec.planning.free
    if not is_objective(spec.planning.ratios) and set(free) - {"groups"} != {"ratios", "weights"}:
        yield Fault("planning.free", _only_objectives(), list(free))


def _free_weights(spec: Spec) -> Iterator[Fault]:
    if "weights" not in spec.planning.free and spec.planning.weights == "optimal":
        rule = "must name weights when planning.weights is optimal"
        yield Fault("planning.free", rule, list(spec.planning.free))


def _free_rounds(spec: Spec) -> Iterator[Fault]:
    if "rounds" in spec.planning.free and spec.planning.constants is None:
        rule = "is required when rounds are free: what is left to learn must have a price"
        yield Fault("planning.constants", rule, "nothing")


def _free_norm(spec: Spec) -> Iterator[Fault]:
    if "clipping_norm" in spec.planning.free and not spec.planning.update_norms:
        rule = "is required when the clipping norm is free: norms of updates in a pilot"
        yield Fault("planning.update_norms", rule, "nothing")


def _free_cohort(spec: Spec) -> Iterator[Fault]:
    if "cohort" in spec.planning.free and spec.sampling == SamplingLaw.FULL:
        yield Fault("planning.free", "cannot hold cohort under full participation", "full")


def _joint(spec: Spec) -> Iterator[Fault]:
    if spec.release == "joint" and spec.planning.sparsification != "none":
        rule = "must be none when all groups share one release"
        yield Fault("planning.sparsification", rule, spec.planning.sparsification)


def _clipping(spec: Spec) -> Iterator[Fault]:
    where = "planning.clipping"
    if spec.planning.clipping is None:
        return
    if not is_objective(spec.planning.ratios):
        yield Fault(where, _only_objectives(), spec.planning.ratios)
    elif spec.release != "joint":
        yield Fault(where, "needs release: joint", spec.release)
    if "clipping_norm" in spec.planning.free:
        rule = "cannot hold clipping_norm with planning.clipping, which moves it"
        yield Fault("planning.free", rule, "clipping_norm")


def _required(spec: Spec) -> Iterator[Fault]:
    """Fields of ``planning`` that the objective requires."""
    name = spec.planning.ratios
    for field in OBJECTIVES.get(name).required if is_objective(name) else ():
        if getattr(spec.planning, field) is None:
            yield Fault(f"planning.{field}", f"is required for ratios: {name}", "nothing")


def _no_records(spec: Spec, group: Group) -> Iterator[Fault]:
    yield from _set(group, ("records", "batch_size"), _ONLY_RECORDS)


def _no_epochs(spec: Spec) -> Iterator[Fault]:
    if spec.local.epochs is not None:
        yield Fault("local.epochs", _ONLY_RECORDS, spec.local.epochs)


def _records(spec: Spec, group: Group) -> Iterator[Fault]:
    where = f"groups.{group.name}"
    if group.records is None:
        yield Fault(f"{where}.records", "is required with unit: record", "nothing")
    elif spec.batch_size_of(group) > group.records:
        rule = f"must not exceed the {group.records} records of a client"
        yield Fault(f"{where}.batch_size", rule, spec.batch_size_of(group))


def _no_limits(spec: Spec, group: Group) -> Iterator[Fault]:
    yield from _set(group, ("sampling_ratio", *_LIMITS), _ONLY_CLIENTS)


def _record_law(spec: Spec) -> Iterator[Fault]:
    if spec.sampling != SamplingLaw.POISSON:
        rule = "must be poisson with unit: record: the law of a batch"
        yield Fault("sampling", rule, str(spec.sampling))


def _turns(spec: Spec) -> Iterator[Fault]:
    if spec.cohort is not None and spec.cohort != round(spec.cohort):
        yield Fault("cohort", "must be a whole number with unit: record", spec.cohort)


def _record_weights(spec: Spec) -> Iterator[Fault]:
    if spec.planning.weights not in RECORD_WEIGHTS:
        rule = f"must be one of {', '.join(RECORD_WEIGHTS[1:])} with unit: record"
        yield Fault("planning.weights", rule, spec.planning.weights)


def _unused(spec: Spec) -> Iterator[Fault]:
    """Choices of the planner that a spec of records cannot make."""
    plain = type(spec.planning)()
    for field in type(plain).model_fields:
        default = getattr(plain, field)
        found = getattr(spec.planning, field, default)
        if field not in ("accountant", "weights") and found != default:
            yield Fault(f"planning.{field}", _ONLY_CLIENTS, found)


_COMMON: tuple[Rule, ...] = (_names, _delta_law, _cohort_fits)
_CLIENT: tuple[Rule, ...] = (
    _cohort_given,
    _cohort_whole,
    _cohort_shared,
    _cohort_agrees,
    _kept_fractions,
    _calibration,
    _weights,
    _free_groups,
    _free_choices,
    _free_weights,
    _free_rounds,
    _free_norm,
    _free_cohort,
    _joint,
    _clipping,
    _required,
    _no_epochs,
)
_RECORD: tuple[Rule, ...] = (_record_law, _turns, _record_weights, _unused)
_OF_UNIT: dict[str, tuple[tuple[Rule, ...], tuple[GroupRule, ...]]] = {
    "client": (_CLIENT, (_ratio, _limits, _no_records)),
    "record": (_RECORD, (_records, _no_limits)),
}
