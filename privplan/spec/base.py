"""The fields that every spec has, what follows from them, and the rules between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from privplan.accounting.calibrate import MOST_ROUNDS
from privplan.accounting.release import Relation, SamplingLaw, Unit, is_client
from privplan.accounting.tradeoff import implied_risk, limit_of
from privplan.errors import Fault
from privplan.spec.groups import DELTA_LAW, Delta, Group, LocalTraining, Model, Signer
from privplan.spec.objectives import FIXED_RATIOS, OBJECTIVES, is_objective, only_objectives
from privplan.spec.planning import CONSTANTS_OF_ROUNDS, Optimised, Planning
from privplan.spec.training import Averaging, Recipe, ServerOptimiser
from privplan.values import LEAST, Checked, Count, Name, Positive, is_none, rule

# -------------------------------------------------------------------------------------------------
# What the choices of a spec exclude, one row each, beside what its sampling law and objective do.
#
# ``exclusions`` asks all of them in one loop, with ``excludes(spec)``; nothing else in the spec
# refuses one choice because of another.


@dataclass(frozen=True)
class Choice:
    """A choice of a spec, with the fields that must be left out where it is made.

    Attributes:
        made: whether a spec makes it.
        fields: dotted names; ``groups.x`` is the field x of each group.
        rule: why they are left out.
        plain: values of the fields that are as good as none.
    """

    made: Callable[[Any], bool]
    fields: tuple[str, ...]
    rule: str | Callable[[], str]
    plain: tuple[Any, ...] = (None,)

    def excludes(self, spec: Any) -> Iterator[Fault]:
        """A fault for each of the fields that the spec has all the same."""
        if not self.made(spec):
            return
        for field in self.fields:
            for where, value in values_at(spec, field):
                if value not in self.plain:
                    rule = self.rule if isinstance(self.rule, str) else self.rule()
                    found = str(value) if hasattr(value, "model_dump") else value
                    yield Fault(where, rule, found)


def values_at(spec: Any, field: str) -> Iterator[tuple[str, Any]]:
    """The valid values of a dotted field with their full names."""
    first, _, last = field.partition(".")
    if first == "groups":
        named = [group for group in spec.groups if hasattr(group, "name")]
        yield from ((f"groups.{one.name}.{last}", getattr(one, last, None)) for one in named)
    else:
        inner = getattr(spec, first, None)
        yield field, getattr(inner, last, None) if last else inner


CHOICES = (
    Choice(
        lambda spec: spec.unit == "client" and spec.release == "joint",
        ("planning.sparsification",),
        "must be none when all groups share one release",
        plain=("none",),
    ),
    Choice(
        lambda spec: spec.unit == "client" and spec.planning.ratios != "given",
        ("groups.sampling_ratio",),
        "is only for planning.ratios: given",
    ),
    Choice(
        lambda spec: spec.planning.ratios not in ("given", "uniform"),
        ("groups.noise_multiplier",),
        "is only for planning.ratios: given, uniform",
    ),
    Choice(
        lambda spec: spec.planning.ratios in ("given", "uniform") and spec.release != "per_group",
        ("groups.noise_multiplier",),
        "is only for planning.release: per_group",
    ),
    Choice(
        lambda spec: spec.unit == "client" and spec.planning.ratios in FIXED_RATIOS,
        ("groups.min_sampling_ratio", "groups.max_sampling_ratio", "groups.min_weight"),
        only_objectives,
    ),
)


def exclusions(spec: Any) -> Iterator[Fault]:
    """The faults of everything in a spec that excludes something else."""
    asked: list[Any] = list(CHOICES)
    with suppress(AttributeError):
        asked.append(spec.sampling.law)
    with suppress(AttributeError, KeyError):
        asked += [OBJECTIVES.get(one) for one in {spec.planning.ratios}.difference(FIXED_RATIOS)]
    for one in asked:
        with suppress(AttributeError):
            yield from one.excludes(spec)


# --- The fields that every spec has, what follows from them, and the rules between them. ---------


class BaseSpec(Checked):
    """A spec of either unit of privacy, with the fields of both."""

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
    rounds: Count = Field(
        description="Rounds of training (T).", json_schema_extra={"maximum": MOST_ROUNDS}
    )
    cohort: Positive | None = Field(
        None,
        description="Expected clients per round, over all groups (q n); with unit: record a whole "
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
    server: ServerOptimiser | None = Field(
        None,
        exclude_if=is_none,
        description="How the server moves the model by the mean update; adds it when left out.",
    )
    averaging: Averaging | None = Field(
        None,
        exclude_if=is_none,
        description="Average of the models over rounds that is released; the last model when left "
        "out.",
    )
    recipe: Recipe | None = Field(
        None,
        exclude_if=is_none,
        description="none, or default: clipping norm, server and averaging are decided without "
        "data; default where a spec leaves them out.",
    )
    model: Model = Field(description="The network.")
    planning: Planning = Field(
        Optimised.model_construct(),  # its rules import the objectives, which import this module
        description="What the planner is asked for.",
    )

    signers: tuple[Signer, ...] = Field(
        (),
        description="Parties that sign statements about the run; with them a verdict needs an "
        "attested ledger.",
        exclude_if=lambda signers: not signers,
    )

    @property
    def release(self) -> Literal["joint", "per_group"]:
        """One noisy sum of all groups, or one per group."""
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
        """Expected clients per round over all groups (q n)."""
        if self.planning.ratios == "given":
            drawable = self.sampling.law.drawable
            return sum((one.sampling_ratio or 0.0) * drawable(one.clients) for one in self.groups)
        if self.sampling.law.everyone or self.cohort is None:
            return float(self.population)
        return self.cohort

    @property
    def server_momentum(self) -> float:
        """Momentum of the server for which the noise is correlated, in [0, 1).

        That of the spec, or of the default recipe where it is to decide the server; 0 for servers
        without momentum.
        """
        recipe = self.recipe
        if recipe is not None and recipe.source == "default" and "server" in recipe.decides:
            return self.sampling.law.recipe_momentum
        return 0.0 if self.server is None else self.server.momentum or 0.0

    @property
    def mixture(self) -> tuple[float, ...]:
        """Factors on a round's sum and on those before it in what is released; (1,) for a sum."""
        return self.sampling.law.mixture(self.server_momentum)

    @property
    def noise_left(self) -> float:
        """Noise of the last model over that of independent noise of the planned size per round."""
        return self.sampling.law.noise_left(self.server_momentum, self.rounds)

    def delta_of(self, group: Group) -> float:
        """The group's delta as a number."""
        return self._delta_for(group) if group.delta is None else group.delta

    def _delta_for(self, group: Group) -> float:
        """The spec's delta as a number for a group."""
        if isinstance(self.delta, str):
            law = DELTA_LAW.fullmatch(self.delta)
            assert law is not None  # checked when the value was made
            return float(self._protected(group) ** -float(law.group(1)))
        return self.delta

    def _protected(self, group: Group) -> int:
        """The n of a law of delta: clients of all groups, or records of a client."""
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
        if self.groups_from is not None and any(
            not math.isclose(self.delta_of(group), self._delta_for(group)) for group in self.groups
        ):
            lines.append("groups_from: each group has the least epsilon and delta of its members")
        for group in self.groups:
            if group.risk is not None:  # its delta is a point of a curve, not a failure
                continue
            delta = self.delta_of(group)
            units = group.clients if self.unit == "client" else group.records or 1
            if delta >= 1 / units:
                lines.append(
                    f"groups.{group.name}.delta: {delta:.3g} is not below 1/{self.unit}s = "
                    f"{1 / units:.3g}; publishing one {self.unit}'s data outright would pass"
                )
        return lines

    @rule
    def _names(self) -> Iterator[Fault]:
        if not self.groups:
            yield Fault("groups", "must name at least one group", [])
        names = [group.name for group in self._groups_with("name")]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield Fault("groups", "must have unique names", name)

    @rule
    def _excluded(self) -> Iterator[Fault]:
        yield from exclusions(self)

    @rule
    def _signers(self) -> Iterator[Fault]:
        for field in ("name", "key"):
            found = [getattr(one, field) for one in self.signers if hasattr(one, field)]
            for value in sorted({value for value in found if found.count(value) > 1}):
                yield Fault(f"signers.{field}", "must be unique", value)

    @rule
    def _free_rounds(self) -> Iterator[Fault]:
        """Rounds are decided by the bound's constants or by the default recipe."""
        recipe, planning = self.recipe, self.planning
        by_recipe = recipe is not None and {"clipping_norm", "server"} <= {*recipe.decides}
        if not isinstance(planning, Optimised) or {"rounds", "clipping_norm"} <= {*planning.free}:
            return  # the latter is a fault of planning itself
        if "rounds" in planning.free and planning.constants is None and not by_recipe:
            yield Fault("planning.constants", CONSTANTS_OF_ROUNDS, "nothing")

    @rule
    def _risks(self) -> Iterator[Fault]:
        """A group's epsilon and delta imply its risk."""
        for group in self._groups_with("name", "risk", "epsilon", "delta"):
            if group.risk is None:
                continue
            faults = list(group.risk.faults())
            for fault in faults:
                yield Fault(f"groups.{group.name}.{fault.field}", fault.rule, fault.found)
            if faults:
                continue
            allowed = limit_of(group.risk.point)
            found = implied_risk(group.risk.point, group.epsilon, self.delta_of(group))
            if found > allowed * (1 + 1e-9):
                text = f"must imply {group.risk}; with this delta it allows {found:.6g}"
                yield Fault(f"groups.{group.name}.epsilon", text, group.epsilon)

    @rule
    def _delta_in_range(self) -> Iterator[Fault]:
        """A law of the number of clients or records gives a probability."""
        counted = [group for group in self.groups if self.unit == "client" or group.records]
        found = {self.delta_of(group) for group in counted if group.delta is None}
        text = f"must be in [{LEAST:g}, 1) for these groups; {self.delta} is not"
        for delta in sorted(found):
            if not LEAST <= delta < 1:
                yield Fault("delta", text, delta)

    @rule
    def _rounds_in_range(self) -> Iterator[Fault]:
        if self.rounds > MOST_ROUNDS:
            yield Fault("rounds", f"must be at most {MOST_ROUNDS}", self.rounds)

    @rule
    def _cohort_in_population(self) -> Iterator[Fault]:
        if self.cohort is not None and self.groups and self.cohort > self.population:
            text = f"must not exceed the population of {self.population} clients"
            yield Fault("cohort", text, self.cohort)

    @rule
    def _default_recipe(self) -> Iterator[Fault]:
        """The default recipe is for plans of clients that minimise an objective."""
        if self.recipe is None or self.recipe.source != "default":
            return
        if self.unit == "record" or not is_objective(self.planning.ratios):
            found = f"{self.planning.ratios}, unit {self.unit}"
            yield Fault("recipe", f"default {only_objectives()}, with unit: client", found)

    def _groups_with(self, *fields: str) -> list[Group]:
        """The groups whose fields of these names are valid."""
        return [one for one in self.groups if all(hasattr(one, field) for field in fields)]
