"""CPU time of the guard in its own process: at the start, and of each further round.

The start includes importing ``privplan.guard``, reading the plan and the first look at
the budgets; a round is a draw, the release and its booking, with every write. Importing
numpy is not counted, since every training process has it. Prints milliseconds; the
limits are 600 and 5.

    python benchmarks/guard.py [--size 20000] [--rounds 50]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

CODE = """
import statistics, sys, time
from pathlib import Path
import numpy as np

plan, folder, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
started = time.process_time()
from privplan.guard import Guard
guard = Guard(plan, folder)
print(f"start {1000 * (time.process_time() - started):.1f}")
total, times = np.ones(size), []
for round_ in guard.rounds():
    began = time.process_time()
    cohort = guard.draw(round_)
    found = guard.release(round_, {name: total for name in cohort.clients})
    guard.record(round_, found.mean)
    times.append(1000 * (time.process_time() - began))
guard.close()
print(f"first {times[0]:.1f}")
print(f"median {statistics.median(times[1:]):.2f}")
print(f"mean {statistics.mean(times[1:]):.2f}")
print(f"largest {max(times[1:]):.2f}")
"""
SPEC = """
name: guarded
groups:
- {name: strict, clients: 2000, epsilon: 0.5}
- {name: loose, clients: 4000, epsilon: 2.0}
rounds: %d
cohort: 120
clipping_norm: 0.5
delta: 6.98e-5
model: {name: cnn-digits, parameters: 2410}
"""


def measured(size: int, rounds: int) -> dict[str, float]:
    """CPU milliseconds by name, measured in a new process.

    Args:
        size: number of coordinates of the model.
        rounds: rounds of the plan.
    """
    from privplan.planning.solver import solve
    from privplan.spec.spec import Spec

    with tempfile.TemporaryDirectory() as folder:
        import yaml

        plan = Path(folder) / "plan.json"
        solve(Spec.parse(yaml.safe_load(SPEC % rounds))).save(plan)
        command = [sys.executable, "-c", CODE, str(plan), f"{folder}/run", str(size)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    pairs = (line.split() for line in done.stdout.splitlines())
    return {name: float(value) for name, value in pairs}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--small", action="store_true", help="small sizes, in seconds")
    options = parser.parse_args()
    if options.small:
        options.size = 100
        options.rounds = 3
    for name, value in measured(options.size, options.rounds).items():
        print(f"{name:8} {value:8.2f} ms CPU")


if __name__ == "__main__":
    main()
