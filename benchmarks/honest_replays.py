"""Replay honest runs of many seeds: no false alarm, and how far they are off.

python benchmarks/honest_replays.py SEEDS [FIRST]    exit code 1 where one fails
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path

from privplan.files import load_yaml
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from simulate.replay.replay import Replay
from simulate.runs.request import Request
from simulate.runs.run import execute

LAWS = ("poisson", "fixed_size", "cyclic_poisson:2", "random_allocation:2")
METHODS = ("planned", "GDPFed+", "DP-FedAvg", "DP-FedSAM", "PFA", "Fed-SMP")
"""In turn by seed: methods of one sum and of several, with and without a server of theirs."""


def plan_of(law: str) -> Plan:
    """Four rounds on the digits."""
    data = {**load_yaml(preset("digits"), "spec"), "rounds": 4, "sampling": law}
    if law != "poisson":
        data["planning"] = {"ratios": "balanced"}
    if law.startswith("random_allocation"):  # its blocks give the cohort
        del data["cohort"]
    return solve(Spec.parse(data), second_opinion=False)


def main(seeds: int, first: int) -> int:
    """Run and replay; print the outcomes and the largest deviation."""
    plans = {law: plan_of(law) for law in LAWS}
    outcomes = Counter[str]()
    largest = 0.0
    for seed in range(first, first + seeds):
        law = LAWS[seed % len(LAWS)]
        method = METHODS[seed % len(METHODS)] if law == "poisson" else "planned"
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / "run"
            request = Request(plans[law], method, "digits", folder, seed=seed)
            execute(request)
            report = Replay(folder).run(None, None, lambda done, rounds: None)
        outcomes[report.outcome] += 1
        largest = max(largest, report.deviation)
        if report.outcome != "passed":
            print(f"seed {seed}, {method}, {law}: {report.reason}")
    print(f"{dict(outcomes)}; off by at most {largest:.2g} deviations of the noise")
    return int(outcomes["passed"] < seeds)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    sys.exit(main(numbers[0], sum(numbers[1:])))
