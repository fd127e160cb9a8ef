"""Frozen models with adapters, and transformers from disk, on tiny ones made here."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.testing import assert_close

from simulate.local import sgd
from simulate.local.dp_sgd import clipped_sums
from simulate.local.sgd import PADDING, gradients, local_sgd
from simulate.models.registry import model


def library():
    """transformers, imported by the first test: it takes longer than they."""
    return pytest.importorskip("transformers")


TINY = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Folders `vit` and `roberta`, as the library saves them."""
    folder = tmp_path_factory.mktemp("weights")
    transformers = library()
    transformers.utils.logging.disable_progress_bar()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        image = transformers.ViTConfig(
            image_size=16, patch_size=8, num_labels=4, **TINY
        )
        transformers.ViTForImageClassification(image).save_pretrained(folder / "vit")
        text = transformers.RobertaConfig(
            vocab_size=40, max_position_embeddings=14, num_labels=3, **TINY
        )
        transformers.RobertaForSequenceClassification(text).save_pretrained(
            folder / "roberta"
        )
    return folder


def by_the_library(folder, x):
    """Logits of the library's own loading and masking."""
    kind = "SequenceClassification" if x.dtype == torch.int64 else "ImageClassification"
    loaded = getattr(library(), f"AutoModelFor{kind}").from_pretrained(folder).eval()
    with torch.no_grad():
        if x.dtype == torch.int64:
            return loaded(input_ids=x, attention_mask=(x != 1).long()).logits
        return loaded(pixel_values=x).logits


def records(shape, lead):
    """Images, or tokens of which the last ones are blank (token 1)."""
    if len(shape) == 3:
        return torch.rand(*lead, *shape, generator=generator(1))
    x = torch.randint(5, 40, (*lead, *shape), generator=generator(1))
    x[..., 0, 7:] = 1
    return x


@pytest.mark.parametrize(
    ("kind", "shape", "classes"),
    [
        pytest.param("vit", (3, 16, 16), 4, marks=pytest.mark.slow),
        ("roberta", (12,), 3),
    ],
)
def test_weights_on_disk_give_the_library_s_logits_and_gradients(
    weights, kind, shape, classes
):
    name = f"{kind}:{weights / kind}"
    network = model(name)
    assert network.name == name
    assert network.input_shape == shape
    assert network.classes == classes
    theta = network.initial(generator())
    assert len(theta) == network.parameters
    assert len(theta) == sum(part.numel() for part in network.module().parameters())
    assert [size for _, size in network.shapes[-2:]] == [(classes, 8), (classes,)]
    assert network.head == slice(network.parameters - 9 * classes, network.parameters)
    x = records(shape, (2, 3))
    expected = torch.stack([by_the_library(weights / kind, part) for part in x])
    thetas = theta.expand(2, -1)
    with torch.no_grad():
        assert_close(network.logits(theta, x[0]), expected[0], atol=1e-5, rtol=1e-4)
        assert_close(network.logits_each(thetas, x), expected, atol=1e-5, rtol=1e-4)
    y = torch.randint(0, classes, (2, 3), generator=generator(2))
    y[1, 2] = PADDING
    per_client = gradients(network, thetas, x, y)
    leaf = theta.clone().requires_grad_()
    functional.cross_entropy(network.logits(leaf, x[0]), y[0]).backward()
    assert_close(per_client[0], leaf.grad, atol=1e-6, rtol=1e-3)
    unchunked = sgd._gradients_whole(network, thetas, x, y)
    assert_close(unchunked, per_client, atol=1e-6, rtol=1e-3)
    sums = clipped_sums(network, thetas, x, y, clipping_norm=1e3).total
    assert_close(sums[0] / 3, per_client[0], atol=1e-6, rtol=1e-3)
    moved = local_sgd(network, theta, x[:, None], y[:, None], learning_rate=0.1)
    assert_close(moved, -0.1 * per_client, atol=1e-6, rtol=1e-3)


def test_another_number_of_classes_gets_a_fresh_head_and_keeps_the_rest(weights):
    network = model(f"vit:{weights / 'vit'}:1x28x28:10")
    assert network.input_shape == (1, 28, 28)
    assert network.classes == 10
    before = model(f"vit:{weights / 'vit'}").initial(generator())
    theta = network.initial(generator())
    body = network.head.start
    assert torch.equal(theta[:body], before[:body])
    assert torch.equal(theta, network.initial(generator()))
    assert not torch.equal(
        theta[network.head], network.initial(generator(1))[network.head]
    )
    assert network.logits(theta, records((1, 28, 28), (2,))).shape == (2, 10)


@pytest.fixture(params=["cnn-digits", "vit"])
def name(request, weights):
    return f"vit:{weights / 'vit'}" if request.param == "vit" else request.param


def test_it_starts_as_the_frozen_model(name):
    base = model(name)
    adapted = model(f"adapters:{name}")
    theta = adapted.initial(generator())
    base_theta = base.initial(generator())
    base_theta[base.head] = theta[adapted.head]
    x = torch.rand(3, *base.input_shape, generator=generator(1))
    assert_close(
        adapted.logits(theta, x), base.logits(base_theta, x), rtol=1e-4, atol=1e-5
    )


def test_gradients_against_the_plain_module(name):
    adapted = model(f"adapters:{name}")
    theta = adapted.initial(generator())
    theta += 0.1 * torch.rand(len(theta), generator=generator(2))
    x = torch.rand(2, *adapted.input_shape, generator=generator(1))
    y = torch.tensor([0, 1])
    network = adapted.module().eval()
    nn.utils.vector_to_parameters(theta, network.parameters())
    loss = nn.functional.cross_entropy(network(x), y)
    slopes = torch.autograd.grad(loss, list(network.parameters()))
    expected = torch.cat([slope.flatten() for slope in slopes])
    packed = adapted.packed_gradients(adapted.pack(theta[None]), x[None], y[None])
    assert_close(adapted.unpack(packed, 1)[0], expected, rtol=1e-4, atol=1e-6)


def test_weights_come_from_disk_and_adapters_sit_behind_blocks(weights):
    vit = f"vit:{weights / 'vit'}"
    adapted = model(f"adapters:{vit}")
    assert adapted.parameters == 2 * (8 * 8 + 8 + 8 * 8 + 8) + 8 * 4 + 4
    loaded = model(vit).initial(generator())
    frozen = {
        float(value.sum())
        for value in adapted.module().buffers()
        if value.is_floating_point()
    }
    base = model(vit)
    sizes = [math.prod(shape) for _, shape in base.shapes]
    tensors = torch.split(loaded, sizes)
    for (_, shape), values in zip(base.shapes[:-2], tensors, strict=False):
        assert float(values.view(shape).sum()) in frozen
