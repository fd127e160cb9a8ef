"""The spec: who needs how much privacy, and how training runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, ConfigDict, Field

from privplan.accounting.accountant import accountant
from privplan.accounting.calibrate import MOST_ROUNDS, NOISE_RANGE, PLD, calibrate, least_certified
from privplan.accounting.gdp import largest_affordable
from privplan.accounting.release import History, Relation, Release, SamplingLaw, is_client
from privplan.accounting.tradeoff import limit_of, profile_of, tightest_budget
from privplan.errors import Fault, InputError, TooLittleNoiseError, UnsupportedError
from privplan.files import SPEC, read_text, refuse_other_kind, spec_mapping
from privplan.spec.base import BaseSpec
from privplan.spec.grouping import Costs, Grouping, budgets_of_file, cut
from privplan.spec.groups import (
    NOTHING,
    ClientGroup,
    ClientTraining,
    Group,
    RecordGroup,
    Risk,
    with_risk,
)
from privplan.spec.objectives import OBJECTIVES, is_objective
from privplan.spec.planning import Published, RecordPlanning
from privplan.spec.removed import refuse_removed
from privplan.spec.training import with_recipe
from privplan.values import Checked, Positive, parse, rule

# --- Budgets of groups whose noise multiplier is fixed and whose budget is a risk. ---------------
#
# What such a group releases is known before anything is planned, so its budget is read from its
# own trade-off curve. The budget of a risk alone (``privplan.spec.groups``) is the tangent of a
# Gaussian curve, which may refuse noise that keeps the risk.

_TRIES = 3
"""Rounds below the largest that keep a risk at which its budget is certified at the latest."""


def own_budget(risk: Risk, history: History, relation: Relation) -> tuple[float, float] | None:
    """The (epsilon, delta) that a history keeps and that implies a risk."""
    try:
        found, (epsilon, delta) = tightest_budget(risk.point, profile_of(history, relation))
    except UnsupportedError:
        return None
    if found > limit_of(risk.point) or not (0 < delta < 1 and epsilon > 0):
        return None
    kept = accountant(PLD).epsilon(history, delta, relation).upper <= epsilon
    return (epsilon, delta) if kept else None


def most_rounds(risk: Risk, one_round: History, relation: Relation) -> int | None:
    """The most rounds that keep a risk; None where one round does not."""

    def cost(log_rounds: float) -> float:
        history = one_round * round(math.exp(log_rounds))
        try:
            return tightest_budget(risk.point, profile_of(history, relation))[0]
        except UnsupportedError:
            return math.inf

    found = largest_affordable(
        cost,
        limit_of(risk.point),
        start=0.0,
        low=0.0,
        high=math.log(MOST_ROUNDS),
        tolerance=1e-4,
        integer=True,
    )
    if found.feasible is None:
        return None
    most = round(math.exp(found.feasible))
    tried = range(most, max(most - _TRIES, 1) - 1, -1)
    return next((n for n in tried if own_budget(risk, one_round * n, relation) is not None), None)


# --- Specs with fixed noise multipliers: the epsilon of each group, or the rounds that fit. ------

_GUARANTEE = "pld"
T = TypeVar("T", bound=BaseSpec)


@dataclass(frozen=True)
class Follows:
    """What follows from fixed noise multipliers, once the rest of a spec is known to be valid.

    Attributes:
        epsilon: places of groups whose epsilon is what they spend.
        budget: places of groups whose budget is the one of their own curve that implies a risk.
        rounds: whether the rounds are the most that keep every budget.
    """

    epsilon: tuple[int, ...] = ()
    budget: tuple[int, ...] = ()
    rounds: bool = False


def with_budgets(data: dict[str, Any]) -> tuple[dict[str, Any], Follows]:
    """Plain data of a spec in which every group has an epsilon, and which of them stand in."""
    groups = data.get("groups")
    if not isinstance(groups, list | tuple) or not all(isinstance(one, dict) for one in groups):
        return data, Follows()
    fixed = [one.get("noise_multiplier") is not None for one in groups]
    risky = [one.get("risk") is not None and "epsilon" not in one for one in groups]
    spent = [
        has and not by_risk and one.get("epsilon") is None
        for one, has, by_risk in zip(groups, fixed, risky, strict=True)
    ]
    stated = [
        with_risk(one) if by_risk else {**one, "epsilon": 1.0} if lacks else one
        for one, by_risk, lacks in zip(groups, risky, spent, strict=True)
    ]
    rounds = "rounds" not in data and bool(fixed) and all(fixed) and not any(spent)
    own = [has and by_risk for has, by_risk in zip(fixed, risky, strict=True)]
    places = range(len(groups))
    follows = Follows(tuple(compress(places, spent)), tuple(compress(places, own)), rounds)
    return {**data, "groups": stated, **({"rounds": 1} if rounds else {})}, follows


def with_fixed_noise(spec: T, follows: Follows) -> T:
    """The spec with what follows from its fixed noise multipliers."""
    if follows == Follows():
        return spec
    if follows.rounds:
        most = min(_rounds(spec, one, at in follows.budget) for at, one in enumerate(spec.groups))
        spec = spec.model_copy(update={"rounds": most})
    groups = [
        group.model_copy(
            update={"epsilon": _epsilon(spec, group)}
            if at in follows.epsilon
            else _budget(spec, group)
            if at in follows.budget
            else {}
        )
        for at, group in enumerate(spec.groups)
    ]
    return spec.model_copy(update={"groups": tuple(groups)})


def fixed_ratio(spec: BaseSpec, group: Group) -> float:
    """The sampling ratio of a group of a spec with given or uniform ratios."""
    if spec.planning.ratios == "given":
        return group.sampling_ratio or 0.0
    return spec.expected_cohort / spec.sampling.law.drawable(spec.population)


def noise_faults(spec: BaseSpec, group: Group) -> list[Fault]:
    """Faults of a group's fixed noise multiplier."""
    where, noise = f"groups.{group.name}.noise_multiplier", group.noise_multiplier
    if noise is None:
        return []
    if not NOISE_RANGE[0] <= noise <= NOISE_RANGE[1]:
        text = f"must be in [{NOISE_RANGE[0]:g}, {NOISE_RANGE[1]:g}]"
        return [Fault(where, text, noise)]
    if spec.planning.ratios not in ("given", "uniform"):
        return []
    cohort = fixed_ratio(spec, group) * spec.sampling.law.drawable(group.clients)
    if spec.sampling.law.whole_cohorts and abs(cohort - round(cohort)) > 1e-6 * cohort:
        text = f"needs a whole cohort of the {group.clients} clients"
        return [Fault(where, text, f"{cohort:.6g}")]
    return []


