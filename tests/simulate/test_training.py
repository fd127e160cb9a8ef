"""``simulate.train``: own models on own data, resumed, and refused in one line."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import privplan
import simulate
from privplan.errors import InputError
from simulate.cli.options import OWN_DATA_NAMES, own_data_of
from simulate.runs.run import InterruptedRunError
from tests.simulate.own_runs import PARAMETERS, Net, arrays, data, plan


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> privplan.Plan:
    return plan(tmp_path_factory.mktemp("spec"))


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, simulate; assert dir(simulate); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_trained_module_reaches_the_score_of_the_run(solved, tmp_path) -> None:
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


def test_an_interrupted_run_resumes_to_the_same_parameters(solved, tmp_path) -> None:
    def stop(done: int, rounds: int) -> None:
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


def test_a_module_starts_from_its_parameters(solved, tmp_path) -> None:
    torch.manual_seed(5)
    module = Net()
    from simulate.models.own import OwnModel

    dataset, _ = data().prepared(solved.groups)
    model = OwnModel(module, {}, "Net").model("my-net", dataset)
    expected = torch.cat([value.detach().flatten() for value in module.parameters()])
    assert torch.equal(model.initial(torch.Generator()), expected)


def test_gradients_of_an_image_module_are_those_of_autograd() -> None:
    from simulate.models.own import OwnModel

    class Viewed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.last = nn.Conv2d(1, 3, 3), nn.Linear(108, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.conv(x).view(len(x), -1))

    generator = np.random.default_rng(2)
    x = generator.integers(0, 256, (12, 1, 8, 8), dtype=np.uint8)
    own = simulate.Data(x, np.arange(12) % 2)
    dataset, _ = own.prepared(())
    model = OwnModel(Viewed, {}, "Viewed").model("viewed", dataset)
    assert not model.channels_last  # ``view`` needs the contiguous format
    theta = model.initial(torch.Generator().manual_seed(0))
    inputs, labels = dataset.inputs(dataset.train_x), dataset.train_y
    assert float(inputs.max()) <= 1
    packed = model.packed_gradients(model.pack(theta[None]), inputs[None], labels[None])
    module = model.module()
    nn.utils.vector_to_parameters(theta, module.parameters())
    functional.cross_entropy(module(inputs), labels).backward()
    expected = torch.cat([value.grad.flatten() for value in module.parameters()])
    torch.testing.assert_close(model.unpack(packed, 1)[0], expected)


def test_a_module_that_cannot_be_vectorised_is_refused_where_a_run_needs_it() -> None:
    from simulate.models.own import OwnModel

    class Branching(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            logits = super().forward(x)
            return logits if bool(x.isfinite().all()) else logits * 0

    dataset, _ = simulate.Data(*(arrays()[name] for name in ("x", "y"))).prepared(())
    model = OwnModel(Branching, {}, "Branching")
    assert model.model("branching", dataset).parameters == PARAMETERS
    with pytest.raises(InputError, match=r"torch\.func\.vmap, which this run needs"):
        model.model("branching", dataset, vectorised=True)
    assert OwnModel(Net, {}, "Net").model("net", dataset, vectorised=True).classes == 2


@pytest.mark.parametrize("view", [False, True])
def test_an_image_module_trains_in_the_format_that_it_supports(view: bool) -> None:
    from simulate.models.own import OwnModel

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
            self.norm, self.last = nn.GroupNorm(2, 4), nn.Linear(4 * 36, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.relu(self.norm(self.first(x)))
            hidden = hidden + self.second(hidden)
            return self.last(hidden.view(len(x), -1) if view else hidden.flatten(1))

    x = np.random.default_rng(3).normal(size=(20, 3, 6, 6))
    dataset, _ = simulate.Data(x, np.arange(20) % 2).prepared(())
    model = OwnModel(Residual, {}, "Residual").model("residual", dataset)
    assert model.channels_last is not view
    assert model.logits(model.initial(torch.Generator()), dataset.test_x).shape[1] == 2


def test_test_records_of_each_client_are_split_off(solved) -> None:
    dataset, partition = data(test_share=0.25).prepared(solved.groups)
    assert len(dataset.test_y) == pytest.approx(100, abs=10)
    assert partition is not None
    assert sorted(np.concatenate(partition.members)) == list(range(20))
    for client in range(20):
        records = partition.records(client)
        assert 14 <= len(records) <= 16
        assert (dataset.train_people[records] == client).all()


def test_a_torch_dataset_gives_the_same_records(solved) -> None:
    known = arrays()
    pairs = torch.utils.data.TensorDataset(
        torch.from_numpy(known["x"]).float(), torch.from_numpy(known["y"])
    )
    own = simulate.Data(pairs, client=known["client"], group=known["group"])
    assert own.prepared(solved.groups)[0].digest == data().prepared(solved.groups)[0].digest


WRONG_DATA = {
    "labels": ({"y": np.zeros(399, int)}, "data.y: must have 400 labels, one per record"),
    "nan": ({"x": np.full((400, 4), np.nan)}, "data.x: must be finite"),
    "one dimension": ({"x": np.zeros(400)}, "data.x: must be real numbers of shape"),
    "ragged": ({"x": [[1.0], [2.0, 3.0]]}, "data.x: must be numbers in an array"),
    "fractions": ({"y": np.full(400, 0.5)}, "data.y: must be whole numbers or names"),
    "missing label": ({"y": np.full(400, np.nan)}, "data.y: must be whole numbers or names"),
    "negative": ({"y": np.full(400, -1)}, "data.y: must be numbers of classes from 0"),
    "matrix": ({"y": np.zeros((400, 2))}, "data.y: must be one-dimensional"),
    "clients": ({"client": np.zeros(3)}, "data.client: must have 400 values"),
    "missing client": ({"client": [None] * 400}, "data.client: must have one name or number"),
    "groups": ({"group": ["strict"]}, "data.group: must have 400 values"),
    "group alone": ({"client": None}, "data.client: is required with group"),
    "no group": ({"group": None}, "data.group: is required with a plan of 2 groups"),
    "two groups": (
        {"group": np.arange(400) // 20 % 2},
        "data.group: must be one per client; client 0, found '0, 1'",
    ),
    "unknown group": ({"group": ["a"] * 400}, "data.group: must be one of the plan's groups"),
    "clients per group": (
        {"group": ["strict"] * 400},
        "data.group: must have the plan's 12 clients in strict, found 20",
    ),
    "unmapped client": ({"group": {0: "strict"}}, "data.group: must name a group for each"),
    "share": ({"test_share": 1.5}, "data.test_share: must be above 0 and below 1, found 1.5"),
    "small share": ({"test_share": 1e-6}, "data.test_share: must leave a test record"),
    "classes": ({"classes": ["0"]}, "data.y: must be one of the 1 classes, row"),
}


@pytest.mark.parametrize("name", WRONG_DATA)
def test_wrong_data_are_refused(solved, name: str) -> None:
    changes, line = WRONG_DATA[name]
    with pytest.raises(InputError) as caught:
        data(**changes).prepared(solved.groups)
    assert str(caught.value).splitlines()[0].startswith(line)


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


WRONG_MODELS = {
    "batch norm": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)),
        "model: must have no batch normalisation, which mixes records; use nn.GroupNorm",
    ),
    "numpy": (_Drawing, "model: must draw random numbers with torch only"),
    "in place": (_InPlace, "model: must not change its inputs in place; set inplace=False"),
    "unused": (_Unused, "model: must use all parameters; remove the unused ones"),
    "frozen": (
        lambda: _changed(lambda net: net.requires_grad_(False)),
        "model: must have trainable parameters; set requires_grad, found 'all frozen'",
    ),
    "frozen part": (
        lambda: _changed(lambda net: net.scale.requires_grad_(False)),
        "model.parameters: must be 44 for my-net, found 50",
    ),
    "tied": (
        lambda: _changed(lambda net: setattr(net, "other", net.last)),
        "model: must have no tied parameters; give each its own",
    ),
    "buffer": (_Counting, "model: must have no buffers that training changes"),
    "mixing": (_Mixing, "model: must compute a record's outputs from that record only"),
    "shape": (lambda: nn.Linear(5, 2), "model: must take records of shape 4"),
    "one class": (lambda: nn.Linear(4, 1), "model: must return a logit for each of the 2"),
    "no batch": (lambda: nn.Flatten(0), "model: must have parameters"),
    "not a module": (lambda: 3, "model: must be a torch.nn.Module or return one"),
    "failing": (_failing, "model: must be built without an error, found 'RuntimeError: broken'"),
    "count": (lambda: nn.Linear(4, 2), "model.parameters: must be 10 for my-net, found 50"),
    "number": (3, "model: must be a torch.nn.Module, or a class or function"),
    "unknown": (None, "model.name: must be one of"),
}


@pytest.mark.parametrize("name", WRONG_MODELS)
def test_wrong_models_are_refused(solved, tmp_path, name: str) -> None:
    model, line = WRONG_MODELS[name]
    with pytest.raises(InputError) as caught:
        simulate.train(solved, model=model, data=data(), folder=tmp_path / "run")
    assert str(caught.value).splitlines()[0].startswith(line)
    assert not (tmp_path / "run").exists()


def test_all_faults_of_a_module_are_named_at_once(solved, tmp_path) -> None:
    class Bad(_Unused):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x):
            return super().forward(self.norm(x))

    with pytest.raises(InputError) as caught:
        simulate.train(solved, model=Bad, data=data(), folder=tmp_path / "run")
    rules = [fault.rule for fault in caught.value.faults]
    for start in ("must have no batch normal", "must have no buffers", "must use all parameters"):
        assert any(rule.startswith(start) for rule in rules), rules


@pytest.mark.parametrize("seed", ["1", -1, 1.0, True, 2**64])
def test_a_wrong_seed_is_refused_before_a_folder_is_written(solved, tmp_path, seed) -> None:
    with pytest.raises(InputError, match="seed: must be a whole number from 0 to 2"):
        simulate.train(solved, model=Net, data=data(), seed=seed, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_pandas_column_with_missing_integers_is_filled() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"age": [40, None, 60], "y": [0, 1, 0]}).astype({"age": "Int64"})
    options = {"label": "y", "statistics": {"age": {"mean": 50, "std": 10, "fill": 70}}}
    assert simulate.Data.from_table(table, **options).records.tolist() == [[-1.0], [2.0], [1.0]]
    twice = pandas.concat([table, table["age"]], axis=1)
    with pytest.raises(InputError, match="data: must have unique names of columns"):
        simulate.Data.from_table(twice, **options)


def test_trackers_see_no_more_than_the_budget_of_a_run_that_keeps_it(solved, tmp_path) -> None:
    seen = {}

    class Keeping(simulate.Callback):
        def on_end(self, record, spent):
            seen.update(spent)

    run = simulate.train(
        solved, model=Net, data=data(), seed=1, folder=tmp_path / "run", callbacks=[Keeping()]
    )
    assert run.verdict.kept
    assert all(0 < seen[group.name] <= group.epsilon for group in solved.groups)


def test_a_table_of_a_spreadsheet_with_a_comma_in_a_name(tmp_path) -> None:
    path, statistics = tmp_path / "marked.csv", tmp_path / "statistics.json"
    path.write_text('age,"bmi, kg",y\n50,30,0\n60,25,1\n', encoding="utf-8-sig")
    statistics.write_text('{"age": {"mean": 50, "std": 10}, "bmi, kg": {"mean": 25, "std": 5}}')
    options = dict.fromkeys(OWN_DATA_NAMES)
    known = {"label": "y", "features": '"bmi, kg", age', "statistics": statistics}
    records = own_data_of(str(path), {**options, **known, "task": "multi-class"}).records
    assert records.tolist() == [[1.0, 0.0], [0.0, 1.0]]
