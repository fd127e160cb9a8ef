"""Features of a plan that a forecast of its accuracy rests on; no data are needed for them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from privplan.errors import Fault, InputError
from privplan.file_kinds import TABLE, refuse_other_kind
from privplan.files import read_json, write_text
from privplan.plan import Plan
from privplan.planning.recipe import DECAY, default_rate, relative_noise
from privplan.spec.spec import Spec
from privplan.spec.training import Augmentation
from privplan.values import (
    Checked,
    Count,
    Fraction,
    NonNegative,
    Positive,
    Value,
    digest,
    is_none,
    parse,
    rule,
)


class PlanFeatures(Value):
    """How a plan trains and with how much noise."""

    rounds: Count  # T
    noise: (
        NonNegative  # norm of the noise of the mean update over the clipping norm (N)
    )
    clipping_norm: Positive  # C
    travel: Positive  # local steps times mean local rate: an update's length at gradients of norm 1
    rate: Positive  # server learning rate over 1 - momentum
    averaged: Positive  # models in the released average; 1 for the last model
    parameters: Count  # length of the model (d)
    weights: tuple[NonNegative, ...]  # of each group in the mean update, summing to 1
    clients: Positive | None = Field(
        None, exclude_if=is_none
    )  # expected per round; None: unknown
    initial: str | None = Field(
        None, exclude_if=is_none
    )  # digest of parameters before round 1
    augmentation: Augmentation | None = Field(None, exclude_if=is_none)
    correlated: bool = Field(
        False, exclude_if=lambda one: not one
    )  # noise, over rounds

    @property
    def kind(self) -> tuple[object, ...]:
        """What no distance between numbers describes: model, start, augmentation, correlation."""
        return self.parameters, self.initial, self.augmentation, self.correlated

    @property
    def noise_step(self) -> float:
        """Length of the noise in a step of the server."""
        return self.rate * self.clipping_norm * max(self.noise, 1e-6)


def plan_features(plan: Plan) -> PlanFeatures:
    """Features of a solved plan."""
    spec = plan.spec
    if spec.unit != "client":
        raise InputError.one("forecast", "is only for unit: client", spec.unit)
    noise = relative_noise(plan)
    recipe, server, averaging = spec.recipe, spec.server, spec.averaging
    open_fields = (
        recipe.decides if recipe is not None and recipe.source == "default" else ()
    )
    rate, models = 1.0, 1.0
    if "server" in open_fields:
        rate = default_rate(spec, noise) / (1 - spec.server_momentum)
    elif server is not None:
        rate = (server.learning_rate or 1.0) / (1 - (server.momentum or 0.0))
        if server.optimizer not in (
            "sgd",
            "momentum",
        ):  # a step of about rate in each coordinate
            length = math.sqrt(spec.model.parameters) / math.hypot(1.0, noise)
            rate *= length / spec.clipping_norm
    if "averaging" in open_fields:
        models = 1 / (1 - DECAY)
    elif averaging is not None and averaging.method == "ema":
        models = 1 / (1 - (averaging.decay or 0.0))
    elif averaging is not None:
        models = max(1.0, (averaging.fraction or 0.0) * spec.rounds)
    decays = spec.local.learning_rate_decay ** np.arange(spec.rounds)
    return PlanFeatures(
        rounds=spec.rounds,
        noise=noise,
        clipping_norm=spec.clipping_norm,
        travel=spec.local.steps * spec.local.learning_rate * float(decays.mean()),
        rate=rate,
        averaged=models,
        parameters=spec.model.parameters,
        weights=tuple(group.weight for group in plan.groups),
        clients=spec.expected_cohort,
        initial=None if spec.model.initial is None else spec.model.initial.sha256,
        augmentation=spec.local.augmentation,
        correlated=len(spec.mixture) > 1,
    )


class Coverage(Value):
    """Which classes each group holds.

    Attributes:
        shares: share of each class among the records of each group.
        clients: share of each group among the clients.
        skew: how much more alike two records of a client are than two of its group: (s - g) / (1 -
            g), s and g the chances that their classes agree. 0 for IID clients, 1 for clients of
            one class each.
        frequency: share of each class among all records, of training and test; None where every
            client has as many records.
    """

    shares: tuple[tuple[NonNegative, ...], ...]
    clients: tuple[Fraction, ...]
    skew: NonNegative = 0.0
    frequency: tuple[NonNegative, ...] | None = Field(None, exclude_if=is_none)

    def overall(self) -> np.ndarray:
        """Share of each class among all records [classes]."""
        if self.frequency is None:
            counts = np.asarray(self.clients) @ np.asarray(self.shares)
        else:
            counts = np.asarray(self.frequency)
        shares: np.ndarray = counts / counts.sum()
        return shares

    def exposure(self, weights: Sequence[float]) -> np.ndarray:
        """Weight of each class in the mean update over its frequency [classes]."""
        shares = np.asarray(self.shares)
        frequency = self.overall()
        exposed: np.ndarray = np.asarray(weights) @ shares / np.maximum(frequency, 1e-9)
        known: np.ndarray = np.where(frequency > 0, exposed, 1.0)
        return known

    def holders(self, weights: Sequence[float]) -> np.ndarray:
        """How few groups hold a class [classes].

        1 where all groups hold it alike, 1 / w where only a group of weight w holds it.
        """
        shares, weight = np.asarray(self.shares), np.asarray(weights)
        first, second = weight @ shares, weight @ shares**2
        few: np.ndarray = np.clip(second / np.maximum(first, 1e-9) ** 2, 1.0, 50.0)
        return np.where(first > 0, few, 1.0)

    @property
    def total_skew(self) -> float:
        """Skew of the clients' labels against those of all clients, in [0, 1]."""
        shares, clients = np.asarray(self.shares), np.asarray(self.clients)
        shares = shares / shares.sum(axis=1, keepdims=True)
        overall = float(((clients / clients.sum() @ shares) ** 2).sum())
        if overall >= 1:
            return 0.0
        own = (shares**2).sum(axis=1)
        same = float(clients @ (own + self.skew * (1 - own))) / float(clients.sum())
        return min(max((same - overall) / (1 - overall), 0.0), 1.0)

    def frequencies(self) -> np.ndarray:
        """Share of each class overall and in each group [1 + groups, classes]."""
        rows = np.vstack([self.overall(), np.asarray(self.shares)])
        normalised: np.ndarray = rows / rows.sum(axis=1, keepdims=True)
        return normalised


