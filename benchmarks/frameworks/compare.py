"""Whole rounds of W1 by the simulator, pfl-research and Flower.

Each in an environment of its own. The same work for all: images, network, cohort, local
steps, clipping, central Gaussian noise (see ``workload.py``). What differs: the
simulator also draws a Poisson cohort by a certified plan, writes a ledger and measures
each release; pfl-research and Flower account nothing here. Flower simulates through
Ray, with one worker per core.

Each contestant runs twice as whole processes, with few and with more rounds; the
difference is the cost of a round, what remains is the start. CPU seconds are those of
the process and everything it started, read from ``/proc`` (Linux only). The
environments are made on first use in ``--envs``.

    python benchmarks/frameworks/compare.py [--only pfl] [--repeats 3]
        [--envs runs/envs]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import uuid
import venv
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
MARK = "PRIVPLAN_CONTEST"
"""Environment variable by which the processes of a run are found."""
ROUNDS = (2, 10)
CLOCK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Framework:
    """A contestant.

    Attributes:
        script: file beside this one.
        packages: what its environment needs besides PyTorch; empty for this
            environment.
    """

    script: str
    packages: tuple[str, ...] = ()


FRAMEWORKS = {
    "privplan": Framework("run_privplan.py"),
    "pfl": Framework(
        "run_pfl.py",
        ("pfl==0.6.0", "dp-accounting<0.6", "multiprocess", "torch==2.13.0"),
    ),
    "flower": Framework("run_flower.py", ("flwr==1.41.0", "ray", "torch==2.13.0")),
}


@dataclass(frozen=True)
class Cost:
    """CPU and wall seconds of a run, and the peak of its processes' memory in MB."""

    cpu: float
    wall: float
    memory: float


def python_of(name: str, folder: Path) -> str:
    """The interpreter of a contestant; makes its environment on first use."""
    packages = FRAMEWORKS[name].packages
    if not packages:
        return sys.executable
    python = folder / name / "bin" / "python"
    if not python.exists():
        venv.create(folder / name, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        # pfl's own list of requirements asks for an older PyTorch.
        subprocess.run([*pip, "--no-deps", packages[0]], check=True)
        requirements: tuple[str, ...] = (packages[0],)
        if name == "pfl":
            requirements = ("attrs", "dm-tree", "packaging", "prv-accountant", "scipy")
        subprocess.run([*pip, *packages[1:], *requirements], check=True)
    return str(python)


def usage(mark: str) -> dict[str, tuple[float, float]]:
    """CPU seconds and memory in MB of the processes with the mark, by number."""
    costs: dict[str, tuple[float, float]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() not in (folder / "environ").read_bytes():
                continue
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended, or is another user's
        memory = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6
        cpu = (int(fields[11]) + int(fields[12])) / CLOCK
        costs[folder.name] = (cpu, memory)
    return costs


def run(name: str, python: str, rounds: int) -> Cost:
    """Run a contestant.

    Raises:
        SystemExit: it failed.
    """
    mark = uuid.uuid4().hex
    started = time.monotonic()
    path = os.pathsep.join([str(FOLDER.parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    script = str(FOLDER / FRAMEWORKS[name].script)
    process = subprocess.Popen(
        [python, script, str(rounds)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    seconds: dict[str, float] = {}
    memory = 0.0
    while process.poll() is None:
        now = usage(mark)
        seconds |= {number: cpu for number, (cpu, _) in now.items()}
        memory = max(memory, sum(size for _, size in now.values()))
        try:
            process.communicate(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
    if process.returncode:
        sys.exit(f"{name} failed with exit code {process.returncode}")
    return Cost(sum(seconds.values()), time.monotonic() - started, memory)


@dataclass(frozen=True)
class Pair:
    """The costs of a run with few rounds and of one with more, ``ROUNDS``."""

    short: Cost
    long: Cost

    @property
    def cpu(self) -> float:
        """CPU seconds of a round."""
        return (self.long.cpu - self.short.cpu) / (ROUNDS[1] - ROUNDS[0])

    @property
    def wall(self) -> float:
        """Wall seconds of a round."""
        return (self.long.wall - self.short.wall) / (ROUNDS[1] - ROUNDS[0])

    @property
    def start(self) -> float:
        """CPU seconds of the start."""
        return self.short.cpu - ROUNDS[0] * self.cpu


def main() -> None:
    """Run every contestant and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", nargs="+", choices=FRAMEWORKS, help="some (default all)"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="repetitions (default 3)"
    )
    parser.add_argument(
        "--envs", type=Path, default=Path("runs/envs"), help="environments"
    )
    options = parser.parse_args()
    names = options.only or list(FRAMEWORKS)
    pythons = {name: python_of(name, options.envs) for name in names}
    costs: dict[str, list[Pair]] = {name: [] for name in pythons}
    for _ in range(options.repeats):
        for name, python in pythons.items():
            short = run(name, python, ROUNDS[0])
            long = run(name, python, ROUNDS[1])
            costs[name].append(Pair(short, long))
    print_table(costs)


def print_table(costs: dict[str, list[Pair]]) -> None:
    """Print medians over the repetitions, a row per contestant."""
    heads = f"{'CPU s/round':>12}{'ratio':>7}{'wall s/round':>13}{'start CPU s':>12}"
    print(f"{'':12}{heads}{'MB':>7}")
    reference = costs.get("privplan")
    for name, pairs in costs.items():
        ratio = ""
        if reference is not None:
            ratios = [
                theirs.cpu / ours.cpu
                for theirs, ours in zip(pairs, reference, strict=True)
            ]
            ratio = f"{statistics.median(ratios):.2f}"
        cpu = statistics.median(pair.cpu for pair in pairs)
        wall = statistics.median(pair.wall for pair in pairs)
        start = statistics.median(pair.start for pair in pairs)
        memory = max(pair.long.memory for pair in pairs)
        print(f"{name:12}{cpu:12.2f}{ratio:>7}{wall:13.2f}{start:12.1f}{memory:7.0f}")


if __name__ == "__main__":
    main()
