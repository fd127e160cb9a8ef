"""W1 to W3 on one device: the simulator beside sequential training on the same device.

W1: rounds of 120 clients, 5 steps of batch 10 of `cnn-2`. W2: one client of
`resnet-18`, 10 steps of batch 50, beside plain batched training of the same steps. W3:
record-level DP-SGD of `cnn-2`, 20 clients, batch 64, beside the same clipped sums for
one client at a time.

Prints and stores images per second, the share of the device's rate in a matrix product
of 4096 in float32, the ratio to the sequential loop, and the number of synchronisations
between host and device while a round's kernel runs (PyTorch's sync debug mode warns of
each). Medians of several repetitions, the contestants in turn; the first run of each is
not timed. That both compute the same is checked after one step: later ones amplify
rounding. TF32 is off, as in runs.

    benchmarks/gpu.sh, or python benchmarks/gpu.py [--device cuda|cpu|pretend]
        [--repeats 5] [--output DIR]

`--device cpu` runs a small slice of everything, to test the program where there is no
GPU, and `--device pretend` the same on the device of `tests/simulate/device`: its waits
are counted, its times are those of a CPU and say nothing of a GPU, and the loops of W1
and W2 train on the CPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from contest.peers import (
    LEARNING_RATE,
    RECORD_BATCH,
    RECORD_NORM,
    plain_cnn,
    plain_resnet,
    sum_sequential,
)
from contest.workloads import batches, initial, sum_batched
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from simulate.engine.experiment import exact_products
from simulate.local.dp_sgd import clipped_sums
from simulate.models.network import Model
from simulate.models.registry import model

RESULTS = Path(__file__).parent / "results"
PRETEND = "pretend"
TOLERANCE = 1e-2
"""Largest relative difference of two contestants' results after one step, from rounding."""


@dataclass(frozen=True)
class Sizes:
    """Clients and steps of the workloads."""

    clients: int
    steps: int
    residual_steps: int
    record_clients: int
    record_steps: int
    product: int


FULL = Sizes(120, 5, 10, 20, 4, 4096)
SMALL = Sizes(4, 2, 1, 2, 1, 256)
ONE_STEP = {"steps": 1, "residual_steps": 1, "record_steps": 1}


@dataclass(frozen=True)
class Workload:
    """Contestants that compute the same on the same device; the first is the simulator.

    Attributes:
        title: what one run is.
        network: what is trained.
        images: records that one run trains on, with repetition.
        simulator: one run of the simulator.
        reference: one run of the loop that it is compared with.
    """

    title: str
    network: Model
    images: int
    simulator: Callable[[], Tensor]
    reference: Callable[[], Tensor]


def on(device: torch.device, *values: Tensor) -> tuple[Tensor, ...]:
    """The tensors on a device."""
    return tuple(value.to(device) for value in values)


def for_reference(device: torch.device, *values: Tensor) -> tuple[Tensor, ...]:
    """The tensors where the loop trains: on the CPU beside the pretend device."""
    return on(torch.device("cpu"), *values) if device.type == PRETEND else values


def w1(device: torch.device, sizes: Sizes) -> Workload:
    """Small images, many clients."""
    network = model("cnn-2")
    x, y = on(device, *batches(network, sizes.clients, sizes.steps, 10))
    [theta] = on(device, initial(network))
    aside = for_reference(device, theta, x, y)
    module = plain_cnn().to(aside[0].device)
    return Workload(
        f"W1: {sizes.clients} clients, {sizes.steps} steps of batch 10, against a sequential loop",
        network,
        y.numel(),
        lambda: sum_batched(network, theta, (x, y), 1),
        lambda: sum_sequential(module, aside[0], aside[1:]),
    )


def w2(device: torch.device, sizes: Sizes) -> Workload:
    """A residual network, against plain batched training."""
    network = model("resnet-18")
    x, y = on(device, *batches(network, 1, sizes.residual_steps, 50))
    [theta] = on(device, initial(network))
    aside = for_reference(device, theta, x, y)
    module = plain_resnet().to(aside[0].device)
    return Workload(
        f"W2: one client, {sizes.residual_steps} steps of batch 50, against plain training",
        network,
        y.numel(),
        lambda: sum_batched(network, theta, (x, y), 1),
        lambda: sum_sequential(module, aside[0], aside[1:]),
    )


def w3(device: torch.device, sizes: Sizes) -> Workload:
    """Record-level DP-SGD, all clients in one batch against one client at a time."""
    network = model("cnn-2")
    x, y = on(device, *batches(network, sizes.record_clients, sizes.record_steps, 64))
    [theta] = on(device, initial(network))

    def one_by_one() -> Tensor:
        clients = range(len(y))
        return torch.cat(
            [records(network, theta, (x[k : k + 1], y[k : k + 1])) for k in clients]
        )

    return Workload(
        f"W3: {sizes.record_clients} clients, {sizes.record_steps} steps of batch 64, "
        "record-level DP-SGD, against one client at a time",
        network,
        y.numel(),
        lambda: records(network, theta, (x, y)),
        one_by_one,
    )


