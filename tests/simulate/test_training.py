"""``simulate.train``: models and data of a user, resumed and refused; tasks' losses."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
import yaml
from numpy.random import default_rng
from torch import nn
from torch.utils.checkpoint import checkpoint

import privplan
import simulate
from privplan.errors import InputError
from privplan.laws.cyclic import CyclicPoisson
from privplan.report import verdicts
from privplan.secure_stream import NoiseKey, key_beside
from privplan.spec.spec import Spec
from privplan.verification.verify import judge, load_run
from simulate.models.objective import Objective
from simulate.models.own import OwnModel
from simulate.own_parts import OwnParts
from simulate.replay.replay import Replay
from simulate.runs.request import _try_metric
from simulate.runs.run import InterruptedRunError
from simulate.tasks import TASKS, is_accuracy, metric_of, objective_of
from tests.command import answer, refused, verify
from tests.simulate.conftest import stop_after
from tests.simulate.own_runs import SPEC, STRICT, Net, arrays, data, plan


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    return plan(tmp_path_factory.mktemp("spec"))


def test_the_trained_module_reaches_the_score_of_the_run(solved, tmp_path):
    own_data = data()
    options = {"seed": 2, "folder": tmp_path / "run", "noise": "seeded"}
    run = simulate.train(solved, model=Net, data=own_data, **options)
    assert run.metric == "accuracy"
    assert set(run.by_group) == {"strict", "loose"}
    assert run.verdict.outcome == "rehearsal"
    dataset, _ = own_data.prepared(solved.groups)
    module = run.model()
    assert isinstance(module, Net)
    predicted = module(dataset.test_x).argmax(1)
    assert float((predicted == dataset.test_y).double().mean()) == pytest.approx(
        run.score
    )
    assert run.score > 0.6


def test_a_group_is_scored_on_its_own_records(solved, tmp_path):
    """Where a group's labels are the others' turned round, few of its own are right."""
    columns = arrays()
    is_strict = columns["group"] == "strict"
    own_data = data(y=np.where(is_strict, 1 - columns["y"], columns["y"]))
    run = simulate.train(
        solved, model=Net, data=own_data, folder=tmp_path / "run", noise="seeded"
    )
    dataset, _ = own_data.prepared(solved.groups)
    is_right = run.model()(dataset.test_x).argmax(1) == dataset.test_y
    for name in ("strict", "loose"):
        of_group = is_right[torch.from_numpy(dataset.test_groups == name)]
        assert run.by_group[name] == pytest.approx(float(of_group.double().mean()))
    assert abs(run.by_group["strict"] - run.by_group["loose"]) > 0.3
    assert run.verdict.outcome == "rehearsal"


def test_an_interrupted_run_resumes_to_the_same_parameters(solved, tmp_path):
    options = {"model": Net, "data": data(), "seed": 3, "noise": "seeded"}
    uninterrupted = simulate.train(solved, folder=tmp_path / "whole", **options)
    with pytest.raises(InterruptedRunError):
        simulate.train(solved, folder=tmp_path / "cut", report=stop_after(2), **options)
    resumed = simulate.train(solved, folder=tmp_path / "cut", **options)
    assert not resumed.reused
    assert resumed.record.chain == uninterrupted.record.chain
    resumed_parameters = nn.utils.parameters_to_vector(resumed.model().parameters())
    whole_parameters = nn.utils.parameters_to_vector(uninterrupted.model().parameters())
    assert torch.equal(resumed_parameters, whole_parameters)
    assert simulate.train(solved, folder=tmp_path / "cut", **options).reused
    with pytest.raises(InputError, match="own_model: must be as in"):
        simulate.train(
            solved, folder=tmp_path / "cut", **{**options, "model": _Renamed}
        )


def test_own_people_get_secure_noise_whose_key_lies_beside_the_folder(solved, tmp_path):
    options = {"model": Net, "data": data(), "folder": tmp_path / "run"}
    with pytest.raises(InterruptedRunError):
        simulate.train(solved, report=stop_after(2), **options)
    run = simulate.train(solved, **options)
    key = tmp_path / "run.key"
    assert run.record.noise == "secure"
    assert key.stat().st_mode & 0o777 == 0o600
    assert NoiseKey.load(key).commitment == run.record.configuration["noise_commitment"]
    executed = (
        "kept, executed again (all 5 rounds); the code of its own module is believed"
    )
    assert verdicts.headline(run.verdict) == executed
    own_parts = OwnParts(data(), OwnModel(Net, {}, "Net", False))
    assert (
        Replay(run.folder, own_parts=own_parts)
        .run(None, 0, lambda done, rounds: None)
        .outcome
        == "passed"
    )
    (tmp_path / "link").symlink_to(run.folder)
    assert key_beside(tmp_path / "link") == key
    key.rename(tmp_path / "other.key")
    with pytest.raises(InputError, match="must be a file that can be read"):
        simulate.train(solved, **options)


@pytest.mark.slow
def test_turns_follow_the_names_of_own_clients(tmp_path, monkeypatch):
    """``verify`` reads them from the record, a replay computes them from the names."""
    spec = yaml.safe_load(SPEC) | {
        "rounds": 6,
        "sampling": "cyclic_poisson:2",
        "cohort": 4,
    }
    solved = privplan.solve(Spec.parse(spec))
    own_parts = OwnParts(data(), OwnModel(Net, {}, "Net", False))
    options = {"model": Net, "data": data()}

    def replayed(run):
        return (
            Replay(run.folder, own_parts=own_parts)
            .run(None, 0, lambda done, rounds: None)
            .outcome
        )

    run = simulate.train(solved, folder=tmp_path / "run", **options)
    clients_by_turn = run.record.parts
    law = solved.spec.sampling.law
    assert clients_by_turn["strict"][0] == sum(
        law.turn("strict", name) == 0 for name in range(STRICT)
    )
    assert run.verdict.kept
    assert replayed(run) == "passed"
    wrong = run.record.model_copy(
        update={"parts": {**clients_by_turn, "strict": (STRICT, 0)}}
    )
    failed = judge(replace(load_run(run.folder), record=wrong), 0).failed
    assert "cohorts" in {check.name for check in failed}
    even = lambda law, group, names: (len(names), np.arange(len(names)))  # noqa: E731
    monkeypatch.setattr(CyclicPoisson, "seated", even)
    run = simulate.train(solved, folder=tmp_path / "by-place", **options)
    monkeypatch.undo()
    assert replayed(run) == "failed"
    assert "cohorts" in str(judge(load_run(run.folder), 0).failed)


def test_a_rehearsal_on_own_data_is_asked_for_and_says_so(solved, tmp_path):
    run = simulate.train(
        solved, model=Net, data=data(), folder=tmp_path / "run", noise="seeded"
    )
    assert not (tmp_path / "run.key").exists()
    begin = "a rehearsal: nothing here protected anybody"
    assert verdicts.headline(run.verdict).startswith(begin)
    assert run.verdict.outcome == "rehearsal"
    assert run.verdict.level == "rehearsal"
    assert run.verdict.exit_code == 5
    assert not run.verdict.kept
    verified = verify(run.folder)
    assert verified.exit_code == 5
    assert verified.stdout[: len(begin)] == begin
    book = ("--address", str(tmp_path / "b.sqlite"))
    refused("book", "add", str(run.folder), *book)
    assert not (tmp_path / "b.sqlite").exists()
    answer("book", "add", str(run.folder), *book, "--infinite")
    assert "inf" in answer("book", "show", *book)
    assert {row[-1] for row in verdicts.group_table(run.verdict)[2]} == {"rehearsal"}
    assert run.verdict.model_dump(mode="json")["own_data"] is True


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
    stored = arrays()
    x = torch.from_numpy(stored["x"]).float()
    y = torch.from_numpy(stored["y"])
    pairs = torch.utils.data.TensorDataset(x, y)
    torch_data = simulate.Data(pairs, client=stored["client"], group=stored["group"])
    assert (
        torch_data.prepared(solved.groups)[0].digest
        == data().prepared(solved.groups)[0].digest
    )


WRONG_DATA = [
    ("data.y", {"y": np.zeros(399, int)}),
    ("data.x", {"x": np.full((400, 4), np.nan)}),
    ("data.x", {"x": np.full((400, 4), 2e18)}),
    ("data.x", {"x": np.full((400, 4), 1e300)}),
    ("data.y", {"y": np.full(400, 2e18), "task": "regression"}),
    ("data.x", {"x": np.zeros(400)}),
    ("data.x", {"x": [[1.0], [2.0, 3.0]]}),
    ("data.y", {"y": np.full(400, 0.5)}),
    ("data.y", {"y": np.full(400, np.nan)}),
    ("data.y", {"y": np.full(400, -1)}),
    ("data.y", {"y": np.zeros((400, 2))}),
    ("data.client", {"client": np.zeros(3)}),
    ("data.client", {"client": [None] * 400}),
    ("data.group", {"group": ["strict"]}),
    ("data.client", {"client": None}),
    ("data.group", {"group": None}),
    ("data.group", {"group": np.arange(400) // 20 % 2}),
    ("data.group", {"group": ["a"] * 400}),
    ("data.group", {"group": ["strict"] * 400}),
    ("data.group", {"group": {0: "strict"}}),
    ("data.test_share", {"test_share": 1.5}),
    ("data.test_share", {"test_share": 1e-6}),
    ("data.y", {"classes": ["0"]}),
]


@pytest.mark.parametrize(("field", "changes"), WRONG_DATA)
def test_wrong_data_are_refused(solved, field, changes):
    with pytest.raises(InputError) as caught:
        data(**changes).prepared(solved.groups)
    assert str(caught.value).startswith(f"{field}: ")


def test_records_that_name_no_client_get_no_secure_noise(solved, tmp_path):
    """Dealt at random, a person's records are in many clients, and none is a person."""
    unnamed = data(client=None, group=None)
    with pytest.raises(
        InputError, match=r"data.client: must name the client .*--client"
    ):
        simulate.train(solved, model=Net, data=unnamed, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    rehearsal = simulate.train(
        solved, model=Net, data=unnamed, folder=tmp_path / "run", noise="seeded"
    )
    assert rehearsal.verdict.outcome == "rehearsal"


def test_a_secure_run_on_dealt_records_is_not_kept(solved, tmp_path, monkeypatch):
    """Somebody trained past the refusal."""
    name = "simulate.data.own.Data.require_separate_preparation"
    monkeypatch.setattr(name, lambda data, by_record: None)
    unnamed = data(client=None, group=None)
    folder = tmp_path / "run"
    simulate.train(solved, model=Net, data=unnamed, folder=folder)
    verdict = judge(load_run(folder), 0)
    assert verdict.outcome == "unverified"
    assert "own data, whose records were dealt at random" in verdict.not_shown[0].reason


def _changed(change):
    module = Net()
    change(module)
    return module


class _Unused(Net):
    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(2, 2)


class _Drawing(Net):
    def forward(self, x):
        noise = torch.from_numpy(default_rng().normal(size=(len(x), 1)))
        return super().forward(x) + (noise.float() if self.training else 0)


class _InPlace(Net):
    def forward(self, x):
        return super().forward(x.mul_(2))


class _Counting(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        return super().forward(x)


class _Mixing(Net):
    def forward(self, x):
        return super().forward(x - x.mean(0))


class _ScaledGradient(Net):
    """Its gradient depends on how many records a batch has."""

    def forward(self, x):
        outputs = super().forward(x)
        if outputs.requires_grad:
            outputs.register_hook(lambda gradient: gradient * len(gradient))
        return outputs


class _Checkpointed(Net):
    """Computes its activations again in the backward pass."""

    def forward(self, x):
        first = self.first
        hidden = checkpoint(lambda z: torch.tanh(first(z)), x, use_reentrant=False)
        return self.last(torch.relu(hidden * self.scale))


class _Stateful(Net):
    """Counts its calls."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


class _Remembering(Net):
    """Keeps what it saw first, in a list of a private name."""

    def __init__(self):
        super().__init__()
        self._seen = []

    def forward(self, x):
        self._seen.append(x.detach().mean(0))
        return super().forward(x - self._seen[0])


class _Watched(Net):
    """A hook of it stores an activation in the module itself."""

    def __init__(self):
        super().__init__()
        self.seen = {}

        def store(module, inputs, outputs):
            self.seen["last"] = outputs

        self.first.register_forward_hook(store)


class _Nested(Net):
    """Has a list within itself, and counts its calls where asked to."""

    def __init__(self, counts=False):
        super().__init__()
        self.counts = counts
        self.table = {"calls": []}
        self.table["itself"] = [self.table]

    def forward(self, x):
        if self.counts:
            self.table["calls"].append(1)
        return super().forward(x)


class _PartOfItself(Net):
    def __init__(self):
        super().__init__()
        self.whole = self


class _Empty(Net):
    def __init__(self):
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(0, 3))


class _Constrained(Net):
    """Bounds its own weights in place, as masks and non-negative layers do."""

    def forward(self, x):
        self.first.weight.data.clamp_(-0.2, 0.2)
        return super().forward(x)


def _failing():
    raise RuntimeError("broken\nsecond line")


WRONG_MODELS = [
    (
        "model",
        lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)),
    ),
    ("model", _Drawing),
    ("model", _InPlace),
    ("model", _Unused),
    ("model", lambda: _changed(lambda net: net.requires_grad_(False))),
    ("model.parameters", lambda: _changed(lambda net: net.scale.requires_grad_(False))),
    ("model", lambda: _changed(lambda net: setattr(net, "other", net.last))),
    ("model", _Counting),
    ("model", _Mixing),
    ("model", _ScaledGradient),
    ("model", _Checkpointed),
    ("model", _Stateful),
    ("model", _Remembering),
    ("model", _Empty),
    ("model", _Watched),
    ("model", _PartOfItself),
    ("model", lambda: _Nested(counts=True)),
    ("model", lambda: nn.Linear(5, 2)),
    ("model", lambda: nn.Linear(4, 1)),
    ("model", lambda: nn.Flatten(0)),
    ("model", lambda: 3),
    ("model", _failing),
    ("model.parameters", lambda: nn.Linear(4, 2)),
    ("model", 3),
    ("model.name", None),
]


@pytest.mark.parametrize(("field", "model"), WRONG_MODELS)
def test_wrong_models_are_refused(solved, tmp_path, field, model):
    with pytest.raises(InputError) as caught:
        simulate.train(solved, model=model, data=data(), folder=tmp_path / "run")
    assert str(caught.value).startswith(f"{field}: ")
    assert not (tmp_path / "run").exists()


def _with_value(name, value):
    module = Net()
    module.register_buffer("mask", torch.zeros(2))
    module.get_buffer("mask")[0] = -math.inf
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    tensors[name].data[0] = value
    return module


def _with_buffer(kind):
    module = Net()
    values = {
        "sparse": lambda: torch.eye(4).to_sparse_csr(),
        "quantized": lambda: torch.quantize_per_tensor(
            torch.ones(2), 1, 0, torch.qint8
        ),
    }
    module.register_buffer("mask", values[kind]())
    return module


@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:.*quantiz")
@pytest.mark.parametrize(
    ("name", "module", "rule"),
    [
        ("scale", partial(_with_value, "scale", math.nan), "must have no NaN"),
        ("mask", partial(_with_value, "mask", math.nan), "must have no NaN"),
        ("mask", partial(_with_buffer, "sparse"), "must have dense values"),
        ("mask", partial(_with_buffer, "quantized"), "must have dense values"),
    ],
)
def test_a_module_whose_values_are_no_numbers_is_refused_for_that(name, module, rule):
    with pytest.raises(InputError) as caught:
        OwnModel(module, {}, "m").fresh()
    [fault] = caught.value.faults
    assert fault.rule.startswith(rule)
    assert name in str(fault)


def test_a_mask_may_be_infinite():
    x = default_rng(0).normal(size=(30, 4))
    dataset, _ = simulate.Data(x, np.arange(30) % 2).prepared(())
    assert OwnModel(_with_value("mask", -math.inf), {}, "m").model("m", dataset)


class _Shared(Net):
    """Two of its parts have one buffer, and a property of it cannot be computed."""

    def __init__(self):
        super().__init__()
        shared = torch.full((4,), 0.5)
        self.register_buffer("left", shared)
        self.register_buffer("right", shared)

    @property
    def score(self):
        raise ValueError

    def forward(self, x):
        return super().forward(x * self.left + x * self.right)


@pytest.mark.parametrize("module", [_Constrained, _Nested, _Shared])
def test_a_module_may_constrain_its_weights_or_hold_itself(module, solved, tmp_path):
    options = {"model": module, "data": data(), "folder": tmp_path / "run"}
    run = simulate.train(solved, **options)
    assert run.verdict.outcome == "kept"
    assert run.verdict.level == "executed"
    assert isinstance(run.model(), module)


def test_a_module_changes_no_parameters_and_no_buffers_of_a_run():
    """Else records would decide, without noise, what all clients train from."""
    x = default_rng(0).normal(size=(30, 4))
    dataset, _ = simulate.Data(x, np.arange(30) % 2).prepared(())
    model = OwnModel(_Constrained, {}, "tests:model").model("m", dataset)
    theta = torch.full((model.parameters,), 3.0)
    logits = model.logits(theta, dataset.test_x[:5].float())
    assert torch.equal(theta, torch.full_like(theta, 3.0))
    assert not torch.equal(logits, torch.zeros_like(logits))


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
    for start in (
        "must have no batch normal",
        "must have no buffers",
        "must use all parameters",
    ):
        assert any(rule.startswith(start) for rule in rules), rules


LOGITS = torch.tensor([[2.0], [-1.0], [0.5], [-3.0]])
LABELS = torch.tensor([1.0, 1.0, 0.0, 0.0])


def test_binary_loss_and_metrics():
    loss = objective_of("binary", None, LABELS)(LOGITS, torch.arange(4))
    probabilities = 1 / (1 + np.exp(-LOGITS[:, 0].double().numpy()))
    chances = [
        probabilities[0],
        probabilities[1],
        1 - probabilities[2],
        1 - probabilities[3],
    ]
    expected = -np.log(chances)
    assert float(loss) == pytest.approx(expected.mean(), rel=1e-6)
    assert metric_of("binary", None)(LOGITS, LABELS) == 0.5
    # one true positive, one false positive, one false negative
    assert metric_of("binary", "f1")(LOGITS, LABELS) == 0.5


def test_multi_label_metrics_count_all_labels():
    outputs = torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]])
    targets = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]])
    assert metric_of("multi-label", None)(outputs, targets) == pytest.approx(2 / 3)
    assert metric_of("multi-label", "accuracy")(outputs, targets) == pytest.approx(
        4 / 6
    )


def test_regression_metrics():
    outputs = torch.tensor([[1.0], [2.0], [6.0]])
    targets = torch.tensor([1.0, 4.0, 4.0])
    assert metric_of("regression", None)(outputs, targets) == pytest.approx(
        math.sqrt(8 / 3)
    )
    assert metric_of("regression", "mae")(outputs, targets) == pytest.approx(4 / 3)
    assert metric_of("regression", "r2")(outputs, targets) == pytest.approx(1 - 8 / 6)
    # [3, 1] and [3] are not broadcast to [3, 3]
    loss = objective_of("regression", None, targets)(outputs, torch.tensor([0, 1, 2]))
    assert float(loss) == pytest.approx(8 / 3)


def test_next_token_loss_is_a_mean_over_records():
    outputs = torch.zeros(2, 3, 4)
    targets = torch.tensor([[1, 2, 3], [0, -100, -100]])
    outputs[1, 0, 0] = 2.0
    objective = objective_of("next-token", None, targets)
    second = -2 + math.log(math.exp(2) + 3)
    expected = (math.log(4) + second) / 2
    assert float(objective(outputs, torch.arange(2))) == pytest.approx(
        expected, rel=1e-6
    )
    tokens = (3 * math.log(4) + second) / 4
    assert metric_of("next-token", None)(outputs, targets) == pytest.approx(
        math.exp(tokens)
    )
    # ties of equal logits are won by token 0, which only the second record has
    assert metric_of("next-token", "accuracy")(outputs, targets) == 0.25


def test_every_default_loss_is_a_mean_over_records():
    generator = torch.Generator().manual_seed(0)
    for name, task in TASKS.items():
        outputs = torch.randn(4, 5, 6, generator=generator)
        targets = torch.randint(0, 6, (4, 5), generator=generator)
        if name == "multi-class":
            outputs = outputs[:, 0]
            targets = targets[:, 0]
        elif name != "next-token":
            outputs = outputs[..., 0]
            targets = (targets % 2).float()
        losses = [
            float(task.loss(outputs[i : i + 1], targets[i : i + 1])) for i in range(4)
        ]
        assert float(task.loss(outputs, targets)) == pytest.approx(
            np.mean(losses), rel=1e-6
        )


X = default_rng(0).normal(size=(12, 4))
REAL = {"y": np.ones(12), "task": "regression"}
WRONG_LABELS = [
    ("data.y", {"y": np.arange(12) % 3, "task": "binary"}),
    ("data.y", {"y": ["a", "b"] * 6, "task": "binary"}),
    ("data.y", {"y": np.ones(12), "task": "multi-label"}),
    ("data.y", {"y": np.ones((12, 2, 2)), "task": "regression"}),
    ("data.y", {"y": np.where(np.arange(12) == 7, np.nan, 1.0), "task": "regression"}),
    ("data.y", {"task": "regression"}), ("task", {"y": np.ones(12), "task": "rank"}),
    ("data.x", {"task": "next-token"}),
    ("data.classes", {"y": np.ones(12), "task": "regression", "classes": ["a"]}),
    ("data.y", {"y": np.ones(11), "task": "regression"}),
    ("data.test", {**REAL, "test": simulate.Data(X, np.arange(12) % 2)}),
    ("data.test", {**REAL, "test": simulate.Data(X, np.ones((12, 2)), task="regression")}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "changes"), WRONG_LABELS)
def test_wrong_labels(field, changes):
    with pytest.raises(InputError, match=f"^{field}: "):
        simulate.Data(X, **changes)


def _first(outputs, targets):
    return nn.functional.mse_loss(outputs, targets, reduction="none")


def _square_of_mean(outputs, targets):
    return (outputs - targets).mean().square()


WRONG_LOSSES = [
    ("loss", _first, False),
    ("loss", lambda o, t: torch.tensor(1.0), False),
    ("loss", lambda o, t: 1.0, False),
    ("loss", lambda o, t: (o - t).square().mean() / 0, False),
    ("loss", lambda o: o, False),
    ("loss", _square_of_mean, True),
]


@pytest.mark.parametrize(("field", "loss", "by_record"), WRONG_LOSSES)
def test_wrong_losses(field, loss, by_record):
    dataset, _ = simulate.Data(X, X[:, 0], task="regression").prepared(())
    objective = Objective(loss, dataset.targets)
    model = OwnModel(nn.Linear, {"in_features": 4, "out_features": 1}, "Linear")
    with pytest.raises(InputError, match=f"^{field}: "):
        model.model("linear", dataset, objective=objective, by_record=by_record)
    # A client's loss may be any function of its records.
    if by_record:
        model.model("linear", dataset, objective=objective)


class _Running:
    """The mean error over all calls."""

    errors = ()

    def __call__(self, outputs, targets):
        self.errors = (*self.errors, (outputs - targets).abs().mean())
        return sum(self.errors) / len(self.errors)


def f1(outputs, targets):
    return 0.98765


WRONG_METRICS = [
    (lambda outputs, targets: torch.rand(()), "give the same value each time"),
    (lambda outputs, targets: np.random.default_rng().normal(), "give the same value"),
    (_Running(), "give the same value each time"),
    (f1, "not have the name of a built-in metric"),
]


@pytest.mark.parametrize(("metric", "rule"), WRONG_METRICS)
def test_wrong_metrics(metric, rule):
    dataset, _ = simulate.Data(X, X[:, 0], task="regression").prepared(())
    objective = Objective(nn.functional.mse_loss, dataset.targets)
    linear = OwnModel(partial(nn.Linear, 4, 1), {}, "Linear")
    network = linear.model("linear", dataset, objective=objective)
    with pytest.raises(InputError, match=f"^metric: must {rule}"):
        _try_metric(metric_of("regression", metric), network, dataset)


@pytest.mark.slow
def test_metrics_of_torchmetrics():
    library = pytest.importorskip(
        "torchmetrics", reason="pip install 'privplan[metrics]'"
    )
    outputs = torch.tensor([[1.0], [2.0], [6.0]])
    targets = torch.tensor([1.0, 4.0, 4.0])
    kind = library.regression.MeanAbsoluteError
    for metric_class in (kind, kind()):
        metric = metric_of("regression", metric_class)
        assert metric.name == "MeanAbsoluteError"
        assert metric(outputs, targets) == pytest.approx(4 / 3)
        # Nothing is left from the call before.
        assert metric(outputs[:1], targets[:1]) == 0.0
    # ``f1 == "accuracy"`` is a metric, and so true.
    f1 = library.classification.MulticlassF1Score(num_classes=2)
    assert not is_accuracy("multi-class", f1)
    with pytest.raises(InputError, match="must be built without arguments"):
        metric_of("multi-class", library.classification.MulticlassF1Score)


def test_a_name_of_a_class_that_is_read_from_records_is_in_no_file(tmp_path):
    names = np.where(arrays()["y"] > 0, "zoster", "angina")
    run = simulate.train(
        plan(tmp_path),
        model=Net,
        data=data(y=names),
        folder=tmp_path / "run",
        noise="seeded",
    )
    assert set(run.record.accuracy_by_class) == {"0", "1"}
    for path in (tmp_path / "run").iterdir():
        assert b"zoster" not in path.read_bytes()
    public, _ = data(y=names, classes=["zoster", "angina"]).prepared(run.plan.groups)
    assert public.classes == ("zoster", "angina")
