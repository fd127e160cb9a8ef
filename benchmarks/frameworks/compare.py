"""Whole rounds of W1 by the simulator, pfl-research and Flower, each in its own environment.

The same work for all: images, network, cohort, local steps, clipping, central Gaussian
noise (see ``workload.py``). What differs: the simulator also draws a Poisson cohort by
a certified plan, writes a ledger and measures each release; pfl-research and Flower
account nothing here. Flower simulates through Ray, with one worker per core.

Each contestant runs twice as whole processes, with few and with more rounds; the
difference is the cost of a round, what remains is the start. CPU seconds are those of
the process and everything it started, read from ``/proc`` (Linux only). The
environments are made on first use in ``--envs``.

    python benchmarks/frameworks/compare.py [--only pfl] [--repeats 3] [--envs runs/envs]
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

HERE = Path(__file__).resolve().parent
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
        of_pfl = ("attrs", "dm-tree", "packaging", "prv-accountant", "scipy")
        needed = of_pfl if name == "pfl" else (packages[0],)
        subprocess.run([*pip, *packages[1:], *needed], check=True)
    return str(python)


def usage(mark: str) -> dict[str, tuple[float, float]]:
    """CPU seconds and resident memory in MB of every process with the mark, by its number."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() not in (folder / "environ").read_bytes():
                continue
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended, or is another user's
        memory = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6
        found[folder.name] = ((int(fields[11]) + int(fields[12])) / CLOCK, memory)
    return found


def run(name: str, python: str, rounds: int) -> Cost:
    """Run a contestant.

    Raises:
        SystemExit: it failed.
    """
    mark, started = uuid.uuid4().hex, time.monotonic()
    path = os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    script = str(HERE / FRAMEWORKS[name].script)
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
    chosen = parser.parse_args()
    pythons = {name: python_of(name, chosen.envs) for name in chosen.only or FRAMEWORKS}
    costs: dict[str, list[tuple[Cost, Cost]]] = {name: [] for name in pythons}
    for _ in range(chosen.repeats):
        for name, python in pythons.items():
            few, more = (run(name, python, rounds) for rounds in ROUNDS)
            costs[name].append((few, more))
    reference = costs.get("privplan")
    more_rounds = ROUNDS[1] - ROUNDS[0]
    print(
        f"{'':12}{'CPU s/round':>12}{'ratio':>7}{'wall s/round':>13}{'start CPU s':>12}{'MB':>7}"
    )
    for name, pairs in costs.items():
        cpu = [(more.cpu - few.cpu) / more_rounds for few, more in pairs]
        wall = [(more.wall - few.wall) / more_rounds for few, more in pairs]
        start = [
            few.cpu - ROUNDS[0] * each
            for (few, _), each in zip(pairs, cpu, strict=True)
        ]
        ratio = ""
        if reference is not None:
            ours = [(more.cpu - few.cpu) / more_rounds for few, more in reference]
            ratio = f"{statistics.median(a / b for a, b in zip(cpu, ours, strict=True)):.2f}"
        memory = max(more.memory for _, more in pairs)
        print(
            f"{name:12}{statistics.median(cpu):12.2f}{ratio:>7}{statistics.median(wall):13.2f}"
            f"{statistics.median(start):12.1f}{memory:7.0f}"
        )


if __name__ == "__main__":
    main()
