"""Neighbouring data sets that differ by one client: removed, added, or replaced."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from simulate.engine.experiment import Experiment
from simulate.engine.round import positions
from simulate.testing.bench import Bench, distance
from simulate.testing.neighbours import with_participants, with_records, with_releases, with_updates
from simulate.testing.outputs import (
    PERSONAL_ROUNDING,
    Outputs,
    compare_derived,
    compare_ledgers,
    compare_personal,
)

HUGE = 1e30
"""A coordinate whose square exceeds single precision."""
LONG, WITHIN, SHORT = 1e3, 0.5, 1e-3
"""Norms of long and short updates and of those within the bound, in clipping norms."""
Update = Callable[[int], Tensor]
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
        others: numbers of the group's other participants.
    """

    index: int
    group: str
    position: int
    client: int
    others: tuple[int, ...]

    def case(self, words: str) -> str:
        """Description of a data set."""
        return f"{self.group}, client {self.position} {words}"


def _clients(bench: Bench, choose: Choice) -> Iterator[_Client]:
    """Clients of each group, chosen by position."""
    experiment = bench.experiment
    groups, members = experiment.algorithm.plan.groups, experiment.partition.members
    for index, drawn in enumerate(positions(experiment, bench.round)):
        numbers = np.asarray(members[index])
        for position in choose(index, drawn, len(numbers)):
            others = tuple(int(numbers[other]) for other in drawn if other != position)
            client = int(numbers[position])
            yield _Client(index, groups[index].name, int(position), client, others)


def check_clients(bench: Bench) -> None:
    """Test sums with one client of each group removed, added or replaced, by adversarial updates.

    The client is the first participant of every second group and the last of the others.
    """
    for target in _clients(
        bench, lambda index, drawn, size: drawn[-1:] if index % 2 else drawn[:1]
    ):
        _check_participant(bench, target)
    for target in _clients(
        bench, lambda index, drawn, size: np.setdiff1d(np.arange(size), drawn)[:1]
    ):
        _check_addition(bench, target)


def _without(bench: Bench, target: _Client, experiment: Experiment) -> Experiment:
    """The data set without the client: it is not drawn, and its records are others."""
    changed = with_records(experiment, target.client)
    return with_participants(
        changed, bench.round, target.index, lambda drawn: drawn[drawn != target.position]
    )


def _check_participant(bench: Bench, target: _Client) -> None:
    experiment, found = bench.experiment, bench.found
    own = bench.run(experiment, evaluate=True)
    absent = bench.run(_without(bench, target, experiment))
    other = bench.run(with_records(experiment, target.client))
    compare_ledgers(found, target.case("removed"), own, absent)
    compare_ledgers(found, target.case("replaced"), own, other)
    _check_derived(bench, target, own, {"removed": absent, "replaced": other})
    trained = {"its own": own, "other records'": other}
    _compare_all(bench, target, experiment, absent, trained, _ADVERSARIAL)
    for others in _cohorts(bench, target):
        crafted = with_updates(experiment, others)
        absent = bench.run(_without(bench, target, crafted))
        _compare_all(bench, target, crafted, absent, {}, _directed(bench))


def _check_derived(
    bench: Bench, target: _Client, own: Outputs, neighbours: Mapping[str, Outputs]
) -> None:
    """Compare what neighbours derive from the same released vectors.

    Each neighbour has its own ledger lines, whose unprotected fields (participants, norms) neither
    model nor metrics may depend on.

    Args:
        bench: the executions.
        target: the client.
        own: outputs with the client.
        neighbours: outputs of the neighbours, by description.
    """
    personal_models = bench.experiment.algorithm.personalisation.per_client
    experiments = {
        "removed": _without(bench, target, bench.experiment),
        "replaced": with_records(bench.experiment, target.client),
    }
    for words, outputs in neighbours.items():
        released = [
            replace(theirs, vector=ours.vector)
            for theirs, ours in zip(outputs.releases, own.releases, strict=False)
        ]
        same = bench.run(with_releases(experiments[words], released), evaluate=True)
        case = target.case(words)
        compare_derived(bench.found, case, own, same, personal_models=personal_models)