def even_coverage(spec: Spec, classes: int) -> Coverage:
    """Every group holds all classes alike."""
    shares = (tuple(1 / classes for _ in range(classes)),) * len(spec.groups)
    return Coverage(shares=shares, clients=client_shares(spec))


def client_shares(spec: Spec) -> tuple[float, ...]:
    """Share of each group among the clients."""
    return tuple(group.clients / spec.population for group in spec.groups)


# --- The table of proxy runs (PROXY.json): features of a plan and the accuracy that it reached. --

LEAST_RUNS = (
    12  # least proxy runs for a table: an interval of 90% needs 9 residuals held out
)


class ProxyRun(Checked):
    """One run on proxy data."""

    plan: PlanFeatures
    coverage: Coverage
    partition: str = ""  # of the records over the clients
    seed: int = 0
    accuracy: NonNegative = Field(le=1)  # test accuracy
    accuracy_by_group: tuple[NonNegative, ...]
    accuracy_by_class: tuple[NonNegative, ...] | None = Field(None, exclude_if=is_none)

    @rule
    def _sizes(self) -> Iterator[Fault]:
        """All parts are of the same groups and classes, with positive totals."""
        groups = len(self.plan.weights)
        sizes = (
            len(self.coverage.shares),
            len(self.coverage.clients),
            len(self.accuracy_by_group),
        )
        if set(sizes) != {groups}:
            yield Fault("accuracy_by_group", f"must be of {groups} groups", list(sizes))
        if len({len(row) for row in self.coverage.shares}) != 1:
            yield Fault(
                "coverage.shares", "must be of the same classes", "other lengths"
            )
        frequency = self.coverage.frequency
        if frequency is not None and (
            len(frequency) != len(self.coverage.shares[0]) or sum(frequency) <= 0
        ):
            yield Fault(
                "coverage.frequency", "must be of the same classes", list(frequency)
            )
        if any(sum(row) <= 0 for row in self.coverage.shares):
            yield Fault("coverage.shares", "must have a positive sum per group", 0)
        by_class = self.accuracy_by_class
        if by_class is not None and len(by_class) != len(self.coverage.shares[0]):
            yield Fault(
                "accuracy_by_class", "must be of the classes of coverage", len(by_class)
            )
        for field in ("accuracy_by_group", "accuracy_by_class"):
            values = getattr(self, field) or ()
            if any(value > 1 for value in values):
                yield Fault(field, "must be at most 1", max(values))


