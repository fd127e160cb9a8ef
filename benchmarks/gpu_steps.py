"""What each step towards the speed of a GPU must show on a card, before and after.

Experiments with contestants in turn, medians, and the figure that decides:

rounds     whole rounds of 120 clients of `cnn-2` on random images, whose next batch a
           thread assembles while the device trains, or not; below 35 ms.
bases      one client of `resnet-18`: in one batch by vmap, in sequence, and as plain
           training; sequence must reach plain training.
graph      plain training of the same steps with channels_last, as one CUDA graph a
           step, and with bf16 before clipping; 1.2 times plain training in float32, and
           12,000 images a second in bf16.
compile    the same steps with channels_last as one CUDA graph a step, whose module
           `torch.compile` has fused, or not, after warm-up; 1.2 times the rate. On a
           CPU, which may have no compiler, it is traced but not fused.
convolutions
           steps of 120 clients of `cnn-2` whose convolutions are grouped ones of
           PyTorch, or one Triton kernel each; three times the rate, and 500,000 images
           a second. On a CPU it needs TRITON_INTERPRET=1.
records    clipped sums of records of `cnn-2`: by vmap, with a gradient of each record
           in memory, and by the simulator's ghost clipping; three times the rate.
rounding   how far bf16 moves a clipped update of `resnet-18`, in clipping norms: the
           root mean square over coordinates, over noise of one clipping norm, must be
           at most 0.05.
jobs       rounds of two runs of `privplan compare`, one after the other and with
           `--jobs 2`; twice the rate. It needs two GPUs, or two cores of a CPU.

That results of one step are equal up to rounding is checked before anything is timed;
later steps amplify rounding. Nothing here is part of a run: it says which step is worth
its code.

    python benchmarks/gpu_steps.py [--device cuda|cpu] [--only NAME] [--repeats 5]
        [--small]
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import torch
import yaml
from contest.peers import LEARNING_RATE, RECORD_NORM, plain_resnet
from contest.workloads import batches, initial
from gpu import device_named, timed
from torch import Tensor
from torch.nn import functional

from privplan.planning.solver import solve
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from simulate.data.dataset import Dataset
from simulate.data.registry import DATASETS
from simulate.engine import chunks
from simulate.engine.experiment import exact_products
from simulate.local.dp_sgd import BLOCK_VALUES, sums_by_vmap
from simulate.local.sgd import local_sgd
from simulate.models import basis
from simulate.models.chain import Chain
from simulate.models.registry import model
from simulate.parallel import gpu_count
from simulate.runs.request import Request
from simulate.runs.run import execute

# Figures that decide.
TIMES_PLAIN = 1.2
TIMES_COMPILED = 1.2
# Twice, but for the scatter of two measurements of 5%.
TIMES_TWO_JOBS = 1.9
IMAGES_IN_BF16 = 12_000
TIMES_RECORDS = 3.0
ROUND_MILLISECONDS = 35.0
TIMES_CONVOLUTIONS = 3.0
IMAGES_OF_SMALL_MODELS = 500_000
SHARE_OF_NOISE = 0.05
# Largest relative difference of two contestants, from rounding in float32.
TOLERANCE = 1e-2
WARM_UP = 3  # steps before a graph is captured, as PyTorch advises


@dataclass(frozen=True)
class Sizes:
    """How much is trained."""

    clients: int
    rounds: int
    steps: int
    batch: int
    records: int
    repeats: int


Contestants = Mapping[str, Callable[[], object]]


def rates(
    contestants: Contestants, images: int, device: torch.device, repeats: int
) -> dict[str, float]:
    """Images per second of each contestant, timed in turn after a first run."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for work in contestants.values():
        work()
    for _ in range(repeats):
        for name, work in contestants.items():
            seconds[name].append(timed(work, device))
    result = {}
    for name, values in seconds.items():
        result[name] = images / statistics.median(values)
        print(f"  {name:<28} {result[name]:>12,.0f} images/s")
    return result


def decided(figure: str, value: float, limit: float, *, at_most: bool = False) -> None:
    """Print whether a figure is reached."""
    is_reached = value <= limit if at_most else value >= limit
    word = "at most" if at_most else "at least"
    outcome = "reached" if is_reached else "missed"
    print(f"  {figure}: {value:,.3g}, must be {word} {limit:,}: {outcome}")