def _history(spec: BaseSpec, group: Group, rounds: int) -> History:
    """What a client of a group with a fixed noise multiplier takes part in."""
    release = Release(group.noise_multiplier or 0.0, fixed_ratio(spec, group), spec.sampling)
    return History.repeated(release, spec.sampling.law.rounds_of_client(rounds))


def _budget(spec: BaseSpec, group: Group) -> dict[str, float]:
    """Fields of the budget that implies a group's risk by its own curve; none if it is exceeded."""
    if group.risk is None:
        return {}
    history = _history(spec, group, spec.rounds)
    found = own_budget(group.risk, history, Relation(spec.relation))
    return {} if found is None else {"epsilon": found[0], "delta": found[1]}


def _epsilon(spec: BaseSpec, group: Group) -> float:
    """The epsilon that a group spends, by the guarantee's accountant."""
    history, relation = _history(spec, group, spec.rounds), Relation(spec.relation)
    try:
        found = accountant(_GUARANTEE).epsilon(history, spec.delta_of(group), relation)
    except TooLittleNoiseError:
        where = f"groups.{group.name}.noise_multiplier"
        least = least_certified(spec.sampling, relation)
        text = f"must be {least:.3g} or more to be certified under sampling"
        raise InputError.one(where, text, group.noise_multiplier) from None
    if not 0 < found.upper < float("inf"):
        where = f"groups.{group.name}.noise_multiplier"
        text = f"must give a positive and finite epsilon, gives {found.upper:g}"
        raise InputError.one(where, text, group.noise_multiplier)
    return found.upper


