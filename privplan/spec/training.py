"""Parts of a spec about training: recipe, server, averaging, augmentation, start.

A spec that leaves the clipping norm and the server open asks for the default recipe,
which is decided without any data. Clipping norm and local learning rate follow from
local training alone, so they are filled in when the spec is read;
``privplan.planning.recipe`` decides the rest when the plan is solved. A solved spec
names the decided fields in ``recipe.decides``, so that solving it again gives the same
plan, and baselines can leave the recipe out.

Server optimisers and averages of models are functions of the releases, so they cost no
privacy. How an optimiser moves the model stands in ``simulate.server``; here are the
names and hyperparameters, so that a plan is checked without the simulator. Another
distribution adds an optimiser by an entry point of the group
``privplan.server_optimisers``; it may use all fields of ``ServerOptimiser``.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticKnownError

from privplan.errors import Fault, InputError
from privplan.limits import GIB, regular
from privplan.registry import points
from privplan.values import (
    LARGEST_COUNT,
    Checked,
    Count,
    Fraction,
    Name,
    NonNegative,
    PathName,
    Positive,
    Probability,
    Value,
    digest,
    is_empty,
    omitted,
    rule,
)

DECIDED = ("clipping_norm", "server", "averaging")
"""Fields of a spec that the default recipe decides where they are left out."""
LOCAL_RATE = "local.learning_rate"
"""Decided as well where it is left out and there is local momentum; see ``local_rate``."""
TUNED = ("clipping_norm", "server", "averaging", "local")
"""Fields that a tuned recipe writes."""
DECIDABLE = {"default": (*DECIDED, LOCAL_RATE), "none": (), "tuned": TUNED}
"""Fields that ``Recipe.decides`` may name, by the recipe's source."""
CLIPPING_STEPS = 1.0
"""Clipping norm of the default recipe over the local learning rate eta.

A client whose gradients have norm 1 is as far after one local step. Over all its steps
nearly every update is longer and thus clipped, so the released mean hardly depends on
the updates' lengths, which nobody knows without data.
"""
UNIT = 0.1
"""Local learning rate where a spec names none; the recipe's unit of length then."""
MOST_STEPS = 30
"""Local momentum carries a client no farther than so many steps without it would.

Nor farther than its own steps if they are more: with longer local training, updates fit
the client's few records instead of pointing where all clients gain, on digits as on
text (docs/recipe.md).
"""


class Recipe(Checked):
    """Who decides clipping norm, server and averaging."""

    source: Literal["default", "none", "tuned"] = Field(
        "default",
        description="default: decided without data; none: all fields as given; tuned: chosen by "
        "privplan proxy tune.",
    )
    decides: tuple[str, ...] = Field(
        (),
        description="Fields of the spec that the recipe decides; left out with source: default, "
        "all that are not given.",
    )
    replaced: dict[str, Any] = Field(
        default_factory=dict,
        exclude_if=is_empty,
        description="Values of these fields before; baselines train with them.",
    )

    @rule
    def _decidable(self) -> Iterator[Fault]:
        """The recipe names only fields that it decides."""
        decidable = DECIDABLE[self.source]
        allowed = "must be empty"
        if decidable:
            allowed = f"may hold only {', '.join(decidable)}"
        for name in self.decides:
            if name not in decidable:
                yield Fault("decides", f"{allowed} for source: {self.source}", name)


def fields_digest(fields: Mapping[str, Any]) -> str:
    """SHA-256 of the fields that a tuned recipe writes."""
    tuned = {name: fields[name] for name in TUNED if fields.get(name) is not None}
    return digest(tuned)


def walk(steps: int, momentum: float) -> float:
    """Length of local training at gradients of norm 1.

    It is the sum of (1 - momentum^k) / (1 - momentum) over the steps k = 1, ..., steps.
    """
    if momentum == 0:
        return float(steps)
    # 1 - momentum^steps
    lost = -math.expm1(steps * math.log(momentum))
    length = (steps - momentum * lost / (1 - momentum)) / (1 - momentum)
    # Its bounds, but for rounding: no momentum, and momentum 1.
    return min(max(length, float(steps)), steps * (steps + 1) / 2)


