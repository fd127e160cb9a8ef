"""The spec: who needs how much privacy, and how training runs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

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
from privplan.errors import (
    REPLACE,
    Fault,
    InputError,
    TooLittleNoiseError,
    did_you_mean,
)
from privplan.files import SPEC, read_text, refuse_other_kind, spec_mapping
from privplan.laws.law import Use
from privplan.names import name_faults, skeleton
from privplan.spec.base import exclusions
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
    LEAST,
    Checked,
    Count,
    Name,
    Named,
    Positive,
    Shown,
    omitted,
    parse,
    rule,
)

# --- What a spec leaves open, stated in its plain data before they are validated. ----------------


def with_budgets(data: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """The data with a budget for each group, and whose noise decides it (1 stands in there)."""
    groups = data.get("groups")
    if not isinstance(groups, list | tuple) or not all(
        isinstance(one, dict) for one in groups
    ):
        return data, []
    stated, spent = [], []
    for place, one in enumerate(groups):
        if one.get("risk") is not None and "epsilon" not in one:
            one = with_risk(one)
        elif one.get("noise_multiplier") is not None and one.get("epsilon") is None:
            one = {**one, "epsilon": 1.0}
            spent.append(place)
        stated.append(one)
    return {**data, "groups": stated}, spent


# --- The spec: who needs how much privacy, and how training runs. --------------------------------


def with_changes(data: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a spec's plain data with values by dotted name; groups are found by their names."""
    data = {**data}
    for name, value in changes.items():
        first, *parts = name.split(".")
        for part in reversed(parts):
            value = {part: value}
        data[first] = _changed(data.get(first), value, first)
    return data


