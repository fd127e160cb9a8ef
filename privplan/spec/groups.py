"""Parts of a spec: groups of clients and their budgets, local training, the model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticKnownError

from privplan import values
from privplan.accounting.accountant import ACCOUNTANTS, accountant
from privplan.accounting.calibrate import NOISE_RANGE
from privplan.accounting.release import SamplingLaw
from privplan.accounting.tradeoff import Point, advantage_point, budget_of
from privplan.errors import Fault, InputError
from privplan.registry import points
from privplan.spec.training import Augmentation, Initial

# Fields of a budget that is stated as a risk, of each kind.
_KINDS = (("advantage",), ("true_positives", "false_positives"))


class Risk(values.Value):
    """What an attacker may achieve: an advantage, or true positives."""

    advantage: values.Probability | None = values.omitted(
        "Largest difference of true- and false-positive rate of a membership attack."
    )
    true_positives: values.Probability | None = values.omitted(
        "Largest true-positive rate at false_positives."
    )
    false_positives: values.Probability | None = values.omitted(
        "False-positive rate of the limit true_positives."
    )

    def faults(self) -> Iterator[Fault]:
        """What is missing, too much, or out of range."""
        stated = self._stated
        if stated not in _KINDS:
            text = "must be advantage, or true_positives and false_positives"
            yield Fault("risk", text, ", ".join(stated) or "nothing")
            return
        if len(stated) < 2:
            return
        # An attack that guesses at random has as many true as false positives.
        name, limit_name = stated
        value = getattr(self, name)
        limit = getattr(self, limit_name)
        if not value > limit:
            yield Fault(f"risk.{name}", f"must be above {limit_name}, {limit:g}", value)

    @property
    def _stated(self) -> tuple[str, ...]:
        """Names of the fields that are not left out."""
        return tuple(
            name for name in type(self).model_fields if getattr(self, name) is not None
        )

    @property
    def point(self) -> Point:
        """The point that the trade-off curve may not exceed."""
        if self.advantage is not None:
            return advantage_point(self.advantage)
        return Point(self.false_positives or 0.0, self.true_positives or 0.0)

    def __str__(self) -> str:
        """The limit in words; of a faulty one, what is given."""
        if self._stated not in _KINDS:
            fields = [f"{name} {getattr(self, name):g}" for name in self._stated]
            return ", ".join(fields) or "nothing"
        if self.advantage is not None:
            return f"advantage {self.advantage:g}"
        true = f"{self.true_positives:g} true positives"
        return f"{true} at {self.false_positives:g} false ones"


def with_risk(group: dict[str, Any]) -> dict[str, Any]:
    """Plain data of a group with the budget that implies its risk.

    A faulty risk stays, with some epsilon, so that its own faults are reported.
    """
    if group.get("delta") is not None:
        where = f"groups.{group.get('name')}.delta"
        rule = "must be left out with a risk, which has one"
        raise InputError.one(where, rule, group["delta"])
    filled = {**group, "epsilon": 1.0}
    try:
        risk = Risk.model_validate(group["risk"])
    except ValidationError:
        return filled
    if any(risk.faults()):
        return filled
    epsilon, delta = budget_of(risk.point)
    return {**group, "epsilon": epsilon, "delta": delta}


# A law of delta, as a power of the number of clients.
DELTA_LAW = re.compile(r"n\^-(\d+(?:\.\d+)?)")


def _delta(value: Any) -> Any:
    """A number in (0, 1), or the law ``n^-1.1`` of the number of clients n."""
    if isinstance(value, str) and DELTA_LAW.fullmatch(value.replace(" ", "")):
        return value.replace(" ", "")
    if isinstance(value, bool):
        raise ValueError("must be a number in (0, 1) or a law such as n^-1.1")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("must be a number in (0, 1) or a law such as n^-1.1") from None
    if not values.SMALLEST <= number < 1:
        is_too_small = 0 < number < values.SMALLEST
        if is_too_small:
            smallest = f", {values.SMALLEST:g} or more"
        else:
            smallest = ""
        raise ValueError(f"must be in (0, 1){smallest}")
    return number


def _kept_fractions(value: Any) -> Any:
    """``none``, ``closed_form``, or one kept fraction in (0, 1] per group."""
    if value is None or value in ("none", "closed_form"):
        return value or "none"
    rule = "must be none, closed_form, or a list of kept fractions in (0, 1]"
    if not isinstance(value, list | tuple):
        raise ValueError(rule)
    for fraction in value:
        is_number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
        if not is_number or not values.SMALLEST <= fraction <= 1:
            raise ValueError(rule)
    return tuple(float(fraction) for fraction in value)


Delta = Annotated[float | str, BeforeValidator(_delta)]
KeptFractions = Annotated[str | tuple[float, ...], BeforeValidator(_kept_fractions)]


_CALIBRATING = ("closed_form", "rdp", "prv", "pld")
_UPPER_BOUNDS = ("two-sided bound", "upper bound")


def _calibrating(value: object) -> str:
    """An accountant of the project that calibrates, or another one that bounds."""
    if value in _CALIBRATING:
        return str(value)
    is_registered = isinstance(value, str) and value in ACCOUNTANTS
    if is_registered and accountant(str(value)).kind in _UPPER_BOUNDS:
        return str(value)
    *names, last_name = map(repr, _CALIBRATING)
    expected = f"{', '.join(names)} or {last_name}"
    raise PydanticKnownError("literal_error", {"expected": expected})


CalibratingAccountant = Annotated[
    str,
    PlainValidator(_calibrating),
    WithJsonSchema({"enum": list(_CALIBRATING), "type": "string"}),
]
"""Name of an accountant that noise is calibrated with: it bounds epsilon from above."""


def _without_epsilon(schema: dict[str, Any]) -> None:
    """Epsilon may be left out where another field decides it."""
    schema["required"].remove("epsilon")


class Group(values.Value):
    """Clients who share one privacy budget."""

    model_config = ConfigDict(json_schema_extra=_without_epsilon)
    name: values.Name = Field(description="Unique name of the group.")
    clients: values.Count = Field(description="How many clients are in the group.")
    epsilon: values.Positive = Field(
        description="Privacy budget of each client, over all rounds. May be left out with a risk, "
        "or with a noise multiplier."
    )
    delta: values.Probability | None = Field(
        None, description="The group's own delta; the spec's delta when left out."
    )
    risk: Risk | None = values.omitted(
        "Budget as an attacker's success instead of epsilon and delta, which follow."
    )
    noise_multiplier: values.Positive | None = Field(
        None,
        exclude_if=values.is_none,
        description="Fixed noise over the clipping norm, on the group's sum; epsilon follows when "
        "left out. Only with planning.ratios: given or uniform.",
        json_schema_extra=dict(zip(("minimum", "maximum"), NOISE_RANGE, strict=True)),
    )
    sampling_ratio: values.Fraction | None = Field(
        None,
        description="Chance to take part in a round; only with planning.ratios: given.",
    )
    min_sampling_ratio: values.Fraction | None = Field(
        None, description="Least sampling ratio that the planner may choose."
    )
    max_sampling_ratio: values.Fraction | None = Field(
        None, description="Largest sampling ratio that the planner may choose."
    )
    min_weight: values.Fraction | None = Field(
        None, description="Least weight that the planner may choose."
    )
    least_share: Annotated[values.NonNegative, Field(le=1)] | None = values.omitted(
        "How much the group's clients count at least, as a part of their number; as "
        "planning.least_share says when left out."
    )
    sampling: SamplingLaw | None = values.omitted(
        "Sampling law of this group; the spec's when left out."
    )
    contributions: values.Count = Field(
        1,
        description="The most clients of this group, or with unit: record the most records of its "
        "clients, that one person has; the budget then protects the person.",
        exclude_if=lambda contributions: contributions == 1,
    )
    records: values.Count | None = values.omitted(
        "Records that each client of the group holds; only with unit: record."
    )
    batch_size: values.Count | None = values.omitted(
        "Expected records in a batch of these clients; local.batch_size when left "
        "out. Only with unit: record."
    )


class LocalTraining(values.Value):
    """What a client does in a round: mini-batch SGD from the global model."""

    steps: values.Count = Field(5, description="Local steps (tau).")
    batch_size: values.Count = Field(10, description="Records in a local mini-batch.")
    learning_rate: Annotated[values.Positive, Field(le=1e6)] = Field(
        0.1, description="Local learning rate (eta) in round 1."
    )
    learning_rate_decay: values.Fraction = Field(
        0.99, description="Factor on the learning rate after each round."
    )
    momentum: Annotated[values.NonNegative, Field(lt=1)] = Field(
        0.0, description="Momentum of local SGD; starts at zero in each round."
    )
    augmentation: Augmentation | None = values.omitted(
        "Random changes of a client's images each time it trains on them."
    )
    epochs: values.Count | None = values.omitted(
        "Passes over a client's records in a round (K), 1 when left out; only with "
        "unit: record, where they stand in the place of the steps."
    )


_NETWORKS = ("cnn-", "lstm", "mlp-", "resnet-", "vit:", "roberta:", "adapters:")
"""How names of the simulator's networks begin."""


