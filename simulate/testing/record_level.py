"""Neighbouring data sets that differ by one record of a client who runs DP-SGD.

A record influences later local steps through the client's model, which accounting composes
adaptively. Each step is therefore tested on its own: two mini-batches of the step differ by one
record after the same earlier steps. The bound is in units of a step's sum; the factor from a sum
to what the client sends is measured by noise on that step only. It is 0 for a step on parameters
that stay at the client, after which nothing may be sent that depends on the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from simulate.components import ClientBatch
from simulate.local.sgd import PADDING
from simulate.testing.bench import RELATIVE, Bench, distance
from simulate.testing.client_level import check_other_releases
from simulate.testing.neighbours import with_batches, with_noise
from simulate.testing.outputs import Outputs, compare_ledgers

HUGE = 1e6
"""A pixel value whose gradient exceeds every clipping norm."""
Record = Callable[[Tensor], Tensor]
_RECORDS: Mapping[str, Record] = {
    "its own": lambda x: x,
    "other": lambda x: 1 - x,
    "huge": lambda x: torch.full_like(x, HUGE),
    "negative": lambda x: torch.full_like(x, -HUGE),
    "infinite": lambda x: torch.full_like(x, torch.inf),
    "not a number": lambda x: torch.full_like(x, torch.nan),
}


def check_records(bench: Bench) -> None:
    """Test each local step of the first participant of each group with one record changed."""
    seen: set[str] = set()
    for release in bench.run(bench.experiment).releases:
        group, client = release.groups[0], release.client
        if client is not None and group.name not in seen and release.record.unit == "record":
            seen.add(group.name)
            for step in {0, release.record.steps - 1}:
                _check_step(bench, group.name, client, step)


def _batch(client: int, step: int, record: Record | None) -> Callable[[ClientBatch], ClientBatch]:
    """Mini-batches up to a step, with one record of the step removed or changed.

    Args:
        client: number of the client.
        step: the step, from 0.
        record: the record as a function of the drawn one; None removes it.
    """

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
        _compare(bench, f"{case}, record removed, {words}", client, absent, outputs, scale)
    first = present["its own"]
    for words, outputs in present.items():
        _compare(bench, f"{case}, record replaced, {words}", client, first, outputs, 2 * scale)
    compare_ledgers(bench.found, f"{case}, record removed", absent, first)
    ends = present["huge"], present["negative"]
    _compare(bench, f"{case}, record replaced, huge or negative", client, *ends, 2 * scale)


def _noisy(bench: Bench, client: int, step: int, record: Record) -> Outputs:
    """Steps up to one that has noise of one standard deviation on each coordinate."""
    changed = with_batches(bench.plain, _batch(client, step, record))
    return bench.run(with_noise(changed, 1.0, only=step))


def _noise_scale(bench: Bench, case: str, client: int, quiet: Outputs, noisy: Outputs) -> float:
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
