"""Cost of a replay beside the run that it checks, and their largest deviation.

W1: 6,000 clients of 10 images of Fashion-MNIST (PRIVPLAN_DATA names the folder), 120
expected participants in three groups, 5 local steps of batch 10 of `cnn-2`. The run,
replays of five rounds and a replay of all rounds are commands, one after the other,
each in a process of its own; the table shows their CPU seconds, start of the process
included.

    python benchmarks/replay.py [--rounds 50] [--algorithm GDPFed+] [--seed 0]
        [--selections 3]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from workloads import w1

from privplan.evidence.replay import ReplayReport

# Rounds of a replay of some.
SELECTED = 5


def seconds_of(*arguments: str) -> float:
    """CPU seconds of a privplan command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "privplan", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--algorithm", default="GDPFed+")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--selections", type=int, default=3)
    options = parser.parse_args()
    title = f"W1, {options.rounds} rounds, {options.algorithm}"
    print(f"{title:34}{'CPU s':>8}{'of run':>8}")
    with tempfile.TemporaryDirectory() as parent:
        plan = Path(parent) / "plan.json"
        folder = Path(parent) / "run"
        w1(options.rounds).save(plan)
        run = seconds_of(
            "simulate",
            str(plan),
            f"--algorithm={options.algorithm}",
            "--dataset=fashion-mnist",
            f"--seed={options.seed}",
            f"--output={folder}",
        )
        print(f"{'run':34}{run:8.1f}{1:8.2f}", flush=True)
        selections = [
            (str(SELECTED), f"--selection-seed={seed}")
            for seed in range(options.selections)
        ]
        for rounds, *selection in [*selections, ("all",)]:
            seconds = seconds_of("replay", str(folder), "--rounds", rounds, *selection)
            report = ReplayReport.load(folder)
            words = f"replay of {rounds} rounds"
            print(
                f"{words:34}{seconds:8.1f}{seconds / run:8.3f}  {report.outcome}",
                flush=True,
            )
    for comparison in report.comparisons:
        print(
            f"  {comparison.name:32}{comparison.compared:8}{comparison.differ:8}"
            f"{comparison.largest:12.2g}"
        )


if __name__ == "__main__":
    main()