def _changed(old: Any, new: Any, field: str) -> Any:
    """Plain data with the parts that a mapping names changed, those of a list by their names."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {
            name: _changed(old.get(name), one, name) for name, one in new.items()
        }
    if isinstance(old, list) and isinstance(new, dict):
        named = {one["name"]: one for one in old}
        for name, change in new.items():
            if name not in named:
                rule = f"must be one of {', '.join(named)}{did_you_mean(name, named)}"
                raise InputError.one(field, rule, name)
            if not isinstance(change, dict):
                raise InputError.one(
                    f"{field}.{name}", 'must be such as {"epsilon": 1}', change
                )
            if change.get("clients") == 0:  # nobody: the group is left out
                del named[name]
                continue
            other = {
                "risk": ("epsilon", "delta"),
                "epsilon": ("risk",),
            }  # one states the budget
            without = {one for given in change for one in other.get(given, ())}
            kept = {
                part: one for part, one in named[name].items() if part not in without
            }
            named[name] = {**kept, **change}
        return list(named.values())
    return new


def _odd_names(data: dict[str, Any]) -> list[Fault]:
    """Names of groups and signers that other programs might read as more than a name."""
    rule = "must be letters, digits, spaces, - _ or ."
    found = ((part, data.get(part)) for part in ("groups", "signers"))
    each = (
        (part, one) for part, many in found if isinstance(many, list) for one in many
    )
    listed = ((part, one.get("name")) for part, one in each if isinstance(one, dict))
    return [
        Fault(f"{part}.name", rule, name)
        for part, name in listed
        if isinstance(name, str) and not re.fullmatch(r"[\w .-]*", name)
    ]


def _known_unit(value: Any) -> Any:
    if value not in ("client", "record"):
        raise ValueError(
            "must be client or record; make a person or a group of records one client"
        )
    return value


class Spec(Shown, Checked):
    """A planning problem. Made from YAML with ``Spec.load`` or ``Spec.parse``."""

    name: Name = Field(description="Name of the plan, for tables and plots.")
    groups: Annotated[tuple[Group, ...], AfterValidator(Named)] = Field(
        (), description="Who needs how much privacy; may be left out with groups_from."
    )
    groups_from: str | None = Field(
        None,
        description="CSV file of individual budgets (client, epsilon[, delta]) to make the "
        "groups from; relative to the spec.",
    )
    unit: Annotated[Unit, BeforeValidator(_known_unit)] = Field(
        "client",
        description="Whom a budget protects: a client with all its data, or a single record of "
        "a client. A person or household counts as one client if all its records are in one.",
        exclude_if=is_client,
    )
    delta: Delta = Field(
        "n^-1.1",
        description="Failure probability: a number, or n^-1.1 with n the number of clients (of "
        "a client's records with unit: record).",
    )
    rounds: Count = Field(
        description="Rounds of training (T).",
        json_schema_extra={"maximum": MOST_ROUNDS},
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
    clipping_norm: Positive = Field(
        1.0, description="L2 bound on a client's update (C)."
    )
    local: LocalTraining = Field(LocalTraining(), description="Training on a client.")
    server: ServerOptimiser | None = omitted(
        "How the server moves the model by the mean update; adds it when left out."
    )
    averaging: Averaging | None = omitted(
        "Average of the models over rounds that is released; the last model when left out."
    )
    recipe: Recipe | None = omitted(
        "none, or default: clipping norm, server and averaging are decided without "
        "data; default where a spec leaves them out."
    )
    model: Model = Field(description="The network.")
    planning: Planning = Field(Planning(), description="What the planner is asked for.")
    signers: tuple[Signer, ...] = Field(
        (),
        description="Parties that sign statements about the run; with them a verdict needs an "
        "attested ledger.",
        exclude_if=lambda signers: not signers,
    )

    def plain(self) -> dict[str, Any]:
        """The data of which ``parse`` makes this spec again, without what follows from others."""
        data = self.model_dump(mode="json", exclude_none=True)
        for group, one in zip(self.groups, data["groups"], strict=True):
            if group.risk is not None:
                del one["epsilon"], one["delta"]
            elif group.noise_multiplier is not None and group.epsilon == self._spent(
                group
            ):
                del one["epsilon"]
        return data

    def replace(
        self, changes: Mapping[str, Any] | None = None, /, **fields: Any
    ) -> Spec:
        """The spec with some fields changed, checked as a whole; this one stays as it is.

        Args:
            changes: values by dotted name, such as ``{"groups.strict.epsilon": 1}``.
            fields: values by name. A mapping changes parts, of ``groups`` by the group's name; a
                list of groups replaces all. Groups of a file of budgets are not made again.

        >>> plan.spec.replace(rounds=80, groups={"strict": {"epsilon": 1}}).rounds
        80
        """
        data, changes = self.plain(), {**(changes or {}), **fields}
        for name in changes:
            if name.partition(".")[0] not in Spec.model_fields:
                near = did_you_mean(name, Spec.model_fields) or f"; {REPLACE}"
                raise InputError.one(name, f"is not a known field{near}", changes[name])
        if isinstance(data.get("recipe"), dict):  # what is given is not decided
            parts = {f"local.{one}" for one in changes.get("local") or ()}
            decides = [
                one
                for one in data["recipe"]["decides"]
                if one not in {*changes, *parts}
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
        try:
            budgets = budgets_of_file(data, Path(folder))
            if (
                budgets is not None
            ):  # all clients of the file as one group, until it is cut
                epsilons, deltas = (float(least.min()) for least in budgets)
                everybody = Grouping((len(budgets[0]),), (epsilons,), (deltas,))
                data = {**data, "groups": everybody.plain()}
            stated, spent = with_budgets(data)
        except InputError as error:
            without = with_recipe({**data, "groups": None})
            return parse(cls, without, error.faults, hidden=["groups"])
        spec = parse(cls, with_recipe(stated), _odd_names(data))
        # Of a valid spec, what follows from its other fields.
        if budgets is not None:
            groups = cut(*budgets, spec.cohort, free="groups" in spec.planning.free)
            spec = parse(cls, with_recipe({**data, "groups": groups}))
        follow = [
            one.model_copy(update={"epsilon": spec._spent(one)}) if at in spent else one
            for at, one in enumerate(spec.groups)
        ]
        return spec.model_copy(update={"groups": tuple(follow)}) if spent else spec

    @classmethod
    def load(cls, path: Path | str) -> Spec:
        """A spec from a YAML file.

        Raises:
            InputError: when the file cannot be read, is no mapping in YAML, or has faults.
        """
        return cls.parse(spec_mapping(read_text(path, "spec"), path), Path(path).parent)

    def sources(self, path: Path | str) -> list[Path]:
        """The files that a spec at ``path`` was read from."""
        named = (
            [] if self.groups_from is None else [Path(path).parent / self.groups_from]
        )
        return [Path(path), *named]

    @property
    def release(self) -> Literal["joint", "per_group"]:
        """One noisy sum of all groups, or one per group."""
        if self.planning.release is not None:
            return self.planning.release
        name = self.planning.ratios
        return (
            OBJECTIVES.get(name).default_release if is_objective(name) else "per_group"
        )

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
            return sum(
                (one.sampling_ratio or 0.0) * self.drawable(one) for one in self.groups
            )
        if self.everyone or self.cohort is None:
            return sum(map(self.drawable, self.groups))
        return self.cohort

    def drawable(self, group: Group) -> float:
        """How many clients of a group a round can draw, on average."""
        return self.plain_law(group).law.drawable(group.clients)

    @property
    def server_momentum(self) -> float:
        """Momentum in [0, 1) for which noise is correlated: the server's, or that of the recipe."""
        recipe = self.recipe
        if (
            recipe is not None
            and recipe.source == "default"
            and "server" in recipe.decides
        ):
            return self.sampling.law.recipe_momentum
        return 0.0 if self.server is None else self.server.momentum or 0.0

    @property
    def mixture(self) -> tuple[float, ...]:
        """Factors on a round's sum and on those before it in what is released; (1,) for a sum."""
        return self.mixture_of(1)

    def mixture_of(self, round_: int) -> tuple[float, ...]:
        """The same in a round: the rounds differ, and each sum has norm 1 at most in all."""
        return self.sampling.law.mixture(self.server_momentum, self.rounds, round_)

    @property
    def noise_left(self) -> float:
        """Noise of the last model over that of independent noise of the planned size per round."""
        return self.sampling.law.noise_left(self.server_momentum, self.rounds)

    def law_of(self, group: Group) -> SamplingLaw:
        """The law by which a group is sampled, for persons with its contributions."""
        return self.plain_law(group).of_person(group.contributions, self.unit)

    def least_cohort(self, group: Group) -> float:
        """The fewest clients of a group that a round expects."""
        everyone = self.plain_law(group).law.everyone
        return self.drawable(group) * (
            1.0 if everyone else group.min_sampling_ratio or 0.0
        )

    @property
    def plain_laws(self) -> tuple[SamplingLaw, ...]:
        """The laws of the groups, without the persons that they protect."""
        return tuple(dict.fromkeys(map(self.plain_law, self.groups))) or (
            self.sampling,
        )

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
        return next(filter(None, (one.law.excludes_use(use) for one in laws)), None)

    def require(self, use: Use, field: str, found: object = None) -> None:
        """Raise InputError at a field where the laws of the groups exclude a use.

        Args:
            use: what the laws are needed for.
            field: that is at fault.
            found: its value; the laws' names by default.
        """
        rule = self.excludes_use(use)
        if rule is not None:
            raise InputError.one(field, rule, self.laws if found is None else found)

    @property
    def laws(self) -> str:
        """The laws of the groups, with the persons that they protect, joined by ``+``."""
        return "+".join(dict.fromkeys(map(self.law_of, self.groups)))

    def delta_of(self, group: Group) -> float:
        """The group's delta as a number."""
        return self._delta_for(group) if group.delta is None else group.delta

    def _delta_for(self, group: Group) -> float:
        """The spec's delta as a number for a group."""
        if isinstance(self.delta, str):
            law = DELTA_LAW.fullmatch(self.delta)
            assert law is not None  # checked when the value was made
            # n: the clients of all groups, or the records of a client
            protected = self.population if self.unit == "client" else group.records or 1
            return float(protected ** -float(law.group(1)))
        return self.delta

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
        if self.groups_from is not None and any(
            not math.isclose(self.delta_of(group), self._delta_for(group))
            for group in self.groups
        ):
            lines.append(
                "groups_from: each group has the least epsilon and delta of its members"
            )
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
        for name in names:
            yield from name_faults("groups", name)
        as_read = [skeleton(name) for name in names]
        for name in sorted(
            {name for name in names if as_read.count(skeleton(name)) > 1}
        ):
            yield Fault(
                "groups", "must have unique names, which do not look alike", name
            )

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
    def _risks(self) -> Iterator[Fault]:
        """A group's epsilon and delta imply its risk."""
        for group in self._groups_with("name", "risk", "epsilon", "delta"):
            if group.risk is None:
                continue
            faults = list(group.risk.faults())
            for fault in faults:
                yield Fault(
                    f"groups.{group.name}.{fault.field}", fault.rule, fault.found
                )
            if faults:
                continue
            allowed = limit_of(group.risk.point)
            found = implied_risk(group.risk.point, group.epsilon, self.delta_of(group))
            if found > allowed * (1 + 1e-9):
                text = f"must imply {group.risk}; with this delta it allows {found:.6g}"
                yield Fault(f"groups.{group.name}.epsilon", text, group.epsilon)

    @rule
    def _contributions(self) -> Iterator[Fault]:
        """Law, accountant and size of a group cover its persons."""
        relation, plain = (
            Relation(self.relation),
            "must be a plain law; groups have contributions",
        )
        if self.sampling.law.contributions > 1:
            yield Fault("sampling", plain, self.sampling)
        for group in self._groups_with(
            "name", "clients", "records", "sampling", "contributions"
        ):
            law = self.plain_law(group).law
            if group.sampling is not None and law.contributions > 1:
                yield Fault(f"groups.{group.name}.sampling", plain, law.name)
            units = group.clients if self.unit == "client" else group.records or 1
            most = min(law.most_contributions(relation), units)
            text = f"at most {most} under {law.phrase}, {relation}, with {units} {self.unit}s"
            if group.contributions > 1 and self.planning.accountant != PLD:
                text, most = "1 unless planning.accountant is pld", 1
            if group.contributions > most:
                where = f"groups.{group.name}.contributions"
                yield Fault(where, f"must be {text}", group.contributions)

    @rule
    def _delta_in_range(self) -> Iterator[Fault]:
        """A law of the number of clients or records gives a probability."""
        counted = [
            group for group in self.groups if self.unit == "client" or group.records
        ]
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
        sizes = {one.law.everyone: 0.0 for one in self.plain_laws}
        for group in self._groups_with("name", "clients", "sampling"):
            sizes[self.plain_law(group).law.everyone] += self.drawable(group)
        least, most = sizes.get(True, 0.0), sum(sizes.values())
        if (
            len(sizes) > 1
            and self.cohort is not None
            and not least < self.cohort <= most
        ):
            text = f"must be above {least:g}, of the groups that all come, and at most {most:g}"
            yield Fault("cohort", text, self.cohort)

    @rule
    def _cohort_of_unit(self) -> Iterator[Fault]:
        if self.unit == "record":
            if self.cohort is not None and self.cohort != round(self.cohort):
                yield Fault(
                    "cohort", "must be a whole number with unit: record", self.cohort
                )
        elif self.cohort is not None and self.cohort < len(self.groups):
            text = f"must be at least one client per group ({len(self.groups)})"
            yield Fault("cohort", text, self.cohort)

    @rule
    def _law_of_batches(self) -> Iterator[Fault]:
        if self.unit == "record" and self.sampling != SamplingLaw.POISSON:
            text = "must be poisson with unit: record: the law of a batch"
            yield Fault("sampling", text, str(self.sampling))

    @rule
    def _cohort_agrees(self) -> Iterator[Fault]:
        if self.cohort is None or self.planning.ratios != "given" or not self.groups:
            return
        if self.unit != "client" or any(
            one.sampling_ratio is None for one in self.groups
        ):
            return
        if not math.isclose(self.cohort, self.expected_cohort, rel_tol=0.01):
            expected = self.expected_cohort
            text = (
                f"must agree with the given ratios, which expect {expected:g} clients"
            )
            yield Fault("cohort", text, self.cohort)

    @rule
    def _sparsification(self) -> Iterator[Fault]:
        kept = self.planning.sparsification
        if isinstance(kept, tuple) and self.groups and len(kept) != len(self.groups):
            text = f"must have one kept fraction per group ({len(self.groups)})"
            yield Fault("planning.sparsification", text, list(kept))

    @rule
    def _batch_sizes(self) -> Iterator[Fault]:
        for group in self._groups_with("name", "records", "batch_size"):
            size, records = self.batch_size_of(group), group.records
            if self.unit == "record" and records and size > records:
                text = f"must not exceed the {records} records of a client"
                yield Fault(f"groups.{group.name}.batch_size", text, size)

    @rule
    def _fixed_noise(self) -> Iterator[Fault]:
        """Fixed noise is in range, decides the budget, and has whole cohorts where a law has."""
        for group in self._groups_with("name", "clients", "noise_multiplier", "risk"):
            where, noise = (
                f"groups.{group.name}.noise_multiplier",
                group.noise_multiplier,
            )
            if noise is None or self.unit != "client":
                continue
            if not NOISE_RANGE[0] <= noise <= NOISE_RANGE[1]:
                yield Fault(
                    where, f"must be in [{NOISE_RANGE[0]:g}, {NOISE_RANGE[1]:g}]", noise
                )
            if group.risk is not None:
                yield Fault(
                    where,
                    "cannot go with a risk; privplan explain shows its risks",
                    noise,
                )
            if self.planning.ratios == "uniform" and self.sampling.law.whole_cohorts:
                cohort = self._ratio_of(group) * self.drawable(group)
                if abs(cohort - round(cohort)) > 1e-6 * cohort:
                    text = f"needs a whole cohort of the {group.clients} clients"
                    yield Fault(where, text, f"{cohort:.6g}")

    def _groups_with(self, *fields: str) -> list[Group]:
        """The groups whose fields of these names are valid."""
        return [
            one for one in self.groups if all(hasattr(one, field) for field in fields)
        ]

    def _ratio_of(self, group: Group) -> float:
        """The sampling ratio of a group with given or uniform ratios."""
        if self.planning.ratios == "given":
            return group.sampling_ratio or 0.0
        if self.plain_law(group).law.everyone:
            return 1.0
        sizes = [
            (self.drawable(one), self.plain_law(one).law.everyone)
            for one in self.groups
        ]
        left = self.expected_cohort - sum(size for size, whole in sizes if whole)
        own = self.drawable(group)  # as the planner divides it, to the last digit
        return left * own / sum(size for size, whole in sizes if not whole) / own

    def _spent(self, group: Group) -> float:
        """The epsilon that a group with a fixed noise multiplier spends, by the guarantee."""
        relation, law = Relation(self.relation), self.law_of(group)
        release = Release(group.noise_multiplier or 0.0, self._ratio_of(group), law)
        history = History.repeated(release, law.law.rounds_of_client(self.rounds))
        try:
            found = (
                accountant(PLD).epsilon(history, self.delta_of(group), relation).upper
            )
        except TooLittleNoiseError:
            least = least_certified(law, relation)
            text = f"must be {least:.3g} or more to be certified under sampling"
        else:
            if 0 < found < math.inf:
                return found
            text = f"must give a positive and finite epsilon, gives {found:g}"
        where = f"groups.{group.name}.noise_multiplier"
        raise InputError.one(where, text, group.noise_multiplier)
