"""Models against their plain PyTorch counterparts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from simulate.models.fast import Chain
from simulate.models.network import Model
from simulate.models.registry import MODELS, model

CHAINS = [name for name in sorted(MODELS) if isinstance(model(name), Chain)]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def plain(network: Model, theta: torch.Tensor) -> nn.Sequential:
    module = network.module()
    nn.utils.vector_to_parameters(theta, module.parameters())
    return module


def records(network: Model, *lead: int, seed: int = 1) -> torch.Tensor:
    """Random records [*lead, *input_shape]: images, or characters for a shape of one side."""
    shape = (*lead, *network.input_shape)
    if len(network.input_shape) == 1:
        return torch.randint(0, network.classes, shape, generator=generator(seed))
    return torch.rand(shape, generator=generator(seed))


def test_published_parameter_counts():
    assert model("cnn-2").parameters == 28_938  # Robust-HDP, Table 5
    assert model("cnn-dp2-fedsam").parameters == 667_402  # DP2-FedSAM, Section 5.1
    assert model("resnet-18-imagenet").parameters == 11_181_642  # the same, and Robust-HDP
    wide = model("resnet-34-imagenet")  # Robust-HDP, Table 6, without normalisation's parameters
    scales = sum(math.prod(shape) for name, shape in wide.shapes if len(shape) == 1)
    assert wide.parameters - (scales - wide.classes) == 21_272_778


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("cnn-2:62", (1, 28, 28), 62), ("cnn-2:1x32x32", (1, 32, 32), 10),
        ("cnn-hyperfl-2:1x28x28:62", (1, 28, 28), 62), ("resnet-10:100", (3, 32, 32), 100),
        ("resnet-10:62:1x28x28", (1, 28, 28), 62), ("lstm:x20:30", (20,), 30),
    ],
)  # fmt: skip
def test_a_name_may_say_the_shape_and_the_classes(name, shape, classes):
    network = model(name)
    assert (network.name, network.input_shape, network.classes) == (name, shape, classes)
    with torch.no_grad():
        logits = network.logits(network.initial(generator()), records(network, 2))
    assert logits.shape == (2, classes)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_shapes_and_head_are_those_of_the_plain_module(name):
    network = model(name)
    theta = network.initial(generator())
    tensors = dict(plain(network, theta).named_parameters())
    assert dict(network.shapes) == {key: tuple(value.shape) for key, value in tensors.items()}
    assert [key for key, _ in network.shapes] == list(tensors)
    weight, bias = list(tensors.values())[-2:]
    assert weight.shape[0] == bias.shape[0] == network.classes
    assert torch.equal(theta[network.head], torch.cat([weight.flatten(), bias]))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_logits_are_those_of_the_plain_module(name):
    network = model(name)
    theta = network.initial(generator())
    rows = 123 if name in CHAINS else 3  # more than one block of rows
    x = records(network, rows)
    with torch.no_grad():
        expected = plain(network, theta)(x)
        assert expected.shape == (rows, network.classes)
        torch.testing.assert_close(network.logits(theta, x), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_logits_of_each_client_are_those_of_its_own_model(name):
    network = model(name)
    thetas = torch.stack([network.initial(generator(seed)) for seed in range(2)])
    x = records(network, 2, 3)
    with torch.no_grad():
        expected = torch.stack([network.logits(t, b) for t, b in zip(thetas, x, strict=True)])
        found = network.logits_each(thetas, x)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", CHAINS)
def test_initial_parameters_follow_the_law_of_he(name):
    """He et al. 2015, Eq. 10: variance 2 / fan in; biases zero; normal, so some beyond 2 sigma."""
    network = model(name)
    module = plain(network, network.initial(generator()))
    for layer in module:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            deviation = (2 / layer.weight[0].numel()) ** 0.5
            assert float(layer.weight.detach().std()) == pytest.approx(deviation, rel=0.15)
            assert layer.weight.abs().max() > 2 * deviation
            assert not layer.bias.any()
