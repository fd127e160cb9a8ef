"""Where noise protects somebody, no client's training is rounded by another one."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import privplan
from simulate.data.own import Data
from simulate.engine.chunks import trained_chunks
from simulate.engine.loop import initial_state
from simulate.engine.round import RoundContext, released_coordinates
from simulate.models.own import OwnModel
from simulate.replay import sums
from simulate.replay.replay import Replay
from simulate.runs.request import Request, prepare
from simulate.runs.run import execute
from tests.simulate.replay.runs import short_plan

SHAPE = (3, 12, 12)
CLIENTS = 14
RECORDS = 23
MORE_RECORDS = 32
"""Of the changed client: as many as a mini-batch has rows."""


class Pictures(nn.Sequential):
    """Convolutions, which round otherwise for another number of clients at once."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 16, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 16, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * 4 * 4, 10),
        )


class Scaled(nn.Module):
    """A module that is no sequence of layers."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3, 1, 1))
        self.net = Pictures()

    def forward(self, x):
        return self.net(x * self.scale)


class FirstRecord(nn.Module):
    """Centres all records by the first one that it ever saw, kept in an object."""

    def __init__(self):
        super().__init__()
        self.net = Pictures()
        self.memory = SimpleNamespace(first=None)

    def forward(self, x):
        if self.memory.first is None:
            self.memory.first = x[:1].detach().clone()
        return self.net(x - self.memory.first)


class LargestSeen(nn.Module):
    """Scales records by the largest value so far, which the constants do not reach."""

    def __init__(self):
        super().__init__()
        self.net = Pictures()
        self.register_buffer("top", torch.tensor(4.5))

    def forward(self, x):
        self.top = torch.maximum(self.top, x.detach().max())
        return self.net(x / self.top)


class LargestInPlace(LargestSeen):
    """The same, in the buffer's own memory."""

    def forward(self, x):
        self.top.copy_(torch.maximum(self.top, x.detach().max()))
        return self.net(x / self.top)


def plan_of(model):
    """Training in which rounding grows by orders of magnitude."""
    parameters = sum(weights.numel() for weights in model().parameters())
    return privplan.solve(
        {
            "name": "alone",
            "groups": [
                {"name": "strict", "clients": CLIENTS // 2, "epsilon": 4.0},
                {"name": "loose", "clients": CLIENTS // 2, "epsilon": 10.0},
            ],
            "delta": 1e-3,
            "rounds": 1,
            "cohort": 8,
            "clipping_norm": 1.0,
            "local": {
                "steps": 12,
                "batch_size": MORE_RECORDS,
                "learning_rate": 0.3,
                "momentum": 0.9,
            },
            "model": {"name": "my-net", "parameters": parameters},
            "planning": {"ratios": "noise"},
        }
    )


def data_of(changed_records):
    """Data in which client 0 has so many records, and all others ``RECORDS``."""
    sizes = [changed_records, *[RECORDS] * (CLIENTS - 1)]
    x = np.concatenate(
        [
            np.random.default_rng(client).normal(size=(size, *SHAPE))
            for client, size in enumerate(sizes)
        ]
    )
    client = np.repeat(np.arange(CLIENTS), sizes)
    y = np.random.default_rng(99).integers(0, 10, len(x))
    y[client > 0] = np.arange((client > 0).sum()) % 10
    test = Data(np.zeros((20, *SHAPE), "f4"), np.arange(20) % 10)
    groups = np.where(client < CLIENTS // 2, "strict", "loose")
    return Data(
        x.astype("f4"),
        y,
        client=client,
        group=groups,
        test=test,
        classes=list(range(10)),
    )


def updates_of(model, records, noise, first, algorithm="planned"):
    """What each client sends, by name, where the cohort begins with a client."""
    request = Request(
        plan_of(model),
        algorithm,
        "own",
        Path("unused"),
        seed=5,
        noise=noise,
        own_data=data_of(records),
        own_model=OwnModel(model, {}, "tests:model"),
    )
    experiment = prepare(request)
    state = initial_state(experiment)
    coordinates = released_coordinates(experiment, 1)
    context = RoundContext(1, state.theta, state.server, coordinates, {})
    drawn = [np.arange(first, CLIENTS // 2), np.arange(CLIENTS // 2)]
    updates = {}
    names = experiment.partition.names
    for trained in trained_chunks(experiment, context, drawn):
        chunk = trained.chunk
        for place, update in zip(chunk.positions, trained.result.updates, strict=True):
            updates[str(names[chunk.index][place])] = update.clone()
    return updates


def changed(before, after):
    """Clients of both cohorts, but for client 0, whose update is not the same."""
    names = before.keys() & after.keys() - {"0"}
    assert len(names) == CLIENTS - 1
    return {name for name in names if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize(
    ("model", "algorithm"),
    [
        (Pictures, "planned"),
        (Pictures, "DP-FedSAM"),
        (Scaled, "planned"),
        (FirstRecord, "planned"),
        (LargestSeen, "planned"),
        (LargestInPlace, "planned"),
    ],
)
def test_a_client_s_records_and_presence_change_no_bit_of_another_one(model, algorithm):
    before = updates_of(model, RECORDS, "secure", 0, algorithm)
    more_records = updates_of(model, MORE_RECORDS, "secure", 0, algorithm)
    absent = updates_of(model, RECORDS, "secure", 1, algorithm)
    assert not changed(before, more_records)
    assert not changed(before, absent)


def test_in_a_rehearsal_clients_are_trained_in_one_batch():
    """There the same changes are seen, so that the test above can fail."""
    before = updates_of(Pictures, RECORDS, "seeded", 0)
    assert changed(before, updates_of(Pictures, MORE_RECORDS, "seeded", 0))


def test_the_verifier_trains_each_client_alone_as_well(tmp_path, monkeypatch):
    """Under secure noise each call of its training has one client."""
    sizes = {"secure": set(), "seeded": set()}
    original = sums.updates
    for noise, seen in sizes.items():
        folder = tmp_path / noise
        execute(Request(short_plan(), "planned", "digits", folder, noise=noise))

        def counted(world, round_, start, clients, seen=seen):
            seen.add(len(clients))
            return original(world, round_, start, clients)

        monkeypatch.setattr(sums, "updates", counted)
        report = Replay(folder).run(None, None, lambda done, rounds: None)
        assert report.outcome == "passed"
    assert sizes["secure"] == {1}
    assert max(sizes["seeded"]) > 1
