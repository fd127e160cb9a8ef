"""Registered models against their plain modules, and initial parameters from a file."""

import hashlib
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from privplan.planning.recipe import recipe_lines
from privplan.spec.groups import PARAMETERS
from privplan.spec.groups import Model as Network
from privplan.spec.training import Initial
from simulate.algorithms.registry import algorithm
from simulate.models.chain import Chain
from simulate.models.registry import MODELS, model
from simulate.models.start import started
from tests.simulate import small

DEEP = [name for name in MODELS if name.startswith(("resnet-18", "resnet-34"))]
NAMES = [
    pytest.param(name, marks=pytest.mark.slow if name in DEEP else ())
    for name in MODELS
]
CHAINS = [name for name in sorted(MODELS) if isinstance(model(name), Chain)]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def plain(network, theta):
    module = network.module()
    nn.utils.vector_to_parameters(theta, module.parameters())
    return module


def records(network, *lead, seed=1):
    """Random records [*lead, *input_shape]: images, or characters of one dimension."""
    shape = (*lead, *network.input_shape)
    if len(network.input_shape) == 1:
        return torch.randint(0, network.classes, shape, generator=generator(seed))
    return torch.rand(shape, generator=generator(seed))


def test_published_parameter_counts():
    assert model("cnn-2").parameters == 28_938  # Robust-HDP, Table 5
    assert model("cnn-dp2-fedsam").parameters == 667_402  # DP2-FedSAM, Section 5.1
    # The same, and Robust-HDP.
    assert model("resnet-18-imagenet").parameters == 11_181_642
    # Robust-HDP, Table 6, without the parameters of the normalisation.
    wide = model("resnet-34-imagenet")
    scales = sum(math.prod(shape) for name, shape in wide.shapes if len(shape) == 1)
    assert wide.parameters - (scales - wide.classes) == 21_272_778
    # Those that a spec need not state.
    for name, count in PARAMETERS.items():
        assert model(name).parameters == count == Network(name=name).parameters


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("cnn-2:62", (1, 28, 28), 62),
        ("cnn-2:1x32x32", (1, 32, 32), 10),
        ("cnn-hyperfl-2:1x28x28:62", (1, 28, 28), 62),
        ("resnet-10:100", (3, 32, 32), 100),
        ("resnet-10:62:1x28x28", (1, 28, 28), 62),
        ("lstm:x20:30", (20,), 30),
    ],
)
def test_a_name_may_say_the_shape_and_the_classes(name, shape, classes):
    network = model(name)
    assert network.name == name
    assert network.input_shape == shape
    assert network.classes == classes
    with torch.no_grad():
        logits = network.logits(network.initial(generator()), records(network, 2))
    assert logits.shape == (2, classes)


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_head_are_those_of_the_plain_module(name):
    network = model(name)
    theta = network.initial(generator())
    tensors = dict(plain(network, theta).named_parameters())
    shapes = [(key, tuple(value.shape)) for key, value in tensors.items()]
    assert list(network.shapes) == shapes
    weight, bias = list(tensors.values())[-2:]
    assert weight.shape[0] == bias.shape[0] == network.classes
    assert torch.equal(theta[network.head], torch.cat([weight.flatten(), bias]))


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_plain_module(name):
    network = model(name)
    thetas = torch.stack([network.initial(generator(seed)) for seed in range(2)])
    rows = 123 if name in CHAINS else 3  # more than one block of rows
    x = records(network, rows)
    batches = records(network, 2, 3)
    with torch.no_grad():
        expected = plain(network, thetas[0])(x)
        assert expected.shape == (rows, network.classes)
        logits = network.logits(thetas[0], x)
        assert_close(logits, expected, atol=1e-5, rtol=1e-5)
        singly = torch.stack(list(map(network.logits, thetas, batches)))
        logits = network.logits_each(thetas, batches)
        assert_close(logits, singly, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_a_registered_name_needs_no_options_of_own_models(name):
    assert not Network(name=name, parameters=1).options
    options = Network(name="mine", parameters=1).options
    assert options == " --data DATA --model MODULE:CLASS"


@pytest.mark.parametrize("name", CHAINS)
def test_initial_parameters_follow_the_law_of_he(name):
    """He et al. 2015, Eq. 10: variance 2 / fan in, normal, so some are beyond 2 sigma.

    Biases are zero.
    """
    network = model(name)
    for layer in plain(network, network.initial(generator())):
        if isinstance(layer, nn.Conv2d | nn.Linear):
            deviation = (2 / layer.weight[0].numel()) ** 0.5
            spread = float(layer.weight.detach().std())
            assert spread == pytest.approx(deviation, rel=0.15)
            assert layer.weight.abs().max() > 2 * deviation
            assert not layer.bias.any()


NET = model("mlp-digits")
VALUES = torch.arange(NET.parameters, dtype=torch.float32) / 100


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "start.npy", VALUES.numpy())
    return tmp_path / "start.npy"


def seeded(seed=3):
    return torch.Generator().manual_seed(seed)


def pretrained(path, source):
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Initial(file=str(path), sha256=digest, source=source, head="drawn")


@pytest.mark.parametrize("name", ["mlp-digits", "cnn-2-valid"])
def test_a_drawn_head_is_the_models_own(tmp_path, name):
    net = model(name)
    np.save(tmp_path / "start.npy", np.full(net.parameters, 0.5, np.float32))
    begun = started(net, pretrained(tmp_path / "start.npy", "mnist")).initial(seeded())
    is_head = torch.zeros(net.parameters, dtype=torch.bool)
    is_head[net.head] = True
    assert torch.equal(begun[is_head], net.initial(seeded())[is_head])
    assert bool((begun[~is_head] == 0.5).all())


def test_every_method_starts_from_them(file):
    spec = small.plan().spec
    initial = pretrained(file, "digits").model_copy(update={"head": "loaded"})
    network = spec.model.model_copy(update={"initial": initial})
    spec = spec.model_copy(update={"model": network})
    planned = small.plan().model_copy(update={"spec": spec})
    for name in ("planned", "FedAvg", "GDPFed"):
        assert torch.equal(small.setting(algorithm(name, planned)).start, VALUES)
    [line] = [
        line for line in recipe_lines(planned) if line.startswith("initial parameters")
    ]
    assert "trained on digits" in line
    assert "only runs whose spending is counted" in line
    assert planned.digest != small.plan().digest