def local_rate(steps: Any, momentum: Any) -> float:
    """Local learning rate of the default recipe: UNIT, or less with much momentum.

    Steps and momentum are of data that were not validated; UNIT for other than numbers
    in their ranges.
    """
    are_numbers = isinstance(steps, int | float) and isinstance(momentum, int | float)
    if not are_numbers or not (1 <= steps <= LARGEST_COUNT and 0 <= momentum < 1):
        return UNIT
    rate = UNIT * max(MOST_STEPS, steps) / walk(steps, momentum)
    # Four digits, so that a person can read it in the plan.
    return min(UNIT, float(f"{rate:.4g}"))


def unit(local_learning_rate: float, recipe: Recipe | None) -> float:
    """Local learning rate that the default recipe's lengths are multiples of (eta)."""
    if recipe is not None and LOCAL_RATE in recipe.decides:
        return UNIT
    return local_learning_rate


def without_recipe(data: dict[str, Any]) -> dict[str, Any]:
    """A spec's plain data before its recipe: without the fields that it decided."""
    recipe = data.get("recipe")
    if recipe is None or recipe["source"] == "none":
        return data
    decides = recipe["decides"]
    stated = {key: value for key, value in data.items() if key not in decides}
    if LOCAL_RATE in decides:
        local = dict(data["local"])
        local.pop("learning_rate", None)
        stated["local"] = local
    return {**stated, **recipe.get("replaced", {}), "recipe": "none"}


# Entry points of server optimisers of others.
GROUP = "privplan.server_optimisers"
_ADAPTIVE = {"learning_rate": 0.01, "epsilon": 1e-3}
HYPERPARAMETERS: dict[str, dict[str, float]] = {
    "sgd": {"learning_rate": 1.0},
    "momentum": {"learning_rate": 1.0, "momentum": 0.9},
    "adagrad": _ADAPTIVE,
    "adam": _ADAPTIVE,
    "yogi": _ADAPTIVE,
}
"""Hyperparameters of each optimiser of the project, with their defaults."""

BETA1 = 0.9
"""Decay of the mean of the updates (adagrad, adam, yogi)."""
BETA2 = 0.99
"""Decay of the mean of their squares (adam, yogi)."""


def _registered(value: object) -> str:
    """The name of an optimiser of the project, or of another distribution."""
    names = {*HYPERPARAMETERS, *points(GROUP).names}
    if isinstance(value, str) and value in names:
        return value
    *firsts, last_name = map(repr, sorted(names))
    expected = f"{', '.join(firsts)} or {last_name}"
    raise PydanticKnownError("literal_error", {"expected": expected})


_Share = Annotated[NonNegative, Field(lt=1)]


def _filled(data: Any, defaults: dict[str, float]) -> Any:
    """Plain data of a mapping, with defaults where they have no number."""
    if not isinstance(data, dict):
        return data
    stated = {key: value for key, value in data.items() if value is not None}
    return {**defaults, **stated}


class ServerOptimiser(Value):
    """How the server moves the global model by the mean update of a round."""

    optimizer: Annotated[
        str,
        PlainValidator(_registered),
        WithJsonSchema({"examples": sorted(HYPERPARAMETERS), "type": "string"}),
    ] = Field(
        "sgd",
        description=f"One of {', '.join(sorted(HYPERPARAMETERS))}, or a registered.",
    )
    learning_rate: Positive | None = omitted(
        "Factor on the step; 1 when left out, 0.01 for adagrad, adam and yogi."
    )
    momentum: _Share | None = omitted(
        "Factor on the last step (momentum); 0.9 by default."
    )
    epsilon: Positive | None = omitted(
        "Added to the root of the squares (adagrad, adam, yogi); 0.001 by default."
    )

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, data: Any) -> Any:
        """Fill the optimiser's hyperparameters, so that a plan names every number."""
        name = data.get("optimizer", "sgd") if isinstance(data, dict) else None
        defaults = HYPERPARAMETERS.get(name, {}) if isinstance(name, str) else {}
        return _filled(data, defaults)


