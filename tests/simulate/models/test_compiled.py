"""Sequential modules as fast kernels: the same results as on the general path."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import simulate
from simulate.local.sgd import local_sgd
from simulate.models.fast import Compiled, compiled
from simulate.models.own import OwnModel

CLASSES = 3


@st.composite
def architectures(draw: st.DrawFn) -> tuple[nn.Sequential, tuple[int, ...]]:
    """A random sequence of layers, and the shape of its records."""
    flat = draw(st.booleans())
    channels, side = draw(st.integers(1, 3)), draw(st.integers(6, 11))
    shape: tuple[int, ...] = (channels, side, side)
    parts: list[nn.Module] = []
    if flat:
        shape = (draw(st.integers(1, 7)),) if draw(st.booleans()) else (2, 3)
    while not flat and len(parts) < 6 and draw(st.booleans()):
        kind = draw(st.sampled_from(["conv", "pool", "relu", "leaky"]))
        if kind == "conv":
            size, padding = draw(st.integers(1, min(3, side))), draw(st.integers(0, 1))
            outputs = draw(st.integers(1, 4))
            parts.append(nn.Conv2d(channels, outputs, size, padding=padding))
            channels, side = outputs, side + 2 * padding - size + 1
        elif kind == "pool" and side >= 2:
            parts.append(nn.MaxPool2d(2))
            side //= 2
        else:
            parts.append(nn.ReLU() if kind == "relu" else nn.LeakyReLU(0.1))
    features = int(np.prod(shape)) if flat else channels * side * side
    parts.append(nn.Flatten())
    while draw(st.booleans()) and len(parts) < 9:
        width = draw(st.integers(1, 6))
        parts += [nn.Linear(features, width), nn.Sequential(nn.ReLU(), nn.Identity())]
        features = width
    return nn.Sequential(*parts, nn.Linear(features, CLASSES)), shape


def records(shape: tuple[int, ...], clients: int, steps: int, batch: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(clients, steps, batch, *shape, generator=generator)
    y = torch.randint(0, CLASSES, x.shape[:3], generator=generator)
    y[0, :, -1] = -1  # padding
    return x, y


@settings(max_examples=12, deadline=None)
@given(architectures())
def test_random_architectures_give_the_results_of_the_general_path(case):
    module, shape = case
    x, y = records(shape, clients=3, steps=2, batch=4)
    own = simulate.Data(x.flatten(0, 2), y.flatten().clamp(min=0), classes=range(CLASSES))
    fast = OwnModel(module, {}, "module").model("module", own.prepared(())[0])
    assert isinstance(fast, Compiled)
    general = replace(fast.source, channels_last=False)
    theta = fast.initial(torch.Generator())
    assert torch.equal(theta, nn.utils.parameters_to_vector(module.parameters()))
    assert fast.shapes == general.shapes
    options = {"learning_rate": 0.1, "momentum": 0.5}
    expected = local_sgd(general, theta, x, y, **options)
    torch.testing.assert_close(
        local_sgd(fast, theta, x, y, **options), expected, rtol=1e-5, atol=1e-5
    )
    logits = fast.logits(theta, x[0, 0])
    torch.testing.assert_close(logits, module(x[0, 0]), rtol=1e-5, atol=1e-5)
    sums, norms = fast.clipped_sum(theta, x[1, 0], y[1, 0], 0.5)
    total, lengths = general.clipped_sum(theta, x[1, 0], y[1, 0], 0.5)
    torch.testing.assert_close(sums, total, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(norms, lengths, rtol=1e-5, atol=1e-5)


class _Scaled(nn.Sequential):
    def forward(self, x):
        return 2 * super().forward(x)


def _hooked() -> nn.Sequential:
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    module[1].register_forward_hook(lambda part, inputs, output: 2 * output)
    return module


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.Flatten(), nn.Linear(2, 3)),
        nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.Flatten(), nn.Linear(8, 3)),
        nn.Sequential(nn.Conv2d(1, 2, (1, 3)), nn.Flatten(), nn.Linear(16, 3)),
        nn.Sequential(nn.Conv2d(1, 2, 2, padding="same"), nn.Flatten(), nn.Linear(32, 3)),
        nn.Sequential(nn.Conv2d(1, 2, 3, padding_mode="reflect", padding=1), nn.Flatten()),
        nn.Sequential(nn.MaxPool2d(2, stride=1), nn.Flatten(), nn.Linear(9, 3)),
        nn.Sequential(nn.MaxPool2d(2, ceil_mode=True), nn.Flatten(), nn.Linear(4, 3)),
        nn.Sequential(nn.Flatten(), nn.Linear(16, 3, bias=False)),
        nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.Tanh()),
        nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.ReLU()),
        nn.Sequential(nn.Linear(4, 3), nn.Flatten()),
        _Scaled(nn.Flatten(), nn.Linear(16, 3)),
        _hooked(),
    ],
    ids=str,
)
def test_modules_of_other_layers_keep_the_general_path(module):
    from simulate.models.modular import Modular

    source = Modular("m", (1, 4, 4), 3, lambda: module)
    assert compiled(source, module) is None
