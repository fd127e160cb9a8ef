"""Frozen models with adapters: where they sit, what is frozen, and weights from disk."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from simulate.models.registry import model

transformers = pytest.importorskip("transformers")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    """A tiny transformer of two blocks of 16 features, as the library saves it."""
    folder: Path = tmp_path_factory.mktemp("weights")
    transformers.utils.logging.disable_progress_bar()
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        image_size=16, patch_size=8, num_labels=4,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        transformers.ViTForImageClassification(config).save_pretrained(folder)
    return f"vit:{folder}"


@pytest.fixture(params=["cnn-digits", "vit"])
def name(request, vit):
    return vit if request.param == "vit" else request.param


def test_it_starts_as_the_frozen_model(name):
    base, found = model(name), model(f"adapters:{name}")
    theta, whole = found.initial(generator()), base.initial(generator())
    whole[base.head] = theta[found.head]
    x = torch.rand(3, *base.input_shape, generator=generator(1))
    torch.testing.assert_close(found.logits(theta, x), base.logits(whole, x), rtol=1e-4, atol=1e-5)


def test_the_body_is_the_same_for_every_seed_and_is_not_trained(name):
    found = model(f"adapters:{name}")
    names = [key for key, _ in found.shapes]
    assert all(".adapter." in key for key in names[:-2])
    one, other = (dict(model(f"adapters:{name}").module().named_buffers()) for _ in range(2))
    assert one
    for key, value in one.items():
        torch.testing.assert_close(value, other[key], rtol=0, atol=0)


def test_gradients_against_the_plain_module(name):
    found = model(f"adapters:{name}")
    theta = found.initial(generator())
    theta += 0.1 * torch.rand(len(theta), generator=generator(2))
    x = torch.rand(2, *found.input_shape, generator=generator(1))
    y = torch.tensor([0, 1])
    network = found.module().eval()
    nn.utils.vector_to_parameters(theta, network.parameters())
    loss = nn.functional.cross_entropy(network(x), y)
    slopes = torch.autograd.grad(loss, list(network.parameters()))
    expected = torch.cat([slope.flatten() for slope in slopes])
    packed = found.packed_gradients(found.pack(theta[None]), x[None], y[None])
    torch.testing.assert_close(found.unpack(packed, 1)[0], expected, rtol=1e-4, atol=1e-6)


def test_weights_come_from_disk_and_adapters_sit_behind_blocks(vit):
    found = model(f"adapters:{vit}")
    assert found.parameters == 2 * (16 * 8 + 8 + 8 * 16 + 16) + 16 * 4 + 4
    loaded = model(vit).initial(generator())
    frozen = {float(value.sum()) for value in found.module().buffers() if value.is_floating_point()}
    base, place = model(vit), 0
    for _, shape in base.shapes:
        size = shape.numel() if isinstance(shape, torch.Size) else torch.Size(shape).numel()
        if place < base.head.start:
            assert float(loaded[place : place + size].view(shape).sum()) in frozen
        place += size
