"""Speed of the simulator against plain PyTorch and Opacus, side by side in one run.

W1: 6,000 clients of 10 images of 28 x 28 pixels, a cohort of 120 a round, 5 local steps
of batch 10 of `cnn-2`, clipping and noise, against a sequential loop that clones the
state per client. W2: `resnet-18` on images of 32 x 32 pixels in three colours, batch
50, against the same loop; of the 50 clients and 10 steps a slice is timed, the same for
both sides. W3: record-level DP-SGD of `cnn-2`, 20 clients of 2,400 images, batch 64,
against Opacus' hooks; of the 37 steps a slice is timed, the same for both sides.

Each contestant has a process of its own, since the simulator changes how its process
keeps memory. Each repetition times every contestant and the machine's matrix products,
one after the other, so that a busy machine slows all of them; the tables show medians.
Times are CPU seconds of the process, over all its threads; the first run of each is not
timed.

Costs in multiples of oneDNN's matrix products are kept and compared as in
``commands.py``.

    python benchmarks/simulation.py [--only W1] [--repeats 5] [--store]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable

import torch
from contest.processes import Contestant, spent
from contest.rate import product_blas, product_onednn
from contest.workloads import SMALL, WORKLOADS, Workload
from stored import compare
from torch.utils.flop_counter import FlopCounterMode

from simulate.models.network import Model


def training_flops(network: Model) -> float:
    """Floating-point operations of a forward and a backward pass over one record."""
    module = network.module()
    record = torch.zeros(1, *network.input_shape)
    with FlopCounterMode(display=False) as counter:
        module(record).sum().backward()
    return float(counter.get_total_flops())


def measure(key: str, threads: int, repeats: int, *, store: bool) -> None:
    """Run one workload and print its table."""
    workload = WORKLOADS[key](threads)
    products = {"torch.mm": product_blas, "oneDNN": product_onednn}
    contestants = {
        name: Contestant(key, threads, name) for name in workload.contestants
    }
    seconds, rates = timings(contestants, products, repeats)
    work = training_flops(workload.network) * workload.images / 1e9
    costs: dict[str, float] = {}
    for name, values in seconds.items():
        # Seconds over those that the work takes at the rate of a matrix product.
        multiples = [
            cost * rate / work
            for cost, rate in zip(values, rates["oneDNN"], strict=True)
        ]
        costs[f"{key}, {name}"] = statistics.median(multiples)
    compare("simulation", costs, store=store)
    memory = {name: contestant.memory for name, contestant in contestants.items()}
    report(workload, seconds, rates, memory)
    worst = largest_difference(workload, contestants)
    print(
        f"largest difference between the results without noise, relative: {worst:.1e}\n"
    )
    for contestant in contestants.values():
        contestant.leave()
    if worst > workload.tolerance:
        sys.exit(f"the contestants do not compute the same: {worst:.1e}")


def timings(
    contestants: dict[str, Contestant],
    products: dict[str, Callable[[], float]],
    repeats: int,
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """CPU seconds of each contestant, and GFLOP/s of each product, in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    rates: dict[str, list[float]] = {name: [] for name in products}
    for _ in range(repeats):
        for name, contestant in contestants.items():
            seconds[name].append(contestant.seconds())
        for name, multiply in products.items():
            cost, operations = spent(multiply)
            rates[name].append(float(operations) / cost / 1e9)
    return seconds, rates


def largest_difference(workload: Workload, contestants: dict[str, Contestant]) -> float:
    """Largest difference from the reference, relative to its largest value."""
    expected = contestants[workload.reference].result
    differences = [
        float((contestant.result - expected).abs().max())
        for contestant in contestants.values()
    ]
    return max(differences) / float(expected.abs().max())


def report(
    workload: Workload,
    seconds: dict[str, list[float]],
    rates: dict[str, list[float]],
    memory: dict[str, float],
) -> None:
    """Print medians, spreads, ratios, shares, and the peak of memory after a run."""
    work = training_flops(workload.network) * workload.images / 1e9
    products = {name: statistics.median(values) for name, values in rates.items()}
    print(
        f"{workload.title}; {workload.network.name}, {work:.0f} GFLOP; CPU seconds, "
        "medians"
    )
    head = "".join(f"{'of ' + name:>12}" for name in products)
    print(
        f"{'':28}{'seconds':>9}{'min':>7}{'max':>7}{'ratio':>7}{'images/s':>10}{head}"
        f"{'MB':>7}"
    )
    plain = seconds[workload.reference]
    for name, values in seconds.items():
        middle = statistics.median(values)
        ratio = statistics.median(p / v for p, v in zip(plain, values, strict=True))
        shares = "".join(f"{work / middle / rate:>12.0%}" for rate in products.values())
        print(
            f"{name:28}{middle:9.3f}{min(values):7.3f}{max(values):7.3f}"
            f"{ratio:7.2f}{workload.images / middle:10.0f}{shares}{memory[name]:7.0f}"
        )
    for name, rate in products.items():
        print(f"matrix product of 1024 by {name}: {rate:.0f} GFLOP/s on one core")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--repeats", type=int, default=5, help="repetitions (default 5)"
    )
    parser.add_argument("--only", choices=WORKLOADS, help="one workload (default all)")
    parser.add_argument("--small", action="store_true", help="small sizes, in seconds")
    parser.add_argument("--store", action="store_true", help="keep the result")
    chosen = parser.parse_args()
    if chosen.small:
        chosen.repeats = 1
        chosen.only = SMALL
    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    for key in WORKLOADS:
        is_default = chosen.only is None and key != SMALL
        if is_default or chosen.only == key:
            measure(key, max(2, cores), chosen.repeats, store=chosen.store)
