"""Neighbouring data sets that differ by one record of a client who runs DP-SGD.

A record influences later local steps through the client's model, which accounting
composes adaptively. Each step is therefore tested on its own: two mini-batches of the
step differ by one record after the same earlier steps. The bound is in units of a
step's sum; the factor from a sum to what the client sends is measured by noise on
that step only. It is 0 for a step on parameters that stay at the client, after which
nothing may be sent that depends on the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from simulate.components import ClientBatch
from simulate.contrib.sensitivity.bench import (
    RELATIVE,
    Bench,
    check_other_releases,
    distance,
)
from simulate.contrib.sensitivity.neighbours import (
    Outputs,
    compare_ledgers,
    with_batches,
    with_noise,
)
from simulate.local.sgd import PADDING

# A pixel value whose gradient exceeds every clipping norm.
HUGE_RECORD = 1e6
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
    """Test local steps of a participant of each group with a record changed.

    The first and the last step of the first participant.
    """
    seen: set[str] = set()
    for release in bench.run(bench.experiment).releases:
        group = release.groups[0]
        client = release.client
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
        x = batch.x[:, : step + 1].clone()
        y = batch.y[:, : step + 1].clone()
        for row in range(len(y)):
            if int(batch.clients[row]) == client:
                # A Poisson sample may be empty.
                if y[row, step, 0] == PADDING:
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
    removed = f"{case}, record removed"
    replaced = f"{case}, record replaced"

    def run(record: Record | None) -> Outputs:
        return bench.run(with_batches(bench.experiment, _batch(client, step, record)))

    absent = run(None)
    present = {words: run(record) for words, record in _RECORDS.items()}
    noisy = _noisy(bench, client, step, _RECORDS["its own"])
    scale = _noise_scale(bench, case, client, present["its own"], noisy)
    for words, outputs in present.items():
        _compare(bench, f"{removed}, {words}", client, absent, outputs, scale)
    original = present["its own"]
    for words, outputs in present.items():
        words = f"{replaced}, {words}"
        _compare(bench, words, client, original, outputs, 2 * scale)
    compare_ledgers(bench.findings, removed, absent, original)
    huge = present["huge"]
    negative = present["negative"]
    words = f"{replaced}, huge or negative"
    _compare(bench, words, client, huge, negative, 2 * scale)


def _noisy(bench: Bench, client: int, step: int, record: Record) -> Outputs:
    """Steps up to one that has noise of one standard deviation on each coordinate."""
    changed = with_batches(bench.plain, _batch(client, step, record))
    return bench.run(with_noise(changed, 1.0, only=step))


def _noise_scale(
    bench: Bench, case: str, client: int, quiet: Outputs, noisy: Outputs
) -> float:
    """Least change of a sent coordinate by noise of one unit on a step's sum."""
    for left, right in zip(quiet.releases, noisy.releases, strict=False):
        noise_std = left.record.noise_std
        if left.client == client and noise_std > 0 and left.vector.numel():
            response = (right.vector.double() - left.vector.double()).abs()
            smallest = float(response.min())
            largest = float(response.max())
            _, slack = distance(left.vector, right.vector)
            fault = f"a coordinate has noise {smallest:.6g}, others {largest:.6g}"
            is_enough = smallest >= (1 - RELATIVE) * largest - slack
            bench.findings.equal("noise", case, is_enough, fault)
            return smallest / noise_std
    return 0.0


def _compare(
    bench: Bench, case: str, client: int, left: Outputs, right: Outputs, scale: float
) -> None:
    """Compare what a client sends with the claimed bound on a record.

    The bound counts ``scale`` times.
    """
    check_other_releases(bench, case, left, right, client)
    for release, changed in zip(left.releases, right.releases, strict=False):
        bound = release.record.shares[0].clip_bound
        if release.client == client and bound is not None:
            difference, slack = distance(release.vector, changed.vector)
            claimed = scale * bound
            slack += RELATIVE * claimed
            bench.findings.bounded(case, difference, claimed, slack)