def _rounds(spec: BaseSpec, group: Group, risky: bool) -> int:
    """The most rounds that keep a group's budget, or its risk."""
    if risky and group.risk is not None:
        one_round = _history(spec, group, 1)
        if (most := most_rounds(group.risk, one_round, Relation(spec.relation))) is not None:
            return spec.sampling.law.rounds_for(most)
    return spec.sampling.law.rounds_for(
        round(
            calibrate(
                "rounds",
                group.epsilon,
                spec.delta_of(group),
                noise_multiplier=group.noise_multiplier,
                sampling_ratio=fixed_ratio(spec, group),
                sampling=spec.sampling,
                relation=spec.relation,
            )
        )
    )


# --- The spec: who needs how much privacy, and how training runs. --------------------------------


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
        if not isinstance(data, dict):
            return parse(cls, data)
        refuse_other_kind(data, SPEC, "spec")
        refuse_removed(data)
        # What a spec leaves open is stated first, as if it had been written: all clients of a file
        # as one group, a risk as the budget that implies it, fixed noise as some budget or rounds.
        try:
            budgets = budgets_of_file(data, Path(folder))
            if budgets is not None:
                epsilons, deltas = (float(least.min()) for least in budgets)
                everybody = Grouping((len(budgets[0]),), (epsilons,), (deltas,))
                data = {**data, "groups": everybody.plain()}
            stated, follows = with_budgets(data)
        except InputError as error:
            without = with_recipe({**data, "groups": None})
            return parse(cls, without, error.faults, hidden=["groups"])
        # All faults at once. Then, of a valid spec, what follows from its other fields.
        spec = parse(cls, with_recipe(stated), hidden=["rounds"] if follows.rounds else [])
        if budgets is not None:
            costs, free = spec.grouping_costs(), "groups" in spec.planning.free
            groups = cut(*budgets, costs, spec.cohort, free=free)
            spec = parse(cls, with_recipe({**data, "groups": groups}))
        return with_fixed_noise(spec, follows)

    def grouping_costs(self) -> Costs | None:
        """Costs by which individual budgets are grouped; None for a fixed rule of the ratios."""
        if not is_objective(self.planning.ratios) or self.unit != "client":
            return None
        return OBJECTIVES.get(self.planning.ratios).grouping_costs(self)

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
        if self.cohort < len(self.groups):
            text = f"must be at least one client per group ({len(self.groups)})"
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
    def _sampling_ratios(self) -> Iterator[Fault]:
        for group in self._groups_with("name", "sampling_ratio"):
            if self.planning.ratios == "given" and group.sampling_ratio is None:
                where = f"groups.{group.name}.sampling_ratio"
                yield Fault(where, "is required with planning.ratios: given", "nothing")

    @rule
    def _fixed_noise(self) -> Iterator[Fault]:
        for group in self._groups_with("name", "clients", "sampling_ratio", "noise_multiplier"):
            yield from noise_faults(self, group)


def _whole(cohort: float) -> float:
    if cohort != round(cohort):
        raise ValueError("must be a whole number with unit: record")
    return cohort


def _poisson(law: SamplingLaw) -> SamplingLaw:
    if law != SamplingLaw.POISSON:
        raise ValueError("must be poisson with unit: record: the law of a batch")
    return law


class RecordSpec(Spec):
    """A spec whose budgets protect each record of a client."""

    unit: Literal["record"] = Field(description="A budget protects a record of a client.")
    groups: tuple[RecordGroup, ...] = Field(description="Who needs how much privacy.")
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
