"""Registry of the algorithms, and the algorithm that executes a given plan.

An algorithm is a function from a plan and hyperparameters to components, registered
where it is defined::

    @register(
        "Mine",
        plan=from_spec(strictest),
        unit="client",
        released="one noisy sum of clipped updates per round",
        source="authors, venue, year",
        hyperparameters={"rho": Hyperparameter(0.1, "radius of the ascent")},
    )
    def mine(plan: Plan, hyperparameters: Hyperparameters) -> Algorithm: ...

Other distributions name such a function in the entry-point group
``privplan.algorithms``, under the name with which it is registered.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Literal

from privplan.accounting.release import SamplingLaw
from privplan.errors import Fault, InfeasibleError, InputError, did_you_mean
from privplan.guidance import checked_call
from privplan.plan import Plan
from privplan.planning.baselines import published, strictest, unprotected
from privplan.registry import Registry, points
from privplan.spec.spec import Spec
from simulate.algorithm import Algorithm
from simulate.own_state import is_own
from simulate.recipe import (
    NO_RECIPE,
    UNKNOWN,
    NotExecuted,
    Recipe,
    RecipeOf,
    always,
    of_client_updates,
)
from simulate.server import SERVER_OPTIMISERS, server_of
from simulate.signatures import hints_of, require_types, typed

# Entry-point group of algorithms from other distributions.
GROUP = "privplan.algorithms"

# --- Registered algorithms: hyperparameters, requirements, and what they release. -----

Aggregation = Literal["paper", "mean"]
Unit = Literal["client", "record", "none"]

Records = Mapping[str, int]
"""Fewest records of a client, by name of its group."""
ExecutedPlan = Callable[[Plan, Records], Plan]
"""(given plan, records of the clients) to the plan that an algorithm executes."""
Requirement = Callable[[Plan], Fault | None]
"""A plan to the rule that it breaks, if any."""


@dataclass(frozen=True)
class Hyperparameters:
    """Values of an algorithm's hyperparameters, chosen besides the plan."""

    # Scale of the group methods: ``paper`` as printed, or ``mean``.
    aggregation: Aggregation = "paper"
    # Values by name, such as ``rho`` of SAM.
    values: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        """The value of a hyperparameter."""
        if name not in self.values:
            rule = "must be declared in @register(..., hyperparameters={...})"
            raise InputError.one("hyperparameters", rule, name)
        return self.values[name]


Build = Callable[[Plan, Hyperparameters], Algorithm]
"""(executed plan, hyperparameters) to the algorithm."""


@dataclass(frozen=True)
class Hyperparameter:
    """A numeric hyperparameter of an algorithm."""

    default: float  # its value unless another one is chosen
    meaning: str  # one line on its effect and the source of the default
    low: float = 0.0  # least value
    high: float = math.inf  # largest value
    integer: bool = False  # whether only integers are allowed

    def __post_init__(self) -> None:
        require_types(vars(self), hints_of(Hyperparameter), "hyperparameter.")

    def fault(self, name: str, value: float) -> Fault | None:
        """The rule that a value breaks; None when it is allowed."""
        if not self.low <= value <= self.high:
            rule = f"must be in [{self.low:g}, {self.high:g}]"
            return Fault(f"set.{name}", rule, value)
        if self.integer and not float(value).is_integer():
            return Fault(f"set.{name}", "must be a whole number", value)
        return None


