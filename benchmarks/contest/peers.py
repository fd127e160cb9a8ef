"""The peers of the simulator: plain PyTorch as users write it, and Opacus' hooks."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional

LEARNING_RATE = 0.1
CLIP = 1.5
# Of DP-SGD by record: records a batch, and the clipping norm of a record's gradient.
RECORD_BATCH = 64
RECORD_NORM = 1.0

Batches = tuple[Tensor, Tensor]
"""Inputs [clients, steps, batch, ...] and labels [clients, steps, batch]."""


def sum_sequential(
    module: nn.Module,
    theta: Tensor,
    data: Batches,
    memory_format: torch.memory_format = torch.contiguous_format,
) -> Tensor:
    """The same as a plain loop: one client after the other, the state cloned for each.

    `vector_to_parameters` makes every parameter contiguous, so the memory format is set
    after it, and the images have it too.
    """
    nn.utils.vector_to_parameters(theta.clone(), module.parameters())
    module.to(memory_format=memory_format)
    start = {name: value.clone() for name, value in module.state_dict().items()}
    total = torch.zeros_like(theta)
    for images, labels in zip(*data, strict=True):
        module.load_state_dict({name: value.clone() for name, value in start.items()})
        optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
        for x, y in zip(images, labels, strict=True):
            optimizer.zero_grad()
            x = x.contiguous(memory_format=memory_format)
            functional.cross_entropy(module(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            parameters = [value.reshape(-1) for value in module.parameters()]
            update = torch.cat(parameters) - theta
            total += update * (CLIP / update.norm()).clamp(max=1)
    return total


def records_opacus(
    module: nn.Module, theta: Tensor, data: Batches, noise: float
) -> Tensor:
    """The same with Opacus: per-record gradients by hooks, clients in order."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    hooked = GradSampleModule(module)
    results = []
    for images, labels in zip(*data, strict=True):
        nn.utils.vector_to_parameters(theta.clone(), module.parameters())
        optimizer = DPOptimizer(
            torch.optim.SGD(hooked.parameters(), lr=LEARNING_RATE),
            noise_multiplier=noise,
            max_grad_norm=RECORD_NORM,
            expected_batch_size=RECORD_BATCH,
        )
        for x, y in zip(images, labels, strict=True):
            optimizer.zero_grad()
            functional.cross_entropy(hooked(x), y).backward()
            optimizer.step()
        results.append(
            nn.utils.parameters_to_vector(module.parameters()).detach().clone()
        )
    hooked.remove_hooks()
    return torch.stack(results)


def tuned_cnn() -> nn.Sequential:
    """`cnn-2` with the positive part after the pooling, the same on fewer values."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 10),
    )


def plain_cnn() -> nn.Sequential:
    """`cnn-2` as one would write it: the positive part before the pooling."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 10),
    )


class PlainBlock(nn.Module):
    """A residual block as one would write it."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.GroupNorm(32, outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.GroupNorm(32, outputs),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            narrow = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(narrow, nn.GroupNorm(32, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        return functional.relu(self.body(x) + self.shortcut(x))


def plain_resnet() -> nn.Sequential:
    """`resnet-18` as one would write it."""
    widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
    blocks = [
        PlainBlock(inputs, outputs, 2 if inputs != outputs else 1)
        for inputs, outputs in itertools.pairwise(widths)
    ]
    stem = (nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.GroupNorm(32, 64), nn.ReLU())
    return nn.Sequential(
        *stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)
    )
