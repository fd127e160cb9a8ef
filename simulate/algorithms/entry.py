"""A line of the catalogue of algorithms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from privplan.errors import Fault, InputError
from privplan.plan import Plan
from simulate.algorithm import Algorithm
from simulate.algorithms.requirements import Need

Aggregation = Literal["paper", "mean"]

Records = Mapping[str, int]
"""The fewest records that a client of each group holds, by name of the group."""


@dataclass(frozen=True)
class Hyperparameters:
    """What a person may choose of an algorithm besides the plan.

    Attributes:
        aggregation: reading of the aggregation scaling, for the group methods.
        numbers: numbers of the method by name, such as ``rho`` of SAM.
    """

    aggregation: Aggregation = "paper"
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Hyperparameter:
    """A number that a method has.

    Attributes:
        default: what it is unless chosen.
        meaning: what it does, in a line, with its source.
        low: least value.
        high: largest value.
        whole: whether it counts something.
    """

    default: float
    meaning: str
    low: float = 0.0
    high: float = math.inf
    whole: bool = False


@dataclass(frozen=True)
class Entry:
    """An algorithm of the catalogue.

    Attributes:
        name: as on the command line, in any case.
        build: (executed plan, choices with every number of the method) to the algorithm.
        executes: (a person's plan, records of the clients) to the plan that the algorithm
            executes for the same spec.
        unit: whom its releases protect.
        released: what leaves the clients, in a few words.
        source: where it was published: authors, venue, year.
        numbers: the numbers that may be chosen, by name.
        records_too: whether a plan that protects records is executed as one, though the method
            protects clients otherwise.
        needs: what it needs of a plan besides its unit.
    """

    name: str
    build: Callable[[Plan, Hyperparameters], Algorithm]
    executes: Callable[[Plan, Records], Plan]
    unit: Literal["client", "record", "none"]
    released: str
    source: str
    numbers: Mapping[str, Hyperparameter] = field(default_factory=dict)
    records_too: bool = False
    needs: tuple[Need, ...] = ()

    def protects(self, plan: Plan) -> str:
        """Whom its releases protect under a plan."""
        return "record" if self.records_too and plan.spec.unit == "record" else self.unit

    def why_not(self, plan: Plan) -> Fault | None:
        """What of a plan it cannot execute; None when it can."""
        if plan.spec.unit == "record" and self.protects(plan) != "record":
            return Fault("plan.unit", "must be client", "record")
        return next((fault for need in self.needs if (fault := need(plan))), None)

    def complete(self, choices: Hyperparameters) -> Hyperparameters:
        """The choices with every number of the method.

        Raises:
            InputError: for a number that the method does not have, or one out of range.
        """
        faults = []
        for name, value in choices.numbers.items():
            known = self.numbers.get(name)
            if known is None:
                faults.append(Fault("set", self._known(), name))
            elif not known.low <= value <= known.high:
                rule = f"must be in [{known.low:g}, {known.high:g}]"
                faults.append(Fault(f"set.{name}", rule, value))
            elif known.whole and not float(value).is_integer():
                faults.append(Fault(f"set.{name}", "must be a whole number", value))
        if faults:
            raise InputError(faults)
        defaults = {name: number.default for name, number in self.numbers.items()}
        return Hyperparameters(choices.aggregation, {**defaults, **choices.numbers})

    def _known(self) -> str:
        """The rule of names: which numbers the method has."""
        if not self.numbers:
            return f"must be left out for {self.name}, which has no numbers"
        return f"must be one of {', '.join(self.numbers)} for {self.name}"
