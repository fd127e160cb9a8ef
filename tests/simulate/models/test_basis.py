"""Clients in one batch, or one after another: one rule, and the same updates."""

import math

import pytest
import torch
from torch.testing import assert_close

from simulate.local.sgd import PADDING, gradients, local_sgd
from simulate.models import basis
from simulate.models.basis import clients_at_once, logits_of_clients
from simulate.models.registry import model

CPU = torch.device("cpu")
CUDA = torch.device("cuda")
ROUNDING = {"rtol": 1e-4, "atol": 1e-6}


@pytest.fixture
def cohort():
    """A model, and parameters, records and labels of five clients."""
    network = model("mlp-digits")
    draw = torch.Generator().manual_seed(3)
    thetas = torch.stack([network.initial(draw) for _ in range(5)])
    x = torch.randn(5, 4, 6, *network.input_shape, generator=draw)
    y = torch.randint(network.classes, (5, 4, 6), generator=draw)
    y[1, 2, 3:] = PADDING
    y[4, 0] = PADDING
    return network, thetas, x, y


def set_threshold(monkeypatch, parameters):
    monkeypatch.setitem(basis.IN_SEQUENCE_FROM, "cpu", parameters)


def test_large_models_train_in_sequence_and_small_ones_in_batches(monkeypatch):
    small = model("mlp-digits")
    assert clients_at_once(small, CPU, 90, 6) == small.clients_per_chunk(6) > 1
    assert clients_at_once(small, CUDA, 90, 6) == 90
    assert clients_at_once(small, CUDA, 0, 6) == 1
    assert clients_at_once(model("resnet-10"), CUDA, 90, 6) == 1
    set_threshold(monkeypatch, small.parameters)
    assert clients_at_once(small, CPU, 90, 6) == 1
    set_threshold(monkeypatch, small.parameters + 1)
    assert clients_at_once(small, CPU, 90, 6) > 1


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_both_bases_give_the_same_updates(momentum, cohort, monkeypatch):
    network, thetas, x, y = cohort
    options = {"learning_rate": 0.1, "momentum": momentum, "workers": 2}
    set_threshold(monkeypatch, math.inf)
    batched = local_sgd(network, thetas, x, y, **options)
    slopes = gradients(network, thetas, x[:, 0], y[:, 0])
    set_threshold(monkeypatch, 0)
    in_sequence = local_sgd(network, thetas, x, y, **options)
    assert_close(in_sequence, batched, **ROUNDING)
    assert_close(gradients(network, thetas, x[:, 0], y[:, 0]), slopes, **ROUNDING)


@pytest.mark.parametrize("name", ["cnn-2", "resnet-10:3x16x16"])
def test_one_large_model_has_the_logits_of_a_batch_of_one(name, monkeypatch):
    network = model(name)
    draw = torch.Generator().manual_seed(4)
    thetas = network.initial(draw)[None]
    x = torch.rand(1, 3, *network.input_shape, generator=draw)
    set_threshold(monkeypatch, math.inf)
    batched = logits_of_clients(network, thetas, x)
    set_threshold(monkeypatch, 0)
    assert_close(logits_of_clients(network, thetas, x), batched, rtol=1e-4, atol=1e-5)
