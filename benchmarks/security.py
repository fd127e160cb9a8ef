"""Cost of signatures and of secure noise per round, side by side.

W1: 6,000 clients of 10 images of Fashion-MNIST (PRIVPLAN_DATA names the folder), 120
expected participants in three groups, 5 local steps of batch 10 of `cnn-2`. Each round
is executed by every variant from the same state, in turn, with a ledger file; the table
shows medians of CPU seconds and of the ratios to the seeded round.

    python benchmarks/security.py [--rounds 12]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import deque
from dataclasses import replace
from pathlib import Path

import torch
from workloads import w1

from privplan.contrib.attestation import Attestor, SigningKey, new_key
from privplan.secure_stream import NoiseKey
from simulate.engine.experiment import Experiment
from simulate.engine.loop import initial_state, run_round
from simulate.parallel import one_core
from simulate.runs.ledger_writer import FileLedger
from simulate.runs.request import Request, prepare

COHORT = 120  # expected participants of W1
SMALL_COHORT = 12


def workload(
    key: SigningKey, folder: Path, rounds: int, participants: int
) -> Experiment:
    """The experiment of W1, whose plan names the key."""
    signers = [{"name": "server", "key": key.public}]
    plan = w1(rounds, signers=signers, cohort=participants)
    request = Request(plan, "GDPFed", "fashion-mnist", folder)
    return replace(prepare(request), workers=1)


def measure(folder: Path, rounds: int, participants: int) -> dict[str, list[float]]:
    """CPU seconds of each round, by variant."""
    key = new_key(folder / "server.pem")
    plain = workload(key, folder / "run", rounds, participants)
    secret = NoiseKey.new()
    variants = {
        "seeded": plain,
        "seeded, signed": plain,
        "secure": replace(plain, key=secret),
        "secure-discrete": replace(plain, key=secret, discrete=True),
    }
    plan = plain.algorithm.plan
    ledgers = {}
    attestors = {}
    for name in variants:
        where = folder / name
        where.mkdir()
        ledgers[name] = FileLedger(where, plan.digest, plan.digest)
        attestors[name] = Attestor(where, plan, key) if "signed" in name else None

    progress = initial_state(plain)
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    names = deque(variants)
    for _ in range(rounds):
        after = {}
        for name in names:
            start = time.process_time()
            after[name] = run_round(
                variants[name], progress, ledgers[name], attestors[name]
            )
            seconds[name].append(time.process_time() - start)
        progress = after["seeded"]
        # Each variant is the first in turn.
        names.rotate(-1)
    return seconds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--small", action="store_true", help="small sizes, in seconds")
    options = parser.parse_args()
    rounds = 2 if options.small else options.rounds
    participants = SMALL_COHORT if options.small else COHORT
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as parent, one_core():
        seconds = measure(Path(parent), rounds, participants)
    print(f"{'W1, CPU seconds per round':28}{'median':>9}{'min':>9}{'ratio':>8}")
    for name, values in seconds.items():
        # The first round warms up.
        pairs = zip(values[1:], seconds["seeded"][1:], strict=True)
        ratio = statistics.median(value / seeded for value, seeded in pairs)
        print(
            f"{name:28}{statistics.median(values):9.3f}{min(values):9.3f}{ratio:8.3f}"
        )


if __name__ == "__main__":
    main()
