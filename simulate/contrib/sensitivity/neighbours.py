"""Changes of an experiment: other participants, records, updates, noise or releases.

Each function returns an experiment whose components call those of the given one, so that a round
of the engine executes the algorithm's own code on neighbouring data sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.record import ReleaseRecord, RoundMetrics
from privplan.streams import Purpose, fingerprint, mask_digest
from simulate.algorithm import declaration
from simulate.components import (
    ClientBatch,
    ClientUpdate,
    GroupSum,
    LocalResult,
    Noise,
    Released,
    State,
)
from simulate.engine.experiment import Experiment
from simulate.engine.loop import (
    Progress,
    evaluate_if_due,
    one_core,
    run_round,
)
from simulate.engine.round import released_coordinates
from simulate.runs.ledger_writer import MemoryLedger

Positions = Callable[[np.ndarray], np.ndarray]


class ConstantNoise(np.random.Generator):
    """A generator whose normal and Laplace draws are constant; other draws are the stream's.

    Args:
        source: the stream.
        value: the constant, in standard deviations (scales for Laplace draws).
        only: index of the one draw that is not 0; None for all.
    """

    def __init__(
        self, source: np.random.Generator, value: float, only: int | None = None
    ) -> None:
        super().__init__(source.bit_generator)
        self._value, self._only, self._drawn = value, only, 0

    def _constant(self, size: Any) -> Any:
        value = self._value if self._only in (None, self._drawn) else 0.0
        self._drawn += 1
        return value if size is None else np.full(size, value)

    def standard_normal(self, size: Any = None, *_: Any, **__: Any) -> Any:
        """The constant."""
        return self._constant(size)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """The location plus ``scale`` times the constant."""
        return loc + scale * self._constant(size)

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """As ``normal``."""
        return self.normal(loc, scale, size)


def _with(experiment: Experiment, **components: Any) -> Experiment:
    """The experiment with other components in its algorithm."""
    return replace(experiment, algorithm=replace(experiment.algorithm, **components))


def with_noise(
    experiment: Experiment, value: float, only: int | None = None
) -> Experiment:
    """All noise is ``value`` standard deviations on each coordinate; 0 is no noise."""
    local, mechanism = experiment.algorithm.local, experiment.algorithm.mechanism

    def constant(noise: Noise) -> Noise:
        return lambda index: ConstantNoise(noise(index), value, only)

    def train(batch: ClientBatch) -> LocalResult:
        return local.train(replace(batch, noise=constant(batch.noise)))

    def release(
        round_: int,
        sums: Sequence[GroupSum],
        weights: Mapping[str, float],
        noise: Noise,
    ) -> tuple[Released, ...]:
        return mechanism.release(round_, sums, weights, constant(noise))

    silenced = replace(mechanism, release=release)
    return _with(experiment, local=replace(local, train=train), mechanism=silenced)


def with_participants(
    experiment: Experiment, round_: int, group: int, change: Positions
) -> Experiment:
    """The group's cohort of a round is changed, by positions within the group."""
    sampler = experiment.algorithm.sampler
    name = experiment.algorithm.plan.groups[group].name
    own = fingerprint(
        experiment.private_stream(Purpose.SAMPLING, round_, group, group=name)
    )

    def draw(
        generator: np.random.Generator, clients: int, ratio: float, number: int
    ) -> np.ndarray:
        of_group = number == round_ and fingerprint(generator) == own
        drawn = sampler.draw(generator, clients, ratio, number)
        return change(drawn) if of_group else drawn

    return _with(experiment, sampler=replace(sampler, draw=draw))


def with_records(experiment: Experiment, client: int) -> Experiment:
    """All records of a client are replaced: inverted pixels or other tokens, and other labels."""
    data, rows = experiment.data, torch.from_numpy(experiment.partition.records(client))
    x, y = data.train_x.clone(), data.train_y.clone()
    x[rows] = x.max() - x[rows]
    y[rows] = (y[rows] + 1) % len(data.classes)
    return replace(experiment, data=replace(data, train_x=x, train_y=y))


def with_updates(
    experiment: Experiment, updates: Mapping[int, Callable[[int], Tensor]]
) -> Experiment:
    """Clients send given updates instead of those of their training."""
    local = experiment.algorithm.local

    def train(batch: ClientBatch) -> LocalResult:
        result = local.train(batch)
        sent = result.updates.clone()
        for row, client in enumerate(batch.clients):
            if int(client) in updates:
                sent[row] = updates[int(client)](sent.shape[1]).to(sent)
        return replace(result, updates=sent)

    return _with(experiment, local=replace(local, train=train))


def with_batches(
    experiment: Experiment, change: Callable[[ClientBatch], ClientBatch]
) -> Experiment:
    """Mini-batches are changed before local training."""
    local = experiment.algorithm.local
    changed = replace(local, train=lambda batch: local.train(change(batch)))
    return _with(experiment, local=changed)