@contextmanager
def in_sequence_from(parameters: float, device: torch.device) -> Iterator[None]:
    """The simulator with another threshold."""
    before = basis.IN_SEQUENCE_FROM.copy()
    basis.IN_SEQUENCE_FROM[device.type] = parameters
    try:
        yield
    finally:
        basis.IN_SEQUENCE_FROM.update(before)


def refuse_difference(name: str, result: Tensor, expected: Tensor) -> None:
    """Exit where two contestants do not compute the same."""
    distance = float((result - expected).norm() / expected.norm())
    if not distance <= TOLERANCE:
        sys.exit(f"{name}: the contestants do not compute the same: {distance:.1e}")


class PlainTraining:
    """Steps of one client of `resnet-18` as a user of PyTorch would write them.

    Args:
        device: where it trains.
        theta: the first parameters [d].
        x: records [steps, B, ...].
        y: labels [steps, B].
        channels_last: whether images and kernels have the channels last in memory.
        dtype: of the forward and backward pass before clipping; None for float32.
        compile_by: a backend of `torch.compile`; None to leave the module as it is.
    """

    def __init__(
        self,
        device: torch.device,
        theta: Tensor,
        x: Tensor,
        y: Tensor,
        *,
        channels_last: bool = False,
        dtype: torch.dtype | None = None,
        compile_by: str | None = None,
    ) -> None:
        self._format = torch.contiguous_format
        if channels_last:
            self._format = torch.channels_last
        self._theta = theta
        self._module = plain_resnet().to(device)
        self._logits: Callable[[Tensor], Tensor] = self._module
        if compile_by is not None:
            self._logits = torch.compile(self._module, backend=compile_by)
        self._device = device
        self._dtype = dtype
        self._x = [part.contiguous(memory_format=self._format) for part in x]
        self._y = list(y)
        self._start()

    def _start(self) -> None:
        """Parameters as at the beginning, in the tensors that are there."""
        with torch.no_grad():
            first = 0
            for value in self._module.parameters():
                part = self._theta[first : first + value.numel()]
                value.copy_(part.view_as(value))
                first += value.numel()
        self._module.to(memory_format=self._format)

    def step(self, x: Tensor, y: Tensor) -> None:
        """One step of SGD."""
        parameters = list(self._module.parameters())
        with torch.autocast(
            self._device.type, self._dtype, enabled=self._dtype is not None
        ):
            loss = functional.cross_entropy(self._logits(x), y)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-LEARNING_RATE)

    def update(self) -> Tensor:
        """The movement of all parameters after all steps [d]."""
        self._start()
        for x, y in zip(self._x, self._y, strict=True):
            self.step(x, y)
        parts = [value.detach().reshape(-1) for value in self._module.parameters()]
        return torch.cat(parts) - self._theta

    def captured(self) -> Callable[[], Tensor]:
        """As ``update``, with one CUDA graph a step and static buffers."""
        x = self._x[0].clone(memory_format=torch.preserve_format)
        y = self._y[0].clone()
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self.step(x, y)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(x, y)

        def update() -> Tensor:
            self._start()
            for records, labels in zip(self._x, self._y, strict=True):
                x.copy_(records)
                y.copy_(labels)
                graph.replay()
            parts = [value.detach().reshape(-1) for value in self._module.parameters()]
            return torch.cat(parts) - self._theta

        return update


def residual(device: torch.device, sizes: Sizes) -> tuple[Tensor, Tensor, Tensor]:
    """First parameters [d], records and labels of one client [1, steps, B, ...]."""
    network = model("resnet-18")
    x, y = batches(network, 1, sizes.steps, sizes.batch)
    return initial(network).to(device), x.to(device), y.to(device)


