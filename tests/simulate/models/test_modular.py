"""Models given by a module: training against plain loops of PyTorch, on both paths."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from simulate.local import dp_sgd as per_record
from simulate.local import sgd
from simulate.local.dp_sgd import clipped_sums
from simulate.local.sgd import PADDING, gradients, local_sgd
from simulate.models import modular
from simulate.models.fast import Chain
from simulate.models.network import Model
from simulate.models.registry import MODELS, model

CLIENTS, STEPS, BATCH = 2, 2, 3
MODULAR = [name for name in sorted(MODELS) if not isinstance(model(name), Chain)]
SMALL = ["lstm:x6", "resnet-10:3x16x16"]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batches(network: Model) -> tuple[Tensor, Tensor]:
    """Random records; client 1 has two of them in each step."""
    draw, shape = generator(1), (CLIENTS, STEPS, BATCH, *network.input_shape)
    if len(network.input_shape) == 1:
        x = torch.randint(0, network.classes, shape, generator=draw)
    else:
        x = torch.rand(shape, generator=draw)
    y = torch.randint(0, network.classes, shape[:3], generator=draw)
    y[1, :, 1] = PADDING
    return x, y


def gradient(module: nn.Module, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Gradient of the mean cross-entropy [d], by plain autograd on the plain module."""
    nn.utils.vector_to_parameters(theta.clone(), module.parameters())
    module.zero_grad()
    functional.cross_entropy(module(x), y).backward()
    return torch.cat([value.grad.flatten() for value in module.parameters()])


SLOW = [name for name in MODULAR if name.startswith("resnet-34")]
QUICK = [name for name in MODULAR if name not in SLOW]


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def test_gradients_are_those_of_the_plain_module(name):
    """Both paths: clients one after the other, and all of them at once as on a GPU."""
    network = model(f"{name}:3x16x16" if name.startswith("resnet") else name)
    thetas = torch.stack([network.initial(generator(seed)) for seed in range(CLIENTS)])
    x, y = (value[:, 0, :2] for value in batches(network))
    found = gradients(network, thetas, x, y)
    whole = sgd._gradients_whole(network, thetas, x, y)
    for client in range(CLIENTS):
        present = y[client] != PADDING
        args = thetas[client], x[client][present], y[client][present]
        expected = gradient(network.module(), *args)
        scale = float(expected.abs().max())
        torch.testing.assert_close(found[client], expected, atol=1e-5 * scale, rtol=1e-4)
        torch.testing.assert_close(whole[client], expected, atol=1e-5 * scale, rtol=1e-4)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", SMALL)
def test_updates_are_those_of_a_plain_loop(name, momentum):
    network = model(name)
    theta = network.initial(generator())
    x, y = batches(network)
    y[0, 1] = PADDING  # a step without records
    found = local_sgd(network, theta, x, y, learning_rate=0.1, momentum=momentum)
    starts = theta.expand(CLIENTS, -1)
    whole = sgd._descend_whole(network, starts, x, y, 0.1, momentum)
    module = network.module()
    for client in range(CLIENTS):
        after, speed = theta.clone(), torch.zeros_like(theta)
        for records, labels in zip(x[client], y[client], strict=True):
            present = labels != PADDING
            if present.any():
                slope = gradient(module, after, records[present], labels[present])
                speed = momentum * speed + slope
                after = after - 0.1 * speed
        torch.testing.assert_close(found[client], after - theta, atol=2e-5, rtol=1e-3)
        torch.testing.assert_close(whole[client], after - theta, atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("name", SMALL)
def test_clipped_sums_are_those_of_single_gradients(name, monkeypatch):
    network = model(name)
    monkeypatch.setattr(modular, "BLOCK_RECORDS", 2)  # the last block is smaller
    thetas = torch.stack([network.initial(generator(seed)) for seed in range(CLIENTS)])
    x, y = (value[:, 0] for value in batches(network))
    module = network.module()
    single = [gradient(module, thetas[0], x[0, [i]], y[0, [i]]) for i in range(BATCH)]
    bound = float(torch.stack(single).norm(dim=1).mean())
    found = clipped_sums(network, thetas, x, y, clipping_norm=bound)
    whole = per_record._sums_on_device(network, thetas, x, y, bound)
    expected = torch.stack([value * min(1.0, bound / float(value.norm())) for value in single])
    torch.testing.assert_close(found.total[0], expected.sum(0), atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(whole.total, found.total, atol=1e-4, rtol=1e-3)
    assert 0 < int(found.clipped[0]) < BATCH
    assert torch.equal(whole.clipped, found.clipped)


@pytest.mark.parametrize("name", [*SMALL, "adapters:cnn-digits"])
def test_a_module_may_be_used_first_inside_vmap(name):
    theta = model(name).initial(generator())[None]
    network = model(name)  # nothing of it is built yet
    x, y = (value[:1, 0] for value in batches(network))
    found = per_record._sums_on_device(network, theta, x, y, 0.1)
    expected = clipped_sums(network, theta, x, y, clipping_norm=0.1)
    torch.testing.assert_close(found.total, expected.total, atol=1e-4, rtol=1e-3)


def test_a_record_that_is_not_finite_adds_nothing():
    network = model("resnet-10:3x16x16")
    thetas = network.initial(generator())[None]
    x, y = (value[:1, 0] for value in batches(network))
    expected = clipped_sums(network, thetas, x[:, 1:], y[:, 1:], clipping_norm=0.1)
    x[0, 0] = torch.nan
    found = clipped_sums(network, thetas, x, y, clipping_norm=0.1)
    assert int(found.excluded) == 1
    torch.testing.assert_close(found.total, expected.total, atol=1e-6, rtol=1e-4)


def test_same_bits_whatever_the_number_of_threads():
    network = model("lstm:x6")
    theta = network.initial(generator())
    x, y = batches(network)
    first = local_sgd(network, theta, x, y, learning_rate=0.1, workers=1)
    again = local_sgd(network, theta, x, y, learning_rate=0.1, workers=2)
    assert torch.equal(first, again)
    assert not first.requires_grad


def test_a_resnet_is_the_published_one():
    """Written out once more over a plain list of tensors (He et al. 2016; Wu and He 2018)."""
    network = model("resnet-18")
    theta, x = network.initial(generator()), torch.rand(2, 3, 32, 32, generator=generator(1))
    sizes = [torch.Size(shape).numel() for _, shape in network.shapes]
    parts = zip(network.shapes, theta.split(sizes), strict=True)
    tensors: Iterator[Tensor] = iter([part.view(shape) for (_, shape), part in parts])

    def step(x: Tensor, stride: int = 1) -> Tensor:
        weight = next(tensors)
        x = functional.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        return functional.group_norm(x, 32, next(tensors), next(tensors))

    value = step(x).relu()
    for stage in range(4):
        for block in range(2):
            stride = 2 if stage and not block else 1
            inner = step(step(value, stride).relu())
            value = (inner + (step(value, 2) if stride == 2 else value)).relu()
    expected = functional.adaptive_avg_pool2d(value, 1).flatten(1) @ next(tensors).T
    expected = expected + next(tensors)
    assert next(tensors, None) is None
    with torch.no_grad():
        torch.testing.assert_close(network.logits(theta, x), expected, atol=1e-5, rtol=1e-4)
