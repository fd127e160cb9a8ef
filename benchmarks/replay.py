"""Cost of a replay beside the run that it checks, and their largest deviation.

W1: 6,000 clients of 10 images of Fashion-MNIST (PRIVPLAN_DATA names the folder), 120 expected
participants in three groups, 5 local steps of batch 10 of `cnn-2`. The run, a replay of five rounds
and a replay of all rounds follow each other in one process; the table shows their CPU seconds.

    python benchmarks/replay.py [--rounds 50] [--algorithm GDPFed+] [--seed 0]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from simulate.models.registry import model
from simulate.replay.replay import Replay
from simulate.runs.request import Request
from simulate.runs.run import execute

SELECTED = 5


def workload(rounds: int) -> Plan:
    """The plan of W1."""
    groups = [("strict", 2.0), ("medium", 6.0), ("loose", 12.0)]
    spec = Spec.parse(
        {
            "name": "W1",
            "groups": [{"name": name, "clients": 2000, "epsilon": e} for name, e in groups],
            "rounds": rounds,
            "cohort": 120,
            "delta": 1e-4,
            "local": {"steps": 5, "batch_size": 10, "learning_rate": 0.1},
            "model": {"name": "cnn-2", "parameters": model("cnn-2").parameters},
            "planning": {"ratios": "uniform", "accountant": "rdp"},
        }
    )
    return solve(spec, second_opinion=False)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--algorithm", default="GDPFed+")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    plan = workload(asked.rounds)
    print(f"{f'W1, {asked.rounds} rounds, {asked.algorithm}':34}{'CPU s':>8}{'of run':>8}")
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        start = time.process_time()
        execute(Request(plan, asked.algorithm, "fashion-mnist", folder, seed=asked.seed))
        run = time.process_time() - start
        print(f"{'run':34}{run:8.1f}{1:8.2f}")
        for words, rounds in ((f"replay of {SELECTED} rounds", SELECTED), ("of all", None)):
            start = time.process_time()
            report = Replay(folder).run(rounds, asked.seed, lambda done, total: None)
            seconds = time.process_time() - start
            print(f"{words:34}{seconds:8.1f}{seconds / run:8.2f}  {report.outcome}")
    for one in report.comparisons:
        print(f"  {one.name:32}{one.compared:8}{one.differ:8}{one.largest:12.2g}")


if __name__ == "__main__":
    main()
