"""Judge honest runs of many seeds, every round executed again: no false alarm.

python benchmarks/honest_replays.py SEEDS [FIRST]    exit code 1 where one is not kept
"""

import itertools
import os
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # runs this small gain nothing by more

from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.record import run_folder
from privplan.spec.spec import Spec
from privplan.verification.verify import judge, load_run
from simulate.algorithms.registry import ALGORITHMS, executable
from simulate.replay.replay import Replay
from simulate.runs import records as run_records
from simulate.runs import run as runs
from simulate.runs.request import Request

LAWS = (
    "poisson",
    "fixed_size",
    "cyclic_poisson:2",
    "capped_poisson:2",
    "random_allocation:2",
    "cyclic_allocation:2:2",
    "min_separation:2",
    "banded_separation:2",
)
RELEASES = ("joint", "per_group")
NOISES = ("seeded", "secure")
DECIDING_COHORT = (
    "random_allocation",
    "cyclic_allocation",
    "min_separation",
    "banded_separation",
)
"""Laws whose blocks or turns give the cohort, so that a spec states none."""


@dataclass(frozen=True)
class Case:
    """What a run executes, apart from its seed."""

    law: str
    plan: Plan
    method: str
    noise: str


def plan_of(law: str, release: str) -> Plan:
    """Four rounds of two groups on the digits, with cohorts of about six of 24."""
    fields = {
        "name": "honest",
        "groups": [
            {"name": "strict", "clients": 12, "epsilon": 2.0},
            {"name": "loose", "clients": 12, "epsilon": 6.0},
        ],
        "rounds": 4,
        "sampling": law,
        "clipping_norm": 0.3,
        "model": {"name": "mlp-digits", "parameters": 2410},
        "delta": 1e-3,
        "local": {"steps": 2, "batch_size": 8},
        "planning": {"release": release},
    }
    if not law.startswith(DECIDING_COHORT):
        fields["cohort"] = 6
    if law != "poisson":
        fields["planning"] = {"release": release, "ratios": "balanced"}
    return solve(Spec.parse(fields), second_opinion=False)


def cases() -> list[Case]:
    """Every law and release with each method that executes its plan."""
    listed = []
    for law, release in itertools.product(LAWS, RELEASES):
        plan = plan_of(law, release)
        methods = [
            name
            for name in executable(plan)
            if ALGORITHMS.get(name).unit_under(plan) == "client"
        ]
        for method, noise in itertools.product(methods, NOISES):
            listed.append(Case(law, plan, method, noise))
    return listed


def main(seeds: int, first: int) -> int:
    """Run and judge; print the outcomes and the largest deviation."""
    # Drawing takes most of the time of a small run.
    run_records.run_picture = lambda *values: b""
    listed = cases()
    print(
        f"{len(listed)} cases: laws, releases, methods and kinds of noise", flush=True
    )
    outcomes = Counter[str]()
    largest = 0.0
    for seed in range(first, first + seeds):
        case = listed[seed % len(listed)]
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / "run"
            runs.execute(
                Request(
                    case.plan,
                    case.method,
                    "digits",
                    folder,
                    seed=seed,
                    noise=case.noise,
                )
            )
            verdict = judge(load_run(run_folder(folder)), "all")
            report = Replay(folder).run(None, None, lambda done, rounds: None)
        outcomes[f"{verdict.outcome}, replay {report.outcome}"] += 1
        largest = max(largest, report.deviation)
        reasons = [
            check.reason for check in verdict.checks if check.outcome == "failed"
        ]
        if reasons or report.outcome == "failed":
            print(
                f"seed {seed}, {case.method}, {case.law}, {case.noise}:",
                *reasons,
                report.reason,
            )
    print(f"{dict(outcomes)}; off by at most {largest:.2g} deviations of the noise")
    return int(any(name.startswith("NOT") or "failed" in name for name in outcomes))


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    sys.exit(main(numbers[0], sum(numbers[1:])))