def _compare_all(
    bench: Bench,
    target: _Client,
    experiment: Experiment,
    absent: Outputs,
    present: dict[str, Outputs],
    updates: Mapping[str, Update],
) -> None:
    """Compare data sets with and without the client, and each two ways in which it takes part.

    Args:
        bench: the executions.
        target: the client.
        experiment: the run with the client.
        absent: outputs without it.
        present: outputs with it, by a description of its update.
        updates: further updates of the client, by description.
    """
    for words, update in updates.items():
        present[words] = bench.run(with_updates(experiment, {target.client: update}))
    for words, outputs in present.items():
        case = target.case(f"removed, its update {words}")
        bench.compare(case, target.group, absent, outputs)
        compare_personal(bench.found, case, absent, outputs, target.client, PERSONAL_ROUNDING)
    for (first, one), (second, other) in combinations(present.items(), 2):
        case = target.case(f"replaced, its update {first} or {second}")
        bench.compare(case, target.group, one, other, clients=2)
        compare_personal(bench.found, case, one, other, target.client)


def _check_addition(bench: Bench, target: _Client) -> None:
    """Compare the data set with one that has a further participant."""
    experiment = bench.experiment
    larger = with_participants(
        experiment, bench.round, target.index, lambda drawn: np.union1d(drawn, [target.position])
    )
    before, added = bench.run(experiment), bench.run(larger)
    bench.compare(target.case("added"), target.group, before, added)
    compare_ledgers(bench.found, target.case("added"), before, added)
    case = target.case("added")
    compare_personal(bench.found, case, before, added, target.client, PERSONAL_ROUNDING)


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

    Half of them are short and half of them long, so that a median, a mean or a count changes with
    one client; or all are within the bound, so that a maximum, a minimum or a deviation does. With
    it changes every update that a faulty algorithm rescales by the statistic.
    """
    norm = bench.experiment.algorithm.plan.spec.clipping_norm
    half = len(target.others) // 2
    places = list(enumerate(target.others))
    yield {client: _along((SHORT if place < half else LONG) * norm) for place, client in places}
    yield {client: _along(WITHIN * norm) for _, client in places}


def check_senders(bench: Bench) -> None:
    """Test clients who send for themselves: a replaced client changes its own release only."""
    for target in _clients(bench, lambda index, drawn, size: drawn[:1]):
        own = bench.run(bench.experiment, evaluate=True)
        other = bench.run(with_records(bench.experiment, target.client))
        case = target.case("replaced")
        compare_ledgers(bench.found, case, own, other)
        compare_personal(bench.found, case, own, other, target.client)
        check_other_releases(bench, case, own, other, target.client)
        _check_derived_by_sender(bench, target, own)


def _check_derived_by_sender(bench: Bench, target: _Client, own: Outputs) -> None:
    changed = with_records(bench.experiment, target.client)
    same = bench.run(with_releases(changed, own.releases), evaluate=True)
    personal_models = bench.experiment.algorithm.personalisation.per_client
    case = target.case("replaced")
    compare_derived(bench.found, case, own, same, personal_models=personal_models)


def check_other_releases(
    bench: Bench, case: str, left: Outputs, right: Outputs, client: int
) -> None:
    """Record differences of what other clients send.

    Args:
        bench: the executions.
        case: the neighbouring data sets.
        left: outputs of one execution.
        right: outputs of the other.
        client: number of the client by which they differ.
    """
    for one, other in zip(left.releases, right.releases, strict=False):
        if one.client != client:
            difference, slack = distance(one.vector, other.vector)
            rule = f"what client {one.client} sends differs by {difference:.3g}"
            bench.found.equal("other releases", case, difference <= slack, rule)
