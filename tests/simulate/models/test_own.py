"""The user's module: fast kernels, dropout by streams, repairs, frozen parts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from torch import nn
from torch.nn import functional
from torch.testing import assert_close

import simulate
from privplan.errors import InputError
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.yaml_text import load_yaml
from simulate.local.dp_sgd import clipped_sums
from simulate.local.sgd import _gradients_whole, gradients, local_sgd
from simulate.models.compiled import Compiled, compiled
from simulate.models.modular import Modular
from simulate.models.objective import with_seeds
from simulate.models.own import OwnModel
from simulate.models.randomness import SeededRandomness
from simulate.splits import head
from simulate.tasks import objective_of
from tests.simulate.own_runs import SPEC, Net, data


class Dropped(nn.Module):
    """A residual module with dropout."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.last = nn.Linear(4, 2)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        hidden = x + self.drop(torch.relu(self.first(x)))
        return self.last(functional.dropout(hidden, 0.2, self.training))


def dropped():
    x = default_rng(0).normal(size=(30, 4))
    dataset, _ = simulate.Data(x, np.arange(30) % 2).prepared(())
    model = OwnModel(Dropped, {}, "Dropped").model("m", dataset)
    assert isinstance(model, Modular)
    assert model.stochastic
    return model


def seeded_batches(clients, steps):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(clients, steps, 5, 4, generator=generator)
    y = torch.randint(0, 2, x.shape[:3], generator=generator)
    y[0, 0, 3:] = -1
    seeds = torch.randint(0, 2**31, (clients, steps), generator=generator)
    return x, with_seeds(y, seeds)


def test_dropout_follows_the_seed_of_the_client_s_step():
    model = dropped()
    x, y = seeded_batches(1, 1)
    theta = model.initial(torch.Generator().manual_seed(0))
    module = model.module().train()
    nn.utils.vector_to_parameters(theta, module.parameters())
    with SeededRandomness(int(y[0, 0, 0] >> 32)):
        logits = module(x[0, 0, :3])
    functional.cross_entropy(logits, y[0, 0, :3] & 1).backward()
    expected = torch.cat(
        [parameter.grad.flatten() for parameter in module.parameters()]
    )
    [gradient] = gradients(model, theta[None], x[:, 0], y[:, 0])
    assert_close(gradient, expected)


def test_dropout_has_the_same_bits_on_any_number_of_threads_and_in_any_cohort():
    model = dropped()
    x, y = seeded_batches(6, 3)
    theta = model.initial(torch.Generator().manual_seed(0))
    updates = local_sgd(model, theta, x, y, learning_rate=0.1, workers=1)
    torch.rand(7)  # the generator of the process is not used
    again = local_sgd(model, theta, x, y, learning_rate=0.1, workers=3)
    assert torch.equal(again, updates)
    of_two = local_sgd(model, theta, x[2:4], y[2:4], learning_rate=0.1)
    assert torch.equal(of_two, updates[2:4])
    plain = torch.where(y >= 0, y & (2**32 - 1), y)
    without = local_sgd(model, theta, x, plain, learning_rate=0.1)
    assert not torch.equal(without, updates)  # other seeds, other masks


def test_dropout_of_records_that_are_protected_one_by_one():
    model = dropped()
    x, y = seeded_batches(3, 1)
    thetas = model.initial(torch.Generator().manual_seed(0)).repeat(3, 1)
    batch = (model, thetas, x[:, 0], y[:, 0])
    sums = clipped_sums(*batch, clipping_norm=0.1, workers=1).total
    by_threads = clipped_sums(*batch, clipping_norm=0.1, workers=2).total
    assert torch.equal(sums, by_threads)
    assert (sums.norm(dim=1) <= 0.1 * 5 + 1e-5).all()

    # Of one record four times, each has a mask of its own.
    record = x[:1, 0, :1]
    label = y[:1, 0, :1]
    repeated = (record.expand(1, 4, 4), label.expand(1, 4))
    same = clipped_sums(model, thetas[:1], *repeated, clipping_norm=1e9)
    single = clipped_sums(model, thetas[:1], record, label, clipping_norm=1e9)
    assert not torch.allclose(same.total, 4 * single.total)


