"""Batched local training against a plain sequential loop of torch.nn and torch.optim.SGD."""

from __future__ import annotations

import os
import threading

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from simulate import parallel as threads
from simulate.local import sgd
from simulate.local.sgd import PADDING, gradients, local_sgd
from simulate.models import fast as chain
from simulate.models.fast import Chain
from simulate.models.network import Model
from simulate.models.registry import MODELS, model

CLIENTS, STEPS, BATCH = 6, 4, 5
CHAINS = [name for name in sorted(MODELS) if isinstance(model(name), Chain)]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batches(network: Model, clients: int = CLIENTS) -> tuple[Tensor, Tensor]:
    """Random records; client 1 has three of them, and images with large flat areas (ties)."""
    draw = generator(1)
    x = torch.rand(clients, STEPS, BATCH, *network.input_shape, generator=draw)
    x = torch.where(x < 0.5, 0.0, x)
    x[..., : network.input_shape[-1] // 2, :] = 0.0
    y = torch.randint(0, network.classes, x.shape[:3], generator=draw)
    y[1:2, :, 3:] = PADDING
    return x, y


def sequential(
    network: Model, theta: Tensor, x: Tensor, y: Tensor, rate: float, momentum: float
) -> Tensor:
    """The reference: one client after the other, steps without a record skipped."""
    updates = []
    for images, labels in zip(x, y, strict=True):
        module = network.module()
        nn.utils.vector_to_parameters(theta.clone(), module.parameters())
        optimizer = torch.optim.SGD(module.parameters(), lr=rate, momentum=momentum)
        for batch, label in zip(images, labels, strict=True):
            present = label != PADDING
            if present.any():
                optimizer.zero_grad()
                functional.cross_entropy(module(batch[present]), label[present]).backward()
                optimizer.step()
        after = nn.utils.parameters_to_vector(module.parameters()).detach()
        updates.append(after - theta)
    return torch.stack(updates)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", CHAINS)
def test_updates_are_those_of_a_plain_loop(name, momentum):
    network = model(name)
    theta = network.initial(generator())
    x, y = batches(network)
    expected = sequential(network, theta, x, y, 0.1, momentum)
    found = local_sgd(network, theta, x, y, learning_rate=0.1, momentum=momentum)
    assert found.shape == (CLIENTS, network.parameters)
    assert expected.abs().max() > 1e-2
    scale = max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(found, expected, atol=1e-5 * scale, rtol=0)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_step_without_records_leaves_the_client_as_it_is(momentum):
    network = model("cnn-digits")
    theta = network.initial(generator())
    x, y = batches(network)
    y[2, 1], y[3, :] = PADDING, PADDING
    expected = sequential(network, theta, x, y, 0.1, momentum)
    found = local_sgd(network, theta, x, y, learning_rate=0.1, momentum=momentum)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert not found[3].any()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", ["cnn-2", "mlp-digits"])
def test_a_whole_cohort_in_one_batch_gives_the_same(name, momentum):
    """The path of a GPU, taken on the CPU."""
    network = model(name)
    start = network.initial(generator())
    x, y = batches(network)
    y[2, 1] = PADDING
    found = sgd._descend_whole(network, start.expand(CLIENTS, -1), x, y, 0.1, momentum)
    expected = local_sgd(network, start, x, y, learning_rate=0.1, momentum=momentum)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", CHAINS)
def test_gradients_are_those_of_autograd(name):
    network = model(name)
    thetas = torch.stack([network.initial(generator(seed)) for seed in range(CLIENTS)])
    x, y = (value[:, 0] for value in batches(network))
    y[4] = PADDING
    found = gradients(network, thetas, x, y)
    for client in range(CLIENTS):
        theta = thetas[client].clone().requires_grad_()
        present = y[client] != PADDING
        loss = functional.cross_entropy(
            network.logits(theta, x[client][present]), y[client][present], reduction="sum"
        )
        (expected,) = torch.autograd.grad(loss / max(1, int(present.sum())), theta)
        torch.testing.assert_close(found[client], expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", ["cnn-2", "cnn-digits"])
def test_same_bits_whatever_the_number_of_threads(name, monkeypatch):
    monkeypatch.setattr(chain, "CHUNK_CLIENTS", 4)
    monkeypatch.setattr(chain, "CHUNK_OF_FEW", 4)
    network = model(name)
    theta = network.initial(generator())
    x, y = batches(network, clients=18)
    first = local_sgd(network, theta, x, y, learning_rate=0.1, momentum=0.5, workers=1)
    for number in (1, 2, 3):
        again = local_sgd(network, theta, x, y, learning_rate=0.1, momentum=0.5, workers=number)
        assert torch.equal(first, again)


def test_chunks_are_worked_on_one_core_each_and_leave_the_setting_alone():
    before, seen = torch.get_num_threads(), []

    def work(rows: slice) -> Tensor:
        seen.append((torch.get_num_threads(), threading.current_thread()))
        return torch.arange(7)[rows]

    assert threads.over_chunks(work, 7, 2, workers=2).tolist() == list(range(7))
    assert {threads for threads, _ in seen} == {1}
    assert threading.main_thread() not in {thread for _, thread in seen}
    assert torch.get_num_threads() == before


def test_a_forked_process_starts_threads_of_its_own():
    threads.by_chunk(lambda rows: rows.start, 4, 1, workers=2)
    child = os.fork()
    if child == 0:
        found = threads.by_chunk(lambda rows: rows.start, 4, 1, workers=2)
        os._exit(0 if found == [0, 1, 2, 3] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_failing_chunk_is_raised_and_leaves_the_setting_alone():
    before = torch.get_num_threads()

    def work(rows: slice) -> Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        threads.over_chunks(work, 7, 2, workers=2)
    assert torch.get_num_threads() == before


def test_each_client_may_have_its_own_start():
    network = model("mlp-digits")
    starts = torch.stack([network.initial(generator(seed)) for seed in range(CLIENTS)])
    kept = starts.clone()
    x, y = batches(network)
    found = local_sgd(network, starts, x, y, learning_rate=0.1)
    for client in range(CLIENTS):
        one = slice(client, client + 1)
        alone = local_sgd(network, starts[client], x[one], y[one], learning_rate=0.1)
        torch.testing.assert_close(found[one], alone, atol=1e-6, rtol=0)
    assert torch.equal(starts, kept)
