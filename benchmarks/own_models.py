"""Speed of the user's modules: compiled and on the general path, beside a plain loop.

The size is that of W1 of `simulation.py`: a cohort of 120 clients, 5 steps of batch 10
on images of 28 x 28 pixels. The loop is the usual one: clone the state, then
`zero_grad`, `backward` and `step` of `torch.optim.SGD` for one client after the other.
All contestants run on one core of one process, in turn; CPU seconds, medians.

    python benchmarks/own_models.py [--repeats 7] [--clients 120]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from contest.peers import LEARNING_RATE, Batches, plain_cnn, sum_sequential
from contest.workloads import cohort, sum_batched
from torch import Tensor, nn

import simulate
from simulate.data.dataset import Dataset
from simulate.local.sgd import local_sgd
from simulate.models.compiled import Compiled
from simulate.models.own import OwnModel


class Residual(nn.Module):
    """A residual network that no sequence of layers computes."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 5, stride=2)
        self.norm = nn.GroupNorm(4, 16)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.drop = nn.Dropout(dropout)
        self.last = nn.Linear(16 * 36, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, 10]."""
        hidden = torch.relu(self.norm(self.first(x)))
        hidden = torch.max_pool2d(hidden + self.second(hidden), 2)
        logits: Tensor = self.last(self.drop(hidden.flatten(1)))
        return logits


def measured(
    contestants: dict[str, Callable[[], Tensor]], repeats: int
) -> dict[str, list[float]]:
    """CPU seconds of each contestant, in turn; the first run of each is not timed."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for repeat in range(repeats + 1):
        for name, run in contestants.items():
            start = time.process_time()
            run()
            if repeat:
                seconds[name].append(time.process_time() - start)
    return seconds


def report(title: str, seconds: dict[str, list[float]], reference: str) -> None:
    """Print medians, and of ratios to the reference in each repetition the median."""
    print(title)
    for name, values in seconds.items():
        ratios = [
            unit / value for unit, value in zip(seconds[reference], values, strict=True)
        ]
        print(
            f"  {name:28s} {statistics.median(values):7.3f} s   "
            f"{statistics.median(ratios):5.2f} times as fast as {reference}"
        )


def main() -> None:
    """Run both comparisons."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--clients", type=int, default=120)
    parser.add_argument("--small", action="store_true", help="small sizes, in seconds")
    options = parser.parse_args()
    if options.small:
        options.repeats = 1
        options.clients = 4
    torch.set_num_threads(1)
    data = cohort(options.clients, 5)
    images, _ = data
    dataset, _ = simulate.Data(images[0, 0], np.arange(10)).prepared(())
    compare_sequential(dataset, data, options.repeats)
    compare_residual(dataset, data, options.repeats)
    print(f"learning rate {LEARNING_RATE}, {options.clients} clients, one core")


def compare_sequential(dataset: Dataset, data: Batches, repeats: int) -> None:
    """A sequential module compiled, on the general path and in a plain loop."""
    fast = OwnModel(plain_cnn, {}, "cnn").model("cnn", dataset)
    if not isinstance(fast, Compiled):
        raise SystemExit("the sequential module must be compiled")
    theta = fast.initial(torch.Generator().manual_seed(0))
    plain = plain_cnn()
    contestants = {
        "compiled": lambda: sum_batched(fast, theta, data, 1),
        "general path": lambda: sum_batched(fast.source, theta, data, 1),
        "plain loop": lambda: sum_sequential(plain, theta, data),
    }
    compiled, general = (
        local_sgd(network, theta, *data, learning_rate=LEARNING_RATE, workers=1)
        for network in (fast, fast.source)
    )
    difference = (compiled - general).abs().amax(1) / general.abs().amax(1)
    print(
        "compiled against general, relative difference per client: median "
        f"{float(difference.median()):.1e}, largest {float(difference.max()):.1e} "
        "(where rounding decides a maximum or a sign)"
    )
    seconds = measured(contestants, repeats)
    report("a sequential module (cnn-2)", seconds, "general path")
    report("", seconds, "plain loop")


def compare_residual(dataset: Dataset, data: Batches, repeats: int) -> None:
    """A module that cannot be compiled, on the general path and in a plain loop."""
    residual = OwnModel(Residual, {}, "Residual").model("residual", dataset)
    theta = residual.initial(torch.Generator().manual_seed(0))
    module = Residual()
    contestants = {
        "general path": lambda: sum_batched(residual, theta, data, 1),
        "plain loop": lambda: sum_sequential(module, theta, data),
    }
    report("a residual module", measured(contestants, repeats), "plain loop")


if __name__ == "__main__":
    main()