def test_fix_replaces_batch_normalisation_and_keeps_its_scale():
    def build():
        norm = nn.BatchNorm2d(6)
        nn.init.constant_(norm.weight, 2.0)
        return nn.Sequential(nn.Conv2d(1, 6, 3), norm, nn.Flatten(), nn.Linear(24, 2))

    x = default_rng(0).normal(size=(12, 1, 4, 4))
    dataset, _ = simulate.Data(x, np.arange(12) % 2).prepared(())
    with pytest.raises(InputError, match=r"use nn\.GroupNorm \(--fix\)"):
        OwnModel(build, {}, "build").model("m", dataset)
    module = OwnModel(build, {}, "build", fix=True).model("m", dataset).module()
    assert isinstance(module[1], nn.GroupNorm)
    assert module[1].num_groups == 3
    assert (module[1].weight == 2).all()
    flat = nn.Sequential(nn.BatchNorm1d(50))
    odd = OwnModel(flat, {}, "odd", fix=True).fresh()
    assert odd[0].num_groups == 25
    assert odd(torch.randn(1, 50)).isfinite().all()


class Tied(Net):
    """A net whose frozen first layer is used twice."""

    def __init__(self):
        super().__init__()
        self.first.requires_grad_(False)
        self.again = self.first

    def forward(self, x):
        return self.last(torch.relu(self.again(x) + self.first(x)) * self.scale)


def test_frozen_parameters_stay_on_the_server():
    dataset, _ = data().prepared(_groups())
    own_model = OwnModel(Tied, {}, "Tied")
    model = own_model.model("m", dataset)
    assert own_model.parameters() == model.parameters == 6 + 14
    assert [name for name, _ in model.shapes] == ["scale", "last.weight", "last.bias"]
    module = Tied()
    module.load_state_dict(model.export().state_dict())
    theta = model.initial(torch.Generator().manual_seed(4))
    trainable = [
        parameter for parameter in module.parameters() if parameter.requires_grad
    ]
    nn.utils.vector_to_parameters(theta, trainable)
    assert_close(model.logits(theta, dataset.test_x), module(dataset.test_x))


def test_frozen_parameters_are_in_the_digest():
    module = OwnModel(Tied, {}, "Tied").fresh()
    before = OwnModel(module, {}, "a").digest()
    assert before == OwnModel(module, {}, "b").digest()
    with torch.no_grad():
        module.first.weight += 1
    assert OwnModel(module, {}, "a").digest() != before


def _groups():
    return solve(Spec.parse(load_yaml(SPEC, "spec"))).groups


@pytest.mark.slow
def test_only_adapters_of_a_peft_model_are_parameters():
    peft = pytest.importorskip("peft", reason="pip install 'privplan[lora]'")

    def build():
        base = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        config = peft.LoraConfig(r=2, target_modules=["0", "2"])
        return peft.get_peft_model(base, config)

    dataset, _ = data().prepared(_groups())
    model = OwnModel(build, {}, "build").model("m", dataset)
    assert model.parameters == 2 * (4 + 8) + 2 * (8 + 2)
    assert all("lora_" in name for name, _ in model.shapes)


@pytest.mark.parametrize("is_unchunked", [False, True])
def test_gradients_of_other_losses_are_those_of_autograd(is_unchunked):
    x = default_rng(0).normal(size=(12, 4))
    dataset, _ = simulate.Data(x, x[:, :2], task="regression").prepared(())
    objective = objective_of("regression", nn.HuberLoss(), dataset.targets)
    model = OwnModel(Net, {}, "Net").model("m", dataset, objective=objective)
    theta = model.initial(torch.Generator().manual_seed(0))
    rows = torch.tensor([[0, 3, 5], [1, 2, -1]])
    inputs = dataset.train_x[rows.clamp(min=0)]
    gradients_of = _gradients_whole if is_unchunked else gradients
    _, gradient = gradients_of(model, theta.repeat(2, 1), inputs, rows)
    module = model.module()
    nn.utils.vector_to_parameters(theta, module.parameters())
    records = dataset.train_x[[1, 2]]
    nn.HuberLoss()(module(records), records[:, :2]).backward()
    expected = torch.cat(
        [parameter.grad.flatten() for parameter in module.parameters()]
    )
    assert_close(gradient, expected)


CLASSES = 3


@st.composite
def architectures(draw):
    """A random sequence of layers, and the shape of its records."""
    flat = draw(st.booleans())
    channels = draw(st.integers(1, 3))
    length = draw(st.integers(6, 11))
    shape: tuple[int, ...] = (channels, length, length)
    modules: list[nn.Module] = []
    if flat:
        shape = (draw(st.integers(1, 7)),) if draw(st.booleans()) else (2, 3)
    while not flat and len(modules) < 6 and draw(st.booleans()):
        kind = draw(st.sampled_from(["conv", "pool", "relu", "leaky"]))
        if kind == "conv":
            size = draw(st.integers(1, min(3, length)))
            padding = draw(st.integers(0, 1))
            outputs = draw(st.integers(1, 4))
            modules.append(nn.Conv2d(channels, outputs, size, padding=padding))
            channels = outputs
            length += 2 * padding - size + 1
        elif kind == "pool" and length >= 2:
            modules.append(nn.MaxPool2d(2))
            length //= 2
        else:
            modules.append(nn.ReLU() if kind == "relu" else nn.LeakyReLU(0.1))
    features = int(np.prod(shape)) if flat else channels * length * length
    modules.append(nn.Flatten())
    while draw(st.booleans()) and len(modules) < 9:
        width = draw(st.integers(1, 6))
        modules += [nn.Linear(features, width), nn.Sequential(nn.ReLU(), nn.Identity())]
        features = width
    return nn.Sequential(*modules, nn.Linear(features, CLASSES)), shape


