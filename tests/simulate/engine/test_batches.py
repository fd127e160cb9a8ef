"""Mini-batches: every client's own stream."""

from __future__ import annotations

import numpy as np
import torch

from privplan.streams import Purpose, stream
from simulate.data.partition.schemes import partition, scheme
from simulate.data.registry import load
from simulate.engine.round import ABSENT, batches, schedule
from simulate.local.sgd import PADDING
from tests.simulate import tiny

WIDE = tuple(group.model_copy(update={"clients": 200}) for group in tiny.plan().groups)


def test_mini_batches_pass_over_the_records() -> None:
    records = np.array([5, 6, 7, 8, 9])
    chosen = schedule(records, steps=5, size=2, generator=stream(0, Purpose.CLIENT, 1, 0))
    assert (chosen == ABSENT).sum() == 1
    assert chosen[2, 1] == ABSENT
    assert sorted(chosen[:3].flatten()) == [ABSENT, 5, 6, 7, 8, 9]
    assert len(set(chosen[3:].flatten())) == 4


def test_batches_do_not_depend_on_who_else_is_trained() -> None:
    data = load("digits")
    held = partition(scheme("iid"), data.train_y.numpy(), WIDE, seed=1)
    shared = {"seed": 1, "round_": 2, "steps": 3, "size": 4, "device": torch.device("cpu")}
    x, y = batches(data, held, np.array([7, 3, 12]), **shared)
    alone_x, alone_y = batches(data, held, np.array([3]), **shared)
    assert torch.equal(x[1:2], alone_x)
    assert torch.equal(y[1:2], alone_y)
    assert x.shape == (3, 3, 4, 1, 8, 8)
    assert (y == PADDING).any()  # three or four records per client
    later, _ = batches(data, held, np.array([3]), **{**shared, "round_": 3})
    assert not torch.equal(alone_x, later)
