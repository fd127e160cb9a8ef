"""Neighbouring data sets that differ by one client: removed, added, or replaced."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from privplan.accounting.release import GAUSSIAN
from simulate.algorithms.registry import ALGORITHMS
from simulate.components import ClientBatch
from simulate.contrib.sensitivity.neighbours import (
    PERSONAL_ROUNDING,
    Findings,
    Outputs,
    SensitivityReport,
    check_coordinates,
    compare_derived,
    compare_ledgers,
    compare_personal,
    execute,
    with_batches,
    with_noise,
    with_participants,
    with_records,
    with_releases,
    with_updates,
)
from simulate.engine.experiment import Experiment
from simulate.engine.loop import initial_state
from simulate.engine.round import positions
from simulate.local.sgd import PADDING

# -------------------------------------------------------------------------------------------------
# Executions of one round of an experiment, and the comparison of its releases with the claims.

RELATIVE = 1e-4
"""Tolerance of a difference relative to its bound: clients whose updates are trained in batches of
another size differ by the rounding of float32 kernels."""
SINGLE = 2.0**-22
"""Relative rounding error of a released coordinate, with a factor of 4."""


class Bench:
    """Executions of one round of an experiment on neighbouring data sets.

    Args:
        experiment: the run; its first round is executed once, without noise, so that clients and
            server have states.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = with_noise(replace(experiment, workers=1), 0.0)
        self.found, self.executions = Findings(), 0
        self.plain = replace(experiment, workers=1)
        self.before = initial_state(self.experiment)
        self.before = self.run(self.experiment).progress

    @property
    def round(self) -> int:
        """The executed round."""
        return self.before.round + 1

    def run(self, experiment: Experiment, *, evaluate: bool = False) -> Outputs:
        """Outputs of the round."""
        self.executions += 1
        return execute(experiment, self.before, evaluate=evaluate)

    def check_noise(self) -> None:
        """Record sums that do not have the recorded Gaussian noise on each claimed coordinate."""
        quiet, noisy = self.run(self.experiment), self.run(with_noise(self.plain, 1.0))
        check_coordinates(self.found, "no change", self.experiment, quiet)
        for one, other in zip(quiet.releases, noisy.releases, strict=False):
            record, (_, slack) = one.record, distance(one.vector, other.vector)
            expected = record.noise_std**2 * record.dimension
            drawn_otherwise = (record.noise_sum_squares or 0.0) > RELATIVE * expected
            if record.family != GAUSSIAN or drawn_otherwise or record.unit != "client":
                continue
            response = other.vector.double() - one.vector.double()
            least = float(response.min()) if len(response) else record.noise_std
            rule = (
                f"a coordinate has noise {least:.6g}, recorded {record.noise_std:.6g}"
            )
            enough = least >= (1 - RELATIVE) * record.noise_std - slack
            self.found.equal("noise", "no change", enough, rule)

    def compare(
        self, case: str, group: str, left: Outputs, right: Outputs, clients: int = 1
    ) -> None:
        """Compare the difference of the sums' releases with their claimed bound."""
        for one, other in zip(left.releases, right.releases, strict=False):
            bounds = [
                share.clip_bound for share in one.record.shares if share.group == group
            ]
            difference, slack = distance(one.vector, other.vector)
            if not bounds:
                where = ", ".join(share.group for share in one.record.shares)
                rule = f"the release of {where} differs by {difference:.3g}"
                self.found.equal(
                    "other releases", case, difference <= slack + RELATIVE, rule
                )
            elif bounds[0] is not None and one.record.noise.noisy:
                bound = clients * bounds[0]
                self.found.bounded(case, difference, bound, slack + RELATIVE * bound)

    def report(self, plan: str) -> SensitivityReport:
        """The result."""
        algorithm = self.experiment.algorithm
        known = ALGORITHMS.get(algorithm.name) if algorithm.name in ALGORITHMS else None
        unit = "client" if known is None else known.unit_under(algorithm.plan)
        found = self.found
        return SensitivityReport(
            algorithm.name, plan, unit, self.executions, found.compared, found.largest_ratio,
            found.violations,
        )  # fmt: skip


