"""The models of a horizon, and how the budget is split over them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from privplan.errors import Fault, InfeasibleError, InputError
from privplan.files import read_text, spec_mapping
from privplan.spec.groups import ClientTraining, Model
from privplan.spec.spec import Spec
from privplan.values import Count, Fraction, Name, Positive, Value, is_none, parse

MOST_RUNS = 100
_SAMPLING = ("poisson", "fixed_size", "full")


def _file_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", value):
        raise ValueError("must be letters, digits, - and _, since plans are named by it")
    return value


class HorizonModel(Value):
    """One of the models; what is left out is the spec's."""

    name: Annotated[Name, AfterValidator(_file_name)] = Field(
        description="Unique name of the model, which is part of its plan's file name."
    )
    share: Fraction | None = Field(
        None,
        exclude_if=is_none,
        description="Part of each group's budget (of its squared Gaussian strength); only with "
        "split: given.",
    )
    rounds: Count | None = Field(None, exclude_if=is_none, description="Its rounds.")
    cohort: Positive | None = Field(None, exclude_if=is_none, description="Its cohort.")
    clipping_norm: Positive | None = Field(
        None, exclude_if=is_none, description="Its clipping norm."
    )
    local: ClientTraining | None = Field(
        None, exclude_if=is_none, description="Its training on a client."
    )
    model: Model | None = Field(None, exclude_if=is_none, description="Its network.")

    def own_fields(self) -> dict[str, Any]:
        """What the model gives instead of the spec, as plain data."""
        return self.model_dump(mode="json", exclude={"name", "share"}, exclude_none=True)

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Name the model in what is raised of a field that it gives instead of the spec."""

        def named(text: str) -> str:
            own = re.split("[.:]", text, maxsplit=1)[0] in self.own_fields()
            return f"horizon.models.{self.name}.{text}" if own else text

        try:
            yield
        except InputError as error:
            faults = [replace(fault, field=named(fault.field)) for fault in error.faults]
            raise InputError(faults) from None
        except InfeasibleError as error:
            raise InfeasibleError(named(str(error))) from None


class Horizon(Value):
    """How many models, or which, and how the budget is split over them."""

    runs: Annotated[int, Field(ge=1, le=MOST_RUNS)] | None = Field(
        None, exclude_if=is_none, description="How many times the spec's model is trained."
    )
    models: tuple[HorizonModel, ...] = Field((), description="The models, instead of runs.")
    split: Literal["equal", "given", "worst", "mean"] = Field(
        "equal",
        description="Equal shares, given ones, or those of the least worst or mean objective.",
    )

    def faults(self) -> Iterator[Fault]:
        """What is missing, too much, or out of range."""
        if (self.runs is None) == (not self.models):
            found = "neither" if self.runs is None else "both"
            yield Fault("horizon", "must have runs or models", found)
        if len(self.models) > MOST_RUNS:
            yield Fault("horizon.models", f"must be {MOST_RUNS} or fewer", len(self.models))
        names = [one.name for one in self.models]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield Fault("horizon.models", "must have unique names", name)
        given = self.split == "given"
        if given and not self.models:
            yield Fault("horizon.split", "given needs models with shares", "runs")
        for one in self.models:
            where = f"horizon.models.{one.name}.share"
            if given and one.share is None:
                yield Fault(where, "is required with split: given", "nothing")
            elif not given and one.share is not None:
                yield Fault(where, "is only for split: given", one.share)
        total = sum(one.share or 0.0 for one in self.models)
        if given and all(one.share for one in self.models) and total > 1 + 1e-9:
            yield Fault("horizon.models", "must have shares of at most 1 in all", f"{total:g}")

    def __str__(self) -> str:
        """The runs or the models, as they are written."""
        if self.runs is not None:
            return f"runs: {self.runs}"
        return f"models: {', '.join(one.name for one in self.models)}"

    def all_models(self) -> tuple[HorizonModel, ...]:
        """The models; those of ``runs`` are numbered."""
        return self.models or tuple(
            HorizonModel(name=f"run-{number}") for number in range(1, (self.runs or 0) + 1)
        )


def read(path: Path | str) -> tuple[Spec, Horizon, list[Path]]:
    """The spec and the horizon of a YAML file, and the files that they were read from."""
    data = spec_mapping(read_text(path, "spec"), path)
    horizon = horizon_of(data.pop("horizon", None))
    spec = Spec.parse(data, Path(path).parent)
    check(spec, horizon)
    return spec, horizon, spec.sources(path)


def horizon_of(block: Any) -> Horizon:
    """The horizon of a spec's plain data."""
    if not isinstance(block, dict):
        rule = "must be a mapping such as {runs: 4}"
        raise InputError.one("horizon", rule, "nothing" if block is None else block)
    try:
        horizon = parse(Horizon, block)
    except InputError as error:
        faults = [replace(one, field=f"horizon.{one.field}") for one in error.faults]
        raise InputError(faults) from None
    if faults := list(horizon.faults()):
        raise InputError(faults)
    return horizon


def check(spec: Spec, horizon: Horizon) -> None:
    """Raise InputError for a spec whose budgets cannot be split over several models."""
    faults = []
    if spec.unit != "client":
        faults.append(Fault("horizon", "is only for unit: client", spec.unit))
    if str(spec.sampling) not in _SAMPLING:
        rule = f"must be {', '.join(_SAMPLING)} with a horizon"
        faults.append(Fault("sampling", rule, str(spec.sampling)))
    for group in spec.groups:
        for field in ("risk", "noise_multiplier"):
            if (value := getattr(group, field, None)) is not None:
                rule = "cannot go with a horizon, whose runs split an epsilon"
                faults.append(Fault(f"groups.{group.name}.{field}", rule, str(value)))
    if faults:
        raise InputError(faults)
