"""Registered algorithms: their hyperparameters, their requirements, and what they release."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from privplan.accounting.release import SamplingLaw
from privplan.errors import Fault, InputError, did_you_mean
from privplan.plan import Plan
from simulate.algorithm import Algorithm
from simulate.server_optimisers.registry import server_of

Aggregation = Literal["paper", "mean"]
Unit = Literal["client", "record", "none"]

Records = Mapping[str, int]
"""Smallest number of records that a client of each group holds, by name of the group."""
ExecutedPlan = Callable[[Plan, Records], Plan]
"""(given plan, records of the clients) to the plan that an algorithm executes for its spec."""
Requirement = Callable[[Plan], Fault | None]
"""Plan to the rule that it breaks; None when an algorithm can execute it."""


@dataclass(frozen=True)
class Hyperparameters:
    """Values of an algorithm's hyperparameters, chosen besides the plan.

    Attributes:
        aggregation: scale of the group methods: ``paper`` as printed, or ``mean``.
        values: values by name, such as ``rho`` of SAM.
    """

    aggregation: Aggregation = "paper"
    values: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        """The value of a hyperparameter."""
        return self.values[name]


Build = Callable[[Plan, Hyperparameters], Algorithm]
"""(executed plan, values of all hyperparameters) to the algorithm."""


@dataclass(frozen=True)
class Hyperparameter:
    """A numeric hyperparameter of an algorithm.

    Attributes:
        default: its value unless another one is chosen.
        meaning: one line on its effect and the source of the default.
        low: least value.
        high: largest value.
        integer: whether only integers are allowed.
    """

    default: float
    meaning: str
    low: float = 0.0
    high: float = math.inf
    integer: bool = False

    def fault(self, name: str, value: float) -> Fault | None:
        """The rule that a value breaks; None when it is allowed."""
        if not self.low <= value <= self.high:
            return Fault(f"set.{name}", f"must be in [{self.low:g}, {self.high:g}]", value)
        if self.integer and not float(value).is_integer():
            return Fault(f"set.{name}", "must be a whole number", value)
        return None


@dataclass(frozen=True, eq=False)
class AlgorithmEntry:
    """An algorithm of the registry.

    Attributes:
        name: as on the command line.
        function: composes the algorithm from the executed plan.
        plan: makes the plan that the algorithm executes.
        unit: unit of privacy of its releases; ``none`` where epsilon is infinite.
        released: what leaves the clients, in a few words.
        source: where it was published: authors, venue, year.
        hyperparameters: hyperparameters by name.
        requires: requirements on a plan besides its unit of privacy.
        record_level: whether a plan with unit ``record`` is executed at the level of records by
            an algorithm with unit ``client``.
        scaled: whether ``Hyperparameters.aggregation`` says how its sums are scaled, at the level
            of clients.
        in_turns: whether it executes sampling laws by which clients take turns.
    """

    name: str
    function: Build
    plan: ExecutedPlan
    unit: Unit
    released: str
    source: str
    hyperparameters: Mapping[str, Hyperparameter] = field(default_factory=dict)
    requires: tuple[Requirement, ...] = ()
    record_level: bool = False
    scaled: bool = False
    in_turns: bool = False

    def build(self, plan: Plan, hyperparameters: Hyperparameters | None = None) -> Algorithm:
        """The algorithm for the plan that it executes.

        Raises:
            InputError: as ``complete``, when the components do not fit each other, and when the
                plan asks for a server optimiser beside the algorithm's own server.
        """
        values = self.complete(hyperparameters or Hyperparameters())
        built = replace(self.function(plan, values), name=self.name)
        return replace(built, server=server_of(plan.spec, built.server, self.name))

    def unit_under(self, plan: Plan) -> Unit:
        """Unit of privacy of the releases under a plan."""
        return "record" if self.record_level and plan.spec.unit == "record" else self.unit

    def takes_aggregation(self, plan: Plan) -> bool:
        """Whether ``Hyperparameters.aggregation`` means something under a plan."""
        return self.scaled and plan.spec.unit == "client"

    def unmet_requirement(self, plan: Plan) -> Fault | None:
        """The first requirement that a plan does not meet; None when it can be executed."""
        if plan.spec.unit == "record" and self.unit_under(plan) != "record":
            return Fault("plan.unit", "must be client", "record")
        if plan.spec.sampling.law.turns > 1 and not self.in_turns:
            text = "must be a law under which every round draws from all clients"
            return Fault("plan.sampling", text, str(plan.spec.sampling))
        return next((fault for rule in self.requires if (fault := rule(plan))), None)

    def complete(self, chosen: Hyperparameters) -> Hyperparameters:
        """Values of all hyperparameters: those chosen, and defaults for the others.

        Raises:
            InputError: for a hyperparameter that the algorithm does not have, or a value out of
                range.
        """
        faults: list[Fault] = []
        for name, value in chosen.values.items():
            known = self.hyperparameters.get(name)
            rule = self._names() + did_you_mean(name, self.hyperparameters)
            fault = Fault("set", rule, name) if known is None else known.fault(name, value)
            faults += [] if fault is None else [fault]
        if faults:
            raise InputError(faults)
        defaults = {name: known.default for name, known in self.hyperparameters.items()}
        return Hyperparameters(chosen.aggregation, {**defaults, **chosen.values})

    def _names(self) -> str:
        """The rule for names of hyperparameters."""
        if not self.hyperparameters:
            return f"must be left out for {self.name}, which has no hyperparameters"
        return f"must be one of {', '.join(self.hyperparameters)} for {self.name}"


def poisson(plan: Plan) -> Fault | None:
    """Requires Poisson sampling: ratios differ between groups under one noise multiplier."""
    if plan.spec.sampling == SamplingLaw.POISSON:
        return None
    return Fault("plan.sampling", "must be poisson", str(plan.spec.sampling))


def no_server(plan: Plan) -> Fault | None:
    """Requires a plan without server optimiser: the algorithm defines its own server.

    One that the plan's recipe decided does no harm: the algorithm solves the spec without it.
    """
    decided = () if plan.spec.recipe is None else plan.spec.recipe.decides
    for name in ("server", "averaging"):
        if getattr(plan.spec, name) is not None and name not in decided:
            found = getattr(plan.spec, name).model_dump(mode="json")
            return Fault(f"plan.{name}", "must be left out", found)
    return None


def per_group(plan: Plan) -> Fault | None:
    """Requires one release per group, as the given plan is executed unchanged."""
    if plan.release == "per_group":
        return None
    return Fault("plan.release", "must be per_group", plan.release)