def records(network: Model, theta: Tensor, data: tuple[Tensor, Tensor]) -> Tensor:
    """Clients [K, d] after record-level steps without noise, on the tensors' device."""
    inputs, labels = data
    clients, steps = labels.shape[:2]
    thetas = theta.repeat(clients, 1)
    for step in range(steps):
        sums = clipped_sums(
            network,
            thetas,
            inputs[:, step],
            labels[:, step],
            clipping_norm=RECORD_NORM,
            workers=1,
        ).total
        thetas -= LEARNING_RATE / RECORD_BATCH * sums
    return thetas


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Wall seconds of one run, until the device has finished."""
    _wait(device)
    start = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def product_rate(device: torch.device, size: int) -> float:
    """Floating-point operations per second of a matrix product in float32."""
    left, right = torch.ones(2, size, size, device=device)
    for _ in range(3):
        torch.mm(left, right)
    seconds = [timed(lambda: torch.mm(left, right), device) for _ in range(5)]
    return 2.0 * size**3 / statistics.median(seconds)


def training_flops(network: Model) -> float:
    """Floating-point operations of a forward and a backward pass over one record."""
    module = network.module()
    record = torch.zeros(1, *network.input_shape)
    with FlopCounterMode(display=False) as counter:
        module(record).sum().backward()
    return float(counter.get_total_flops())


def synchronisations(work: Callable[[], object], device: torch.device) -> int | None:
    """How often one run waits for the device; None where it cannot be counted."""
    if device.type == PRETEND:
        from tests.simulate.device.pretend import in_use

        with in_use() as use:
            work()
        return int(use.waits.total())
    if device.type != "cuda":
        return None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchron" in str(warning.message).lower() for warning in caught)


def difference(workload: Workload) -> float:
    """Largest difference of the two results, relative to the largest value.

    Raises:
        SystemExit: when the contestants do not compute the same.
    """
    result = workload.simulator().cpu()
    expected = workload.reference().cpu()
    worst = float((result - expected).abs().max() / expected.abs().max())
    if not worst <= TOLERANCE:
        sys.exit(
            f"{workload.title}: the contestants do not compute the same: {worst:.1e}"
        )
    return worst


def measure(
    workload: Workload, device: torch.device, repeats: int, rate: float
) -> dict[str, Any]:
    """Times, rates and ratios of one workload."""
    for contestant in (workload.simulator, workload.reference):
        contestant()
    seconds: dict[str, list[float]] = {"simulator": [], "reference": []}
    for _ in range(repeats):
        seconds["simulator"].append(timed(workload.simulator, device))
        seconds["reference"].append(timed(workload.reference, device))
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    work = training_flops(workload.network) * workload.images
    pairs = zip(seconds["reference"], seconds["simulator"], strict=True)
    return {
        "title": workload.title,
        "model": workload.network.name,
        "images": workload.images,
        "seconds": seconds,
        "images_per_second": {
            name: workload.images / value for name, value in middle.items()
        },
        "share_of_product": {
            name: work / value / rate for name, value in middle.items()
        },
        "ratio": statistics.median(reference / ours for reference, ours in pairs),
        "synchronisations": synchronisations(workload.simulator, device),
    }


def report(result: dict[str, Any]) -> None:
    """Print one workload."""
    print(result["title"])
    for name, images in result["images_per_second"].items():
        share = result["share_of_product"][name]
        print(f"  {name:12} {images:12.0f} images/s {share:8.1%} of the product's rate")
    synchronised = result["synchronisations"]
    count = "not counted" if synchronised is None else str(synchronised)
    print(
        f"  {result['ratio']:.2f} times the reference; host synchronisations: {count}"
    )


def device_named(name: str) -> torch.device:
    """The device of a name.

    Raises:
        SystemExit: with code 2 and one line, where there is no such device.
    """
    if name == "cuda" and not torch.cuda.is_available():
        print("gpu: needs a CUDA device, found none", file=sys.stderr)
        raise SystemExit(2)
    if name == PRETEND:
        from tests.simulate.device.pretend import device

        return device()
    return torch.device(name)


def main() -> None:
    """Read the command line, and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu", PRETEND), default="cuda")
    parser.add_argument(
        "--repeats", type=int, default=5, help="repetitions (default 5)"
    )
    parser.add_argument(
        "--output", type=Path, default=RESULTS, help="folder of the file"
    )
    parser.add_argument("--check", action="store_true", help="only look for the device")
    chosen = parser.parse_args()
    device = device_named(chosen.device)
    if chosen.check:
        return
    with ExitStack() as stack:
        stack.enter_context(exact_products())
        if device.type == PRETEND:
            from tests.simulate.device.pretend import in_use

            stack.enter_context(in_use())
        measure_all(device, chosen.repeats, chosen.output)


def measure_all(device: torch.device, repeats: int, output: Path) -> None:
    """Measure all workloads, print them, and write the file."""
    sizes = SMALL
    name = platform.machine()
    if device.type == "cuda":
        sizes = FULL
        name = torch.cuda.get_device_name(device)
    elif device.type == PRETEND:
        name = f"{PRETEND} {name}"
    rate = product_rate(device, sizes.product)
    print(f"{name}: {rate / 1e12:.2f} TFLOP/s in a float32 product of {sizes.product}")
    results = []
    for build in (w1, w2, w3):
        worst = difference(build(device, replace(sizes, **ONE_STEP)))
        measured = measure(build(device, sizes), device, repeats, rate)
        results.append(measured | {"difference": worst})
        report(results[-1])
    moment = datetime.datetime.now(datetime.UTC)
    content = {
        "device": name,
        "kind": device.type,
        "date": moment.isoformat(timespec="seconds"),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "product_flops_per_second": rate,
        "sizes": asdict(sizes),
        "repeats": repeats,
        "workloads": results,
    }
    output.mkdir(parents=True, exist_ok=True)
    short = re.sub(r"\W+", "-", name).strip("-").lower()
    path = output / f"gpu-{short}-{moment:%Y%m%dT%H%M%S}.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