@dataclass(frozen=True, eq=False)
class AlgorithmEntry:
    """An algorithm of the registry."""

    name: str  # as on the command line
    function: Build  # composes the algorithm from the executed plan
    plan: ExecutedPlan  # makes the plan that the algorithm executes
    unit: Unit  # unit of privacy of its releases; ``none`` where epsilon is infinite
    released: str  # what leaves the clients, in a few words
    source: str  # where it was published: authors, venue, year
    # Hyperparameters by name.
    hyperparameters: Mapping[str, Hyperparameter] = field(default_factory=dict)
    # Requirements on a plan besides its unit of privacy.
    requires: tuple[Requirement, ...] = ()
    # Whether a plan with unit ``record`` is executed at the level of records by an
    # algorithm with unit ``client``.
    record_level: bool = False
    # Whether ``Hyperparameters.aggregation`` says how its sums are scaled, at the level
    # of clients.
    scaled: bool = False
    # whether it releases the mixtures of sums that a sampling law may ask for
    mixes: bool = False
    # How a replay executes what precedes its releases, by plan and aggregation.
    recipe: RecipeOf = NO_RECIPE

    def build(
        self, plan: Plan, hyperparameters: Hyperparameters | None = None
    ) -> Algorithm:
        """The algorithm for the plan that it executes, with the plan's server."""
        built = self.composed(plan, hyperparameters)
        return replace(built, server=server_of(plan.spec, built.server, self.name))

    def composed(
        self, plan: Plan, hyperparameters: Hyperparameters | None = None
    ) -> Algorithm:
        """The algorithm as its function composes it for the plan that it executes."""
        values = self.complete(hyperparameters or Hyperparameters())
        composed = self.function(plan, values)
        if not isinstance(composed, Algorithm):
            rule = f"must return what compose(...) makes ({self.name})"
            raise InputError.one("algorithm", rule, type(composed).__name__)
        return replace(composed, name=self.name)

    @property
    def is_own(self) -> bool:
        """Whether the algorithm is defined outside this project."""
        return is_own(self.function)

    def replayed(self, plan: Plan, aggregation: str) -> Recipe | NotExecuted:
        """How a replay executes the algorithm under a plan, or why none does.

        What follows the releases must be code of this project, too: a server of
        somebody else may read the data again, and its model is no function of the
        releases then.
        """
        server = plan.spec.server
        if server is not None:
            make = SERVER_OPTIMISERS.get(server.optimizer)
            if is_own(make):
                return NotExecuted(
                    f"its server optimiser {server.optimizer} is your own"
                )
        return self.recipe(plan, aggregation)

    def unit_under(self, plan: Plan) -> Unit:
        """Unit of privacy of the releases under a plan."""
        if self.record_level and plan.spec.unit == "record":
            return "record"
        return self.unit

    def executes(self, plan: Plan) -> bool:
        """Whether the algorithm executes a plan unchanged, with the plan's recipe."""
        return self.plan is as_given or (
            self.plan is own_if_joint and plan.release == "per_group"
        )

    def takes_aggregation(self, plan: Plan) -> bool:
        """Whether ``Hyperparameters.aggregation`` means something under a plan."""
        return self.scaled and plan.spec.unit == "client"

    def unmet_requirement(self, plan: Plan) -> Fault | None:
        """The first requirement that a plan does not meet; None for a sound plan."""
        if plan.spec.unit == "record" and self.unit_under(plan) != "record":
            return Fault("plan.unit", "must be client", "record")
        excluded = plan.spec.excludes_use("plain sums")
        if excluded is not None and not self.mixes:
            return Fault("plan.sampling", excluded, plan.spec.laws)
        for requirement in self.requires:
            fault = requirement(plan)
            if fault:
                return fault
        return None

    def complete(self, chosen: Hyperparameters) -> Hyperparameters:
        """Values of all hyperparameters: those chosen, and defaults for the others.

        Raises:
            InputError: for unknown names and values out of range, all at once.
        """
        faults: list[Fault] = []
        for name, value in chosen.values.items():
            hyperparameter = self.hyperparameters.get(name)
            if hyperparameter is None:
                fault: Fault | None = self._unknown(name)
            else:
                fault = hyperparameter.fault(name, value)
            if fault is not None:
                faults.append(fault)
        if faults:
            raise InputError(faults)
        values = {name: item.default for name, item in self.hyperparameters.items()}
        return Hyperparameters(chosen.aggregation, {**values, **chosen.values})

    def _unknown(self, name: str) -> Fault:
        """That the algorithm has no hyperparameter of a name."""
        rule = f"must be one of {', '.join(self.hyperparameters)} for {self.name}"
        if not self.hyperparameters:
            rule = f"must be left out for {self.name}, which has no hyperparameters"
        hint = did_you_mean(name, self.hyperparameters)
        return Fault("set", f"{rule}{hint}", name)


