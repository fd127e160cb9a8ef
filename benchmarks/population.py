"""Memory and time of a round as the population grows, side by side in one run.

A cohort of 1,000 clients of 5 digits each, drawn from three groups; partitions are
drawn when a client takes part (``iid:5``). Each population has a process of its own,
which first plays a round of a small one. The table shows the peak of its memory, how
much of it came after that small round, and medians of CPU seconds per round.

    python benchmarks/population.py
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml

from privplan.planning.solver import solve
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from simulate.engine.loop import initial_state, run_round
from simulate.runs.ledger_writer import MemoryLedger
from simulate.runs.request import Request, prepare
from simulate.tasks import evaluation_schedule

POPULATIONS = (10**4, 10**5, 10**6)
COHORT = 1000
ROUNDS = 5
LIMIT_MB = 4096
# A MiB in the unit of the system's peak memory: bytes on macOS, elsewhere KiB.
MB = 2**20 if sys.platform == "darwin" else 2**10


@dataclass(frozen=True)
class Cost:
    """What one population costs.

    Attributes:
        clients: the population.
        before: peak memory before the partition is made, after a round of a small one,
            MiB.
        peak: peak memory after the rounds, MiB.
        prepare: CPU seconds until the first round.
        rounds: CPU seconds of each round.
    """

    clients: int
    before: float
    peak: float
    prepare: float
    rounds: tuple[float, ...]


def request_for(clients: int) -> Request:
    """The digits preset for a population of three groups."""
    text = preset("digits")
    sizes = {"strict": clients // 2, "medium": clients // 4}
    sizes["loose"] = clients - sum(sizes.values())
    groups = [
        {"name": name, "clients": size, "epsilon": epsilon}
        for (name, size), epsilon in zip(sizes.items(), (2.0, 6.0, 12.0), strict=True)
    ]
    changes = {"groups": groups, "cohort": COHORT, "rounds": ROUNDS}
    plan = solve(Spec.parse({**yaml.safe_load(text), **changes}))
    return Request(
        plan, "GDPFed+", "digits", Path("unused"), device="cpu", partition="iid:5"
    )


def peak() -> float:
    """Peak memory of this process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MB


def measure(clients: int) -> Cost:
    """Prepare a run and train its rounds."""
    torch.set_num_threads(1)
    request = request_for(clients)
    # What every run needs is there before.
    small = prepare(request_for(2 * COHORT))
    run_round(small, initial_state(small), MemoryLedger(""))
    peak_before = peak()
    started = time.process_time()
    experiment = prepare(request)
    plan = experiment.algorithm.plan
    evaluation_schedule(plan, experiment.partition, len(experiment.data.test_y))
    preparation = time.process_time() - started
    rounds = []
    progress = initial_state(experiment)
    ledger = MemoryLedger("")
    for _ in range(ROUNDS):
        begun = time.process_time()
        progress = run_round(experiment, progress, ledger)
        rounds.append(time.process_time() - begun)
    return Cost(clients, peak_before, peak(), preparation, tuple(rounds))


def main() -> None:
    """Measure every population and print the table; exit code 1 above the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=POPULATIONS)
    parser.add_argument("--small", action="store_true", help="small sizes, in seconds")
    options = parser.parse_args()
    populations = (2 * COHORT,) if options.small else options.clients
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, maxtasksperchild=1) as pool:
        costs = pool.map(measure, populations, chunksize=1)
    print(
        f"{'clients':>10} {'peak MB':>9} {'of it new':>10} {'prepare s':>10} "
        f"{'round s':>9}"
    )
    for cost in costs:
        print(
            f"{cost.clients:>10,} {cost.peak:>9.0f} {cost.peak - cost.before:>10.1f} "
            f"{cost.prepare:>10.2f} {statistics.median(cost.rounds):>9.3f}"
        )
    sys.exit(max(cost.peak for cost in costs) > LIMIT_MB)


if __name__ == "__main__":
    main()
