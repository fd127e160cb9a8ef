"""Clipped sums of single records' gradients against autograd, Opacus, and the bound itself."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn import functional

from privplan.errors import InputError
from simulate.local import dp_sgd as per_record
from simulate.local.dp_sgd import clipped_sums
from simulate.local.sgd import PADDING
from simulate.models.fast import Chain
from simulate.models.layers import Conv, Linear, Pool, Relu
from simulate.models.network import Model
from simulate.models.registry import model

CLIENTS, BATCH = 3, 21  # more than one block of records, the last one smaller
NAMES = ["cnn-2", "cnn-digits", "mlp-digits"]
ODD = Chain(
    name="odd",
    input_shape=(2, 7, 8),
    classes=4,
    layers=(
        Conv(2, 3, 3, 1), Relu(0.01), Pool(), Conv(3, 5, 2, 0), Linear(30, 7), Relu(), Linear(7, 4),
    ),
)  # fmt: skip


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def cohort(network: Model) -> tuple[Tensor, Tensor, Tensor]:
    """Parameters, records and labels; client 1 has four records, client 2 none."""
    draw = generator(1)
    thetas = torch.stack([network.initial(generator(seed)) for seed in range(CLIENTS)])
    x = torch.rand(CLIENTS, BATCH, *network.input_shape, generator=draw)
    y = torch.randint(0, network.classes, (CLIENTS, BATCH), generator=draw)
    y[1, torch.randperm(BATCH, generator=draw)[4:]] = PADDING
    y[2] = PADDING
    return thetas, x, y


def by_autograd(network: Model, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Gradients of single records [B, d], by torch.func on the plain module."""
    module = network.module()

    def loss(flat: Tensor, record: Tensor, label: Tensor) -> Tensor:
        parts, start = {}, 0
        for name, value in module.named_parameters():
            parts[name] = flat[start : start + value.numel()].view(value.shape)
            start += value.numel()
        logits = torch.func.functional_call(module, parts, (record[None],))
        return functional.cross_entropy(logits, label[None])

    if len(y) == 0:
        return torch.zeros(0, len(theta))
    return vmap(grad(loss), (None, 0, 0))(theta, x, y)


def clipped(gradients: Tensor, norm: float) -> Tensor:
    return gradients * (norm / gradients.norm(dim=1, keepdim=True)).clamp(max=1)


@pytest.mark.parametrize("network", [*map(model, NAMES), ODD], ids=lambda network: network.name)
def test_sums_are_those_of_autograd_by_record(network):
    thetas, x, y = cohort(network)
    norms = by_autograd(network, thetas[0], x[0], y[0]).norm(dim=1)
    bound = float(norms.sort().values[9:11].mean())  # about half of the records are shortened
    found = clipped_sums(network, thetas, x, y, clipping_norm=bound)
    for client in range(CLIENTS):
        present = y[client] != PADDING
        every = by_autograd(network, thetas[client], x[client][present], y[client][present])
        expected = clipped(every, bound).sum(0)
        torch.testing.assert_close(found.total[client], expected, atol=1e-5, rtol=1e-4)
        assert int(found.clipped[client]) == int((every.norm(dim=1) > bound).sum())
        largest = float(every.norm(dim=1).clamp(max=bound).max()) if len(every) else 0.0
        assert float(found.largest[client]) == pytest.approx(largest, rel=1e-5)
    assert found.clipped[0] >= BATCH // 2
    assert not found.total[2].any()
    assert not found.excluded.any()


@pytest.mark.parametrize("network", [*map(model, NAMES), ODD], ids=lambda network: network.name)
def test_a_whole_cohort_in_one_batch_gives_the_same(network, monkeypatch):
    """The path of a GPU, taken on the CPU, in blocks of a few records."""
    thetas, x, y = cohort(network)
    expected = clipped_sums(network, thetas, x, y, clipping_norm=0.5)
    monkeypatch.setattr(per_record, "BLOCK_VALUES", 5 * CLIENTS * network.parameters)
    found = per_record._sums_on_device(network, thetas, x, y, 0.5)
    torch.testing.assert_close(found.total, expected.total, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.largest, expected.largest, atol=0, rtol=1e-5)
    assert torch.equal(found.clipped, expected.clipped)


def test_sums_are_those_of_opacus():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus import GradSampleModule
    network = model("cnn-2")
    thetas, x, y = cohort(network)
    plain = network.module()
    nn.utils.vector_to_parameters(thetas[0], plain.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hooked = GradSampleModule(plain)
        functional.cross_entropy(hooked(x[0]), y[0]).backward()
    every = torch.cat([value.grad_sample.flatten(1) for value in hooked.parameters()], 1)
    found = clipped_sums(network, thetas[:1], x[:1], y[:1], clipping_norm=1.0)
    expected = clipped(every, 1.0).sum(0)
    torch.testing.assert_close(found.total[0], expected, atol=1e-5, rtol=1e-4)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    scale=st.floats(1e-3, 1e3),
    bound=st.floats(1e-6, 1e3),
    name=st.sampled_from(["cnn-digits", "mlp-digits"]),
)
def test_no_record_adds_more_than_the_bound(seed, scale, bound, name):
    """Single records, so that each sum is what one record adds."""
    network = model(name)
    theta = network.initial(generator(seed % 1000)) * 3
    x = torch.randn(1, 1, *network.input_shape, generator=generator(seed)) * scale
    y = torch.randint(0, 10, (1, 1), generator=generator(seed))
    found = clipped_sums(network, theta[None], x, y, clipping_norm=bound)
    norm = float(found.total.double().norm())
    assert norm <= bound
    assert float(found.largest) <= bound
    if found.clipped:
        assert norm == pytest.approx(bound, rel=1e-6)


@pytest.mark.parametrize("name", ["cnn-digits", "mlp-digits"])
def test_a_gradient_that_is_not_finite_adds_nothing(name):
    network = model(name)
    thetas, x, y = cohort(network)
    x[0, 3] = torch.inf
    x[0, 5] = torch.nan
    found = clipped_sums(network, thetas, x, y, clipping_norm=0.5)
    y[0, [3, 5]] = PADDING
    expected = clipped_sums(network, thetas, x, y, clipping_norm=0.5)
    assert found.excluded.tolist() == [2, 0, 0]
    torch.testing.assert_close(found.total, expected.total)
    whole = per_record._sums_on_device(network, thetas, x, torch.where(y < 0, PADDING, y), 0.5)
    assert whole.total.isfinite().all()


def test_same_bits_whatever_the_number_of_threads():
    network = model("cnn-digits")
    thetas, x, y = cohort(network)
    first = clipped_sums(network, thetas, x, y, clipping_norm=0.5, workers=1)
    again = clipped_sums(network, thetas, x, y, clipping_norm=0.5, workers=3)
    assert torch.equal(first.total, again.total)
    assert not first.total.requires_grad


@pytest.mark.parametrize("bound", [0.0, -1.0, float("nan"), float("inf")])
def test_a_bound_out_of_range_is_refused(bound):
    network = model("mlp-digits")
    thetas, x, y = cohort(network)
    with pytest.raises(InputError, match=r"(?m)^clipping_norm: must "):
        clipped_sums(network, thetas, x, y, clipping_norm=bound)