def poisson(plan: Plan) -> Fault | None:
    """Requires Poisson sampling.

    Ratios differ between groups under one noise multiplier.
    """
    if plan.spec.plain_laws == (SamplingLaw.POISSON,):
        return None
    return Fault("plan.sampling", "must be poisson", plan.spec.laws)


def no_server(plan: Plan) -> Fault | None:
    """Requires a plan without server optimiser: the algorithm has a server of its own.

    What the plan's recipe decided is no wish of the user.
    """
    decided = () if plan.spec.recipe is None else plan.spec.recipe.decides
    for name in ("server", "averaging"):
        choice = getattr(plan.spec, name)
        if choice is not None and name not in decided:
            value = choice.model_dump(mode="json")
            return Fault(f"plan.{name}", "must be left out", value)
    return None


def per_group(plan: Plan) -> Fault | None:
    """Requires one release per group, as the given plan is executed unchanged."""
    if plan.release == "per_group":
        return None
    return Fault("plan.release", "must be per_group", plan.release)


# --- Registry of the algorithms, and the algorithm that executes a given plan. --------

_BY_FUNCTION: dict[Build, AlgorithmEntry] = {}


def _from_entry_point(component: object) -> AlgorithmEntry:
    """The entry that ``@register`` made for a function of another distribution."""
    # Loading the entry point has imported the module and so registered its functions.
    # A component of any kind may come here, also one that has no hash.
    entries = [
        entry for function, entry in _BY_FUNCTION.items() if function is component
    ]
    if not entries:
        raise TypeError("the function must be decorated with @register")
    [entry] = entries
    if entry.name not in points(GROUP).names:
        raise TypeError(f"the entry point must have the registered name, {entry.name}")
    return entry


ALGORITHMS: Registry[AlgorithmEntry] = Registry(
    "algorithm",
    GROUP,
    "simulate.algorithms",
    check=_from_entry_point,
    order=lambda entry: entry.name.casefold(),
    elsewhere="a method of your own is a function in Python, docs/reference/own-method.md",
)
"""All algorithms by name, in any case; listed in alphabetical order."""


@checked_call
@typed("register.")
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
    mixes: bool = False,
    recipe: RecipeOf | Recipe | NotExecuted = UNKNOWN,
) -> Callable[[Build], Build]:
    """A decorator that registers a function as an algorithm and returns it unchanged.

    The arguments are the attributes of ``AlgorithmEntry``; ``from_spec`` and
    ``as_given`` make the usual values of ``plan``. A ``recipe`` is a function, or one
    value for every plan; without one a run is kept as recorded, since no replay can
    execute it again. Only methods of this project have one: what another server makes
    of the data, beside the releases, nobody checks.

    >>> registry.register(
    ...     "Mine", plan=as_given, unit="client", released="noisy sums", source="me"
    ... )  # doctest: +ELLIPSIS
    <function ...

    Raises:
        InputError: for the recipe of a function outside this project.
    """
    if isinstance(recipe, Recipe | NotExecuted):
        of_plan = always(recipe)
    else:
        of_plan = recipe

    def add(function: Build) -> Build:
        require_types({"function": function}, {"function": Build}, "register.")
        if recipe is not UNKNOWN and is_own(function):
            rule = (
                "must be left out outside privplan: nobody checks what the server of "
                "another method makes of the data, so its runs are kept as recorded"
            )
            raise InputError.one("register.recipe", rule, recipe)
        _BY_FUNCTION[function] = AlgorithmEntry(
            name=name,
            function=function,
            plan=plan,
            unit=unit,
            released=released,
            source=source,
            hyperparameters=hyperparameters or {},
            requires=requires,
            record_level=record_level,
            scaled=scaled,
            mixes=mixes,
            recipe=of_plan,
        )
        ALGORITHMS.register(name, _BY_FUNCTION[function])
        return function

    return add