def recording(experiment: Experiment, store: list[Released]) -> Experiment:
    """The mechanism's releases are appended to ``store``."""

    def append(index: int, release: Released) -> Released:
        store.append(release)
        return release

    return _observed(experiment, append)


def with_releases(experiment: Experiment, releases: Sequence[Released]) -> Experiment:
    """The mechanism is executed, and the given releases are used instead of its own."""
    return _observed(
        experiment, lambda index, own: releases[index] if index < len(releases) else own
    )


def _observed(
    experiment: Experiment, observe: Callable[[int, Released], Released]
) -> Experiment:
    """Each release passes through a function of its index in the round."""
    mechanism, count = experiment.algorithm.mechanism, 0
    inner_client = mechanism.release_client

    def seen(release: Released) -> Released:
        nonlocal count
        count += 1
        return observe(count - 1, release)

    def release(
        round_: int,
        sums: Sequence[GroupSum],
        weights: Mapping[str, float],
        noise: Noise,
    ) -> tuple[Released, ...]:
        return tuple(
            seen(one) for one in mechanism.release(round_, sums, weights, noise)
        )

    def release_client(round_: int, update: ClientUpdate, weight: float) -> Released:
        if inner_client is None:
            raise TypeError("the mechanism releases sums only")
        return seen(inner_client(round_, update, weight))

    observed = replace(
        mechanism, release=release, release_client=inner_client and release_client
    )
    return _with(experiment, mechanism=observed)


# --- Result of the sensitivity tests of one algorithm. -------------------------------------------


@dataclass(frozen=True)
class Violation:
    """A difference between two executions that the claims of the algorithm exclude."""

    # the claim: ``sensitivity``, ``noise``, ``coordinates``, ``model``, ``metrics``, ``ledger``,
    # ``personal state`` or ``other releases``
    rule: str
    case: str  # the neighbouring data sets
    found: str  # what differs, and by how much

    def __str__(self) -> str:
        return f"{self.rule}: {self.case}: {self.found}"


@dataclass(frozen=True)
class SensitivityReport:
    """Result of the sensitivity tests of one algorithm under one plan."""

    algorithm: str  # name of the algorithm
    plan: str  # name of the plan
    unit: str  # unit of privacy of the releases; ``none`` where no bound is claimed
    executions: int  # number of executed rounds
    compared: (
        int  # number of pairs of executions whose releases were compared with the bound
    )
    # largest difference of releases over its claimed bound; None where no bound is claimed
    largest_ratio: float | None
    # claims that do not hold, one per rule, in the order in which they were found
    violations: tuple[Violation, ...]

    @property
    def passed(self) -> bool:
        """Whether every claim holds."""
        return not self.violations