class ProxyTable(Checked):
    """Runs on one data set, with what they have in common."""

    schema_version: Literal[1] = 1
    dataset: str
    model: str
    classes: Count
    share: float = (
        1.0  # of the plans' cohorts that took part; the noise is that of the plan
    )
    runs: tuple[ProxyRun, ...]

    @rule
    def _enough(self) -> Iterator[Fault]:
        """There are enough runs for an interval, all with the table's classes."""
        if len(self.runs) < LEAST_RUNS:
            yield Fault(
                "runs", f"must be {LEAST_RUNS} proxy runs or more", len(self.runs)
            )
        for number, run in enumerate(self.runs):
            if any(len(row) != self.classes for row in run.coverage.shares):
                where = f"runs.{number}.coverage.shares"
                yield Fault(where, f"must be of {self.classes} classes", "others")
        groups = sorted({len(run.plan.weights) for run in self.runs})
        if len(groups) > 1:
            yield Fault("runs", "must be of as many groups each", groups)

    @property
    def digest(self) -> str:
        """Content hash, which a forecast names."""
        return digest(self.model_dump(mode="json"))

    def save(self, path: Path | str) -> None:
        """Write the table."""
        write_text(path, json.dumps(self.model_dump(mode="json"), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path | str) -> ProxyTable:
        """Read a table."""
        data = read_json(path, "forecast")
        refuse_other_kind(data, TABLE, "forecast")
        return parse(cls, data)


def read_coverage(path: Path | str | None, spec: Spec, classes: int) -> Coverage:
    """Which classes each group of a spec holds, from JSON such as {"strict": [0.5, 0.5, 0]}."""
    if path is None:
        return even_coverage(spec, classes)
    data, names = read_json(path, "coverage"), [group.name for group in spec.groups]
    skew = data.pop("skew", 0.0) if isinstance(data, dict) else 0.0
    if (
        isinstance(skew, bool)
        or not isinstance(skew, int | float)
        or not 0 <= skew <= 1
    ):
        raise InputError.one("coverage.skew", "must be a number in [0, 1]", skew)
    overall = data.pop("frequency", None) if isinstance(data, dict) else None
    if not isinstance(data, dict) or sorted(data) != sorted(names):
        raise InputError.one(
            "coverage", f"must name the groups {', '.join(names)}", data
        )
    for name, row in {
        **data,
        **({} if overall is None else {"frequency": overall}),
    }.items():
        valid = isinstance(row, list) and all(
            isinstance(one, int | float)
            and not isinstance(one, bool)
            and 0 <= one < 1e100
            for one in row
        )
        if not valid or len(row) != classes or sum(row) <= 0:
            rule_text = f"must be {classes} numbers from 0 with a positive sum"
            raise InputError.one(f"coverage.{name}", rule_text, row)
    shares = tuple(tuple(one / sum(data[name]) for one in data[name]) for name in names)
    frequency = None if overall is None else tuple(overall)
    return Coverage(
        shares=shares, clients=client_shares(spec), skew=skew, frequency=frequency
    )