def registered_name(algorithm: str | Build) -> str:
    """The name of an algorithm that a name or a registered function gives.

    Raises:
        InputError: for a function that is not registered.
    """
    if isinstance(algorithm, str):
        return algorithm
    for function, entry in _BY_FUNCTION.items():
        if function is algorithm:
            return entry.name
    rule = "must be a name, or a function decorated with @register(...)"
    name = getattr(algorithm, "__name__", type(algorithm).__name__)
    raise InputError.one("algorithm", rule, name)


def from_spec(make: Callable[[Spec], Plan]) -> ExecutedPlan:
    """Executes the plan that a function makes of the given plan's spec."""
    return lambda plan, records: make(plan.spec)


def as_given(plan: Plan, records: Records) -> Plan:
    """Executes the given plan unchanged."""
    return plan


def own_if_joint(plan: Plan, records: Records) -> Plan:
    """Executes a plan with a sum per group unchanged, else the spec by Problem 1."""
    if plan.release == "per_group":
        return plan
    return published(plan.spec)


without_privacy = partial(register, plan=from_spec(unprotected), unit="none")
"""Registers a method without privacy, whose clients are drawn at equal ratios."""
of_clients = partial(
    register,
    plan=from_spec(strictest),
    unit="client",
    released="one noisy sum of clipped updates per round",
)
"""Registers a method of one noisy sum, for all clients under the strictest budget."""
of_groups = partial(
    register,
    unit="client",
    released="one noisy sum of clipped updates per group and round",
    scaled=True,
)
"""Registers a method with a sum per privacy group."""
of_records = partial(
    register,
    unit="record",
    released="each participant's update, noised by DP-SGD",
    recipe=of_client_updates,
)
"""Registers DP-SGD at each client with other weights."""


def executable(plan: Plan) -> list[str]:
    """Names of the algorithms that can execute a plan."""
    return [
        name
        for name, entry in ALGORITHMS.items()
        if entry.unmet_requirement(plan) is None
    ]


def not_executable(plan: Plan) -> dict[str, list[str]]:
    """Names of the algorithms that cannot execute a plan, by what it does not meet."""
    names: dict[str, list[str]] = {}
    for name, entry in ALGORITHMS.items():
        fault = entry.unmet_requirement(plan)
        if fault:
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
        name: of the algorithm.
        plan: the given plan.
        hyperparameters: that differ from the defaults.
        records: the smallest number of records that a client of each group has, for
            algorithms that protect records; 1 when None.

    Raises:
        InputError: when the algorithm cannot execute the plan.
        InfeasibleError: when no plan of the algorithm keeps the budgets.
    """
    entry = ALGORITHMS.get(name)
    fault = entry.unmet_requirement(plan)
    if fault:
        alternative = "planned executes every client-level plan"
        if plan.unit == "record":
            names = ", ".join(executable(plan))
            alternative = f"record-level plans are executed by {names}"
        rule = f"{fault.rule} for {entry.name}; {alternative}"
        raise InputError.one(fault.field, rule, fault.found)
    values = entry.complete(hyperparameters or Hyperparameters())
    if not records:
        records = {group.name: 1 for group in plan.groups}
    try:
        executed = _executed(entry, plan.to_json(), tuple(records.items()))
    except InfeasibleError as error:
        raise InfeasibleError(f"{entry.name}: {error}") from None
    return entry.build(executed, values)


@lru_cache(maxsize=256)
def _executed(
    entry: AlgorithmEntry, text: str, records: tuple[tuple[str, int], ...]
) -> Plan:
    """The plan that an algorithm executes, solved once per process for all seeds."""
    return entry.plan(Plan.parse(json.loads(text)), dict(records))
