"""From which size of a model its clients train faster one after another.

A cohort of perceptrons with one hidden layer, or of residual networks, trains in one
batch and one client after another, in turn. The table shows medians, and whether both
bases give the same bits. The last line is what ``IN_SEQUENCE_FROM`` of
``simulate.models.basis`` should hold for this device: the smallest size from which no
larger one is slower in sequence.

    python benchmarks/bases.py [--device cpu|cuda] [--repeats 5] [--small]
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from simulate.engine.experiment import exact_products
from simulate.local.sgd import local_sgd
from simulate.models import basis
from simulate.models.chain import Chain
from simulate.models.layers import Linear, Relu
from simulate.models.network import Model
from simulate.models.registry import model

CLIENTS = 16
STEPS = 5
BATCH = 10
FEATURES = 784
CLASSES = 10
HIDDEN_UNITS = (16, 64, 256, 512, 1024, 2048)
# Of a residual network, whose clients always follow one another on a CPU.
NETWORKS_ON_A_GPU = ("cnn-2", "resnet-10", "resnet-18")
LEARNING_RATE = 0.1
# A basis is called slower from this ratio of medians on.
SLOWER = 1.03


@dataclass(frozen=True)
class Comparison:
    """Milliseconds of a cohort's steps in both bases."""

    parameters: int
    batched: float
    in_sequence: float
    largest_difference: float


def perceptron(hidden: int) -> Chain:
    """A perceptron with one hidden layer."""
    layers = (Linear(FEATURES, hidden), Relu(), Linear(hidden, CLASSES))
    return Chain(f"mlp-{hidden}", (FEATURES,), CLASSES, layers)


def compared(network: Model, device: torch.device, repeats: int) -> Comparison:
    """Both bases in turn, each once before it is timed."""
    generator = torch.Generator().manual_seed(0)
    theta = network.initial(generator).to(device)
    shape = (CLIENTS, STEPS, BATCH, *network.input_shape)
    x = torch.randn(shape, generator=generator).to(device)
    labels = torch.randint(network.classes, shape[:3], generator=generator)
    y = labels.to(device)
    seconds: dict[float, list[float]] = {math.inf: [], 0: []}
    results: dict[float, Tensor] = {}
    for repetition in range(repeats + 1):
        for threshold, values in seconds.items():
            basis.IN_SEQUENCE_FROM[device.type] = threshold
            begun = time.perf_counter()
            results[threshold] = local_sgd(
                network, theta, x, y, learning_rate=LEARNING_RATE, workers=1
            ).cpu()
            if repetition:
                values.append(time.perf_counter() - begun)
    difference = results[0] - results[math.inf]
    return Comparison(
        parameters=network.parameters,
        batched=1e3 * statistics.median(seconds[math.inf]),
        in_sequence=1e3 * statistics.median(seconds[0]),
        largest_difference=float(difference.abs().max()),
    )


def threshold_of(comparisons: list[Comparison]) -> float:
    """The smallest size from which no larger model is slower in sequence."""
    threshold = math.inf
    by_size = sorted(comparisons, key=lambda row: row.parameters, reverse=True)
    for comparison in by_size:
        if comparison.in_sequence > SLOWER * comparison.batched:
            break
        threshold = comparison.parameters
    return threshold


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="two small models, once")
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    hidden_units = HIDDEN_UNITS[:2] if chosen.small else HIDDEN_UNITS
    networks: list[Model] = [perceptron(hidden) for hidden in hidden_units]
    if device.type == "cuda":
        networks += map(model, NETWORKS_ON_A_GPU)
    repeats = 1 if chosen.small else chosen.repeats
    print(f"{CLIENTS} clients, {STEPS} steps of {BATCH} records, on {device}")
    print(
        f"{'parameters':>12} {'batched ms':>11} {'sequence ms':>11} {'difference':>10}"
    )
    comparisons = []
    with exact_products():
        for network in networks:
            row = compared(network, device, repeats)
            comparisons.append(row)
            print(
                f"{row.parameters:>12,} {row.batched:>11.1f} {row.in_sequence:>11.1f} "
                f"{row.largest_difference:>10.1e}"
            )
    print(f"in sequence from {threshold_of(comparisons):,} parameters")


if __name__ == "__main__":
    main()
