"""Registry of the algorithms, and the algorithm that executes a given plan.

An algorithm is a function from a plan and hyperparameters to components, registered where it is
defined::

    @register(
        "Mine",
        plan=from_spec(strictest),
        unit="client",
        released="one noisy sum of clipped updates per round",
        source="authors, venue, year",
        hyperparameters={"rho": Hyperparameter(0.1, "radius of the ascent")},
    )
    def mine(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm: ...

Other distributions name such a function in the entry-point group ``privplan.algorithms``, under the
name with which it is registered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import entry_points

from privplan.errors import InfeasibleError, InputError
from privplan.plan import Plan
from privplan.registry import Registry
from privplan.spec.spec import Spec
from simulate.algorithm import Algorithm
from simulate.algorithms.entry import (
    AlgorithmEntry,
    Build,
    ExecutedPlan,
    Hyperparameter,
    Hyperparameters,
    Records,
    Requirement,
    Unit,
)

GROUP = "privplan.algorithms"
"""Entry-point group of algorithms from other distributions."""


_BY_FUNCTION: dict[Build, AlgorithmEntry] = {}


def _from_entry_point(component: object) -> AlgorithmEntry:
    """The entry that ``@register`` made for a function of another distribution.

    Raises:
        TypeError: when the function is not registered, or under another name than an entry point's.
    """
    # Loading the entry point has imported the module and so registered its functions.
    found = next((one for made, one in _BY_FUNCTION.items() if made is component), None)
    if found is None:
        raise TypeError("the function must be decorated with @register")
    if found.name not in entry_points(group=GROUP).names:
        raise TypeError(f"the entry point must have the registered name, {found.name}")
    return found


ALGORITHMS: Registry[AlgorithmEntry] = Registry(
    "algorithm",
    GROUP,
    "simulate.algorithms",
    check=_from_entry_point,
    order=lambda entry: entry.name.casefold(),
)
"""All algorithms by name, in any case; listed in alphabetical order."""


def register(
    name: str,
    *,
    plan: ExecutedPlan,
    unit: Unit,
    released: str,
    source: str,
    hyperparameters: Mapping[str, Hyperparameter] | None = None,
    requires: tuple[Requirement, ...] = (),
    record_level: bool = False,
    scaled: bool = False,
    in_turns: bool = False,
) -> Callable[[Build], Build]:
    """A decorator that registers a function as an algorithm and returns it unchanged.

    The arguments are the attributes of ``AlgorithmEntry``; ``from_spec`` and ``as_given`` make the
    usual values of ``plan``.
    """

    def add(function: Build) -> Build:
        about = (plan, unit, released, source, hyperparameters or {}, requires, record_level)
        _BY_FUNCTION[function] = AlgorithmEntry(name, function, *about, scaled, in_turns)
        ALGORITHMS.register(name, _BY_FUNCTION[function])
        return function

    return add


def from_spec(make: Callable[[Spec], Plan]) -> ExecutedPlan:
    """Executes the plan that a function makes of the given plan's spec."""
    return lambda plan, records: make(plan.spec)


def as_given(plan: Plan, records: Records) -> Plan:
    """Executes the given plan unchanged."""
    return plan


def executable(plan: Plan) -> list[str]:
    """Names of the algorithms that can execute a plan."""
    return [name for name, entry in ALGORITHMS.items() if entry.unmet_requirement(plan) is None]


def not_executable(plan: Plan) -> dict[str, list[str]]:
    """Names of the algorithms that cannot execute a plan, by the requirement it does not meet."""
    names: dict[str, list[str]] = {}
    for name, entry in ALGORITHMS.items():
        if fault := entry.unmet_requirement(plan):
            names.setdefault(str(fault), []).append(name)
    return names


def algorithm(
    name: str,
    plan: Plan,
    hyperparameters: Hyperparameters | None = None,
    records: Records | None = None,
) -> Algorithm:
    """The algorithm of a name, with the plan that it executes for a given plan.

    Args:
        name: a registered name, in any case.
        plan: the solved plan; algorithms with their own planning solve its spec their own way.
        hyperparameters: values that differ from the defaults.
        records: smallest number of records that a client of each group holds, for algorithms
            that protect records; one record when not given.

    Raises:
        InputError: for an unknown name, hyperparameters that the algorithm does not have, or a
            plan that it cannot execute.
        InfeasibleError: when the spec has no plan of the kind that the algorithm executes.
    """
    entry = ALGORITHMS.get(name)
    if fault := entry.unmet_requirement(plan):
        others = "planned executes every client-level plan"
        if plan.unit == "record":
            others = f"record-level plans are executed by {', '.join(executable(plan))}"
        raise InputError.one(fault.field, f"{fault.rule} for {entry.name}; {others}", fault.found)
    values = entry.complete(hyperparameters or Hyperparameters())
    held = records or {group.name: 1 for group in plan.groups}
    try:
        executed = _executed(entry, plan.to_json(), tuple(held.items()))
    except InfeasibleError as error:
        raise InfeasibleError(f"{entry.name}: {error}") from None
    return entry.build(executed, values)


@lru_cache(maxsize=256)
def _executed(entry: AlgorithmEntry, text: str, records: tuple[tuple[str, int], ...]) -> Plan:
    """The plan that an algorithm executes, solved once per process for all seeds."""
    return entry.plan(Plan.parse(json.loads(text)), dict(records))
