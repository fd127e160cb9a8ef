"""Models against their plain PyTorch counterparts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from privplan.errors import InputError
from privplan.files import load_yaml
from privplan.spec.presets import PRESETS, preset
from privplan.spec.spec import Spec
from simulate.models.fast import Chain
from simulate.models.layers import Conv, Linear, Pool, Relu, input_shapes, shape_after
from simulate.models.modular import PRETRAINED
from simulate.models.network import Model
from simulate.models.registry import MODELS, model


def resnet_parameters(blocks: tuple[int, ...], stem: int) -> int:
    """By hand: convolutions without bias, scale and shift of each normalisation, dense layer."""
    total, inputs = stem * stem * 3 * 64 + 2 * 64, 64
    for width, count in zip((64, 128, 256, 512), blocks, strict=True):
        for index in range(count):
            total += 9 * width * (inputs + width) + 4 * width
            total += inputs * width + 2 * width if width > 64 and index == 0 else 0
            inputs = width
    return total + 512 * 10 + 10


def lstm_parameters() -> int:
    """By hand: embedding, four gates of two layers with two biases each, dense layer."""
    return 80 * 8 + 4 * 256 * (8 + 256 + 2) + 4 * 256 * (256 + 256 + 2) + 256 * 80 + 80


PARAMETERS = {  # by hand: weights plus biases, layer by layer
    "cnn-2": (25 * 16 + 16) + (16 * 25 * 32 + 32) + (32 * 49 * 10 + 10),
    "cnn-2-valid": (25 * 16 + 16) + (16 * 25 * 32 + 32) + (32 * 16 * 10 + 10),
    "cnn-2-wide": (25 * 32 + 32) + (32 * 25 * 64 + 64) + (64 * 16 * 10 + 10),
    "cnn-3": (27 * 32 + 32) + (9 * 32 * 16 + 16) + (9 * 16 * 48 + 48) + 769 * 64 + 65 * 10,
    "cnn-digits": (9 * 16 + 16) + (16 * 16 * 10 + 10),
    "cnn-dp2-fedsam": (28 * 64 + 577 * 128 + 1153 * 256) + 1025 * 256 + 257 * 128 + 129 * 10,
    "cnn-hyperfl-2": (26 * 16 + 401 * 32) + 801 * 128 + 129 * 10,
    "cnn-hyperfl-3": (76 * 16 + 401 * 32 + 289 * 64) + 577 * 128 + 129 * 10,
    "lstm": lstm_parameters(),
    "mlp-digits": (64 * 32 + 32) + (32 * 10 + 10),
    "resnet-10": resnet_parameters((1, 1, 1, 1), stem=3),
    "resnet-18": resnet_parameters((2, 2, 2, 2), stem=3),
    "resnet-18-imagenet": resnet_parameters((2, 2, 2, 2), stem=7),
    "resnet-34": resnet_parameters((3, 4, 6, 3), stem=3),
    "resnet-34-imagenet": resnet_parameters((3, 4, 6, 3), stem=7),
}
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


def test_parameter_counts_of_the_presets():
    for name in PRESETS:
        planned = Spec.parse(load_yaml(preset(name), "preset")).model
        assert model(planned.name).parameters == planned.parameters, name


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
    assert (network.name, network.input_shape, network.classes) == (name, shape, classes)
    with torch.no_grad():
        logits = network.logits(network.initial(generator()), records(network, 2))
    assert logits.shape == (2, classes)


@pytest.mark.parametrize("name", ["cnn-2:", "cnn-2:ten", "cnn-2:0", "cnn-2:1x2x2", "lstm:a:1"])
def test_sizes_that_cannot_be_are_refused(name):
    with pytest.raises(InputError, match=r"^model\.name: must "):
        model(name)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_parameter_count_is_that_of_the_plain_module(name):
    network = model(name)
    assert network.name == name
    assert network.parameters == PARAMETERS[name]
    assert network.parameters == sum(p.numel() for p in network.module().parameters())


def test_the_page_lists_every_model_with_its_sizes():
    page = (Path(__file__).parents[3] / "docs" / "models.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| `")]
    assert {line.split("`")[1] for line in lines} == set(MODELS)
    for line in lines:
        _, name, count, shape, classes, *_ = (cell.strip(" `") for cell in line.split("|"))
        network = model(name)
        sides = "x".join(map(str, network.input_shape)).replace("80", "80 characters")
        assert (f"{network.parameters:,}", sides, str(network.classes)) == (count, shape, classes)
    assert all(f"`{kind}:FOLDER`" in page for kind in PRETRAINED)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(InputError) as caught:
        model("resnet-1000")
    message = str(caught.value)
    assert "resnet-1000" in message
    assert all(name in message for name in MODELS)


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


@pytest.mark.parametrize("name", sorted(MODELS))
def test_logits_can_be_differentiated(name):
    network = model(name)
    theta = network.initial(generator()).requires_grad_()
    network.logits(theta, records(network, 2)).square().sum().backward()
    assert theta.grad is not None
    assert theta.grad.abs().sum() > 0


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


@pytest.mark.parametrize("name", ["cnn-2", "resnet-10", "lstm"])
def test_initial_parameters_depend_on_the_generator_alone(name):
    network = model(name)
    state = torch.get_rng_state()
    first, again = network.initial(generator(5)), network.initial(generator(5))
    assert torch.equal(first, again)
    assert not torch.equal(first, network.initial(generator(6)))
    assert torch.equal(torch.get_rng_state(), state)
    assert first.dtype == torch.float32


@pytest.mark.parametrize("name", CHAINS)
def test_shapes_by_layer_are_those_of_the_plain_module(name):
    network = model(name)
    x, sizes = torch.rand(2, *network.input_shape), []
    for layer in network.module():
        if not isinstance(layer, nn.Flatten):
            sizes.append(x[0].numel())
        x = layer(x)
    found = input_shapes(network.layers, network.input_shape)
    assert [math.prod(shape) for shape in found] == sizes
    assert shape_after(network.layers[-1], found[-1]) == (network.classes,)


def test_shapes_after_odd_sides():
    assert shape_after(Pool(), (3, 7, 9)) == (3, 3, 4)
    assert shape_after(Conv(3, 8, size=5, padding=1), (3, 7, 9)) == (8, 5, 7)
    assert shape_after(Relu(), (3, 7, 9)) == (3, 7, 9)
    assert shape_after(Linear(189, 4), (3, 7, 9)) == (4,)