class Averaging(Value):
    """Average of the models over rounds, evaluated and released instead of the last.

    ``ema``: exponential moving average, the model of i rounds before has weight
    decay^i, normalised. ``tail``: mean of the models of the last rounds.
    """

    method: Literal["ema", "tail"] = Field("ema", description="Kind of average.")
    decay: _Share | None = omitted("Factor per round (ema); 0.8 by default.")
    fraction: Fraction | None = omitted(
        "Share of the rounds, the last ones, that is averaged (tail); 0.2 by default."
    )

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, data: Any) -> Any:
        """Fill the method's own number."""
        ema = isinstance(data, dict) and data.get("method", "ema") == "ema"
        return _filled(data, {"decay": 0.8} if ema else {"fraction": 0.2})


class Augmentation(Value):
    """Random changes of an image each time a client trains on it; no privacy is spent.

    A client changes its own records before its update is clipped, so that the bound on
    what a client contributes is the same. Draws go by a record's place in a batch, so
    that plans of records have none. Test records stay as they are.
    """

    shift: Count | None = omitted(
        "Most pixels by which an image is moved along each axis; pixels at the border are repeated."
    )
    flip: Probability | None = omitted(
        "Chance that an image is mirrored left to right, for example 0.5."
    )

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.shift is None and self.flip is None:
            raise ValueError("must name shift or flip, or be left out")
        return self

    @property
    def numbers(self) -> tuple[int, float]:
        """The largest shift and the chance of a flip; 0 where left out."""
        return self.shift or 0, self.flip or 0.0


# The field that names initial parameters.
FIELD = "model.initial"


def _sha256(value: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{64}", value):
        raise ValueError("must be 64 hexadecimal digits, as sha256sum prints")
    return value.lower()


class Initial(Value):
    """Parameters before the first round, trained on data that need no protection."""

    file: PathName = Field(
        description="A .npy file with all parameters [d] in the order of the model's, relative to "
        "the current folder. They must not depend on the clients' records."
    )
    sha256: Annotated[str, AfterValidator(_sha256)] = Field(
        description="SHA-256 of the file, 64 hexadecimal digits."
    )
    head: Literal["loaded", "drawn"] = Field(
        "loaded",
        description="drawn: the last dense layer is initialised at random, for other classes than "
        "those of the public data.",
    )
    source: Name | None = omitted("The public data that they were trained on.")

    def content(self, copy: Path | None = None) -> bytes:
        """The file's content.

        Args:
            copy: of the file, as a run keeps one, for where the file is gone.

        Raises:
            InputError: when it cannot be read, or has another digest.
        """
        if copy is not None and copy.is_file() and not Path(self.file).is_file():
            return self.model_copy(update={"file": str(copy)}).content()
        try:
            with open(self.file, "rb", opener=regular(GIB)) as file:
                content = file.read()
        except OSError as error:
            rule = f"must be a file that can be read ({error.strerror})"
            raise InputError.one(f"{FIELD}.file", rule, self.file) from None
        content_digest = hashlib.sha256(content).hexdigest()
        if content_digest != self.sha256:
            rule = f"must be that of {self.file}"
            raise InputError.one(f"{FIELD}.sha256", rule, content_digest)
        return content

    @property
    def line(self) -> str:
        """Where the parameters are from, and what that means for privacy."""
        if self.source is None:
            trained = ""
        else:
            trained = f", trained on {self.source}"
        head = ", the last layer drawn" if self.head == "drawn" else ""
        file = f"{self.file} (SHA-256 {self.sha256[:12]}...)"
        return (
            f"initial parameters from {file}{trained}{head}: only runs whose spending is "
            "counted beside this one's may have seen clients' records"
        )

    def warnings(self) -> list[str]:
        """That runs will refuse the file as it is now; empty when they will not."""
        try:
            self.content()
        except InputError as error:
            return [f"runs of this plan are refused until {error}"]
        return []
