"""What the choices of a spec exclude and require, one row each.

``exclusions`` asks all rows, the sampling law and the objective in one loop, with
``excludes(spec)``; nothing else in the spec refuses one choice because of another.
Reading a field that is faulty raises AttributeError, which ends a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from privplan.errors import Fault
from privplan.spec.planning import (
    FIXED_RATIOS,
    OBJECTIVES,
    RATIOS_BEFORE_NOISE,
    is_objective,
    objective_names,
)
from privplan.spec.training import HYPERPARAMETERS


@dataclass(frozen=True)
class Choice:
    """A choice of a spec, with the fields that must be left out where it is chosen.

    Attributes:
        is_chosen: whether a spec makes it.
        fields: dotted names; ``groups.x`` is the field x of each group,
            ``planning.free.x`` the name x in ``planning.free``.
        rule: why they are left out, or what needs them; ``{objectives}`` stands for the
            names of the objectives.
        plain: values of the fields that are as good as none.
        required: whether the fields must be there instead.
    """

    is_chosen: Callable[[Any], bool]
    fields: tuple[str, ...]
    rule: str
    plain: tuple[Any, ...] = (None,)
    required: bool = False

    def excludes(self, spec: Any) -> Iterator[Fault]:
        """A fault for each of the fields that the spec has, or lacks, all the same."""
        if not self.is_chosen(spec):
            return
        for field in self.fields:
            for where, value in values_at(spec, field):
                is_absent = value in (*self.plain, ())
                if is_absent != self.required:
                    continue
                rule = self.rule.replace("{objectives}", ", ".join(objective_names()))
                if hasattr(value, "model_dump"):
                    shown = str(value)
                else:
                    shown = value
                yield Fault(where, rule, "nothing" if self.required else shown)


def values_at(spec: Any, field: str) -> Iterator[tuple[str, Any]]:
    """The valid values of a dotted field with their full names."""
    section, _, inner_field = field.partition(".")
    if section == "groups":
        for group in spec.groups:
            if hasattr(group, "name") and hasattr(group, inner_field):
                yield f"groups.{group.name}.{inner_field}", getattr(group, inner_field)
    elif inner_field.startswith("free."):
        name = inner_field.removeprefix("free.")
        yield "planning.free", name if name in spec.planning.free else None
    else:
        inner = getattr(spec, section)
        if inner_field:
            inner = getattr(inner, inner_field)
        yield field, inner


def _clients(spec: Any) -> bool:
    return bool(spec.unit == "client")


def _records(spec: Any) -> bool:
    return bool(spec.unit == "record")


def _by_rule(spec: Any) -> bool:
    """Whether the ratios of a spec of clients follow a rule instead of an objective."""
    return _clients(spec) and spec.planning.ratios in FIXED_RATIOS


def _has_ratios_before_noise(spec: Any) -> bool:
    """Whether the ratios are known before any noise, which may then be fixed."""
    return spec.planning.ratios in RATIOS_BEFORE_NOISE


def _published(spec: Any) -> bool:
    return _clients(spec) and spec.planning.calibration == "published"


def _free_rounds(spec: Any) -> bool:
    """Whether rounds are free and the default recipe does not decide them."""
    if spec.recipe is None:
        decides = set()
    else:
        decides = {*spec.recipe.decides}
    by_recipe = {"clipping_norm", "server"} <= decides
    return _clients(spec) and "rounds" in spec.planning.free and not by_recipe


ONLY_RECORDS = "is only for unit: record"
ONLY_CLIENTS = "is only for unit: client"
ONLY_OBJECTIVES = "is only for planning.ratios: {objectives}"
CHOICES = (
    # Whom a budget protects.
    Choice(
        _clients,
        ("groups.records", "groups.batch_size"),
        ONLY_RECORDS,
    ),
    Choice(_clients, ("local.epochs",), f"{ONLY_RECORDS}; clients train local.steps"),
    Choice(
        lambda spec: _clients(spec) and spec.planning.weights == "epsilon",
        ("planning.weights",),
        f"epsilon {ONLY_RECORDS}",
    ),
    Choice(
        _records,
        ("groups.noise_multiplier", "groups.sampling", "groups.sampling_ratio",
         "groups.min_sampling_ratio", "groups.max_sampling_ratio", "groups.min_weight",
         "groups.least_share", "groups_from", "planning.calibration",
         "planning.ratios", "planning.release", "planning.sparsification",
         "planning.heterogeneity", "planning.least_share", "planning.slack",
         "planning.update_norm",
         "planning.dropout_tolerance",
         "planning.clipping", "planning.constants", "planning.update_norms",
         "planning.max_rounds", "planning.max_uploads", "planning.free.rounds",
         "planning.free.cohort", "planning.free.clipping_norm", "planning.free.groups",
         "planning.free.sampling"),
        ONLY_CLIENTS,
        plain=(None, "exact", "balanced", "none", 0.0),
    ),
    Choice(
        lambda spec: _records(spec) and spec.planning.weights in ("optimal", "participation"),
        ("planning.weights",),
        "must be one of inverse_variance, population, uniform, epsilon with unit: record",
    ),
    Choice(
        _records,
        ("local.augmentation",),
        f"{ONLY_CLIENTS}, as one record more would have others changed otherwise",
    ),
    Choice(_records, ("groups.records",), "is required with unit: record", required=True),
    # How the ratios are found.
    Choice(
        lambda spec: _clients(spec) and spec.planning.ratios != "given",
        ("groups.sampling_ratio",),
        "is only for planning.ratios: given",
    ),
    Choice(
        lambda spec: _clients(spec) and spec.planning.ratios == "given",
        ("groups.sampling_ratio",),
        "is required with planning.ratios: given",
        required=True,
    ),
    Choice(
        lambda spec: (
            _clients(spec) and not spec.everyone and spec.planning.ratios != "given"
        ),
        ("cohort",),
        "is required",
        required=True,
    ),
    Choice(
        lambda spec: _clients(spec) and not _has_ratios_before_noise(spec),
        ("groups.noise_multiplier",),
        f"is only for planning.ratios: {', '.join(RATIOS_BEFORE_NOISE)}",
    ),
    Choice(
        lambda spec: _has_ratios_before_noise(spec) and spec.release != "per_group",
        ("groups.noise_multiplier",),
        "is only for planning.release: per_group",
    ),
    Choice(
        _by_rule,
        ("groups.min_sampling_ratio", "groups.max_sampling_ratio", "groups.min_weight",
         "planning.free.rounds", "planning.free.cohort", "planning.free.clipping_norm",
         "planning.free.sampling"),
        ONLY_OBJECTIVES,
    ),
    Choice(
        lambda spec: (
            _by_rule(spec) or (_clients(spec) and spec.release != "joint")
        ),
        ("planning.slack",),
        "is only for an objective with planning.release: joint",
    ),
    Choice(
        lambda spec: _clients(spec) and spec.weighting != "optimal",
        ("planning.least_share", "groups.least_share"),
        "is only for planning.weights: optimal",
    ),
    Choice(
        lambda spec: _by_rule(spec) and spec.planning.weights == "optimal",
        ("planning.weights",),
        f"optimal {ONLY_OBJECTIVES}",
    ),
    Choice(
        lambda spec: (
            _published(spec)
            and (is_objective(spec.planning.ratios) or spec.planning.accountant != "rdp"
                 or str(spec.sampling) != "poisson" or str(spec.relation) != "add_remove")
        ),
        ("planning.calibration",),
        "published goes with ratios by a rule, accountant rdp, poisson sampling and add_remove",
    ),
    # What is free, and what that needs.
    Choice(
        lambda spec: not {"ratios", "weights"} <= {*spec.planning.free},
        ("planning.free.sampling",),
        "sampling needs ratios and weights beside it",
    ),
    Choice(
        lambda spec: bool({"rounds", "cohort", "clipping_norm"} & {*spec.planning.free}),
        ("planning.free.sampling",),
        "sampling cannot be free together with rounds, cohort or clipping_norm",
    ),
    Choice(
        lambda spec: "sampling" in spec.planning.free,
        ("groups.sampling", "groups.risk", "groups.min_sampling_ratio",
         "groups.max_sampling_ratio"),
        "must be left out with sampling in planning.free",
    ),
    Choice(
        lambda spec: "sampling" not in spec.planning.free,
        ("planning.participation",),
        "is only for sampling in planning.free",
    ),
    Choice(
        lambda spec: spec.planning.weights == "optimal" and "weights" not in spec.planning.free,
        ("planning.weights",),
        "optimal needs weights in planning.free",
    ),
    Choice(
        lambda spec: _clients(spec) and spec.groups_from is None,
        ("planning.free.groups",),
        "can name groups only with groups_from",
    ),
    Choice(
        lambda spec: (
            _clients(spec) and not _by_rule(spec) and "clipping_norm" in spec.planning.free
        ),
        ("planning.update_norms",),
        "is required when the clipping norm is free: norms of updates in a pilot",
        required=True,
    ),
    Choice(
        lambda spec: _clients(spec) and spec.planning.clipping is not None,
        ("planning.free.clipping_norm",),
        "cannot go with planning.clipping, which moves it",
    ),
    Choice(
        lambda spec: not _by_rule(spec) and _free_rounds(spec),
        ("planning.constants",),
        "is required when rounds are free (initial_gap and smoothness) without the default "
        "recipe, which decides clipping_norm and server",
        required=True,
    ),
    # What happens to a sum, and to the model.
    Choice(
        lambda spec: _clients(spec) and spec.release == "joint",
        ("planning.sparsification",),
        "must be none when all groups share one release",
        plain=("none",),
    ),
    Choice(
        lambda spec: (
            spec.recipe.source == "default"
            and (_records(spec) or not is_objective(spec.planning.ratios))
        ),
        ("recipe.source",),
        f"default {ONLY_OBJECTIVES}, with unit: client",
    ),
)  # fmt: skip


def _choices_of_optimisers() -> Iterator[Choice]:
    """Each optimiser of the server has no hyperparameters but its own."""
    for name, defaults in HYPERPARAMETERS.items():
        fields = [
            f"server.{field}"
            for field in ("momentum", "epsilon")
            if field not in defaults
        ]

        def is_chosen(spec: Any, name: str = name) -> bool:
            return bool(spec.server.optimizer == name)

        rule = f"must be left out for {name}, which takes {', '.join(defaults)}"
        yield Choice(is_chosen, tuple(fields), rule)


def _choices_of_averages() -> Iterator[Choice]:
    """Each average of the models has no number but its own."""
    yield Choice(
        lambda spec: bool(spec.averaging.method == "ema"),
        ("averaging.fraction",),
        "is only for method: tail",
    )
    yield Choice(
        lambda spec: bool(spec.averaging.method == "tail"),
        ("averaging.decay",),
        "is only for method: ema",
    )


@dataclass(frozen=True)
class _Part:
    """A spec with the groups of one law only."""

    spec: Any
    law: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.spec, name)

    @property
    def groups(self) -> list[Any]:
        return [
            group
            for group in self.spec.groups
            if self.spec.plain_law(group) == self.law
        ]

    @property
    def cohort(self) -> Any:
        if len(self.spec.plain_laws) == 1:
            return self.spec.cohort
        return None

    def excludes(self, spec: Any) -> Iterator[Fault]:
        """What the law excludes of its part of the spec."""
        yield from self.law.law.excludes(self)


def _laws_of_groups(spec: Any) -> Iterator[Fault]:
    """Laws that differ by group: without shared noise, and whole cohorts to plan."""
    laws = [("sampling", spec.sampling)]
    for group in spec.groups:
        if group.sampling is not None:
            laws.append((f"groups.{group.name}.sampling", group.sampling))
    is_mixed = len({law for _, law in laws}) > 1
    if is_mixed:
        yield from _faults_of_mixed_laws(spec, laws)
    if len(spec.plain_laws) > 1 and spec.everyone and spec.cohort is not None:
        rule = "must be left out where the laws of all groups give it"
        yield Fault("cohort", rule, spec.cohort)
    if is_mixed and spec.planning.ratios == "gdpfed_plus" and not spec.everyone:
        rule = "must be another where groups have own laws"
        yield Fault("planning.ratios", rule, "gdpfed_plus")


def _faults_of_mixed_laws(spec: Any, laws: list[tuple[str, Any]]) -> Iterator[Fault]:
    """Laws that cannot be beside others, each with the field that names it."""
    for where, law in laws:
        if len(law.law.mixture(0.0, 1)) > 1:
            rule = "must have independent noise where groups have own laws"
            yield Fault(where, rule, str(law))
        elif law.law.whole_cohorts and spec.planning.ratios != "given":
            rule = "must not be beside other laws, but for ratios that are given"
            yield Fault(where, rule, str(law))


def exclusions(spec: Any) -> Iterator[Fault]:
    """The faults of everything in a spec that excludes or requires something else."""
    rows: list[Any] = [*CHOICES, *_choices_of_optimisers(), *_choices_of_averages()]
    with suppress(AttributeError):
        rows += (_Part(spec, law) for law in spec.plain_laws)
    with suppress(AttributeError, KeyError):
        ratios = spec.planning.ratios
        if ratios not in FIXED_RATIOS:
            objective = OBJECTIVES.get(ratios)
            fields = tuple(f"planning.{name}" for name in objective.required)
            rule = f"is required for ratios: {ratios}"
            rows += [objective, Choice(lambda _: True, fields, rule, required=True)]
    for row in rows:
        with suppress(AttributeError):
            yield from row.excludes(spec)
    with suppress(AttributeError):
        yield from _laws_of_groups(spec)
