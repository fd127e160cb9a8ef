"""Neighbouring data sets that differ by one client: removed, added, or replaced."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from simulate.contrib.sensitivity.bench import Bench, check_other_releases
from simulate.contrib.sensitivity.neighbours import (
    PERSONAL_ROUNDING,
    Outputs,
    compare_derived,
    compare_ledgers,
    compare_personal,
    with_participants,
    with_records,
    with_releases,
    with_updates,
)
from simulate.engine.experiment import Experiment
from simulate.engine.round import positions

# A coordinate whose square exceeds single precision.
HUGE = 1e30
# Norms of long and short updates and of those within the bound, in clipping norms.
LONG = 1e3
WITHIN = 0.5
SHORT = 1e-3
Update = Callable[[int], Tensor]
"""Length of an update to the update."""
Choice = Callable[[int, np.ndarray, int], np.ndarray]
"""(index of the group, drawn positions, clients of the group) to positions."""


@dataclass(frozen=True)
class _Client:
    """The client by which data sets differ.

    Attributes:
        index: index of its group in the plan.
        group: name of its group.
        position: position in the group.
        client: number of the client.
        peers: numbers of the group's other participants.
    """

    index: int
    group: str
    position: int
    client: int
    peers: tuple[int, ...]

    def case(self, words: str) -> str:
        """Description of a data set."""
        return f"{self.group}, client {self.position} {words}"


def _clients(bench: Bench, choose: Choice) -> Iterator[_Client]:
    """Clients of each group, chosen by position."""
    experiment = bench.experiment
    groups = experiment.algorithm.plan.groups
    members = experiment.partition.members
    for index, drawn in enumerate(positions(experiment, bench.round)):
        numbers = np.asarray(members[index])
        for position in choose(index, drawn, len(numbers)):
            peers = tuple(int(numbers[peer]) for peer in drawn if peer != position)
            client = int(numbers[position])
            yield _Client(index, groups[index].name, int(position), client, peers)


def check_clients(bench: Bench) -> None:
    """Test sums with a client of each group removed, added or replaced.

    Its updates are adversarial. The client is the first participant of every second
    group and the last of the others.
    """
    present = _clients(
        bench, lambda index, drawn, size: drawn[-1:] if index % 2 else drawn[:1]
    )
    absent = _clients(
        bench, lambda index, drawn, size: np.setdiff1d(np.arange(size), drawn)[:1]
    )
    for target in present:
        _check_participant(bench, target)
    for target in absent:
        _check_addition(bench, target)


def _without(bench: Bench, target: _Client, experiment: Experiment) -> Experiment:
    """The data set without the client: it is not drawn, and its records are others."""
    changed = with_records(experiment, target.client)
    return with_participants(
        changed,
        bench.round,
        target.index,
        lambda drawn: drawn[drawn != target.position],
    )


def _check_participant(bench: Bench, target: _Client) -> None:
    experiment = bench.experiment
    original = bench.run(experiment, evaluate=True)
    absent = bench.run(_without(bench, target, experiment))
    replaced = bench.run(with_records(experiment, target.client))
    compare_ledgers(bench.findings, target.case("removed"), original, absent)
    compare_ledgers(bench.findings, target.case("replaced"), original, replaced)
    _check_derived(bench, target, original, {"removed": absent, "replaced": replaced})
    trained = {"its own": original, "other records'": replaced}
    _compare_all(bench, target, experiment, absent, trained, _ADVERSARIAL)
    for peer_updates in _cohorts(bench, target):
        crafted = with_updates(experiment, peer_updates)
        absent = bench.run(_without(bench, target, crafted))
        _compare_all(bench, target, crafted, absent, {}, _directed(bench))


def _check_derived(
    bench: Bench, target: _Client, original: Outputs, neighbours: Mapping[str, Outputs]
) -> None:
    """Compare what neighbours derive from the same released vectors.

    Each neighbour has its own ledger lines, whose unprotected fields (participants,
    norms) neither model nor metrics may depend on.
    """
    personal_models = bench.experiment.algorithm.personalisation.per_client
    experiments = {
        "removed": _without(bench, target, bench.experiment),
        "replaced": with_records(bench.experiment, target.client),
    }
    for words, outputs in neighbours.items():
        released = [
            replace(theirs, vector=ours.vector)
            for theirs, ours in zip(outputs.releases, original.releases, strict=False)
        ]
        same = bench.run(with_releases(experiments[words], released), evaluate=True)
        case = target.case(words)
        compare_derived(
            bench.findings, case, original, same, personal_models=personal_models
        )


def _compare_all(
    bench: Bench,
    target: _Client,
    experiment: Experiment,
    absent: Outputs,
    present: dict[str, Outputs],
    updates: Mapping[str, Update],
) -> None:
    """Compare data sets with and without the client, and with two of its updates."""
    for words, update in updates.items():
        present[words] = bench.run(with_updates(experiment, {target.client: update}))
    for words, outputs in present.items():
        case = target.case(f"removed, its update {words}")
        bench.compare(case, target.group, absent, outputs)
        compare_personal(
            bench.findings, case, absent, outputs, target.client, PERSONAL_ROUNDING
        )
    for (first, left), (second, right) in combinations(present.items(), 2):
        case = target.case(f"replaced, its update {first} or {second}")
        bench.compare(case, target.group, left, right, clients=2)
        compare_personal(bench.findings, case, left, right, target.client)


def _check_addition(bench: Bench, target: _Client) -> None:
    """Compare the data set with one that has a further participant."""
    experiment = bench.experiment
    larger = with_participants(
        experiment,
        bench.round,
        target.index,
        lambda drawn: np.union1d(drawn, [target.position]),
    )
    original = bench.run(experiment)
    added = bench.run(larger)
    case = target.case("added")
    bench.compare(case, target.group, original, added)
    compare_ledgers(bench.findings, case, original, added)
    compare_personal(
        bench.findings, case, original, added, target.client, PERSONAL_ROUNDING
    )


def _constant(value: float) -> Update:
    return lambda length: torch.full((length,), value)


_ADVERSARIAL: Mapping[str, Update] = {
    "huge": _constant(HUGE),
    "infinite": _constant(math.inf),
    "not a number": _constant(math.nan),
}


def _along(norm: float) -> Update:
    """An update of a norm along the direction that all directed updates share."""
    return lambda length: torch.full((length,), norm / math.sqrt(length))


def _directed(bench: Bench) -> Mapping[str, Update]:
    norm = bench.experiment.algorithm.plan.spec.clipping_norm
    return {
        "aligned with the sum": _along(LONG * norm),
        "opposite to the sum": _along(-LONG * norm),
        "zero": _along(0.0),
    }


def _cohorts(bench: Bench, target: _Client) -> Iterator[dict[int, Update]]:
    """Updates of the group's other participants, all in one direction.

    Half of them are short and half of them long, so that a median, a mean or a count
    changes with one client; or all are within the bound, so that a maximum, a minimum
    or a deviation does. With it changes every update that a faulty algorithm rescales
    by the statistic.
    """
    norm = bench.experiment.algorithm.plan.spec.clipping_norm
    half = len(target.peers) // 2
    short_and_long = {client: _along(SHORT * norm) for client in target.peers[:half]}
    for client in target.peers[half:]:
        short_and_long[client] = _along(LONG * norm)
    yield short_and_long
    yield {client: _along(WITHIN * norm) for client in target.peers}


def check_senders(bench: Bench) -> None:
    """Test clients who send for themselves.

    A replaced client changes its own release only.
    """
    personal_models = bench.experiment.algorithm.personalisation.per_client
    for target in _clients(bench, lambda index, drawn, size: drawn[:1]):
        original = bench.run(bench.experiment, evaluate=True)
        changed = with_records(bench.experiment, target.client)
        replaced = bench.run(changed)
        case = target.case("replaced")
        compare_ledgers(bench.findings, case, original, replaced)
        compare_personal(bench.findings, case, original, replaced, target.client)
        check_other_releases(bench, case, original, replaced, target.client)

        # What follows from the same releases is the same.
        same = bench.run(with_releases(changed, original.releases), evaluate=True)
        compare_derived(
            bench.findings, case, original, same, personal_models=personal_models
        )
