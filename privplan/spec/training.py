"""The training recipe of a spec: which of its fields the planner decides, and how they were chosen.

A spec that leaves the clipping norm and the server open asks for the default recipe, which is
decided without any data. Clipping norm and local learning rate follow from local training alone,
so they are filled in when the spec is read; ``privplan.planning.recipe`` decides the rest when the
plan is solved. A solved spec names the decided fields in ``recipe.decides``, so that solving it
again gives the same plan, and baselines can leave the recipe out.
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
TUNED = (
    "clipping_norm",
    "server",
    "averaging",
    "local",
)  # fields that a tuned recipe writes
DECIDABLE = {"default": (*DECIDED, LOCAL_RATE), "none": (), "tuned": TUNED}
"""Fields that ``Recipe.decides`` may name, by the recipe's source."""
CLIPPING_STEPS = 1.0
"""Clipping norm of the default recipe over the local learning rate eta.

A client whose gradients have norm 1 is as far after one local step. Over all its steps nearly every
update is longer and thus clipped, so the released mean hardly depends on the updates' lengths,
which nobody knows without data.
"""
UNIT = (
    0.1  # local learning rate where a spec names none; the recipe's unit of length then
)
MOST_STEPS = 30
"""Local momentum carries a client no farther than so many steps without it would, or than its own
steps if they are more: with longer local training, updates fit the client's few records instead of
pointing where all clients gain, on digits as on text (docs/recipe.md)."""


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
        known = DECIDABLE[self.source]
        for name in self.decides:
            if name not in known:
                allowed = (
                    f"may hold only {', '.join(known)}" if known else "must be empty"
                )
                yield Fault("decides", f"{allowed} for source: {self.source}", name)


def fields_digest(fields: Mapping[str, Any]) -> str:
    """SHA-256 of the fields that a tuned recipe writes."""
    return digest(
        {name: fields[name] for name in TUNED if fields.get(name) is not None}
    )


def walk(steps: int, momentum: float) -> float:
    """Length of local training at gradients of norm 1, sum of (1 - momentum^k) / (1 - momentum)."""
    if momentum == 0:
        return float(steps)
    gone = -math.expm1(steps * math.log(momentum))
    length = (steps - momentum * gone / (1 - momentum)) / (1 - momentum)
    return min(
        max(length, float(steps)), steps * (steps + 1) / 2
    )  # its bounds, but for rounding


def local_rate(steps: Any, momentum: Any) -> float:
    """Local learning rate of the default recipe: UNIT, or less where momentum carries far."""
    numbers = all(isinstance(one, int | float) for one in (steps, momentum))
    if not numbers or not (1 <= steps <= LARGEST_COUNT and 0 <= momentum < 1):
        return UNIT
    return min(
        UNIT, float(f"{UNIT * max(MOST_STEPS, steps) / walk(steps, momentum):.4g}")
    )


def unit(local_learning_rate: float, recipe: Recipe | None) -> float:
    """Local learning rate that the default recipe's lengths are multiples of (eta)."""
    return (
        UNIT
        if recipe is not None and LOCAL_RATE in recipe.decides
        else local_learning_rate
    )


def without_recipe(data: dict[str, Any]) -> dict[str, Any]:
    """A spec's plain data before its recipe: without the fields that it decided."""
    recipe = data.get("recipe")
    if recipe is None or recipe["source"] == "none":
        return data
    kept = {key: value for key, value in data.items() if key not in recipe["decides"]}
    if LOCAL_RATE in recipe["decides"]:
        kept["local"] = {k: v for k, v in data["local"].items() if k != "learning_rate"}
    return {**kept, **recipe.get("replaced", {}), "recipe": "none"}


# --- Fields of a spec on the server: its optimiser, and the averaging of models over rounds. -----
# Both are functions of the releases, so they cost no privacy. How an optimiser moves the model
# stands in ``simulate.server``; here are the names and hyperparameters, so that a plan
# is checked without the simulator. Another distribution adds an optimiser by an entry point of the
# group ``privplan.server_optimisers``; it may use all fields below.

GROUP = "privplan.server_optimisers"  # entry points of server optimisers of others
_ADAPTIVE = {"learning_rate": 0.01, "epsilon": 1e-3}
HYPERPARAMETERS: dict[str, dict[str, float]] = {
    "sgd": {"learning_rate": 1.0},
    "momentum": {"learning_rate": 1.0, "momentum": 0.9},
    "adagrad": _ADAPTIVE,
    "adam": _ADAPTIVE,
    "yogi": _ADAPTIVE,
}
"""Hyperparameters of each optimiser of the project, with their defaults."""

BETA1, BETA2 = 0.9, 0.99
"""Decay of the mean of the updates (adagrad, adam, yogi), and of their squares (adam, yogi)."""


def _known(value: object) -> str:
    if isinstance(value, str) and (
        value in HYPERPARAMETERS or value in points(GROUP).names
    ):
        return value
    *most, last = map(repr, sorted({*HYPERPARAMETERS, *points(GROUP).names}))
    raise PydanticKnownError(
        "literal_error", {"expected": f"{', '.join(most)} or {last}"}
    )


_Share = Annotated[NonNegative, Field(lt=1)]


def _filled(data: Any, own: dict[str, float]) -> Any:
    """Plain data with numbers of its own where it has none."""
    if not isinstance(data, dict):
        return data
    return {**own, **{key: value for key, value in data.items() if value is not None}}


class ServerOptimiser(Value):
    """How the server moves the global model by the mean update of a round."""

    optimizer: Annotated[
        str,
        PlainValidator(_known),
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
        """Fill the optimiser's own hyperparameters, so that a plan names every number."""
        name = data.get("optimizer", "sgd") if isinstance(data, dict) else None
        own = HYPERPARAMETERS.get(name) if isinstance(name, str) else None
        return _filled(data, own or {})


class Averaging(Value):
    """Average of the models over rounds, which is evaluated and released instead of the last.

    ``ema``: exponential moving average, the model of i rounds before has weight decay^i,
    normalised. ``tail``: mean of the models of the last rounds.
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


# --- Random changes of a client's images in training. --------------------------------------------


class Augmentation(Value):
    """Random changes of an image each time that a client trains on it, which cost no privacy.

    A client changes its own records before gradients and updates are clipped, so that the bound on
    what a client or a record contributes is the same. Test records stay as they are.
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


# --- Initial parameters of a spec's model from a file of public data's making. -------------------

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
        """The file's content."""
        if copy is not None and copy.is_file() and not Path(self.file).is_file():
            return self.model_copy(update={"file": str(copy)}).content()
        try:
            with open(self.file, "rb", opener=regular(GIB)) as file:
                content = file.read()
        except OSError as error:
            rule = f"must be a file that can be read ({error.strerror})"
            raise InputError.one(f"{FIELD}.file", rule, self.file) from None
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256:
            raise InputError.one(
                f"{FIELD}.sha256", f"must be that of {self.file}", found
            )
        return content

    @property
    def line(self) -> str:
        """Where the parameters are from, and what that means for privacy."""
        trained = "" if self.source is None else f", trained on {self.source}"
        head = ", the last layer drawn" if self.head == "drawn" else ""
        return (
            f"initial parameters from {self.file} (SHA-256 {self.sha256[:12]}...){trained}{head}: "
            "only runs whose spending is counted beside this one's may have seen clients' records"
        )

    def warnings(self) -> list[str]:
        """That runs will refuse the file as it is now; empty when they will not for its digest."""
        try:
            self.content()
        except InputError as error:
            return [f"runs of this plan are refused until {error}"]
        return []
