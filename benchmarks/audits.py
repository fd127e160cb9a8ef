"""How often empirical lower bounds exceed the truth, over seeded runs.

Closed forms first (the Gaussian mechanism, Poisson-sampled Gaussian rounds, randomised
response), then real runs of the simulator on the digits, whose upper bound is the ledger's:

    python benchmarks/audits.py [--runs 100]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from privplan.accounting.accountant import accountant
from privplan.accounting.gdp import epsilon_of
from privplan.accounting.release import History, Relation, Release
from privplan.auditing import auditors
from privplan.verification.verify import judge, load_run
from simulate.runs.request import Request, prepare
from simulate.runs.run import run_prepared
from tests.sabotage import plan

CONFIDENCE, CANARIES, DELTA = 0.95, 1000, 1e-5


def gaussian(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the Gaussian mechanism with mu = 1, and who was in."""
    included = rng.random(CANARIES) < 0.5
    return rng.normal(size=CANARIES) + included, included


def sampled(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores of 50 rounds at ratio 0.1 and noise multiplier 1.2, and who was in."""
    included = rng.random(CANARIES) < 0.5
    there = (rng.random((50, CANARIES)) < 0.1) & included
    seen = there + 1.2 * rng.normal(size=(50, CANARIES))
    told = np.logaddexp(np.log(0.9), np.log(0.1) + (2 * seen - 1) / (2 * 1.2**2))
    return told.sum(0), included


def response(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores of randomised response with epsilon 1, and who was in."""
    included = rng.random(CANARIES) < 0.5
    honest = rng.random(CANARIES) < 1 / (1 + np.exp(-1.0))
    return np.where(honest, included, ~included) + 1e-6 * rng.normal(
        size=CANARIES
    ), included


def closed_forms(runs: int) -> None:
    """Print one line a mechanism and method."""
    rounds = History.repeated(Release(1.2, 0.1), 50)
    truths = {
        gaussian: epsilon_of(1.0, DELTA),
        sampled: accountant("pld").epsilon(rounds, DELTA, Relation.ADD_REMOVE).upper,
        response: 1.0,
    }
    for mechanism, truth in truths.items():
        for name, auditor in auditors().items():
            if mechanism is response and auditor.kind != "bound":
                continue
            found = []
            for seed in range(runs):
                scores, included = mechanism(np.random.default_rng(seed))
                found.append(auditor.answer(scores, included, DELTA, CONFIDENCE))
            _line(mechanism.__name__, name, auditor.kind, truth, np.array(found))


def real_runs(runs: int, canaries: int = 800) -> None:
    """Print one line per method: real runs, every group and view."""
    excess: dict[str, list[float]] = {name: [] for name in auditors()}
    for seed in range(runs):
        with tempfile.TemporaryDirectory() as parent:
            folder = Path(parent) / "run"
            request = Request(
                plan(), "planned", "digits", folder, seed=seed, canaries=canaries
            )
            run_prepared(request, prepare(request))
            for group in judge(load_run(folder), 0).groups:
                for found in group.audit:
                    excess[found.method].append(
                        found.epsilon / (group.realised_upper or np.inf)
                    )
    for name, auditor in auditors().items():
        _line("simulator", name, auditor.kind, 1.0, np.array(excess[name]))


def _line(
    mechanism: str, name: str, kind: str, truth: float, found: np.ndarray
) -> None:
    above = int((found > truth).sum())
    print(
        f"| {mechanism} | {name} | {kind} | {truth:.3f} | {np.median(found):.3f} | "
        f"{above} of {len(found)} |",
        flush=True,
    )


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=100)
    asked = options.parse_args()
    print("| mechanism | method | kind | epsilon | median answer | answers above |")
    print("| --- | --- | --- | --- | --- | --- |")
    closed_forms(asked.runs)
    real_runs(asked.runs)
