"""What shows that a method does what defines it: a reference, and mutations that it catches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from privplan.plan import Plan
from simulate.algorithm import Algorithm
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters


@dataclass(frozen=True)
class Case:
    """A method of the catalogue against its reference.

    Attributes:
        name: as in the catalogue.
        plan: the plan that it executes here.
        check: compares the algorithm with the reference; fails by an assertion.
        mutations: what goes wrong, by name, to the algorithm with that fault.
        numbers: numbers of the method that are not its defaults.
    """

    name: str
    plan: Plan
    check: Callable[[Algorithm], None]
    mutations: Mapping[str, Callable[[Algorithm], Algorithm]]
    numbers: Mapping[str, float] = field(default_factory=dict)

    def build(self) -> Algorithm:
        """The algorithm as registered."""
        return ALGORITHMS.get(self.name).build(self.plan, Hyperparameters(values=self.numbers))
