"""Time and memory of verifying a long ledger.

python benchmarks/long_ledger.py [rounds] [groups]

The ledger of 10,000 rounds of 10 groups is generated, 50 expected participants per
release, and verified by ``privplan verify`` in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np

from privplan.accounting.certificate import certify
from privplan.accounting.release import History, Relation, Release
from privplan.ledger import chained
from privplan.plan import GroupPlan, ObjectiveValue, Plan
from privplan.record import (
    LEDGER,
    PLAN,
    Executed,
    GroupShare,
    ReleaseRecord,
    Residual,
    RoundMetrics,
    RunRecord,
)
from privplan.spec.spec import Spec

# Of each group: clients, sampling ratio, noise multiplier and clipping norm.
CLIENTS = 2_500
RATIO = 0.02
SIGMA = 20.0
NORM = 0.5
# Parameters of the model.
DIMENSION = 1_000
# Rounds and groups without arguments.
DEFAULTS = (10_000, 10)
SMALL = (20, 2)
# Exit code of a sound run whose noise is of a recorded seed: a rehearsal.
REHEARSAL = 5


def long_plan(rounds: int, groups: int) -> Plan:
    """A certified plan of equal groups."""
    names = [f"group-{index}" for index in range(groups)]
    spec = Spec.parse(
        {
            "name": "long",
            "groups": [
                {"name": name, "clients": CLIENTS, "epsilon": 5.0} for name in names
            ],
            "rounds": rounds,
            "cohort": CLIENTS * RATIO * groups,
            "delta": 1e-5,
            "clipping_norm": NORM,
            "model": {"name": "cnn-digits", "parameters": DIMENSION},
        }
    )
    history = History.repeated(Release(SIGMA, RATIO, spec.sampling), rounds)
    relation = Relation(spec.relation)
    shared = certify(
        history, group="", delta=1e-5, relation=relation, accountants=("pld",)
    )
    return Plan(
        spec=spec,
        groups=tuple(
            GroupPlan(
                name=name,
                clients=CLIENTS,
                epsilon=5.0,
                delta=1e-5,
                sampling_ratio=RATIO,
                expected_cohort=RATIO * CLIENTS,
                noise_multiplier=SIGMA,
                kept_fraction=1.0,
                weight=1 / groups,
            )
            for name in names
        ),
        objective=ObjectiveValue(name="given", value=0.0),
        bound={},
        mean_noise_std=0.1,
        status="given",
        certificate=tuple(
            row.model_copy(update={"group": name})
            for name, row in product(names, shared)
        ),
    )


def write_long_run(folder: Path, rounds: int, groups: int) -> None:
    """A run folder as an honest simulation of the plan writes it."""
    plan = long_plan(rounds, groups)
    rng = np.random.default_rng(1)
    std = SIGMA * NORM
    plan.save(folder / PLAN)
    chain = plan.digest
    with open(folder / LEDGER, "w") as file:
        for number in range(1, rounds + 1):
            for group in plan.groups:
                drawn = np.flatnonzero(rng.random(CLIENTS) < RATIO)
                squares = float(std**2 * rng.chisquare(DIMENSION))
                share = GroupShare(
                    group=group.name,
                    clients=CLIENTS,
                    sampling=plan.spec.sampling,
                    sampling_ratio=RATIO,
                    cohort=len(drawn),
                    participants=tuple(drawn.tolist()),
                    clip_bound=NORM,
                    largest_norm=NORM,
                    clipped=3,
                    factor=1 / groups,
                )
                release = ReleaseRecord(
                    round=number,
                    family="gaussian",
                    noise_std=std,
                    dimension=DIMENSION,
                    noise_sum_squares=squares,
                    noise_state=rng.bytes(12).hex(),
                    residual=Residual(
                        sum_squares=squares, along_sum=rng.normal(0, std)
                    ),
                    shares=(share,),
                )
                line, chain = chained(release, chain)
                file.write(line)
    configuration = {
        "aggregation": "paper",
        "numbers": {},
        "data": "0" * 64,
        "rounds": rounds,
        "canaries": 0,
        "clients": plan.spec.population,
        "processes": 1,
    }
    RunRecord(
        plan_digest=plan.digest,
        algorithm="GDPFed",
        dataset="none",
        partition="iid",
        model=plan.spec.model.name,
        seed=1,
        device="cpu",
        configuration=configuration,
        versions={},
        status="complete",
        rounds_done=rounds,
        metrics=(RoundMetrics(round=rounds, accuracy=0.9, loss=0.4),),
        accuracy=0.9,
        accuracy_by_class={},
        accuracy_by_group={},
        wall_seconds=1.0,
        chain=chain,
        executed=Executed(aggregator="own", coordinates=DIMENSION, shared=DIMENSION),
    ).save(folder)


def measure(folder: Path) -> tuple[int, float, float, float]:
    """Exit code, seconds, processor seconds and peak megabytes of ``verify``."""
    start = time.perf_counter()
    command = ["-m", "privplan", "verify", "--rounds=0", str(folder)]
    process = os.posix_spawn(sys.executable, [sys.executable, *command], os.environ)
    _, status, usage = os.wait4(process, 0)
    seconds = time.perf_counter() - start
    processor = usage.ru_utime + usage.ru_stime
    return os.waitstatus_to_exitcode(status), seconds, processor, usage.ru_maxrss / 1024


def main() -> int:
    """Generate the run, verify it, and print time and memory."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rounds", type=int, nargs="?", default=DEFAULTS[0])
    parser.add_argument("groups", type=int, nargs="?", default=DEFAULTS[1])
    parser.add_argument("--small", action="store_true", help="small sizes, in seconds")
    options = parser.parse_args()
    rounds = options.rounds
    groups = options.groups
    if options.small:
        rounds, groups = SMALL
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        write_long_run(folder, rounds, groups)
        size = (folder / LEDGER).stat().st_size / 1e6
        code, seconds, processor, megabytes = measure(folder)
    print(
        f"{rounds} rounds of {groups} groups, {size:.0f} MB: exit code {code}, "
        f"{seconds:.1f} s "
    )
    print(f"({processor:.1f} s of processor time), {megabytes:.0f} MB at most")
    return int(code != REHEARSAL)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.exit(main())