def compare_bases(device: torch.device, sizes: Sizes) -> None:
    """One client by vmap, in sequence, and as plain training."""
    network = model("resnet-18")
    theta, x, y = residual(device, sizes)

    def update(threshold: float, steps: int = sizes.steps) -> Tensor:
        data = (x[:, :steps], y[:, :steps])
        with in_sequence_from(threshold, device):
            return local_sgd(network, theta, *data, learning_rate=LEARNING_RATE)[0]

    first = PlainTraining(device, theta, x[0, :1], y[0, :1])
    refuse_difference("bases", update(0, steps=1), first.update())
    plain = PlainTraining(device, theta, x[0], y[0])
    rate = rates(
        {
            "batched (before)": lambda: update(math.inf),
            "in sequence (after)": lambda: update(0),
            "plain training": plain.update,
        },
        y.numel(),
        device,
        sizes.repeats,
    )
    ratio = rate["in sequence (after)"] / rate["plain training"]
    decided("times plain training", ratio, 1.0)


def compare_graphs(device: torch.device, sizes: Sizes) -> None:
    """Plain training, and what makes its launches and products cheaper."""
    theta, x, y = residual(device, sizes)
    plain = PlainTraining(device, theta, x[0], y[0])
    last = PlainTraining(device, theta, x[0], y[0], channels_last=True)
    bf16 = PlainTraining(
        device, theta, x[0], y[0], channels_last=True, dtype=torch.bfloat16
    )
    in_float32 = last.update
    in_bf16 = bf16.update
    if device.type == "cuda":
        in_float32 = last.captured()
        in_bf16 = bf16.captured()
    first = PlainTraining(device, theta, x[0, :1], y[0, :1], channels_last=True)
    first_plain = PlainTraining(device, theta, x[0, :1], y[0, :1])
    refuse_difference("graph", first.update(), first_plain.update())
    rate = rates(
        {
            "plain training (before)": plain.update,
            "channels_last": last.update,
            "and a graph a step (after)": in_float32,
            "and bf16 (after)": in_bf16,
        },
        y.numel(),
        device,
        sizes.repeats,
    )
    ratio = rate["and a graph a step (after)"] / rate["plain training (before)"]
    decided("times plain training, float32", ratio, TIMES_PLAIN)
    decided("images/s in bf16", rate["and bf16 (after)"], IMAGES_IN_BF16)


def compare_compiled(device: torch.device, sizes: Sizes) -> None:
    """Plain training in channels_last, whose module is compiled or not."""
    theta, x, y = residual(device, sizes)
    # The backend that needs no compiler shows on a CPU that the script runs.
    backend = "inductor" if device.type == "cuda" else "aot_eager"

    def trained(steps: int, compile_by: str | None) -> PlainTraining:
        data = (x[0, :steps], y[0, :steps])
        return PlainTraining(
            device, theta, *data, channels_last=True, compile_by=compile_by
        )

    first = trained(1, backend).update()
    refuse_difference("compile", first, trained(1, None).update())
    plain = trained(sizes.steps, None)
    compiled = trained(sizes.steps, backend)
    work = {
        "a graph a step (before)": plain.update,
        "compiled (after)": compiled.update,
    }
    if device.type == "cuda":
        # Compiled before it is captured.
        compiled.update()
        work = {
            "a graph a step (before)": plain.captured(),
            "compiled (after)": compiled.captured(),
        }
    rate = rates(work, y.numel(), device, sizes.repeats)
    ratio = rate["compiled (after)"] / rate["a graph a step (before)"]
    decided("times the rate", ratio, TIMES_COMPILED)


def small_models(
    device: torch.device, clients: int, batch: int
) -> Callable[[int], Tensor]:
    """Steps of clients of `cnn-2` as on a device: their number to updates [K, d]."""
    network = model("cnn-2")
    x, y = (part.to(device) for part in batches(network, clients, 5, batch))
    start = initial(network).to(device).expand(clients, -1)

    def update(steps: int) -> Tensor:
        thetas = start.clone()
        for step in range(steps):
            thetas.requires_grad_()
            logits = network.logits_each(thetas, x[:, step])
            labels = y[:, step].flatten()
            loss = functional.cross_entropy(
                logits.flatten(0, 1), labels, reduction="sum"
            )
            [slope] = torch.autograd.grad(loss / batch, thetas)
            thetas = thetas.detach().sub_(slope, alpha=LEARNING_RATE)
        return thetas - start

    return update


