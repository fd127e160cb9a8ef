"""What a sampling law reads of the spec that it judges; ``Spec`` has all of it.

Laws stand below specs, so they say what they need instead of importing ``Spec``. Of a
spec with faults, reading a faulty field raises AttributeError, which ends that law's
rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class JudgedGroup(Protocol):
    """A group of clients."""

    @property
    def name(self) -> str:
        """Unique name."""

    @property
    def clients(self) -> int:
        """How many clients it has."""

    @property
    def sampling_ratio(self) -> float | None:
        """Stated chance that a client takes part in a round, in (0, 1]."""

    @property
    def min_sampling_ratio(self) -> float | None:
        """Least ratio that the planner may choose."""

    @property
    def max_sampling_ratio(self) -> float | None:
        """Largest ratio that the planner may choose."""

    @property
    def risk(self) -> object | None:
        """A budget that is stated as an attacker's success."""


class JudgedPlanning(Protocol):
    """How the plan is to be found."""

    @property
    def ratios(self) -> str:
        """An objective, or a fixed rule such as ``given``."""

    @property
    def accountant(self) -> str:
        """Name of the accountant that calibrates noise."""

    @property
    def free(self) -> Sequence[str]:
        """What the planner may choose."""


class JudgedSpec(Protocol):
    """A spec, or its groups of one law."""

    @property
    def rounds(self) -> int:
        """Rounds of training (T)."""

    @property
    def cohort(self) -> float | None:
        """Expected clients per round, over all groups."""

    @property
    def population(self) -> int:
        """Clients in all groups (n)."""

    @property
    def relation(self) -> str:
        """Which data sets are neighbours."""

    @property
    def groups(self) -> Sequence[JudgedGroup]:
        """The groups of clients."""

    @property
    def groups_from(self) -> str | None:
        """A file of individual budgets that the groups are made from."""

    @property
    def planning(self) -> JudgedPlanning:
        """How the plan is to be found."""