PARAMETERS = {
    "mlp-digits": 2410,
    "cnn-2": 28_938,
    "cnn-3": 62_346,
    "lstm": 819_920,
    "resnet-18": 11_173_962,
}
"""Numbers of trainable parameters of networks of the presets, by their names."""


class Model(values.Value):
    """The network that is trained."""

    name: str = Field(description="A model of the catalogue, for example cnn-2.")
    parameters: values.Count = Field(
        description="Number of trainable parameters (d); it is filled in for "
        f"{', '.join(PARAMETERS)}."
    )
    initial: Initial | None = values.omitted(
        "Parameters from public data to start from; left out, they are drawn."
    )

    @model_validator(mode="before")
    @classmethod
    def _with_parameters(cls, data: Any) -> Any:
        """Fill the number of parameters where the name decides it."""
        name = data.get("name") if isinstance(data, dict) else None
        if isinstance(name, str) and name in PARAMETERS:
            return {"parameters": PARAMETERS[name], **data}
        return data

    @property
    def options(self) -> str:
        """What ``simulate`` needs beside a plan for a network that it does not have."""
        registered = (point.name for point in points("privplan.models"))
        if self.name.startswith((*_NETWORKS, *registered)):
            return ""
        return " --data DATA --model MODULE:CLASS"


def _public_key(value: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", value):
        printed = "as privplan attest keys show prints"
        raise ValueError(f"must be 64 hexadecimal digits, {printed}")
    return value


class Signer(values.Value):
    """A party that signs statements about a run."""

    name: values.Name = Field(
        description="Name of the party, unique among the signers."
    )
    role: Literal["server", "client"] = Field(
        "server", description="What it may state."
    )
    key: Annotated[str, AfterValidator(_public_key)] = Field(
        description="Its public Ed25519 key, 64 hexadecimal digits (privplan attest keys show)."
    )
