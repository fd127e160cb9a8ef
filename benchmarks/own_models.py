"""Speed of the user's own modules: compiled and on the general path, beside a plain loop.

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
from contest.peers import LEARNING_RATE, plain_cnn, sum_sequential
from contest.workloads import cohort, sum_batched
from torch import Tensor, nn

import simulate
from simulate.local.sgd import local_sgd
from simulate.models.compiled import Compiled
from simulate.models.own import OwnModel


class Residual(nn.Module):
    """A residual network that no sequence of layers computes."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 5, stride=2)
        self.norm, self.second = nn.GroupNorm(4, 16), nn.Conv2d(16, 16, 3, padding=1)
        self.drop, self.last = nn.Dropout(dropout), nn.Linear(16 * 36, 10)

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
    """Print medians, and the median of the ratios to the reference within each repetition."""
    print(title)
    for name, values in seconds.items():
        ratios = [
            one / other for one, other in zip(seconds[reference], values, strict=True)
        ]
        print(
            f"  {name:28s} {statistics.median(values):7.3f} s   "
            f"{statistics.median(ratios):5.2f} times as fast as {reference}"
        )


def main() -> None:
    """Run both comparisons."""
    options = argparse.ArgumentParser()
    options.add_argument("--repeats", type=int, default=7)
    options.add_argument("--clients", type=int, default=120)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    given = cohort(chosen.clients, 5)
    dataset, _ = simulate.Data(given[0][0, 0], np.arange(10)).prepared(())
    fast = OwnModel(plain_cnn, {}, "cnn").model("cnn", dataset)
    if not isinstance(fast, Compiled):
        raise SystemExit("the sequential module must be compiled")
    theta = fast.initial(torch.Generator().manual_seed(0))
    plain = plain_cnn()
    contestants = {
        "compiled": lambda: sum_batched(fast, theta, given, 1),
        "general path": lambda: sum_batched(fast.source, theta, given, 1),
        "plain loop": lambda: sum_sequential(plain, theta, given),
    }
    both = [
        local_sgd(network, theta, *given, learning_rate=LEARNING_RATE, workers=1)
        for network in (fast, fast.source)
    ]
    apart = (both[0] - both[1]).abs().amax(1) / both[1].abs().amax(1)
    print(
        "compiled against general, relative difference per client: median "
        f"{float(apart.median()):.1e}, largest {float(apart.max()):.1e} (where rounding decides "
        "a maximum or a sign)"
    )
    seconds = measured(contestants, chosen.repeats)
    report("a sequential module (cnn-2)", seconds, "general path")
    report("", seconds, "plain loop")
    residual = OwnModel(Residual, {}, "Residual").model("residual", dataset)
    start, module = residual.initial(torch.Generator().manual_seed(0)), Residual()
    contestants = {
        "general path": lambda: sum_batched(residual, start, given, 1),
        "plain loop": lambda: sum_sequential(module, start, given),
    }
    report("a residual module", measured(contestants, chosen.repeats), "plain loop")
    print(f"learning rate {LEARNING_RATE}, {chosen.clients} clients, one core")


if __name__ == "__main__":
    main()
