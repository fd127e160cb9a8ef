"""``simulate.train``: own models on own data, resumed, and refused in one line."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import simulate
from privplan.errors import InputError
from simulate.runs.run import InterruptedRunError
from tests.simulate.own_runs import Net, arrays, data, plan


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    return plan(tmp_path_factory.mktemp("spec"))


def test_the_trained_module_reaches_the_score_of_the_run(solved, tmp_path):
    own = data()
    run = simulate.train(solved, model=Net, data=own, seed=1, folder=tmp_path / "run")
    assert run.metric == "accuracy"
    assert set(run.by_group) == {"strict", "loose"}
    assert run.verdict.kept
    dataset, _ = own.prepared(solved.groups)
    module = run.model()
    assert isinstance(module, Net)
    predicted = module(dataset.test_x).argmax(1)
    assert float((predicted == dataset.test_y).double().mean()) == pytest.approx(run.score)
    assert run.score > 0.6


def test_an_interrupted_run_resumes_to_the_same_parameters(solved, tmp_path):
    def stop(done, rounds):
        if done == 2:
            raise KeyboardInterrupt

    whole = simulate.train(solved, model=Net, data=data(), seed=3, folder=tmp_path / "whole")
    with pytest.raises(InterruptedRunError):
        simulate.train(solved, model=Net, data=data(), seed=3, folder=tmp_path / "cut", report=stop)
    resumed = simulate.train(solved, model=Net, data=data(), seed=3, folder=tmp_path / "cut")
    assert not resumed.reused
    assert resumed.record.chain == whole.record.chain
    for one, other in zip(resumed.model().parameters(), whole.model().parameters(), strict=True):
        assert torch.equal(one, other)
    again = simulate.train(solved, model=Net, data=data(), seed=3, folder=tmp_path / "cut")
    assert again.reused
    with pytest.raises(InputError, match="own_model: must be as in"):
        simulate.train(solved, model=_Renamed, data=data(), seed=3, folder=tmp_path / "cut")


class _Renamed(Net):
    """Another class with the same parameters."""


def test_test_records_of_each_client_are_split_off(solved):
    dataset, partition = data(test_share=0.25).prepared(solved.groups)
    assert len(dataset.test_y) == pytest.approx(100, abs=10)
    assert sorted(np.concatenate(partition.members)) == list(range(20))
    for client in range(20):
        records = partition.records(client)
        assert 14 <= len(records) <= 16
        assert (dataset.train_people[records] == client).all()


def test_a_torch_dataset_gives_the_same_records(solved):
    known = arrays()
    pairs = torch.utils.data.TensorDataset(
        torch.from_numpy(known["x"]).float(), torch.from_numpy(known["y"])
    )
    own = simulate.Data(pairs, client=known["client"], group=known["group"])
    assert own.prepared(solved.groups)[0].digest == data().prepared(solved.groups)[0].digest


WRONG_DATA = [
    ("data.y", {"y": np.zeros(399, int)}), ("data.x", {"x": np.full((400, 4), np.nan)}),
    ("data.x", {"x": np.zeros(400)}), ("data.x", {"x": [[1.0], [2.0, 3.0]]}),
    ("data.y", {"y": np.full(400, 0.5)}), ("data.y", {"y": np.full(400, np.nan)}),
    ("data.y", {"y": np.full(400, -1)}), ("data.y", {"y": np.zeros((400, 2))}),
    ("data.client", {"client": np.zeros(3)}), ("data.client", {"client": [None] * 400}),
    ("data.group", {"group": ["strict"]}), ("data.client", {"client": None}),
    ("data.group", {"group": None}), ("data.group", {"group": np.arange(400) // 20 % 2}),
    ("data.group", {"group": ["a"] * 400}), ("data.group", {"group": ["strict"] * 400}),
    ("data.group", {"group": {0: "strict"}}), ("data.test_share", {"test_share": 1.5}),
    ("data.test_share", {"test_share": 1e-6}), ("data.y", {"classes": ["0"]}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "changes"), WRONG_DATA)
def test_wrong_data_are_refused(solved, field, changes):
    with pytest.raises(InputError) as caught:
        data(**changes).prepared(solved.groups)
    assert str(caught.value).startswith(f"{field}: ")


def _changed(change) -> nn.Module:
    module = Net()
    change(module)
    return module


class _Unused(Net):
    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(2, 2)


class _Drawing(Net):
    def forward(self, x):
        noise = torch.from_numpy(np.random.default_rng().normal(size=(len(x), 1)))
        return super().forward(x) + (noise.float() if self.training else 0)


class _InPlace(Net):
    def forward(self, x):
        return super().forward(x.mul_(2))


class _Counting(Net):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        return super().forward(x)


class _Mixing(Net):
    def forward(self, x):
        return super().forward(x - x.mean(0))


def _failing() -> nn.Module:
    raise RuntimeError("broken\nsecond line")


WRONG_MODELS = [
    ("model", lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))),
    ("model", _Drawing), ("model", _InPlace), ("model", _Unused),
    ("model", lambda: _changed(lambda net: net.requires_grad_(False))),
    ("model.parameters", lambda: _changed(lambda net: net.scale.requires_grad_(False))),
    ("model", lambda: _changed(lambda net: setattr(net, "other", net.last))), ("model", _Counting),
    ("model", _Mixing), ("model", lambda: nn.Linear(5, 2)), ("model", lambda: nn.Linear(4, 1)),
    ("model", lambda: nn.Flatten(0)), ("model", lambda: 3), ("model", _failing),
    ("model.parameters", lambda: nn.Linear(4, 2)), ("model", 3), ("model.name", None),
]  # fmt: skip


@pytest.mark.parametrize(("field", "model"), WRONG_MODELS)
def test_wrong_models_are_refused(solved, tmp_path, field, model):
    with pytest.raises(InputError) as caught:
        simulate.train(solved, model=model, data=data(), folder=tmp_path / "run")
    assert str(caught.value).startswith(f"{field}: ")
    assert not (tmp_path / "run").exists()


def test_all_faults_of_a_module_are_named_at_once(solved, tmp_path):
    class Bad(_Unused):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x):
            return super().forward(self.norm(x))

    with pytest.raises(InputError) as caught:
        simulate.train(solved, model=Bad, data=data(), folder=tmp_path / "run")
    rules = [fault.rule for fault in caught.value.faults]
    for start in ("must have no batch normal", "must have no buffers", "must use all parameters"):
        assert any(rule.startswith(start) for rule in rules), rules