def distance(one: Tensor, other: Tensor) -> tuple[float, float]:
    """Norm of the difference of two released vectors, and its rounding error."""
    if one.shape != other.shape:
        return float("inf"), 0.0
    left, right = one.double(), other.double()
    return float((left - right).norm()), SINGLE * float(left.norm() + right.norm())


# --- Neighbouring data sets that differ by one client: removed, added, or replaced. --------------

HUGE = 1e30
"""A coordinate whose square exceeds single precision."""
LONG, WITHIN, SHORT = 1e3, 0.5, 1e-3
"""Norms of long and short updates and of those within the bound, in clipping norms."""
Update = Callable[[int], Tensor]
Choice = Callable[[int, np.ndarray, int], np.ndarray]
"""(index of the group, drawn positions, clients of the group) to positions."""


@dataclass(frozen=True)
class _Client:
    """The client by which data sets differ."""

    index: int  # index of its group in the plan
    group: str  # name of its group
    position: int  # position in the group
    client: int  # number of the client
    others: tuple[int, ...]  # numbers of the group's other participants

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
    there = _clients(
        bench, lambda index, drawn, size: drawn[-1:] if index % 2 else drawn[:1]
    )
    absent = _clients(
        bench, lambda index, drawn, size: np.setdiff1d(np.arange(size), drawn)[:1]
    )
    for target in there:
        _check_participant(bench, target)
    for target in absent:
        _check_addition(bench, target)


