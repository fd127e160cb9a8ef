"""The spec: who needs how much privacy, and how training runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from privplan.accounting.release import SamplingLaw, is_client
from privplan.errors import Fault, InputError
from privplan.io.files import read_text
from privplan.io.kinds import SPEC, refuse_other_kind, spec_mapping
from privplan.spec.base import BaseSpec
from privplan.spec.epsilon_distribution import with_distribution
from privplan.spec.fields import NOTHING, ClientGroup, ClientTraining, RecordGroup
from privplan.spec.fixed_noise import noise_faults, with_fixed_noise
from privplan.spec.fixed_risk import names_of
from privplan.spec.grouping_costs import Costs
from privplan.spec.groups_csv import with_groups
from privplan.spec.objectives import OBJECTIVES, is_objective, only_objectives
from privplan.spec.planning import Published, RecordPlanning
from privplan.spec.recipe import with_recipe
from privplan.spec.risk import with_risks
from privplan.spec.turns import turn_faults
from privplan.values import Checked, Positive, parse, rule


class Spec(BaseSpec):
    """A planning problem: a ``ClientSpec`` or a ``RecordSpec``, by ``unit``.

    Made from YAML with ``Spec.load`` or ``Spec.parse``.
    """

    @classmethod
    def variants(cls) -> tuple[type[Checked], ...]:
        """One class per unit of privacy."""
        return (ClientSpec, RecordSpec) if cls is Spec else ()

    @classmethod
    def variant(cls, data: dict[str, Any]) -> type[Checked]:
        """The class for plain data, by ``unit``."""
        unit = data.get("unit", "client")
        return ClientSpec if unit == "client" else RecordSpec if unit == "record" else cls

    @classmethod
    def parse(cls, data: Any, folder: Path | str = ".") -> Spec:
        """A spec from plain data.

        Args:
            data: the data.
            folder: where a relative ``groups_from`` starts.

        Raises:
            InputError: with all faults at once.
        """
        if isinstance(data, dict):
            refuse_other_kind(data, SPEC, "spec")
            try:
                data = with_groups(data, Path(folder), cls.grouping_costs, cls.grouping_error)
                data = with_distribution(data)
                risky = names_of(data)
                data = with_risks(data)
            except InputError as error:
                data = {**data, "groups": None}
                return parse(cls, with_recipe(data), error.faults, hidden=["groups"])
            data = with_recipe(data)
            data = with_fixed_noise(cls, data, risky)
        return parse(cls, data)

    @classmethod
    def grouping_costs(cls, data: dict[str, Any]) -> Costs | None:
        """Costs by which individual budgets are grouped.

        None for a fixed rule of the ratios, and for data with faults, which are found later.

        Args:
            data: plain data of the spec with all clients in one group.
        """
        with suppress(InputError):
            spec = parse(cls, data)
            if is_objective(spec.planning.ratios) and spec.unit == "client":
                return OBJECTIVES.get(spec.planning.ratios).grouping_costs(spec)
        return None

    @classmethod
    def grouping_error(cls, data: dict[str, Any]) -> float | None:
        """Error of a plan by which groupings are compared; None where the costs describe it.

        Args:
            data: plain data of the spec with its groups.
        """
        with suppress(InputError):
            spec = parse(cls, with_recipe(data))
            if is_objective(spec.planning.ratios) and spec.unit == "client":
                return OBJECTIVES.get(spec.planning.ratios).grouping_error(spec)
        return None

    @classmethod
    def load(cls, path: Path | str) -> Spec:
        """A spec from a YAML file.

        Raises:
            InputError: when the file cannot be read, is no mapping in YAML, or has faults.
        """
        return cls.parse(spec_mapping(read_text(path, "spec"), path), Path(path).parent)

    def sources(self, path: Path | str) -> list[Path]:
        """The files that a spec at ``path`` was read from."""
        named = [] if self.groups_from is None else [Path(path).parent / self.groups_from]
        return [Path(path), *named]


def _rounds_or_noise(schema: dict[str, Any]) -> None:
    """Rounds may be left out where every group has a noise multiplier and a budget."""
    schema["required"].remove("rounds")
    budget = [{"required": ["epsilon"]}, {"required": ["risk"]}]
    fixed = {
        "required": ["noise_multiplier"],
        "properties": {"noise_multiplier": {"not": NOTHING}},
        "anyOf": budget,
    }
    groups = {"required": ["groups"], "properties": {"groups": {"minItems": 1, "items": fixed}}}
    schema["anyOf"] = [{"required": ["rounds"]}, groups]


class ClientSpec(Spec):
    """A spec whose budgets protect each client with all its data."""

    model_config = ConfigDict(json_schema_extra=_rounds_or_noise)
    unit: Literal["client"] = Field(
        "client", description="A budget protects a client.", exclude_if=is_client
    )
    groups: tuple[ClientGroup, ...] = Field(
        (), description="Who needs how much privacy; may be left out with groups_from."
    )
    local: ClientTraining = Field(ClientTraining(), description="Training on a client.")

    @rule
    def _cohort(self) -> Iterator[Fault]:
        law = self.sampling.law
        if self.cohort is None:
            if not law.everyone and self.planning.ratios != "given":
                yield Fault("cohort", "is required", "nothing")
            return
        if law.whole_cohorts and self.cohort != round(self.cohort):
            rule_text = f"must be a whole number under {self.sampling} sampling"
            yield Fault("cohort", rule_text, self.cohort)
        if self.cohort < len(self.groups):
            text = f"must be at least one client per group ({len(self.groups)})"
            yield Fault("cohort", text, self.cohort)
        if law.everyone and self.groups and self.cohort < self.population:
            text = f"must be the population ({self.population}) under full participation"
            yield Fault("cohort", text, self.cohort)

    @rule
    def _cohort_agrees(self) -> Iterator[Fault]:
        if self.cohort is None or self.planning.ratios != "given" or not self.groups:
            return
        if any(group.sampling_ratio is None for group in self.groups):
            return
        if not math.isclose(self.cohort, self.expected_cohort, rel_tol=0.01):
            expected = self.expected_cohort
            text = f"must agree with the given ratios, which expect {expected:g} clients"
            yield Fault("cohort", text, self.cohort)

    @rule
    def _sparsification(self) -> Iterator[Fault]:
        kept = self.planning.sparsification
        if isinstance(kept, tuple) and self.groups and len(kept) != len(self.groups):
            text = f"must have one kept fraction per group ({len(self.groups)})"
            yield Fault("planning.sparsification", text, list(kept))
        if self.release == "joint" and kept != "none":
            text = "must be none when all groups share one release"
            yield Fault("planning.sparsification", text, kept)

    @rule
    def _calibration(self) -> Iterator[Fault]:
        found = (self.planning.accountant, str(self.sampling), str(self.relation))
        published = isinstance(self.planning, Published)
        if published and found != ("rdp", "poisson", "add_remove"):
            text = "published goes with accountant rdp, poisson sampling and add_remove"
            yield Fault("planning.calibration", text, ", ".join(found))

    @rule
    def _free_groups(self) -> Iterator[Fault]:
        if "groups" in self.planning.free and self.groups_from is None:
            yield Fault("planning.free", "can name groups only with groups_from", "groups")

    @rule
    def _free_cohort(self) -> Iterator[Fault]:
        if "cohort" in self.planning.free and self.sampling.law.everyone:
            yield Fault("planning.free", "cannot hold cohort under full participation", "full")

    @rule
    def _sampling_ratios(self) -> Iterator[Fault]:
        given = self.planning.ratios == "given"
        for group in self._groups_with("name", "clients", "sampling_ratio"):
            where, ratio = f"groups.{group.name}.sampling_ratio", group.sampling_ratio
            expected = (ratio or 0.0) * group.clients
            whole = round(expected) > 0 and math.isclose(round(expected), expected, rel_tol=1e-6)
            if not given and ratio is not None:
                yield Fault(where, "is only for planning.ratios: given", ratio)
            elif given and ratio is None:
                yield Fault(where, "is required with planning.ratios: given", "nothing")
            elif given and self.sampling.law.everyone and ratio != 1:
                yield Fault(where, "must be 1 under full participation", ratio)
            elif given and self.sampling.law.whole_cohorts and not whole:
                text = f"must give a whole cohort of the {group.clients} clients"
                yield Fault(where, text, ratio)

    @rule
    def _fixed_noise(self) -> Iterator[Fault]:
        for group in self._groups_with("name", "clients", "sampling_ratio", "noise_multiplier"):
            yield from noise_faults(self, group)

    @rule
    def _turns(self) -> Iterator[Fault]:
        yield from turn_faults(self)

    @rule
    def _limits(self) -> Iterator[Fault]:
        if not is_objective(self.planning.ratios):
            for field in ("min_sampling_ratio", "max_sampling_ratio", "min_weight"):
                for group in self._groups_with("name", field):
                    if getattr(group, field) is not None:
                        where = f"groups.{group.name}.{field}"
                        yield Fault(where, only_objectives(), getattr(group, field))


def _whole(cohort: float) -> float:
    if cohort != round(cohort):
        raise ValueError("must be a whole number with unit: record")
    return cohort


def _poisson(law: SamplingLaw) -> SamplingLaw:
    if law != SamplingLaw.POISSON:
        raise ValueError("must be poisson with unit: record: the law of a batch")
    return law


def _groups_or_distribution(schema: dict[str, Any]) -> None:
    """Groups may be left out where a distribution draws them."""
    schema["required"].remove("groups")
    drawn = {"epsilon_distribution": {"not": NOTHING}}
    schema["anyOf"] = [
        {"required": ["groups"]},
        {"required": ["epsilon_distribution"], "properties": drawn},
    ]


class RecordSpec(Spec):
    """A spec whose budgets protect each record of a client."""

    model_config = ConfigDict(json_schema_extra=_groups_or_distribution)
    unit: Literal["record"] = Field(description="A budget protects a record of a client.")
    groups: tuple[RecordGroup, ...] = Field(
        description="Who needs how much privacy; may be left out with epsilon_distribution."
    )
    cohort: Annotated[Positive, AfterValidator(_whole)] | None = Field(
        None, description="Clients per round, who take turns; everybody when left out."
    )
    sampling: Annotated[SamplingLaw, AfterValidator(_poisson)] = Field(
        SamplingLaw.POISSON,
        description="Law by which a batch is drawn.",
        json_schema_extra={"const": "poisson"},
    )
    planning: RecordPlanning = Field(RecordPlanning(), description="What the planner is asked for.")

    @rule
    def _records(self) -> Iterator[Fault]:
        for group in self._groups_with("name", "records"):
            if group.records is None:
                where = f"groups.{group.name}.records"
                yield Fault(where, "is required with unit: record", "nothing")

    @rule
    def _batch_sizes(self) -> Iterator[Fault]:
        for group in self._groups_with("name", "records", "batch_size"):
            if group.records is not None and self.batch_size_of(group) > group.records:
                text = f"must not exceed the {group.records} records of a client"
                yield Fault(f"groups.{group.name}.batch_size", text, self.batch_size_of(group))
