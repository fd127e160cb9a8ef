"""How often empirical lower bounds exceed the truth, over seeded runs.

Closed forms first (the Gaussian mechanism, Poisson-sampled Gaussian rounds, randomised
response), then real runs of the simulator on the digits, whose upper bound is the
ledger's:

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

CONFIDENCE = 0.95
CANARIES = 1000
DELTA = 1e-5
# The sampled mechanism.
ROUNDS = 50
RATIO = 0.1
NOISE_MULTIPLIER = 1.2


def gaussian(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the Gaussian mechanism with mu = 1, and who was in."""
    included = rng.random(CANARIES) < 0.5
    return rng.normal(size=CANARIES) + included, included


def sampled(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores of 50 rounds at ratio 0.1 and noise multiplier 1.2, and who was in."""
    included = rng.random(CANARIES) < 0.5
    takes_part = (rng.random((ROUNDS, CANARIES)) < RATIO) & included
    seen = takes_part + NOISE_MULTIPLIER * rng.normal(size=(ROUNDS, CANARIES))
    # Logarithm of the likelihood ratio of a round.
    log_ratio = (2 * seen - 1) / (2 * NOISE_MULTIPLIER**2)
    scores = np.logaddexp(np.log(1 - RATIO), np.log(RATIO) + log_ratio)
    return scores.sum(0), included


def response(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Scores of randomised response with epsilon 1, and who was in."""
    included = rng.random(CANARIES) < 0.5
    honest = rng.random(CANARIES) < 1 / (1 + np.exp(-1.0))
    answers = np.where(honest, included, ~included)
    # So that no two scores are equal.
    return answers + 1e-6 * rng.normal(size=CANARIES), included


def closed_forms(runs: int) -> None:
    """Print one line a mechanism and method."""
    rounds = History.repeated(Release(NOISE_MULTIPLIER, RATIO), ROUNDS)
    truths = {
        gaussian: epsilon_of(1.0, DELTA),
        sampled: accountant("pld").epsilon(rounds, DELTA, Relation.ADD_REMOVE).upper,
        response: 1.0,
    }
    for mechanism, truth in truths.items():
        for name, auditor in auditors().items():
            if mechanism is response and auditor.kind != "bound":
                continue
            answers = []
            for seed in range(runs):
                scores, included = mechanism(np.random.default_rng(seed))
                answers.append(auditor.answer(scores, included, DELTA, CONFIDENCE))
            _line(mechanism.__name__, name, auditor.kind, truth, np.array(answers))


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
                for bound in group.audit:
                    ratio = bound.epsilon / (group.realised_upper or np.inf)
                    excess[bound.method].append(ratio)
    for name, auditor in auditors().items():
        _line("simulator", name, auditor.kind, 1.0, np.array(excess[name]))


def _line(
    mechanism: str, name: str, kind: str, truth: float, answers: np.ndarray
) -> None:
    above = int((answers > truth).sum())
    print(
        f"| {mechanism} | {name} | {kind} | {truth:.3f} | {np.median(answers):.3f} | "
        f"{above} of {len(answers)} |",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    options = parser.parse_args()
    print("| mechanism | method | kind | epsilon | median answer | answers above |")
    print("| --- | --- | --- | --- | --- | --- |")
    closed_forms(options.runs)
    real_runs(options.runs)
