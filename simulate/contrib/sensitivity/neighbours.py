"""Changes of an experiment: other participants, records, updates, noise or releases.

Each function returns an experiment whose components call those of the given one, so
that a round of the engine executes the algorithm's own code on neighbouring data sets.
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
    run_round,
)
from simulate.engine.round import released_coordinates
from simulate.parallel import one_core
from simulate.runs.ledger_writer import MemoryLedger

Positions = Callable[[np.ndarray], np.ndarray]


class ConstantNoise(np.random.Generator):
    """A generator whose normal and Laplace draws are constant.

    Other draws are the stream's.

    Args:
        source: the stream.
        value: the constant, in standard deviations (scales for Laplace draws).
        only: index of the one draw that is not 0; None for all.
    """

    def __init__(
        self, source: np.random.Generator, value: float, only: int | None = None
    ) -> None:
        super().__init__(source.bit_generator)
        self._value = value
        self._only = only
        self._drawn = 0

    def _constant(self, size: Any) -> Any:
        value = self._value if self._only in (None, self._drawn) else 0.0
        self._drawn += 1
        if size is None:
            return value
        return np.full(size, value)

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
    local = experiment.algorithm.local
    mechanism = experiment.algorithm.mechanism

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
    # A sampler does not know of which group it draws; its stream tells.
    stream = experiment.private_stream(Purpose.SAMPLING, round_, group, group=name)
    group_fingerprint = fingerprint(stream)

    def draw(
        generator: np.random.Generator, clients: int, ratio: float, number: int
    ) -> np.ndarray:
        is_of_group = number == round_ and fingerprint(generator) == group_fingerprint
        drawn = sampler.draw(generator, clients, ratio, number)
        if is_of_group:
            return change(drawn)
        return drawn

    return _with(experiment, sampler=replace(sampler, draw=draw))


def with_records(experiment: Experiment, client: int) -> Experiment:
    """All records of a client are replaced.

    By inverted pixels or other tokens, and other labels.
    """
    data = experiment.data
    rows = torch.from_numpy(experiment.partition.records(client))
    x = data.train_x.clone()
    y = data.train_y.clone()
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

    def use(index: int, release: Released) -> Released:
        if index < len(releases):
            return releases[index]
        return release

    return _observed(experiment, use)


def _observed(
    experiment: Experiment, observe: Callable[[int, Released], Released]
) -> Experiment:
    """Each release passes through a function of its index in the round."""
    mechanism = experiment.algorithm.mechanism
    count = 0
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
        return tuple(map(seen, mechanism.release(round_, sums, weights, noise)))

    def release_client(round_: int, update: ClientUpdate, weight: float) -> Released:
        if inner_client is None:
            raise TypeError("the mechanism releases sums only")
        return seen(inner_client(round_, update, weight))

    observed = replace(
        mechanism, release=release, release_client=inner_client and release_client
    )
    return _with(experiment, mechanism=observed)


# Result of the sensitivity tests of one algorithm.


@dataclass(frozen=True)
class Violation:
    """A difference between two executions that the claims of the algorithm exclude.

    Attributes:
        rule: the claim: ``sensitivity``, ``noise``, ``coordinates``, ``model``,
            ``metrics``, ``ledger``, ``personal state`` or ``other releases``.
        case: the neighbouring data sets.
        found: what differs, and by how much.
    """

    rule: str
    case: str
    found: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.case}: {self.found}"


@dataclass(frozen=True)
class SensitivityReport:
    """Result of the sensitivity tests of an algorithm under a plan.

    Attributes:
        algorithm: name of the algorithm.
        plan: name of the plan.
        unit: unit of privacy of the releases; ``none`` where no bound is claimed.
        executions: number of executed rounds.
        compared: number of pairs of executions whose releases were compared with the
            bound.
        largest_ratio: largest difference of releases over its claimed bound; None where
            no bound is claimed.
        violations: claims that do not hold, one per rule, in the order in which they
            were seen.
    """

    algorithm: str
    plan: str
    unit: str
    executions: int
    compared: int
    largest_ratio: float | None
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
        ratio = float("inf")
        if bound > 0:
            ratio = difference / bound
        elif difference <= slack:
            ratio = 0.0
        self.largest_ratio = max(ratio, self.largest_ratio or 0.0)
        # A difference that is not a number is no bound either.
        if not difference <= bound + slack:
            fault = f"releases differ by {difference:.6g}, claimed {bound:.6g}"
            self.broken("sensitivity", case, fault)

    def equal(self, rule: str, case: str, same: bool, fault: str) -> None:
        """Record a violation of a rule unless two outputs are the same."""
        if not same:
            self.broken(rule, case, fault)

    def broken(self, rule: str, case: str, fault: str) -> None:
        """Record a violation; only the first of each rule is reported."""
        self._violations.setdefault(rule, Violation(rule, case, fault))

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The first violation of each rule."""
        return tuple(self._violations.values())


# Outputs of one executed round, and their comparison.