def compare_convolutions(device: torch.device, sizes: Sizes) -> None:
    """Grouped convolutions of small models, and one Triton kernel for each."""
    is_interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if find_spec("triton") is None or is_interpreted != (device.type == "cpu"):
        print("  skipped: needs Triton, and TRITON_INTERPRET=1 on a CPU alone")
        return
    from simulate.contrib.client_convolutions import client_conv2d

    def conv2d(x: Tensor, weight: Tensor, bias: Tensor, *, padding: int, groups: int):
        return client_conv2d(x, weight, bias, groups, 1, padding)

    steps = min(5, sizes.steps)
    batch = min(10, sizes.batch)
    update = small_models(device, sizes.clients, batch)

    def by_triton(steps: int = steps) -> Tensor:
        with mock.patch.object(functional, "conv2d", conv2d):
            return update(steps)

    refuse_difference("convolutions", by_triton(1), update(1))
    rate = rates(
        {"grouped (before)": lambda: update(steps), "Triton (after)": by_triton},
        sizes.clients * steps * batch,
        device,
        sizes.repeats,
    )
    ratio = rate["Triton (after)"] / rate["grouped (before)"]
    decided("times the rate", ratio, TIMES_CONVOLUTIONS)
    decided("images/s of W1", rate["Triton (after)"], IMAGES_OF_SMALL_MODELS)