def random_records(shape, clients, steps, batch):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(clients, steps, batch, *shape, generator=generator)
    y = torch.randint(0, CLASSES, x.shape[:3], generator=generator)
    y[0, :, -1] = -1  # padding
    return x, y


@settings(max_examples=12, deadline=None)
@given(architectures())
def test_random_architectures_give_the_results_of_the_general_path(case):
    module, shape = case
    x, y = random_records(shape, clients=3, steps=2, batch=4)
    labels = y.flatten().clamp(min=0)
    own_data = simulate.Data(x.flatten(0, 2), labels, classes=range(CLASSES))
    dataset, _ = own_data.prepared(())
    fast = OwnModel(module, {}, "module").model("module", dataset)
    assert isinstance(fast, Compiled)
    general = replace(fast.source, channels_last=False)
    theta = fast.initial(torch.Generator())
    assert torch.equal(theta, nn.utils.parameters_to_vector(module.parameters()))
    assert fast.shapes == general.shapes
    options = {"learning_rate": 0.1, "momentum": 0.5}
    expected = local_sgd(general, theta, x, y, **options)
    updates = local_sgd(fast, theta, x, y, **options)
    assert_close(updates, expected, rtol=1e-5, atol=1e-5)
    assert_close(fast.logits(theta, x[0, 0]), module(x[0, 0]), rtol=1e-5, atol=1e-5)
    batch = (theta, x[1, 0], y[1, 0])
    assert_close(
        fast.clipped_sum(*batch, 0.5),
        general.clipped_sum(*batch, 0.5),
        rtol=1e-5,
        atol=1e-5,
    )


class _Scaled(nn.Sequential):
    def forward(self, x):
        return 2 * super().forward(x)


def _hooked():
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    module[1].register_forward_hook(lambda part, inputs, output: 2 * output)
    return module


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.Flatten(), nn.Linear(2, 3)),
        nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.Flatten(), nn.Linear(8, 3)),
        nn.Sequential(nn.Conv2d(1, 2, (1, 3)), nn.Flatten(), nn.Linear(16, 3)),
        nn.Sequential(
            nn.Conv2d(1, 2, 2, padding="same"), nn.Flatten(), nn.Linear(32, 3)
        ),
        nn.Sequential(
            nn.Conv2d(1, 2, 3, padding_mode="reflect", padding=1), nn.Flatten()
        ),
        nn.Sequential(nn.MaxPool2d(2, stride=1), nn.Flatten(), nn.Linear(9, 3)),
        nn.Sequential(nn.MaxPool2d(2, ceil_mode=True), nn.Flatten(), nn.Linear(4, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(16, 3, bias=False)),
        nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.Tanh()),
        nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.ReLU()),
        nn.Sequential(nn.Linear(4, 3), nn.Flatten()),
        _Scaled(nn.Flatten(), nn.Linear(16, 3)),
        _hooked(),
    ],
    ids=str,
)
def test_modules_of_other_layers_keep_the_general_path(module):
    assert compiled(Modular("m", (1, 4, 4), 3, lambda: module), module) is None


def test_a_softmax_before_the_loss_is_warned_of_once(caplog):
    x = default_rng(0).normal(size=(30, 4))
    dataset, _ = simulate.Data(x, np.arange(30) % 2).prepared(())
    for last in (nn.Identity(), nn.LogSoftmax(1), nn.Sigmoid(), nn.Softmax(1)):
        module = nn.Sequential(nn.Linear(4, 2), last)
        name = f"ends in {type(last).__name__}"
        for _ in range(2):
            OwnModel(module, {}, name).model("m", dataset)
    warned = (
        "the outputs of ends in Softmax are probabilities, and its loss takes logits"
    )
    assert caplog.text.count("are probabilities") == caplog.text.count(warned) == 1


def test_a_personal_head_leaves_something_to_share():
    only_a_head = Modular("m", (4,), 2, lambda: nn.Linear(4, 2))
    with pytest.raises(InputError, match="must have parameters beside its last dense"):
        head().shared(only_a_head)
