"""What a round costs the host, beside another commit and with rarer commits to disk.

Runs of 1,000 clients of `mlp-digits` a round, each in a process of its own and in a
folder on disk: of this tree, of this tree with ``--commit-every``, and of another
checkout, in turn. The table shows medians of milliseconds per round, of CPU time and by
the clock, from the first round to the last one; plots and preparation are not in it.

    python benchmarks/host.py [--beside FOLDER] [--repeats 3] [--small]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COHORT = 1000
ROUNDS = 40
SMALL_ROUNDS = 2
COMMIT_EVERY = 50
# Five records of each client, drawn when it takes part.
PARTITION = "iid:5"


class Cost(NamedTuple):
    """Milliseconds per round."""

    cpu: float
    wall: float


class Contestant(NamedTuple):
    """A tree, and after how many rounds its runs put their ledger on disk."""

    tree: Path
    commit_every: int


def run_once(rounds: int, commit_every: int) -> None:
    """Train in this process, and print CPU and wall milliseconds per round."""
    import torch
    import yaml

    from privplan.planning.solver import solve
    from privplan.spec.presets import preset
    from privplan.spec.spec import Spec
    from simulate.runs.request import Request
    from simulate.runs.run import execute

    torch.set_num_threads(1)
    clients = {"strict": COHORT, "medium": COHORT // 2, "loose": COHORT // 2}
    epsilons = {"strict": 2.0, "medium": 6.0, "loose": 12.0}
    groups = [
        {"name": name, "clients": size, "epsilon": epsilons[name]}
        for name, size in clients.items()
    ]
    changes = {"groups": groups, "cohort": COHORT, "rounds": rounds}
    plan = solve(Spec.parse({**yaml.safe_load(preset("digits")), **changes}))
    # An older tree has no such option.
    options: Mapping[str, Any] = {}
    if commit_every > 1:
        options = {"commit_every": commit_every}
    moments: list[Cost] = []

    def report(done: int, planned: int) -> None:
        if done in (0, planned):
            moments.append(Cost(time.process_time(), time.perf_counter()))

    with tempfile.TemporaryDirectory() as folder:
        request = Request(
            plan,
            "planned",
            "digits",
            Path(folder) / "run",
            device="cpu",
            partition=PARTITION,
            **options,
        )
        execute(request, report)
    first, last = moments
    cpu = 1e3 * (last.cpu - first.cpu) / rounds
    wall = 1e3 * (last.wall - first.wall) / rounds
    print(cpu, wall)


def measured(contestant: Contestant, rounds: int) -> Cost:
    """The cost of a round of a contestant, in a process of its own."""
    words = ["--run", str(rounds), str(contestant.commit_every)]
    done = subprocess.run(
        [sys.executable, __file__, *words],
        env={**os.environ, "PYTHONPATH": str(contestant.tree)},
        capture_output=True,
        text=True,
        check=True,
    )
    cpu, wall = map(float, done.stdout.split())
    return Cost(cpu, wall)


def main() -> None:
    """Measure all contestants in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--beside", type=Path, help="folder of another checkout")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="two rounds, once")
    parser.add_argument("--run", type=int, nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.run is not None:
        run_once(*chosen.run)
        return
    contestants = {
        "this tree": Contestant(ROOT, 1),
        f"--commit-every {COMMIT_EVERY}": Contestant(ROOT, COMMIT_EVERY),
    }
    if chosen.beside is not None:
        contestants["beside"] = Contestant(chosen.beside.resolve(), 1)
    costs: dict[str, list[Cost]] = {name: [] for name in contestants}
    rounds = SMALL_ROUNDS if chosen.small else ROUNDS
    for _ in range(1 if chosen.small else chosen.repeats):
        for name, contestant in contestants.items():
            costs[name].append(measured(contestant, rounds))
    print(f"{'milliseconds per round':<24} {'CPU':>8} {'clock':>8}")
    for name, of_runs in costs.items():
        cpu = statistics.median(cost.cpu for cost in of_runs)
        wall = statistics.median(cost.wall for cost in of_runs)
        print(f"{name:<24} {cpu:>8.1f} {wall:>8.1f}")


if __name__ == "__main__":
    main()
