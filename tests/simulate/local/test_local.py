"""Local training and clipped sums of single records, against plain loops of PyTorch.

Each model is trained by its own kernels: clients one after the other on the CPU, and
all of them at once as on a GPU. Both paths are compared with the plain module.
"""

import os
import re
import threading
import warnings
from collections.abc import Iterator
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.testing import assert_close

from privplan.errors import InputError
from simulate import parallel as threads
from simulate.local import dp_sgd as per_record
from simulate.local import sgd
from simulate.local.dp_sgd import clipped_sums
from simulate.local.sgd import PADDING, gradients, local_sgd
from simulate.models import chain, modular
from simulate.models.chain import Chain
from simulate.models.layers import Conv, Linear, Pool, Relu
from simulate.models.registry import MODELS, model

CHAINS = [name for name in sorted(MODELS) if isinstance(model(name), Chain)]
SMALL = ["lstm:x6", "resnet-10:3x16x16"]
MODULES = [name for name in sorted(MODELS) if name not in CHAINS]
ODD = Chain(
    name="odd",
    input_shape=(2, 7, 8),
    classes=4,
    layers=(
        Conv(2, 3, 3, 1),
        Relu(0.01),
        Pool(),
        Conv(3, 5, 2, 0),
        Linear(30, 7),
        Relu(),
        Linear(7, 4),
    ),
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def records(network, *lead):
    """Records [*lead, ...] and labels [*lead]: tokens, or images.

    The images of a chain have flat areas, in which maxima are ties.
    """
    draw = generator(1)
    shape = (*lead, *network.input_shape)
    if len(network.input_shape) == 1:
        x = torch.randint(0, network.classes, shape, generator=draw)
    else:
        x = torch.rand(shape, generator=draw)
    if isinstance(network, Chain):
        x = torch.where(x < 0.5, 0.0, x)
        x[..., : network.input_shape[-1] // 2, :] = 0.0
    return x, torch.randint(0, network.classes, lead, generator=draw)


def starts(network, clients):
    return torch.stack([network.initial(generator(seed)) for seed in range(clients)])


def gradient(network, theta, x, y):
    """Gradient of the mean cross-entropy [d], by autograd on the plain module."""
    module = network.module().to(theta.dtype)
    nn.utils.vector_to_parameters(theta.clone(), module.parameters())
    functional.cross_entropy(module(x), y).backward()
    return torch.cat([value.grad.flatten() for value in module.parameters()])


def close(network, computed, expected):
    """Equal in relative norm.

    In a deep module rounding moves single activations across zero.
    """
    limit = 1e-5 if isinstance(network, Chain) else 1e-3
    assert float((computed - expected).norm()) <= limit * float(expected.norm())


def descended(network, theta, x, y, momentum):
    """The movement [d] of a client with mini-batches, by a plain loop."""
    position = theta
    speed = torch.zeros_like(theta)
    for batch, labels in zip(x, y, strict=True):
        present = labels != PADDING
        if present.any():
            slope = gradient(network, position, batch[present], labels[present])
            speed = momentum * speed + slope
            position = position - 0.1 * speed
    return position - theta


@pytest.mark.parametrize(
    ("name", "momentum"),
    [
        *product([*CHAINS, SMALL[0]], [0.9]),
        (CHAINS[0], 0.0),
        pytest.param(SMALL[1], 0.9, marks=pytest.mark.slow),
    ],
)
def test_updates_are_those_of_a_plain_loop(name, momentum):
    """One client has few records, one a step without any, one none at all.

    In double precision for chains: in single, steps with momentum turn a last bit into
    6e-5.
    """
    network = model(name)
    x, y = records(network, 3, 2 if name in SMALL else 4, 3)
    y[0, :, 2:] = PADDING
    y[1, 1] = PADDING
    y[2] = PADDING
    thetas = starts(network, 3)
    if isinstance(network, Chain):
        x = x.double()
        thetas = thetas.double()
    before = thetas.clone()
    updates = local_sgd(network, thetas, x, y, learning_rate=0.1, momentum=momentum)
    unchunked = sgd._descend_whole(network, thetas, x, y, 0.1, momentum)
    assert torch.equal(thetas, before)
    assert not updates[2].any()
    for client, theta in enumerate(thetas):
        expected = descended(network, theta, x[client], y[client], momentum)
        close(network, updates[client], expected)
        close(network, unchunked[client], expected)


def in_time(name):
    """A model as a parameter, slow where it is deep."""
    is_deep = re.search("resnet-[13][84]", name)
    return pytest.param(name, marks=pytest.mark.slow if is_deep else ())


@pytest.mark.parametrize("name", list(map(in_time, [*CHAINS, *MODULES])))
def test_gradients_are_those_of_autograd(name):
    network = model(f"{name}:3x16x16" if name.startswith("resnet") else name)
    x, y = records(network, 3, 3)
    y[1, 2] = PADDING
    y[2] = PADDING
    thetas = starts(network, 3)
    slopes = gradients(network, thetas, x, y)
    unchunked = sgd._gradients_whole(network, thetas, x, y)
    for client in range(2):
        present = y[client] != PADDING
        expected = gradient(
            network, thetas[client], x[client][present], y[client][present]
        )
        close(network, slopes[client], expected)
        close(network, unchunked[client], expected)
    assert not slopes[2].any()


THREADED = ["cnn-2", "cnn-digits", pytest.param("lstm:x6", marks=pytest.mark.slow)]


@pytest.mark.parametrize("name", THREADED)
def test_same_bits_whatever_the_number_of_threads(name, monkeypatch):
    monkeypatch.setattr(chain, "CHUNK_CLIENTS", 4)
    monkeypatch.setattr(chain, "CHUNK_OF_FEW", 4)
    network = model(name)
    x, y = records(network, 18, 2, 3)
    theta = network.initial(generator())
    by_one_thread = local_sgd(
        network, theta, x, y, learning_rate=0.1, momentum=0.5, workers=1
    )
    for number in (2, 3):
        again = local_sgd(
            network, theta, x, y, learning_rate=0.1, momentum=0.5, workers=number
        )
        assert torch.equal(by_one_thread, again)
    assert not by_one_thread.requires_grad


@pytest.mark.parametrize("name", THREADED)
def test_same_sums_whatever_the_number_of_threads(name):
    network = model(name)
    x, y = records(network, 18, 3)
    thetas = network.initial(generator()).expand(18, -1)
    alone = clipped_sums(network, thetas, x, y, clipping_norm=0.5, workers=1)
    threaded = clipped_sums(network, thetas, x, y, clipping_norm=0.5, workers=3)
    assert torch.equal(alone.total, threaded.total)
    assert not alone.total.requires_grad


def test_chunks_are_worked_on_one_core_each_and_leave_the_setting_alone():
    before = torch.get_num_threads()
    seen = []

    def work(rows):
        seen.append((torch.get_num_threads(), threading.current_thread()))
        return torch.arange(7)[rows]

    def fail(rows):
        raise ZeroDivisionError

    assert threads.over_chunks(work, 7, 2, workers=2).tolist() == list(range(7))
    assert {threads for threads, _ in seen} == {1}
    assert threading.main_thread() not in {thread for _, thread in seen}
    with pytest.raises(ZeroDivisionError):
        threads.over_chunks(fail, 7, 2, workers=2)
    assert torch.get_num_threads() == before


def test_a_forked_process_starts_threads_of_its_own():
    threads.by_chunk(lambda rows: rows.start, 4, 1, workers=2)
    child = os.fork()
    if child == 0:
        results = threads.by_chunk(lambda rows: rows.start, 4, 1, workers=2)
        os._exit(0 if results == [0, 1, 2, 3] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def clipped(single, norm):
    return single * (norm / single.norm(dim=1, keepdim=True)).clamp(max=1)


def cohort(network, size=21):
    """Parameters, records and labels; client 1 has a few records, client 2 none."""
    x, y = records(network, 3, size)
    y[1, size // 5 :] = PADDING
    y[2] = PADDING
    return starts(network, 3), x, y


NETWORKS = [*map(model, ["cnn-2", "cnn-digits", "mlp-digits", *SMALL]), ODD]


def single_gradients(network, theta, x, y):
    """The gradients of some records [B, d], each by autograd."""
    rows = [gradient(network, theta, x[[row]], y[[row]]) for row in range(len(y))]
    return torch.stack(rows)


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(
            network, marks=[pytest.mark.slow] if network.name == SMALL[1] else []
        )
        for network in NETWORKS
    ],
    ids=lambda network: network.name,
)
def test_clipped_sums_are_those_of_single_gradients(network, monkeypatch):
    """Records come in blocks, the last of which is smaller."""
    size = 5 if network.name in SMALL else 21
    thetas, x, y = cohort(network, size)
    monkeypatch.setattr(modular, "BLOCK_RECORDS", 2)
    of_clients = [
        single_gradients(network, thetas[0], x[0], y[0]),
        single_gradients(network, thetas[1], x[1, : size // 5], y[1, : size // 5]),
    ]
    # Half of the records are shortened.
    bound = float(of_clients[0].norm(dim=1).median() * (1 + 1e-3))
    sums = clipped_sums(network, thetas, x, y, clipping_norm=bound)
    monkeypatch.setattr(per_record, "BLOCK_VALUES", 5 * 3 * network.parameters)
    on_device = per_record._sums_on_device(network, thetas, x, y, bound)
    for client, single in enumerate(of_clients):
        norms = single.norm(dim=1)
        for result in (sums, on_device):
            close(network, result.total[client], clipped(single, bound).sum(0))
            assert int(result.clipped[client]) == int((norms > bound).sum())
            largest = float(norms.clamp(max=bound).max())
            assert float(result.largest[client]) == pytest.approx(largest, rel=1e-4)
    assert 0 < sums.clipped[0] < size
    assert not sums.total[2].any()
    assert not sums.excluded.any()


def test_sums_are_those_of_opacus():
    network = model("cnn-2")
    thetas, x, y = cohort(network)
    plain = network.module()
    nn.utils.vector_to_parameters(thetas[0], plain.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus import GradSampleModule

        hooked = GradSampleModule(plain)
        functional.cross_entropy(hooked(x[0]), y[0]).backward()
    samples = [value.grad_sample.flatten(1) for value in hooked.parameters()]
    expected = clipped(torch.cat(samples, 1), 1.0).sum(0)
    sums = clipped_sums(network, thetas[:1], x[:1], y[:1], clipping_norm=1.0)
    assert_close(sums.total[0], expected, atol=1e-5, rtol=1e-4)


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
    sums = clipped_sums(network, theta[None], x, y, clipping_norm=bound)
    norm = float(sums.total.double().norm())
    assert norm <= bound
    assert float(sums.largest) <= bound
    if sums.clipped:
        assert norm == pytest.approx(bound, rel=1e-6)


@pytest.mark.parametrize("name", ["cnn-digits", "mlp-digits"])
def test_a_gradient_that_is_not_finite_adds_nothing(name):
    network = model(name)
    thetas, x, y = (value[:1] for value in cohort(network, 5))
    x[0, 1] = torch.inf
    x[0, 3] = torch.nan
    sums = clipped_sums(network, thetas, x, y, clipping_norm=0.5)
    on_device = per_record._sums_on_device(network, thetas, x, y, 0.5)
    y[0, [1, 3]] = PADDING
    expected = clipped_sums(network, thetas, x, y, clipping_norm=0.5)
    assert sums.excluded.tolist() == [2]
    assert_close(sums.total, expected.total, atol=1e-6, rtol=1e-4)
    assert on_device.total.isfinite().all()


@pytest.mark.parametrize("name", [SMALL[0], "adapters:cnn-digits"])
def test_a_module_may_be_used_first_inside_vmap(name):
    thetas = starts(model(name), 1)
    network = model(name)  # nothing of it is built yet
    x, y = records(network, 1, 3)
    on_device = per_record._sums_on_device(network, thetas, x, y, 0.1)
    expected = clipped_sums(network, thetas, x, y, clipping_norm=0.1)
    assert_close(on_device.total, expected.total, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("bound", [0.0, -1.0, float("nan"), float("inf")])
def test_a_bound_out_of_range_is_refused(bound):
    network = model("mlp-digits")
    with pytest.raises(InputError, match=r"(?m)^clipping_norm: must "):
        clipped_sums(network, *cohort(network), clipping_norm=bound)


def test_a_resnet_is_the_published_one():
    """Written out again over a list of tensors (He et al. 2016; Wu and He 2018)."""
    network = model("resnet-18")
    theta = network.initial(generator())
    x = torch.rand(2, 3, 32, 32, generator=generator(1))
    sizes = [torch.Size(shape).numel() for _, shape in network.shapes]
    shaped = zip(network.shapes, theta.split(sizes), strict=True)
    tensors: Iterator[Tensor] = iter(
        [values.view(shape) for (_, shape), values in shaped]
    )

    def step(x, stride=1):
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
        assert_close(network.logits(theta, x), expected, atol=1e-5, rtol=1e-4)
