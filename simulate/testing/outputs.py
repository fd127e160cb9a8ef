"""Outputs of one executed round, and their comparison."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from privplan.public_mask import mask_digest
from privplan.record import ReleaseRecord, RoundMetrics
from simulate.components import Released, State
from simulate.engine.experiment import Experiment
from simulate.engine.loop import Progress, evaluate_if_due, one_core, run_round
from simulate.engine.measurements import executed
from simulate.engine.round import released_coordinates
from simulate.runs.ledger_writer import MemoryLedger
from simulate.testing.neighbours import recording
from simulate.testing.report import Findings

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
    """Everything that leaves a round.

    Attributes:
        progress: state of training after the round.
        releases: the mechanism's releases.
        records: lines of the ledger.
        coordinates: coordinates that the engine releases [k]; None for all.
    """

    progress: Progress
    releases: tuple[Released, ...]
    records: tuple[ReleaseRecord, ...]
    coordinates: Tensor | None

    @property
    def metrics(self) -> RoundMetrics:
        """Evaluation after the round."""
        return self.progress.metrics[-1]


def execute(experiment: Experiment, before: Progress, *, evaluate: bool = False) -> Outputs:
    """Execute the round after a state of training.

    Args:
        experiment: the run.
        before: state of training before the round.
        evaluate: whether the state after the round is evaluated.
    """
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


def _differences(one: ReleaseRecord, other: ReleaseRecord) -> Iterator[tuple[str, tuple[Any, Any]]]:
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
    """Record differences of model and metrics after rounds that used the same releases.

    Args:
        found: where differences are recorded.
        case: the neighbouring data sets.
        left: outputs of one execution.
        right: outputs of the other.
        personal_models: whether accuracy is that of personal models, which no noise protects.
    """
    one, other = left.progress, right.progress
    found.equal("model", case, torch.equal(one.theta, other.theta), _apart(one.theta, other.theta))
    found.equal("model", case, one.server.keys() == other.server.keys(), "another server state")
    for name in _unequal(one.server, other.server):
        found.broken("model", case, f"the server's {name} differs under the same releases")
    if not personal_models:
        same = (left.metrics.accuracy, left.metrics.loss) == (
            right.metrics.accuracy,
            right.metrics.loss,
        )
        values = f"accuracy {left.metrics.accuracy:.6g}, then {right.metrics.accuracy:.6g}; loss"
        values += f" {left.metrics.loss}, then {right.metrics.loss}, under the same releases"
        found.equal("metrics", case, same, values)


def _unequal(one: State, other: State) -> Iterator[str]:
    return (name for name in one if name in other and not torch.equal(one[name], other[name]))


def _apart(one: Tensor, other: Tensor) -> str:
    changed = (one != other).nonzero().flatten()
    return f"{len(changed)} parameters differ under the same releases, by " + (
        f"{float((one - other).abs().max()):.3g}" if len(changed) else "nothing"
    )


def compare_personal(
    found: Findings, case: str, left: Outputs, right: Outputs, client: int, tolerance: float = 0.0
) -> None:
    """Record differences of the personal state of clients other than ``client``.

    Args:
        found: where differences are recorded.
        case: the neighbouring data sets.
        left: outputs of one execution.
        right: outputs of the other.
        client: number of the client by which they differ.
        tolerance: largest difference relative to the largest coordinate.
    """
    one, other = left.progress.personal, right.progress.personal
    for number in (one.keys() | other.keys()) - {client}:
        if number not in one or number not in other:
            found.broken("personal state", case, f"client {number} has state in one run only")
            continue
        size = max(float(one[number].abs().amax()), 1e-6) if one[number].numel() else 1.0
        apart = float((one[number] - other[number]).abs().amax()) if one[number].numel() else 0.0
        same = math.isfinite(apart) and apart <= tolerance * size
        found.equal("personal state", case, same, f"client {number}'s differs by {apart:.3g}")


def check_coordinates(found: Findings, case: str, experiment: Experiment, outputs: Outputs) -> None:
    """Record releases of other coordinates than the algorithm claims.

    Args:
        found: where violations are recorded.
        case: the data set.
        experiment: the run.
        outputs: outputs of a round.
    """
    claimed = executed(experiment).released
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