class Findings:
    """Collects comparisons and the first violation of each rule."""

    def __init__(self) -> None:
        self.compared = 0
        self.largest_ratio: float | None = None
        self._violations: dict[str, Violation] = {}

    def bounded(self, case: str, difference: float, bound: float, slack: float) -> None:
        """Compare the norm of a difference with a claimed bound."""
        self.compared += 1
        ratio = (
            difference / bound
            if bound > 0
            else (0.0 if difference <= slack else float("inf"))
        )
        self.largest_ratio = max(ratio, self.largest_ratio or 0.0)
        if (
            not difference <= bound + slack
        ):  # a difference that is not a number is no bound either
            found = f"releases differ by {difference:.6g}, claimed {bound:.6g}"
            self.broken("sensitivity", case, found)

    def equal(self, rule: str, case: str, same: bool, found: str) -> None:
        """Record a violation of a rule unless two outputs are the same."""
        if not same:
            self.broken(rule, case, found)

    def broken(self, rule: str, case: str, found: str) -> None:
        """Record a violation; only the first of each rule is reported."""
        self._violations.setdefault(rule, Violation(rule, case, found))

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The first violation of each rule."""
        return tuple(self._violations.values())


# --- Outputs of one executed round, and their comparison. ----------------------------------------

UNPROTECTED_RELEASE = frozenset({"noise_sum_squares", "residual", "shares"})
"""Fields of a ledger line that no noise protects; shares are compared on their own."""
UNPROTECTED_SHARE = frozenset(
    {"cohort", "participants", "largest_norm", "clipped", "excluded", "records"}
)
"""Fields of a group's share in a ledger line that no noise protects. ``docs/threat-model.md`` names
them; a field that is not listed here must not depend on a client."""
PERSONAL_ROUNDING = 1e-5
"""Largest relative difference of other clients' personal state where a client is missing, since
batched float32 kernels then round differently."""


@dataclass(frozen=True)
class Outputs:
    """Everything that leaves a round."""

    progress: Progress  # state of training after the round
    releases: tuple[Released, ...]  # the mechanism's releases
    records: tuple[ReleaseRecord, ...]  # lines of the ledger
    coordinates: Tensor | None  # coordinates that the engine releases [k]; None for all

    @property
    def metrics(self) -> RoundMetrics:
        """Evaluation after the round."""
        return self.progress.metrics[-1]


def execute(
    experiment: Experiment, before: Progress, *, evaluate: bool = False
) -> Outputs:
    """Execute the round after a state of training."""
    ledger, releases = MemoryLedger(experiment.algorithm.plan.digest), list[Released]()
    with one_core():
        after = run_round(recording(experiment, releases), before, ledger)
        if evaluate:
            after = evaluate_if_due(experiment, after, 1)
    coordinates = released_coordinates(experiment, after.round)
    return Outputs(after, tuple(releases), tuple(ledger.records), coordinates)


def compare_ledgers(found: Findings, case: str, left: Outputs, right: Outputs) -> None:
    """Record differences of the ledgers outside the fields that no noise protects."""
    same = len(left.records) == len(right.records)
    found.equal("ledger", case, same, "another number of releases")
    for one, other in zip(left.records, right.records, strict=False):
        for name, values in _differences(one, other):
            found.broken("ledger", case, f"{name} is {values[0]}, then {values[1]}")


def _differences(
    one: ReleaseRecord, other: ReleaseRecord
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    yield from _fields(one.model_dump(), other.model_dump(), UNPROTECTED_RELEASE)
    for left, right in zip(one.shares, other.shares, strict=False):
        yield from _fields(left.model_dump(), right.model_dump(), UNPROTECTED_SHARE)


def _fields(
    left: Mapping[str, Any], right: Mapping[str, Any], unprotected: frozenset[str]
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for name in left.keys() | right.keys():
        if name not in unprotected and left.get(name) != right.get(name):
            yield name, (left.get(name), right.get(name))


def compare_derived(
    found: Findings, case: str, left: Outputs, right: Outputs, *, personal_models: bool
) -> None:
    """Record differences of model and metrics after rounds that used the same releases."""
    one, other = left.progress, right.progress
    found.equal(
        "model",
        case,
        torch.equal(one.theta, other.theta),
        _apart(one.theta, other.theta),
    )
    found.equal(
        "model", case, one.server.keys() == other.server.keys(), "another server state"
    )
    for name in _unequal(one.server, other.server):
        found.broken(
            "model", case, f"the server's {name} differs under the same releases"
        )
    if not personal_models:
        now, then = left.metrics, right.metrics
        same = (now.accuracy, now.loss) == (then.accuracy, then.loss)
        values = f"accuracy {now.accuracy:.6g}, then {then.accuracy:.6g}; loss {now.loss}, then "
        values += f"{then.loss}, under the same releases"
        found.equal("metrics", case, same, values)


def _unequal(one: State, other: State) -> Iterator[str]:
    return (
        name
        for name in one
        if name in other and not torch.equal(one[name], other[name])
    )


def _apart(one: Tensor, other: Tensor) -> str:
    changed = (one != other).nonzero().flatten()
    most = f"{float((one - other).abs().max()):.3g}" if len(changed) else "nothing"
    return f"{len(changed)} parameters differ under the same releases, by {most}"


def compare_personal(
    found: Findings,
    case: str,
    left: Outputs,
    right: Outputs,
    client: int,
    tolerance: float = 0.0,
) -> None:
    """Record differences of the personal state of clients other than ``client``."""
    one, other = left.progress.personal, right.progress.personal
    for number in (one.keys() | other.keys()) - {client}:
        if number not in one or number not in other:
            found.broken(
                "personal state", case, f"client {number} has state in one run only"
            )
            continue
        size = (
            max(float(one[number].abs().amax()), 1e-6) if one[number].numel() else 1.0
        )
        apart = (
            float((one[number] - other[number]).abs().amax())
            if one[number].numel()
            else 0.0
        )
        same = math.isfinite(apart) and apart <= tolerance * size
        found.equal(
            "personal state", case, same, f"client {number}'s differs by {apart:.3g}"
        )


def check_coordinates(
    found: Findings, case: str, experiment: Experiment, outputs: Outputs
) -> None:
    """Record releases of other coordinates than the algorithm claims."""
    claimed = declaration(
        experiment.algorithm, experiment.model, experiment.seed
    ).released
    chosen = outputs.coordinates
    digest = "" if chosen is None else mask_digest(chosen.cpu().numpy())
    by_client = experiment.algorithm.mechanism.release_client is not None
    for release, record in zip(outputs.releases, outputs.records, strict=False):
        length, noisy = release.vector.numel(), record.dimension
        if not by_client:
            rule = f"{length} coordinates are released, {claimed} claimed"
            found.equal("coordinates", case, length <= claimed, rule)
        if record.noise.noisy and not by_client:
            rule = f"{length} coordinates are released, {noisy} with noise"
            found.equal("coordinates", case, length == noisy, rule)
            rule = "the released coordinates are not those of the public mask"
            found.equal("coordinates", case, record.support == digest, rule)