UNPROTECTED_RELEASE = frozenset({"noise_sum_squares", "residual", "shares"})
"""Fields of a ledger line that no noise protects; shares are compared on their own."""
UNPROTECTED_SHARE = frozenset(
    {"cohort", "participants", "largest_norm", "clipped", "excluded", "records"}
)
"""Fields of a group's share in a ledger line that no noise protects.

``docs/threat-model.md`` names them; a field that is not listed here must not depend on a
client.
"""
PERSONAL_ROUNDING = 1e-5
"""Largest relative difference of other clients' personal state where one is missing.

Batched float32 kernels then round differently.
"""
# Sizes of personal state below this count as this.
_LEAST_SIZE = 1e-6


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
    ledger = MemoryLedger(experiment.algorithm.plan.digest)
    releases: list[Released] = []
    with one_core():
        after = run_round(recording(experiment, releases), before, ledger)
        if evaluate:
            every_row = np.arange(len(experiment.data.test_y))
            after = evaluate_if_due(experiment, after, {after.round: every_row})
    coordinates = released_coordinates(experiment, after.round)
    return Outputs(after, tuple(releases), tuple(ledger.records), coordinates)


def compare_ledgers(
    findings: Findings, case: str, left: Outputs, right: Outputs
) -> None:
    """Record differences of the ledgers outside the fields that no noise protects."""
    same = len(left.records) == len(right.records)
    findings.equal("ledger", case, same, "another number of releases")
    for line, changed in zip(left.records, right.records, strict=False):
        for name, (value, other_value) in _differences(line, changed):
            findings.broken("ledger", case, f"{name} is {value}, then {other_value}")


def _differences(
    line: ReleaseRecord, changed: ReleaseRecord
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    yield from _fields(line.model_dump(), changed.model_dump(), UNPROTECTED_RELEASE)
    for left, right in zip(line.shares, changed.shares, strict=False):
        yield from _fields(left.model_dump(), right.model_dump(), UNPROTECTED_SHARE)


def _fields(
    left: Mapping[str, Any], right: Mapping[str, Any], unprotected: frozenset[str]
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for name in left.keys() | right.keys():
        if name not in unprotected and left.get(name) != right.get(name):
            yield name, (left.get(name), right.get(name))


def compare_derived(
    findings: Findings,
    case: str,
    left: Outputs,
    right: Outputs,
    *,
    personal_models: bool,
) -> None:
    """Record differences of model and metrics after rounds with the same releases."""
    first = left.progress
    second = right.progress
    is_same_model = torch.equal(first.theta, second.theta)
    fault = _parameter_difference(first.theta, second.theta)
    findings.equal("model", case, is_same_model, fault)
    has_same_state = first.server.keys() == second.server.keys()
    findings.equal("model", case, has_same_state, "another server state")
    for name in _unequal(first.server, second.server):
        findings.broken(
            "model", case, f"the server's {name} differs under the same releases"
        )
    # Personal models are evaluated on their client's records.
    if not personal_models:
        now = left.metrics
        then = right.metrics
        same = now.accuracy == then.accuracy and now.loss == then.loss
        fault = (
            f"accuracy {now.accuracy:.6g}, then {then.accuracy:.6g}; loss {now.loss}, "
            f"then {then.loss}, under the same releases"
        )
        findings.equal("metrics", case, same, fault)


def _unequal(left: State, right: State) -> Iterator[str]:
    return (
        name
        for name in left
        if name in right and not torch.equal(left[name], right[name])
    )


def _parameter_difference(left: Tensor, right: Tensor) -> str:
    changed = (left != right).nonzero().flatten()
    largest = "nothing"
    if len(changed):
        largest = f"{float((left - right).abs().max()):.3g}"
    return f"{len(changed)} parameters differ under the same releases, by {largest}"


def compare_personal(
    findings: Findings,
    case: str,
    left: Outputs,
    right: Outputs,
    client: int,
    tolerance: float = 0.0,
) -> None:
    """Record differences of the personal state of clients other than ``client``."""
    rule = "personal state"
    first = left.progress.personal
    second = right.progress.personal
    for number in (first.keys() | second.keys()) - {client}:
        if number not in first or number not in second:
            findings.broken(rule, case, f"client {number} has state in one run only")
            continue
        state = first[number]
        size = 1.0
        difference = 0.0
        if state.numel():
            size = max(float(state.abs().amax()), _LEAST_SIZE)
            difference = float((state - second[number]).abs().amax())
        same = math.isfinite(difference) and difference <= tolerance * size
        fault = f"client {number}'s differs by {difference:.3g}"
        findings.equal(rule, case, same, fault)


def check_coordinates(
    findings: Findings, case: str, experiment: Experiment, outputs: Outputs
) -> None:
    """Record releases of other coordinates than the algorithm claims."""
    claimed = declaration(
        experiment.algorithm, experiment.model, experiment.seed
    ).released
    chosen = outputs.coordinates
    digest = "" if chosen is None else mask_digest(chosen.cpu().numpy())
    by_client = experiment.algorithm.mechanism.release_client is not None
    for release, record in zip(outputs.releases, outputs.records, strict=False):
        length = release.vector.numel()
        if by_client:
            continue
        fault = f"{length} coordinates are released, {claimed} claimed"
        findings.equal("coordinates", case, length <= claimed, fault)
        if record.noise.noisy:
            noisy_length = record.dimension
            fault = f"{length} coordinates are released, {noisy_length} with noise"
            findings.equal("coordinates", case, length == noisy_length, fault)
            fault = "the released coordinates are not those of the public mask"
            findings.equal("coordinates", case, record.support == digest, fault)
