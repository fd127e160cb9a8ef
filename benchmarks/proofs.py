"""Proofs of random plans: each bound is proven, and one that is too low never is.

``python benchmarks/proofs.py FILE.csv`` solves random specs over the laws that
``privplan.proof`` can prove and asks it about each group twice: about the certificate's
upper bound, and about a bound 1e-5 of itself below the accountant's lower bound. A row
of FILE.csv is a group; presets come first, and specs that it already has are not asked
again. It exits with 1 where a bound is not proven, or a lowered one is. ``--small``
asks few specs.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from privplan.accounting.pld.accountant import PldAccountant
from privplan.accounting.release import Relation
from privplan.planning.solver import solve
from privplan.proven import finding_on, with_proofs
from privplan.spec.presets import PRESETS, preset
from privplan.spec.spec import Spec

SPECS = 200
SMALL = 6
LOWERED_BY = 1e-5  # of epsilon
SHARP = 2e-6  # relative gap of the bounds below which nothing holds
ADD_REMOVE_ONLY = (
    "capped_poisson:1000",
    "banded_separation:5",
    "random_allocation:10",
    "cyclic_allocation:5:5",
)
LAWS = ("poisson", "fixed_size", "full", "cyclic_poisson:5", "min_separation:10")
OF_PERSONS = ("poisson", "full", "min_separation:10", "banded_separation:5")
WITHOUT_COHORT = ("separation", "allocation")
FIELDS = (
    "case",
    "group",
    "sampling",
    "relation",
    "rounds",
    "clients_of_person",
    "noise_multiplier",
    "sampling_ratio",
    "delta",
    "epsilon",
    "outcome",
    "points",
    "seconds",
    "lowered_epsilon",
    "lowered_outcome",
    "lowered_seconds",
)


def random_spec(seed: int) -> Spec:
    """A spec of one or two groups."""
    draw = random.Random(seed)
    sampling = draw.choice(LAWS + ADD_REMOVE_ONLY)
    relation = "add_remove"
    if sampling in LAWS and draw.random() < 0.3:
        relation = "replace_one"
    persons = 1
    if sampling in OF_PERSONS and relation == "add_remove" and draw.random() < 0.2:
        persons = draw.choice((2, 3))

    groups = []
    for name in ("first", "second")[: draw.choice((1, 2))]:
        group: dict[str, Any] = {"name": name, "clients": draw.randint(100, 3000)}
        group["epsilon"] = round(math.exp(draw.uniform(math.log(0.3), math.log(8))), 3)
        if persons > 1:
            group["contributions"] = persons
        groups.append(group)
    population = sum(group["clients"] for group in groups)

    content: dict[str, Any] = {
        "name": f"random {seed}",
        "groups": groups,
        "delta": float(f"{math.exp(draw.uniform(math.log(1e-8), math.log(1e-4))):.3g}"),
        "rounds": 50 if "allocation" in sampling else draw.choice((5, 20, 50, 50, 50)),
        "sampling": sampling,
        "relation": relation,
        "clipping_norm": 1.0,
        "model": {"name": "mlp-digits", "parameters": 2410},
        "local": {"steps": 5, "batch_size": 5, "learning_rate": 0.1},
        "planning": {"accountant": "pld", "ratios": "balanced"},
    }
    if sampling == "full":
        content["cohort"] = population
    elif not any(word in sampling for word in WITHOUT_COHORT):
        content["cohort"] = max(5, round(population * draw.uniform(0.01, 0.19)))
    return Spec.parse(content)


def spec_of(case: str) -> Spec:
    """A preset by its name, or the random spec of a seed."""
    if case in PRESETS:
        return Spec.parse(yaml.safe_load(preset(case)))
    return random_spec(int(case))


def rows_of(case: str) -> Iterator[dict[str, Any]]:
    """What is proven of each group of a spec."""
    plan, findings = with_proofs(solve(spec_of(case), second_opinion=False))
    groups = {group.name: group for group in plan.groups}
    for row in plan.certificate:
        if not row.guarantee:
            continue
        group = groups[row.group]
        finding = findings[row.group]

        history = plan.history(group)
        relation = Relation(row.relation)
        sharp = PldAccountant(tolerance=SHARP).epsilon(history, row.delta, relation)
        lowered_epsilon = sharp.lower * (1 - LOWERED_BY)
        lowered = finding_on(history, relation, lowered_epsilon, row.delta)

        yield {
            "case": case,
            "group": row.group,
            "sampling": row.sampling,
            "relation": row.relation,
            "rounds": plan.spec.rounds,
            "clients_of_person": group.contributions,
            "noise_multiplier": group.noise_multiplier,
            "sampling_ratio": group.sampling_ratio,
            "delta": row.delta,
            "epsilon": row.epsilon_upper,
            "outcome": finding.outcome,
            "points": finding.points,
            "seconds": round(finding.seconds, 3),
            "lowered_epsilon": lowered_epsilon,
            "lowered_outcome": lowered.outcome,
            "lowered_seconds": round(lowered.seconds, 3),
        }


def stored_rows(path: Path) -> list[dict[str, str]]:
    """Rows of an earlier call; none where it has not begun."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def show_progress(done: int, cases: int, start: float, answers: int) -> None:
    """Specs done, their rate and the time left, on one line of standard error."""
    rate = answers / (time.monotonic() - start)
    left = (cases - done) / rate
    text = f"\r{done} of {cases} specs, {60 * rate:.1f} a minute, {left:.0f} s left "
    sys.stderr.write(text)
    sys.stderr.flush()


def ask(cases: list[str], path: Path) -> None:
    """Append the rows of all cases that a file does not have yet."""
    answered = {row["case"] for row in stored_rows(path)}
    remaining = [case for case in cases if case not in answered]
    start = time.monotonic()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if not answered:
            writer.writeheader()
        for answers, case in enumerate(remaining, 1):
            # All groups of a case at once, so that a stop leaves no half of it.
            writer.writerows(list(rows_of(case)))
            file.flush()
            done = len(cases) - len(remaining) + answers
            show_progress(done, len(cases), start, answers)
    sys.stderr.write("\n")


def summary(rows: list[dict[str, str]]) -> tuple[str, bool]:
    """A line on all rows, and whether each was as it must be."""
    proven = sum(row["outcome"] == "proven" for row in rows)
    wrong = sum(row["lowered_outcome"] == "proven" for row in rows)
    seconds = sorted(float(row["seconds"]) for row in rows)
    median = seconds[len(seconds) // 2]
    text = (
        f"{len(rows)} groups: {proven} proven, {wrong} of the lowered bounds proven; "
        f"CPU a group: median {median:.2f} s, most {seconds[-1]:.2f} s\n"
    )
    return text, proven == len(rows) and wrong == 0


def main() -> int:
    """Ask, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, metavar="FILE.csv")
    parser.add_argument("--small", action="store_true", help="ask few specs")
    arguments = parser.parse_args()

    cases = [str(seed) for seed in range(SMALL if arguments.small else SPECS)]
    if not arguments.small:
        cases = [*PRESETS, *cases]
    ask(cases, arguments.path)
    text, is_as_expected = summary(stored_rows(arguments.path))
    sys.stdout.write(text)
    return 0 if is_as_expected else 1


if __name__ == "__main__":
    sys.exit(main())
