"""The spec: who needs how much privacy, and how training runs.

``Spec.parse`` reads one in three steps: what the data leave open is stated in them
(``with_budgets``, ``with_recipe``), fields and rules are checked, and what follows from
the valid fields is filled in (groups of a file, the epsilon of fixed noise).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo

from privplan.accounting.accountant import accountant
from privplan.accounting.calibrate import MOST_ROUNDS, NOISE_RANGE, PLD, least_certified
from privplan.accounting.release import (
    History,
    Relation,
    Release,
    SamplingLaw,
    Unit,
    is_client,
)
from privplan.accounting.tradeoff import implied_risk, limit_of
from privplan.errors import Fault, InputError, TooLittleNoiseError, did_you_mean
from privplan.file_kinds import SPEC, refuse_other_kind, spec_mapping
from privplan.files import read_text
from privplan.guidance import REPLACE, checked_call
from privplan.laws.law import Use
from privplan.names import name_faults, skeleton
from privplan.spec.base import exclusions
from privplan.spec.changes import with_changes
from privplan.spec.grouping import Grouping, budgets_of_file, cut
from privplan.spec.groups import (
    DELTA_LAW,
    Delta,
    Group,
    LocalTraining,
    Model,
    Signer,
    with_risk,
)
from privplan.spec.planning import OBJECTIVES, Planning, is_objective, with_recipe
from privplan.spec.removed import refuse_removed
from privplan.spec.training import (
    Averaging,
    Recipe,
    ServerOptimiser,
)
from privplan.values import (
    SMALLEST,
    Checked,
    Count,
    Name,
    Named,
    PersonWord,
    Positive,
    Shown,
    omitted,
    parse,
    rule,
)

# Ratios and cohorts of a plan are rounded, so that a spec may state them to 1%.
_COHORT_TOLERANCE = 0.01
# Slack for the rounding of floating-point numbers, far above it and far below any
# difference that matters: of a risk, and of a cohort that should be a whole number.
_RISK_TOLERANCE = 1e-9
_WHOLE_TOLERANCE = 1e-6


def with_budgets(data: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """State a budget for each group in the plain data of a spec.

    A risk becomes epsilon and delta. A noise multiplier without an epsilon gets epsilon
    1, with which the data can be validated: what it spends depends on fields that are
    not valid yet.

    Returns:
        The data, and the places of the groups whose epsilon of 1 stands for another.
    """
    groups = data.get("groups")
    if not isinstance(groups, list | tuple):
        return data, []
    if not all(isinstance(group, dict) for group in groups):
        return data, []

    stated_groups: list[dict[str, Any]] = []
    places_of_fixed_noise: list[int] = []
    for place, group in enumerate(groups):
        if group.get("risk") is not None and "epsilon" not in group:
            stated_groups.append(with_risk(group))
        elif group.get("noise_multiplier") is not None and group.get("epsilon") is None:
            stated_groups.append({**group, "epsilon": 1.0})
            places_of_fixed_noise.append(place)
        else:
            stated_groups.append(group)
    return {**data, "groups": stated_groups}, places_of_fixed_noise


def _odd_names(data: dict[str, Any]) -> list[Fault]:
    """Names of groups and signers that other programs might read as more than that."""
    faults = []
    for field in ("groups", "signers"):
        parties = data.get(field)
        if not isinstance(parties, list):
            continue
        for party in parties:
            name = party.get("name") if isinstance(party, dict) else None
            if isinstance(name, str) and not re.fullmatch(r"[\w .-]*", name):
                rule = "must be letters, digits, spaces, - _ or ."
                faults.append(Fault(f"{field}.name", rule, name))
    return faults


def _clients_of_share(share: float, groups: Sequence[Group]) -> str:
    """The cohort that a share of all clients is, as the end of a rule.

    Empty where the groups are not valid, or would not have a client each.
    """
    if not 0 < share <= 1 or not all(hasattr(group, "clients") for group in groups):
        return ""
    population = sum(group.clients for group in groups)
    cohort = round(share * population)
    if cohort < max(1, len(groups)):
        return ""
    return f"; write {cohort} for {100 * share:.4g}% of {population} clients"


def _cohort(value: Any, info: ValidationInfo) -> Any:
    """A cohort as it is, unless it is written as a share of the clients."""
    if not isinstance(value, str):
        return value
    percentage = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", value)
    if percentage is None:
        return value
    share = float(percentage[1]) / 100
    clients = _clients_of_share(share, info.data.get("groups", ()))
    raise ValueError(f"must be a number of clients{clients}")


def _unit(value: Any) -> Any:
    if value not in ("client", "record"):
        rule = "must be client or record"
        raise ValueError(f"{rule}; make a person or a group of records one client")
    return value


class Spec(Shown, Checked):
    """A planning problem. Made from YAML with ``Spec.load`` or ``Spec.parse``."""

    # Fields hold what the spec states. What follows from several fields, with its
    # default, is a property or a method; what they exclude together is a ``rule``.

    name: Name = Field(description="Name of the plan, for tables and plots.")
    groups: Named[Group] = Field(
        (),  # type: ignore[arg-type]  # a tuple is what a field of this type takes
        description="Who needs how much privacy; may be left out with groups_from.",
    )
    groups_from: str | None = Field(
        None,
        description="CSV file of individual budgets (client, epsilon[, delta]) to make "
        "the groups from; relative to the spec.",
    )
    unit: Annotated[Unit, BeforeValidator(_unit)] = Field(
        "client",
        description="Whom a budget protects: a client with all its data, or a single "
        "record of a client. A person or household counts as one client if all its "
        "records are in one.",
        exclude_if=is_client,
    )
    person: PersonWord | None = omitted(
        "The word for whom a budget protects, such as patient, in all that is written "
        "about the plan; client when left out. Not with unit: record."
    )
    delta: Delta = Field(
        "n^-1.1",
        description="Failure probability: a number, or n^-1.1 with n the number of "
        "clients (of a client's records with unit: record).",
    )
    rounds: Count = Field(
        description="Rounds of training (T).",
        json_schema_extra={"maximum": MOST_ROUNDS},
    )
    cohort: Annotated[Positive | None, BeforeValidator(_cohort)] = Field(
        None,
        description="Expected clients per round, over all groups (q n); with unit: "
        "record a whole number of clients who take turns, everybody when left out.",
    )
    sampling: SamplingLaw = Field(
        SamplingLaw.POISSON,
        description="Law by which a cohort is drawn in each group, or with unit: "
        "record a batch of a client's records.",
    )
    relation: Literal[Relation.ADD_REMOVE, Relation.REPLACE_ONE] = Field(
        Relation.ADD_REMOVE, description="Which data sets are neighbours."
    )
    clipping_norm: Positive = Field(
        1.0, description="L2 bound on a client's update (C)."
    )
    local: LocalTraining = Field(LocalTraining(), description="Training on a client.")
    server: ServerOptimiser | None = omitted(
        "How the server moves the model by the mean update; adds it when left out."
    )
    averaging: Averaging | None = omitted(
        "Average of the models over rounds that is released; the last model when left "
        "out."
    )
    recipe: Recipe | None = omitted(
        "none, or default: clipping norm, server and averaging are decided without "
        "data; default where a spec leaves them out."
    )
    model: Model = Field(description="The network.")
    planning: Planning = Field(Planning(), description="What the planner is asked for.")
    signers: tuple[Signer, ...] = Field(
        (),
        description="Parties that sign statements about the run; with them a verdict "
        "needs an attested ledger.",
        exclude_if=lambda signers: not signers,
    )

    def plain(self) -> dict[str, Any]:
        """The data of which ``parse`` makes this spec again.

        Budgets that follow from a risk or a noise multiplier are left out, so that a
        copy with another risk or noise gets another budget.
        """
        data = self.model_dump(mode="json", exclude_none=True)
        for group, fields in zip(self.groups, data["groups"], strict=True):
            if group.risk is not None:
                del fields["epsilon"]
                del fields["delta"]
                continue
            has_fixed_noise = group.noise_multiplier is not None
            if has_fixed_noise and group.epsilon == self._spent_epsilon(group):
                del fields["epsilon"]
        return data

    def replace(
        self, changes: Mapping[str, Any] | None = None, /, **fields: Any
    ) -> Spec:
        """The spec with some fields changed, checked as a whole; this one stays.

        Args:
            changes: values by dotted name, such as ``{"groups.strict.epsilon": 1}``.
            fields: values by name. A mapping changes parts, of ``groups`` by the
                group's name; a list of groups replaces all. Groups of a file of budgets
                are not made again.

        Raises:
            InputError: for a field that a spec does not have, and for what ``parse``
                refuses.

        >>> plan.spec.replace(rounds=80, groups={"strict": {"epsilon": 1}}).rounds
        80
        """
        changes = {**(changes or {}), **fields}
        for name in changes:
            if name.partition(".")[0] not in Spec.model_fields:
                near = did_you_mean(name, Spec.model_fields) or f"; {REPLACE}"
                raise InputError.one(name, f"is not a known field{near}", changes[name])

        # A recipe no longer decides what a change states.
        data = self.plain()
        if isinstance(data.get("recipe"), dict):
            stated = {*changes}
            stated |= {f"local.{inner}" for inner in changes.get("local") or ()}
            decides = [
                field for field in data["recipe"]["decides"] if field not in stated
            ]
            data["recipe"] = {**data["recipe"], "decides": decides}
        return Spec.parse(with_changes(data, changes))

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

        # Groups first, since all rules between fields read them. Where they are at
        # fault already, the other fields are validated all the same, for their faults.
        try:
            budgets = budgets_of_file(data, Path(folder))
            if budgets is not None:
                # All clients of the file stand in one group until the spec is valid:
                # how they are cut depends on its cohort and on what it leaves free.
                epsilons, deltas = budgets
                everybody = Grouping(
                    clients=(len(epsilons),),
                    epsilons=(float(epsilons.min()),),
                    deltas=(float(deltas.min()),),
                )
                data = {**data, "groups": everybody.plain()}
            stated_data, places_of_fixed_noise = with_budgets(data)
        except InputError as error:
            without_groups = with_recipe({**data, "groups": None})
            return parse(cls, without_groups, error.faults, hidden=["groups"])
        spec = parse(cls, with_recipe(stated_data), _odd_names(data))

        # Of a valid spec, what follows from its other fields.
        if budgets is not None:
            free = "groups" in spec.planning.free
            cut_data = {**data, "groups": cut(*budgets, spec.cohort, free=free)}
            spec = parse(cls, with_recipe(cut_data))
        if not places_of_fixed_noise:
            return spec
        groups = list(spec.groups)
        for place in places_of_fixed_noise:
            epsilon = spec._spent_epsilon(groups[place])
            groups[place] = groups[place].model_copy(update={"epsilon": epsilon})
        return spec.model_copy(update={"groups": tuple(groups)})

    @classmethod
    @checked_call
    def load(cls, path: Path | str) -> Spec:
        """A spec from a YAML file.

        Raises:
            InputError: when the file cannot be read, is no mapping in YAML, or has
                faults.
        """
        return cls.of_text(read_text(path, "spec"), path)

    @classmethod
    def of_text(cls, text: str, path: Path | str) -> Spec:
        """As ``load``, from the text of the file at a path."""
        data = spec_mapping(text, path)
        try:
            return cls.parse(data, Path(path).parent)
        except InputError as error:
            # Not at the top: it reads YAML, which plans and runs do without.
            from privplan.spec.positions import with_lines

            raise with_lines(error, text, path) from None

    def sources(self, path: Path | str) -> list[Path]:
        """The files that a spec at ``path`` was read from."""
        files = [Path(path)]
        if self.groups_from is not None:
            files.append(Path(path).parent / self.groups_from)
        return files

    @property
    def release(self) -> Literal["joint", "per_group"]:
        """One noisy sum of all groups, or one per group."""
        if self.planning.release is not None:
            return self.planning.release
        name = self.planning.ratios
        if is_objective(name):
            return OBJECTIVES.get(name).default_release
        return "per_group"

    @property
    def weighting(self) -> str:
        """The rule of the weights, with its default."""
        if self.planning.weights is not None:
            return self.planning.weights
        if self.unit == "record":
            return "inverse_variance"
        if not is_objective(self.planning.ratios):
            return "participation"
        if "weights" in self.planning.free:
            return "optimal"
        return "population"

    @property
    def population(self) -> int:
        """Clients in all groups (n)."""
        return sum(group.clients for group in self.groups)

    @property
    def expected_cohort(self) -> float:
        """Expected clients per round over all groups (q n)."""
        if self.planning.ratios == "given":
            return sum(
                (group.sampling_ratio or 0.0) * self.drawable(group)
                for group in self.groups
            )
        if self.everyone or self.cohort is None:
            return sum(map(self.drawable, self.groups))
        return self.cohort

    def drawable(self, group: Group) -> float:
        """How many clients of a group a round can draw, on average.

        Laws in turns draw from a part of the group in each round.
        """
        return self.plain_law(group).law.drawable(group.clients)

    @property
    def server_momentum(self) -> float:
        """Server momentum in [0, 1) that noise is correlated for, or the recipe's.

        A recipe that decides the server chooses the momentum that the law's noise is
        best for; the planner needs it before the recipe is applied.
        """
        recipe = self.recipe
        if (
            recipe is not None
            and recipe.source == "default"
            and "server" in recipe.decides
        ):
            return self.sampling.law.recipe_momentum
        if self.server is None:
            return 0.0
        return self.server.momentum or 0.0

    @property
    def mixture(self) -> tuple[float, ...]:
        """Factors on a round's sum and on those before it in what is released.

        (1,) where each sum is released by itself.
        """
        return self.mixture_of(1)

    def mixture_of(self, round_: int) -> tuple[float, ...]:
        """``mixture`` in a round: rounds differ; a sum has norm 1 at most in all."""
        return self.sampling.law.mixture(self.server_momentum, self.rounds, round_)

    @property
    def noise_left(self) -> float:
        """Noise of the last model over that of independent noise of the same size."""
        return self.sampling.law.noise_left(self.server_momentum, self.rounds)

    def law_of(self, group: Group) -> SamplingLaw:
        """The law by which a group is sampled, for persons with its contributions."""
        return self.plain_law(group).of_person(group.contributions, self.unit)

    def least_cohort(self, group: Group) -> float:
        """The fewest clients of a group that a round expects."""
        min_ratio = group.min_sampling_ratio or 0.0
        if self.plain_law(group).law.everyone:
            min_ratio = 1.0
        return self.drawable(group) * min_ratio

    @property
    def plain_laws(self) -> tuple[SamplingLaw, ...]:
        """The laws of the groups, without the persons that they protect."""
        laws = tuple(dict.fromkeys(map(self.plain_law, self.groups)))
        return laws or (self.sampling,)

    @property
    def everyone(self) -> bool:
        """Whether no group has a sampling ratio to plan."""
        return all(law.law.everyone for law in self.plain_laws)

    def plain_law(self, group: Group) -> SamplingLaw:
        """The law by which a group is sampled."""
        return group.sampling or self.sampling

    def excludes_use(self, use: Use) -> str | None:
        """The rule that a use breaks under the law of a group; None where it works."""
        laws = self.plain_laws
        if len(laws) > 1 and use in ("attacks", "sensitivity tests", "max_uploads"):
            return f"must be one law of all groups, for {use}"
        for sampling in laws:
            rule = sampling.law.excludes_use(use)
            if rule:
                return rule
        return None

    def require(self, use: Use, field: str, value: object = None) -> None:
        """Raise InputError at a field where the laws of the groups exclude a use.

        Args:
            use: what the laws are needed for.
            field: that is at fault.
            value: of the field; the laws' names by default.
        """
        rule = self.excludes_use(use)
        if rule is not None:
            raise InputError.one(field, rule, self.laws if value is None else value)

    @property
    def laws(self) -> str:
        """The laws of the groups, with the persons they protect, joined by ``+``."""
        return "+".join(dict.fromkeys(map(self.law_of, self.groups)))

    def delta_of(self, group: Group) -> float:
        """The group's delta as a number."""
        if group.delta is None:
            return self._default_delta(group)
        return group.delta

    def _default_delta(self, group: Group) -> float:
        """The spec's delta as a number, for a group that does not state one.

        In ``n^-1.1``, n is the clients of all groups, or the records of a client.
        """
        if not isinstance(self.delta, str):
            return self.delta
        law = DELTA_LAW.fullmatch(self.delta)
        assert law is not None  # checked when the value was made
        if self.unit == "client":
            protected = self.population
        else:
            protected = group.records or 1
        return float(protected ** -float(law.group(1)))

    def _units_of(self, group: Group) -> int:
        """Clients of a group, or with unit: record the records of a client of it."""
        if self.unit == "client":
            return group.clients
        return group.records or 1

    def batch_size_of(self, group: Group) -> int:
        """Expected records in a batch of a client of the group (b)."""
        return group.batch_size or self.local.batch_size

    def kept_fractions(self) -> tuple[float, ...] | None:
        """Kept fractions that are given as numbers or ``none``; None for a rule."""
        choice = self.planning.sparsification
        if choice == "none":
            return (1.0,) * len(self.groups)
        if isinstance(choice, tuple):
            return choice
        return None

    def warnings(self) -> list[str]:
        """What a careful reader would ask about, one line each."""
        lines = []
        if self.groups_from is not None and any(
            not math.isclose(self.delta_of(group), self._default_delta(group))
            for group in self.groups
        ):
            lines.append(
                "groups_from: each group has the least epsilon and delta of its members"
            )
        for group in self.groups:
            # The delta of a risk is a point of a curve, and no chance of failure.
            if group.risk is not None:
                continue
            # Whoever publishes the data of one unit in n, drawn by chance, satisfies
            # (0, 1/n): a delta must be below that to mean anything.
            delta = self.delta_of(group)
            useless_delta = 1 / self._units_of(group)
            if delta >= useless_delta:
                lines.append(
                    f"groups.{group.name}.delta: {delta:.3g} is not below "
                    f"1/{self.unit}s = {useless_delta:.3g}; publishing one "
                    f"{self.unit}'s data outright would pass"
                )
        return lines

    # Rules between fields, in the order in which their faults are shown. A rule also
    # runs where other fields are faulty: it stops at the first that it reads, and
    # ``_groups_with`` leaves out the groups whose fields cannot be read.

    @rule
    def _names(self) -> Iterator[Fault]:
        """Groups have names that nobody takes for each other."""
        if not self.groups:
            yield Fault("groups", "must name at least one group", [])
        names = [group.name for group in self._groups_with("name")]
        for name in names:
            yield from name_faults("groups", name)
        looks = [skeleton(name) for name in names]
        for name in sorted(set(names)):
            if looks.count(skeleton(name)) > 1:
                text = "must have unique names, which do not look alike"
                yield Fault("groups", text, name)

    @rule
    def _excluded(self) -> Iterator[Fault]:
        yield from exclusions(self)

    @rule
    def _signers(self) -> Iterator[Fault]:
        """A statement has one signer: names and keys are unique."""
        for field in ("name", "key"):
            values = [
                getattr(signer, field)
                for signer in self.signers
                if hasattr(signer, field)
            ]
            for value in sorted(set(values)):
                if values.count(value) > 1:
                    yield Fault(f"signers.{field}", "must be unique", value)

    @rule
    def _risks(self) -> Iterator[Fault]:
        """A group's epsilon and delta imply its risk."""
        for group in self._groups_with("name", "risk", "epsilon", "delta"):
            if group.risk is None:
                continue
            faults = list(group.risk.faults())
            for fault in faults:
                field = f"groups.{group.name}.{fault.field}"
                yield Fault(field, fault.rule, fault.found)
            if faults:
                continue
            point = group.risk.point
            risk = implied_risk(point, group.epsilon, self.delta_of(group))
            if risk > limit_of(point) * (1 + _RISK_TOLERANCE):
                text = f"must imply {group.risk}; with this delta it allows {risk:.6g}"
                yield Fault(f"groups.{group.name}.epsilon", text, group.epsilon)

    @rule
    def _contributions(self) -> Iterator[Fault]:
        """Law, accountant and size of a group cover its persons.

        A law that a spec names is plain: the groups say how much a person contributes.
        """
        relation = Relation(self.relation)
        plain = "must be a plain law; groups have contributions"
        if self.sampling.law.contributions > 1:
            yield Fault("sampling", plain, self.sampling)
        for group in self._groups_with(
            "name", "clients", "records", "sampling", "contributions"
        ):
            law = self.plain_law(group).law
            if group.sampling is not None and law.contributions > 1:
                yield Fault(f"groups.{group.name}.sampling", plain, law.name)

            # The law has pairs for so many clients of a person, and the group has them.
            units = self._units_of(group)
            limit = min(law.most_contributions(relation), units)
            text = f"at most {limit} under {law.phrase}, {relation}, "
            text += f"with {units} {self.unit}s"
            if group.contributions > 1 and self.planning.accountant != PLD:
                limit = 1
                text = "1 unless planning.accountant is pld"
            if group.contributions > limit:
                field = f"groups.{group.name}.contributions"
                yield Fault(field, f"must be {text}", group.contributions)

    @rule
    def _delta_in_range(self) -> Iterator[Fault]:
        """A law of the number of clients or records gives a probability."""
        deltas = set()
        for group in self.groups:
            is_counted = self.unit == "client" or group.records
            if is_counted and group.delta is None:
                deltas.add(self.delta_of(group))
        text = f"must be in [{SMALLEST:g}, 1) for these groups; {self.delta} is not"
        for delta in sorted(deltas):
            if not SMALLEST <= delta < 1:
                yield Fault("delta", text, delta)

    @rule
    def _rounds_in_range(self) -> Iterator[Fault]:
        if self.rounds > MOST_ROUNDS:
            yield Fault("rounds", f"must be at most {MOST_ROUNDS}", self.rounds)

    @rule
    def _cohort_in_population(self) -> Iterator[Fault]:
        """A cohort can be drawn, and has room for the groups that all come."""
        if self.cohort is not None and self.groups and self.cohort > self.population:
            text = f"must not exceed the population of {self.population} clients"
            yield Fault("cohort", text, self.cohort)

        # Drawable clients of the groups that all come (True), and of those sampled.
        sizes = {sampling.law.everyone: 0.0 for sampling in self.plain_laws}
        for group in self._groups_with("name", "clients", "sampling"):
            sizes[self.plain_law(group).law.everyone] += self.drawable(group)
        if len(sizes) < 2 or self.cohort is None:
            return
        if not sizes[True] < self.cohort <= sum(sizes.values()):
            text = f"must be above {sizes[True]:g}, of the groups that all come, "
            text += f"and at most {sum(sizes.values()):g}"
            yield Fault("cohort", text, self.cohort)

    @rule
    def _cohort_of_unit(self) -> Iterator[Fault]:
        """Clients who take turns are a whole number; each group has one in a round."""
        if self.cohort is None:
            return
        meant = ""
        if self.cohort < 1:
            meant = _clients_of_share(self.cohort, self.groups)
        if self.unit == "record":
            if self.cohort != round(self.cohort):
                text = "must be a whole number with unit: record"
                yield Fault("cohort", text + meant, self.cohort)
        elif self.cohort < len(self.groups):
            text = f"must be a number of clients, at least one per group ({len(self.groups)})"
            yield Fault("cohort", text + meant, self.cohort)

    @rule
    def _person_is_no_record(self) -> Iterator[Fault]:
        """The word is never said of records: one person may have several."""
        if self.person is None:
            return
        if self.unit == "record":
            text = "must be left out with unit: record, which protects records"
            yield Fault("person", text, self.person)
        elif self.person.casefold().startswith("record"):
            yield Fault("person", "must not be the name of another unit", self.person)

    @rule
    def _law_of_batches(self) -> Iterator[Fault]:
        if self.unit == "record" and self.sampling != SamplingLaw.POISSON:
            text = "must be poisson with unit: record: the law of a batch"
            yield Fault("sampling", text, str(self.sampling))

    @rule
    def _cohort_agrees(self) -> Iterator[Fault]:
        """A cohort that is stated beside all ratios is the one that they expect."""
        if self.cohort is None or self.planning.ratios != "given" or not self.groups:
            return
        if self.unit != "client":
            return
        if any(group.sampling_ratio is None for group in self.groups):
            return
        expected = self.expected_cohort
        if not math.isclose(self.cohort, expected, rel_tol=_COHORT_TOLERANCE):
            text = (
                f"must agree with the given ratios, which expect {expected:g} clients"
            )
            yield Fault("cohort", text, self.cohort)

    @rule
    def _sparsification(self) -> Iterator[Fault]:
        fractions = self.planning.sparsification
        if not isinstance(fractions, tuple) or not self.groups:
            return
        if len(fractions) != len(self.groups):
            text = f"must have one kept fraction per group ({len(self.groups)})"
            yield Fault("planning.sparsification", text, list(fractions))

    @rule
    def _batch_sizes(self) -> Iterator[Fault]:
        """A batch is drawn from the records of one client."""
        for group in self._groups_with("name", "records", "batch_size"):
            size = self.batch_size_of(group)
            if self.unit == "record" and group.records and size > group.records:
                text = f"must not exceed the {group.records} records of a client"
                yield Fault(f"groups.{group.name}.batch_size", text, size)

    @rule
    def _fixed_noise(self) -> Iterator[Fault]:
        """Fixed noise is in range, decides the budget, and has whole cohorts."""
        lowest, highest = NOISE_RANGE
        for group in self._groups_with("name", "clients", "noise_multiplier", "risk"):
            field = f"groups.{group.name}.noise_multiplier"
            noise = group.noise_multiplier
            if noise is None or self.unit != "client":
                continue
            if not lowest <= noise <= highest:
                yield Fault(field, f"must be in [{lowest:g}, {highest:g}]", noise)
            if group.risk is not None:
                text = "cannot go with a risk; privplan explain shows its risks"
                yield Fault(field, text, noise)

            # The planner would round the cohort of such a law, and so move the ratio
            # of which the epsilon of fixed noise follows.
            if self.planning.ratios == "uniform" and self.sampling.law.whole_cohorts:
                cohort = self._ratio_of(group) * self.drawable(group)
                if abs(cohort - round(cohort)) > _WHOLE_TOLERANCE * cohort:
                    text = f"needs a whole cohort of the {group.clients} clients"
                    yield Fault(field, text, f"{cohort:.6g}")

    def _groups_with(self, *fields: str) -> list[Group]:
        """The groups whose fields of these names are valid."""
        groups = []
        for group in self.groups:
            if all(hasattr(group, field) for field in fields):
                groups.append(group)
        return groups

    def _ratio_of(self, group: Group) -> float:
        """The sampling ratio of a group with given or uniform ratios."""
        if self.planning.ratios == "given":
            return group.sampling_ratio or 0.0
        if self.plain_law(group).law.everyone:
            return 1.0

        # What the groups that all come leave of the cohort is shared by size.
        complete_groups: list[float] = []
        sampled_groups: list[float] = []
        for peer in self.groups:
            everyone = self.plain_law(peer).law.everyone
            sizes = complete_groups if everyone else sampled_groups
            sizes.append(self.drawable(peer))
        sampled_cohort = self.expected_cohort - sum(complete_groups)

        # Multiplied and divided as the planner does, so that both ratios, and with them
        # the epsilon, agree to the last digit.
        size = self.drawable(group)
        return sampled_cohort * size / sum(sampled_groups) / size

    def _spent_epsilon(self, group: Group) -> float:
        """The epsilon that a group with fixed noise spends over all rounds.

        It is the upper end of PLD's bounds, as in the plan's guarantee.

        Raises:
            InputError: where no positive and finite epsilon is certified.
        """
        relation = Relation(self.relation)
        law = self.law_of(group)
        release = Release(group.noise_multiplier or 0.0, self._ratio_of(group), law)
        history = History.repeated(release, law.law.rounds_of_client(self.rounds))
        try:
            bounds = accountant(PLD).epsilon(history, self.delta_of(group), relation)
        except TooLittleNoiseError:
            lowest_noise = least_certified(law, relation)
            text = f"must be {lowest_noise:.3g} or more to be certified under sampling"
        else:
            if 0 < bounds.upper < math.inf:
                return bounds.upper
            text = f"must give a positive and finite epsilon, gives {bounds.upper:g}"
        field = f"groups.{group.name}.noise_multiplier"
        raise InputError.one(field, text, group.noise_multiplier)