def _without(bench: Bench, target: _Client, experiment: Experiment) -> Experiment:
    """The data set without the client: it is not drawn, and its records are others."""
    changed = with_records(experiment, target.client)
    where = bench.round, target.index
    return with_participants(
        changed, *where, lambda drawn: drawn[drawn != target.position]
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
    """Compare data sets with and without the client, and each two ways in which it takes part."""
    for words, update in updates.items():
        present[words] = bench.run(with_updates(experiment, {target.client: update}))
    for words, outputs in present.items():
        case = target.case(f"removed, its update {words}")
        bench.compare(case, target.group, absent, outputs)
        compare_personal(
            bench.found, case, absent, outputs, target.client, PERSONAL_ROUNDING
        )
    for (first, one), (second, other) in combinations(present.items(), 2):
        case = target.case(f"replaced, its update {first} or {second}")
        bench.compare(case, target.group, one, other, clients=2)
        compare_personal(bench.found, case, one, other, target.client)


def _check_addition(bench: Bench, target: _Client) -> None:
    """Compare the data set with one that has a further participant."""
    experiment = bench.experiment
    where, also = (bench.round, target.index), [target.position]
    larger = with_participants(
        experiment, *where, lambda drawn: np.union1d(drawn, also)
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
    yield {
        client: _along((SHORT if place < half else LONG) * norm)
        for place, client in places
    }
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
    """Record differences of what other clients send."""
    for one, other in zip(left.releases, right.releases, strict=False):
        if one.client != client:
            difference, slack = distance(one.vector, other.vector)
            rule = f"what client {one.client} sends differs by {difference:.3g}"
            bench.found.equal("other releases", case, difference <= slack, rule)


# --- Neighbouring data sets that differ by one record of a client who runs DP-SGD. ---------------
# A record influences later local steps through the client's model, which accounting composes
# adaptively. Each step is therefore tested on its own: two mini-batches of the step differ by one
# record after the same earlier steps. The bound is in units of a step's sum; the factor from a sum
# to what the client sends is measured by noise on that step only. It is 0 for a step on parameters
# that stay at the client, after which nothing may be sent that depends on the record.

HUGE_RECORD = 1e6
"""A pixel value whose gradient exceeds every clipping norm."""
Record = Callable[[Tensor], Tensor]
_RECORDS: Mapping[str, Record] = {
    "its own": lambda x: x,
    "other": lambda x: 1 - x,
    "huge": lambda x: torch.full_like(x, HUGE_RECORD),
    "negative": lambda x: torch.full_like(x, -HUGE_RECORD),
    "infinite": lambda x: torch.full_like(x, torch.inf),
    "not a number": lambda x: torch.full_like(x, torch.nan),
}


def check_records(bench: Bench) -> None:
    """Test each local step of the first participant of each group with one record changed."""
    seen: set[str] = set()
    for release in bench.run(bench.experiment).releases:
        group, client = release.groups[0], release.client
        if (
            client is not None
            and group.name not in seen
            and release.record.unit == "record"
        ):
            seen.add(group.name)
            for step in {0, release.record.steps - 1}:
                _check_step(bench, group.name, client, step)


def _batch(
    client: int, step: int, record: Record | None
) -> Callable[[ClientBatch], ClientBatch]:
    """Mini-batches up to a step, with one record of the step removed or changed."""

    def change(batch: ClientBatch) -> ClientBatch:
        x, y = batch.x[:, : step + 1].clone(), batch.y[:, : step + 1].clone()
        for row in range(len(y)):
            if int(batch.clients[row]) == client:
                if y[row, step, 0] == PADDING:  # a Poisson sample may be empty
                    y[row, step, 0] = 0
                    x[row, step, 0] = 0.5
                if record is None:
                    y[row, step, 0] = PADDING
                else:
                    x[row, step, 0] = record(x[row, step, 0])
        return replace(batch, x=x, y=y)

    return change


def _check_step(bench: Bench, group: str, client: int, step: int) -> None:
    case = f"{group}, client {client}, step {step + 1}"

    def run(record: Record | None) -> Outputs:
        return bench.run(with_batches(bench.experiment, _batch(client, step, record)))

    absent = run(None)
    present = {words: run(record) for words, record in _RECORDS.items()}
    noisy = _noisy(bench, client, step, _RECORDS["its own"])
    scale = _noise_scale(bench, case, client, present["its own"], noisy)
    for words, outputs in present.items():
        _compare(
            bench, f"{case}, record removed, {words}", client, absent, outputs, scale
        )
    first = present["its own"]
    for words, outputs in present.items():
        _compare(
            bench,
            f"{case}, record replaced, {words}",
            client,
            first,
            outputs,
            2 * scale,
        )
    compare_ledgers(bench.found, f"{case}, record removed", absent, first)
    ends = present["huge"], present["negative"]
    _compare(
        bench, f"{case}, record replaced, huge or negative", client, *ends, 2 * scale
    )


def _noisy(bench: Bench, client: int, step: int, record: Record) -> Outputs:
    """Steps up to one that has noise of one standard deviation on each coordinate."""
    changed = with_batches(bench.plain, _batch(client, step, record))
    return bench.run(with_noise(changed, 1.0, only=step))


def _noise_scale(
    bench: Bench, case: str, client: int, quiet: Outputs, noisy: Outputs
) -> float:
    """Least change of a sent coordinate by noise of one unit on a step's sum."""
    for one, other in zip(quiet.releases, noisy.releases, strict=False):
        if one.client == client and one.record.noise_std > 0 and one.vector.numel():
            response = (other.vector.double() - one.vector.double()).abs()
            least, largest = float(response.min()), float(response.max())
            _, slack = distance(one.vector, other.vector)
            rule = f"a coordinate has noise {least:.6g}, others {largest:.6g}"
            enough = least >= (1 - RELATIVE) * largest - slack
            bench.found.equal("noise", case, enough, rule)
            return least / one.record.noise_std
    return 0.0


def _compare(
    bench: Bench, case: str, client: int, left: Outputs, right: Outputs, scale: float
) -> None:
    """Compare what a client sends with the claimed bound on one record, times ``scale``."""
    check_other_releases(bench, case, left, right, client)
    for one, other in zip(left.releases, right.releases, strict=False):
        bound = one.record.shares[0].clip_bound
        if one.client == client and bound is not None:
            difference, slack = distance(one.vector, other.vector)
            claimed = scale * bound
            bench.found.bounded(case, difference, claimed, slack + RELATIVE * claimed)