def random_images(folder: Path, download: bool) -> Dataset:
    """A data set of the shape of Fashion-MNIST, without its files."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (7000, 1, 28, 28), generator=draw, dtype=torch.uint8)
    y = torch.randint(10, (7000,), generator=draw)
    classes = tuple("abcdefghij")
    return Dataset("random", x[:6000], y[:6000], x[6000:], y[6000:], classes, std=255.0)


def milliseconds_per_round(device: torch.device, sizes: Sizes, ahead_on: str) -> float:
    """Of a run of `planned`, from its first round to its last one."""
    changes = {
        "groups": [{"name": "all", "clients": 5 * sizes.clients, "epsilon": 6.0}],
        "cohort": sizes.clients,
        "rounds": sizes.rounds,
        "model": {"name": "cnn-2", "parameters": model("cnn-2").parameters},
        "planning": {"ratios": "uniform"},
        "local": {"steps": 5, "batch_size": 10, "learning_rate": 0.1},
    }
    plan = solve(Spec.parse({**yaml.safe_load(preset("digits")), **changes}))
    moments: list[float] = []

    def report(done: int, planned: int) -> None:
        if done in (0, planned):
            moments.append(time.perf_counter())

    with (
        mock.patch.object(chunks, "AHEAD_ON", ahead_on),
        tempfile.TemporaryDirectory() as folder,
    ):
        request = Request(
            plan,
            "planned",
            "random",
            Path(folder) / "run",
            device=device.type,
            partition="iid:10",
        )
        execute(request, report)
    return 1e3 * (moments[-1] - moments[0]) / sizes.rounds


def compare_rounds(device: torch.device, sizes: Sizes) -> None:
    """Whole rounds whose batches are assembled before training, or while it lasts."""
    if "random" not in DATASETS:
        DATASETS.register("random", random_images)
    of_contestant: dict[str, list[float]] = {"": [], device.type: []}
    for repetition in range(sizes.repeats + 1):
        for ahead_on, values in of_contestant.items():
            milliseconds = milliseconds_per_round(device, sizes, ahead_on)
            if repetition:
                values.append(milliseconds)
    before, after = map(statistics.median, of_contestant.values())
    print(f"  batches before training (before) {before:,.1f} ms a round")
    print(f"  batches while it lasts (after)   {after:,.1f} ms a round")
    decided("ms a round", after, ROUND_MILLISECONDS, at_most=True)


def compare_records(device: torch.device, sizes: Sizes) -> None:
    """Clipped sums of records with and without their gradients in memory."""
    network = model("cnn-2")
    assert isinstance(network, Chain)
    x, y = batches(network, 1, 1, sizes.records)
    batch = (initial(network)[None].to(device), x[0].to(device), y[0].to(device))

    def by_vmap() -> Tensor:
        return sums_by_vmap(network, *batch, RECORD_NORM)[0]

    def by_ghosts() -> Tensor:
        return network.clipped_sums(*batch, RECORD_NORM, BLOCK_VALUES)[0]

    refuse_difference("records", by_ghosts(), by_vmap())
    rate = rates(
        {"a gradient a record (before)": by_vmap, "ghosts (after)": by_ghosts},
        y.numel(),
        device,
        sizes.repeats,
    )
    ratio = rate["ghosts (after)"] / rate["a gradient a record (before)"]
    decided("times the rate", ratio, TIMES_RECORDS)
    if device.type == "cuda":
        for name, work in (("before", by_vmap), ("after", by_ghosts)):
            torch.cuda.reset_peak_memory_stats(device)
            work()
            peak = torch.cuda.max_memory_allocated(device) / 2**20
            print(f"  peak memory, {name}: {peak:,.0f} MiB")


def compare_rounding(device: torch.device, sizes: Sizes) -> None:
    """How far bf16 moves a clipped update, beside noise of one clipping norm."""
    theta, x, y = residual(device, sizes)
    exact = PlainTraining(device, theta, x[0], y[0]).update()
    rounded = PlainTraining(
        device, theta, x[0], y[0], channels_last=True, dtype=torch.bfloat16
    ).update()
    difference = exact / exact.norm() - rounded / rounded.norm()
    share = float(difference.norm()) / math.sqrt(len(difference))
    print(f"  distance of clipped updates: {float(difference.norm()):.2g} norms")
    decided("root mean square of sigma C", share, SHARE_OF_NOISE, at_most=True)


def seconds_of_two_runs(
    device: torch.device, sizes: Sizes, jobs: int, rounds: int
) -> float:
    """Of `privplan compare` with two seeds, with the start of its processes."""
    changes = {
        "model": {"name": "cnn-digits", "parameters": model("cnn-digits").parameters},
        "planning": {"ratios": "uniform"},
        "local": {"steps": sizes.steps, "batch_size": 5, "learning_rate": 0.1},
        "rounds": rounds,
    }
    plan = solve(Spec.parse({**yaml.safe_load(preset("digits")), **changes}))
    words = ["--algorithms", "planned", "--seeds", "2", "--jobs", str(jobs)]
    words += ["--device", device.type, "--quiet", "-o", "runs"]
    with tempfile.TemporaryDirectory() as folder:
        plan.save(Path(folder) / "plan.json")
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "privplan", "compare", "plan.json", *words],
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
        )
        return time.perf_counter() - start


def rounds_per_second(device: torch.device, sizes: Sizes, jobs: int) -> float:
    """Of two long runs less two short ones, which start their processes as well."""
    longest = 20 * sizes.rounds
    short = seconds_of_two_runs(device, sizes, jobs, sizes.rounds)
    long = seconds_of_two_runs(device, sizes, jobs, longest)
    return 2 * (longest - sizes.rounds) / (long - short)


def compare_jobs(device: torch.device, sizes: Sizes) -> None:
    """Two runs of `privplan compare`, in turn and at a time on two GPUs."""
    if device.type == "cuda" and gpu_count() < 2:
        print("  skipped: needs two GPUs")
        return
    rates_of_jobs: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(sizes.repeats):
        for jobs, values in rates_of_jobs.items():
            values.append(rounds_per_second(device, sizes, jobs))
    before, after = map(statistics.median, rates_of_jobs.values())
    print(f"  one run after the other (before) {before:,.2f} rounds/s")
    print(f"  two at a time (after)            {after:,.2f} rounds/s")
    decided("times the rate", after / before, TIMES_TWO_JOBS)


EXPERIMENTS: Mapping[str, Callable[[torch.device, Sizes], None]] = {
    "rounds": compare_rounds,
    "bases": compare_bases,
    "graph": compare_graphs,
    "compile": compare_compiled,
    "convolutions": compare_convolutions,
    "records": compare_records,
    "rounding": compare_rounding,
    "jobs": compare_jobs,
}


def main() -> None:
    """Run the experiments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", choices=tuple(EXPERIMENTS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a small slice, once")
    chosen = parser.parse_args()
    device = device_named(chosen.device)
    sizes = Sizes(120, 20, steps=10, batch=50, records=1280, repeats=chosen.repeats)
    if chosen.small:
        sizes = Sizes(1, 2, steps=1, batch=1, records=8, repeats=1)
    with exact_products():
        for name, experiment in EXPERIMENTS.items():
            if chosen.only in (None, name):
                print(name)
                experiment(device, sizes)


if __name__ == "__main__":
    main()
