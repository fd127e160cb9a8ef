"""Fields of a spec on the server: its optimiser, and the averaging of models over rounds.

Both are functions of the releases, so they cost no privacy. How an optimiser moves the model
stands in ``simulate.server_optimisers``; here are the names and hyperparameters, so that a plan
is checked without the simulator. Another distribution adds an optimiser by an entry point of the
group ``privplan.server_optimisers``; it may use all fields below.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticKnownError

from privplan.errors import Fault
from privplan.values import Checked, Fraction, NonNegative, Positive, is_none, rule

GROUP = "privplan.server_optimisers"
"""Entry-point group of server optimisers from other distributions."""
_ADAPTIVE = {"learning_rate": 0.01, "beta1": 0.9, "epsilon": 1e-3}
HYPERPARAMETERS: dict[str, dict[str, float]] = {
    "sgd": {"learning_rate": 1.0},
    "momentum": {"learning_rate": 1.0, "momentum": 0.9},
    "adagrad": _ADAPTIVE,
    "adam": {**_ADAPTIVE, "beta2": 0.99},
    "yogi": {**_ADAPTIVE, "beta2": 0.99},
}
"""Hyperparameters of each optimiser of the project, with their defaults."""

_FIELDS = ("learning_rate", "momentum", "beta1", "beta2", "epsilon")


def _known(value: object) -> str:
    if isinstance(value, str) and (
        value in HYPERPARAMETERS or value in entry_points(group=GROUP).names
    ):
        return value
    *most, last = map(repr, sorted({*HYPERPARAMETERS, *entry_points(group=GROUP).names}))
    raise PydanticKnownError("literal_error", {"expected": f"{', '.join(most)} or {last}"})


_Share = Annotated[NonNegative, Field(lt=1)]


class ServerOptimiser(Checked):
    """How the server moves the global model by the mean update of a round."""

    optimizer: Annotated[
        str,
        PlainValidator(_known),
        WithJsonSchema({"examples": sorted(HYPERPARAMETERS), "type": "string"}),
    ] = Field("sgd", description=f"One of {', '.join(sorted(HYPERPARAMETERS))}, or a registered.")
    learning_rate: Positive | None = Field(
        None,
        exclude_if=is_none,
        description="Factor on the step; 1 when left out, 0.01 for adagrad, adam and yogi.",
    )
    momentum: _Share | None = Field(
        None, exclude_if=is_none, description="Factor on the last step (momentum); 0.9 by default."
    )
    beta1: _Share | None = Field(
        None,
        exclude_if=is_none,
        description="Decay of the mean of the updates (adagrad, adam, yogi); 0.9 by default.",
    )
    beta2: _Share | None = Field(
        None,
        exclude_if=is_none,
        description="Decay of the mean of their squares (adam, yogi); 0.99 by default.",
    )
    epsilon: Positive | None = Field(
        None,
        exclude_if=is_none,
        description="Added to the root of the squares (adagrad, adam, yogi); 0.001 by default.",
    )

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, data: Any) -> Any:
        """Fill the optimiser's own hyperparameters, so that a plan names every number."""
        if not isinstance(data, dict):
            return data
        name = data.get("optimizer", "sgd")
        given = {key: value for key, value in data.items() if value is not None}
        own = HYPERPARAMETERS.get(name) if isinstance(name, str) else None
        return {**(own or {}), **given}

    @rule
    def _takes(self) -> Iterator[Fault]:
        """Only hyperparameters of the chosen optimiser are given."""
        own = HYPERPARAMETERS.get(self.optimizer)
        for field in _FIELDS if own is not None else ():
            value = getattr(self, field)
            if value is not None and field not in (own or {}):
                names = ", ".join(own or {})
                text = f"must be left out for {self.optimizer}, which takes {names}"
                yield Fault(field, text, value)


class Averaging(Checked):
    """Average of the models over rounds, which is evaluated and released instead of the last.

    ``ema``: exponential moving average, the model of i rounds before has weight decay^i,
    normalised. ``tail``: mean of the models of the last rounds.
    """

    method: Literal["ema", "tail"] = Field("ema", description="Kind of average.")
    decay: _Share | None = Field(
        None, exclude_if=is_none, description="Factor per round (ema); 0.8 by default."
    )
    fraction: Fraction | None = Field(
        None,
        exclude_if=is_none,
        description="Share of the rounds, the last ones, that is averaged (tail); 0.2 by default.",
    )

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, data: Any) -> Any:
        """Fill the method's own number."""
        if not isinstance(data, dict):
            return data
        own = {"decay": 0.8} if data.get("method", "ema") == "ema" else {"fraction": 0.2}
        return {**own, **{key: value for key, value in data.items() if value is not None}}

    @rule
    def _takes(self) -> Iterator[Fault]:
        """Only the method's own number is given."""
        other, only = ("fraction", "tail") if self.method == "ema" else ("decay", "ema")
        if getattr(self, other) is not None:
            yield Fault(other, f"is only for method: {only}", getattr(self, other))
