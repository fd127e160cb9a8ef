"""What a person writes down: who needs how much privacy, and how training runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from privplan.accounting.release import Relation, SamplingLaw, Unit, is_client
from privplan.errors import Fault, InputError
from privplan.io.files import read_text
from privplan.io.text import load_yaml
from privplan.spec.fields import DELTA_LAW, Delta
from privplan.spec.objectives import OBJECTIVES, is_objective
from privplan.spec.planning import Planning
from privplan.spec.rules import faults_between_fields
from privplan.values import (
    Count,
    Fraction,
    Name,
    NonNegative,
    Positive,
    Probability,
    Value,
    faults_of,
    is_none,
    parse,
    sound_part,
)


class Group(Value):
    """Clients who share one privacy budget."""

    name: Name = Field(description="Unique name of the group.")
    clients: Count = Field(description="How many clients are in the group.")
    epsilon: Positive = Field(description="Privacy budget of each client, over all rounds.")
    delta: Probability | None = Field(
        None, description="The group's own delta; the spec's delta when left out."
    )
    sampling_ratio: Fraction | None = Field(
        None, description="Chance to take part in a round; only with planning.ratios: given."
    )
    min_sampling_ratio: Fraction | None = Field(
        None, description="Least sampling ratio that the planner may choose."
    )
    max_sampling_ratio: Fraction | None = Field(
        None, description="Largest sampling ratio that the planner may choose."
    )
    min_weight: Fraction | None = Field(
        None, description="Least weight that the planner may choose."
    )
    records: Count | None = Field(
        None,
        description="Records that each client of the group holds; only with unit: record.",
        exclude_if=is_none,
    )
    batch_size: Count | None = Field(
        None,
        description="Expected records in a batch of these clients; local.batch_size when left "
        "out. Only with unit: record.",
        exclude_if=is_none,
    )


class LocalTraining(Value):
    """What a client does in a round: mini-batch SGD from the global model."""

    steps: Count = Field(5, description="Local steps (tau).")
    batch_size: Count = Field(10, description="Records in a local mini-batch.")
    learning_rate: Annotated[Positive, Field(le=1e6)] = Field(
        0.1, description="Local learning rate (eta) in round 1."
    )
    learning_rate_decay: Fraction = Field(
        0.99, description="Factor on the learning rate after each round."
    )
    momentum: Annotated[NonNegative, Field(lt=1)] = Field(
        0.0, description="Momentum of local SGD; starts at zero in each round."
    )
    epochs: Count | None = Field(
        None,
        description="Passes over a client's records in a round (K), 1 when left out; only with "
        "unit: record, where they stand in the place of the steps.",
        exclude_if=is_none,
    )


class Model(Value):
    """The network that is trained."""

    name: str = Field(description="A model of the catalogue, for example cnn-2.")
    parameters: Count = Field(description="Number of trainable parameters (d).")


class Spec(Value):
    """A planning problem. Made from YAML with ``Spec.load`` or ``Spec.parse``."""

    name: Name = Field(description="Name of the plan, for tables and plots.")
    groups: tuple[Group, ...] = Field(
        (), description="Who needs how much privacy; may be left out with groups_from."
    )
    groups_from: str | None = Field(
        None,
        description="CSV file of individual budgets (client, epsilon[, delta]) to make the "
        "groups from; relative to the spec.",
    )
    unit: Unit = Field(
        "client",
        description="Whom a budget protects: a client with all its data, or a single record of "
        "a client.",
        exclude_if=is_client,
    )
    delta: Delta = Field(
        "n^-1.1",
        description="Failure probability: a number, or n^-1.1 with n the number of clients (of "
        "a client's records with unit: record).",
    )
    rounds: Count = Field(description="Rounds of training (T).")
    cohort: Positive | None = Field(
        None,
        description="Expected clients a round, over all groups (q n); with unit: record a whole "
        "number of clients who take turns, everybody when left out.",
    )
    sampling: SamplingLaw = Field(
        SamplingLaw.POISSON,
        description="Law by which a cohort is drawn in each group, or with unit: record a batch "
        "of a client's records.",
    )
    relation: Literal[Relation.ADD_REMOVE, Relation.REPLACE_ONE] = Field(
        Relation.ADD_REMOVE, description="Which data sets are neighbours."
    )
    clipping_norm: Positive = Field(1.0, description="L2 bound on a client's update (C).")
    local: LocalTraining = Field(LocalTraining(), description="Training on a client.")
    model: Model = Field(description="The network.")
    planning: Planning = Field(Planning(), description="What the planner is asked for.")

    @model_validator(mode="after")
    def _consistent(self) -> Spec:
        faults = faults_between_fields(self)
        if faults:
            raise InputError(faults)
        return self

    @classmethod
    def parse(cls, data: Any, folder: Path | str = ".") -> Spec:
        """A spec from plain data.

        Args:
            data: the data.
            folder: where a relative ``groups_from`` starts.

        Raises:
            InputError: with all faults at once.
        """
        if not isinstance(data, dict):
            return parse(cls, data)
        if {"spec", "certificate"} <= data.keys():
            rule = "must be a spec, not a plan that was solved from one"
            raise InputError.one("spec", rule, data)
        told: tuple[Fault, ...] = ()
        if data.get("groups_from") is not None:
            from privplan.spec.groups_csv import with_groups

            try:
                data = with_groups(data, Path(folder))
            except InputError as error:
                told, data = error.faults, {**data, "groups": None}
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            between = faults_between_fields(sound_part(cls, data), AttributeError)
            known = {"groups", *(fault.field for fault in told)} if told else set()
            rest = [*faults_of(error, data), *between]
            raise InputError([*told, *(one for one in rest if one.field not in known)]) from None

    @classmethod
    def load(cls, path: Path | str) -> Spec:
        """A spec from a YAML file.

        Raises:
            InputError: when the file cannot be read, is not YAML, or has faults.
        """
        return cls.parse(load_yaml(read_text(path, "spec"), "spec"), Path(path).parent)

    def sources(self, path: Path | str) -> list[Path]:
        """The files that a spec at ``path`` was read from."""
        named = [] if self.groups_from is None else [Path(path).parent / self.groups_from]
        return [Path(path), *named]

    @property
    def release(self) -> Literal["joint", "per_group"]:
        """One noisy sum of all groups, or one a group."""
        if self.planning.release is not None:
            return self.planning.release
        name = self.planning.ratios
        return OBJECTIVES.get(name).default_release if is_objective(name) else "per_group"

    @property
    def weighting(self) -> str:
        """The rule of the weights, with its default."""
        if self.planning.weights is not None:
            return self.planning.weights
        if self.unit == "record":
            return "inverse_variance"
        if not is_objective(self.planning.ratios):
            return "participation"
        return "optimal" if "weights" in self.planning.free else "population"

    @property
    def population(self) -> int:
        """Clients in all groups (n)."""
        return sum(group.clients for group in self.groups)

    @property
    def expected_cohort(self) -> float:
        """Expected clients a round over all groups (q n)."""
        if self.planning.ratios == "given":
            return sum((group.sampling_ratio or 0.0) * group.clients for group in self.groups)
        if self.sampling == SamplingLaw.FULL or self.cohort is None:
            return float(self.population)
        return self.cohort

    def delta_of(self, group: Group) -> float:
        """The group's delta as a number."""
        if group.delta is not None:
            return group.delta
        if isinstance(self.delta, str):
            law = DELTA_LAW.fullmatch(self.delta)
            assert law is not None  # checked when the value was made
            return float(self._protected(group) ** -float(law.group(1)))
        return self.delta

    def _protected(self, group: Group) -> int:
        """How many units, of the kind that a budget protects, a sum is taken over."""
        return self.population if self.unit == "client" else group.records or 1

    def batch_size_of(self, group: Group) -> int:
        """Expected records in a batch of a client of the group (b)."""
        return group.batch_size or self.local.batch_size

    def kept_fractions(self) -> tuple[float, ...] | None:
        """Kept fractions when they are given as numbers or ``none``; None for a rule."""
        choice = self.planning.sparsification
        if choice == "none":
            return (1.0,) * len(self.groups)
        return choice if isinstance(choice, tuple) else None

    def warnings(self) -> list[str]:
        """What a careful reader would ask about, one line each."""
        lines = []
        if (
            self.sampling == SamplingLaw.FIXED_SIZE
            and self.relation == Relation.ADD_REMOVE
            and self.expected_cohort == self.population
        ):
            lines.append(
                "sampling: a fixed-size cohort of everybody pushes one client out when another is "
                "added, which doubles the distance; full participation needs half of the noise"
            )
        for group in self.groups:
            delta = self.delta_of(group)
            units = group.clients if self.unit == "client" else group.records or 1
            if delta >= 1 / units:
                lines.append(
                    f"groups.{group.name}.delta: {delta:.3g} is not below 1/{self.unit}s = "
                    f"{1 / units:.3g}; publishing one {self.unit}'s data outright would pass"
                )
        return lines
