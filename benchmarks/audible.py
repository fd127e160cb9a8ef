"""How well a class is learnt that only a small strict group holds, by its N mu.

On the digits 30 of 300 clients alone hold one class, and nothing else. Their epsilon is
that of the N mu of a level (``privplan.accounting.audibility``); all others have 12.
Each level is trained without a floor on the weight of the strict, with the default
share, and with their full share of the clients. Rows are appended as JSON lines, so an
interrupted call goes on; `--table` writes the table of docs/evidence/fairness.md.

    python benchmarks/audible.py --rows audible.jsonl [--seeds 0,1,2] [--levels 5,50]
        [--floors 0,0.85]
    python benchmarks/audible.py --rows audible.jsonl --table docs/evidence/fairness.md
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from scipy.optimize import brentq

from privplan.accounting.gdp import mu_of
from privplan.files import write_text
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from simulate.runs.request import Request
from simulate.runs.run import execute

STRICT_CLIENTS = 30  # as large a share of all as a class is of the digits
LOOSE_CLIENTS = 270
LOOSE_EPSILON = 12.0  # as in the demo
DELTA = 1e-3
HELD_CLASS = "3"
LEVELS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 80.0)
FLOORS = (0.0, 0.85, 1.0)
KEYS = ("held", "others")  # accuracies of a row


def epsilon_of(level: float) -> float:
    """The epsilon at which all strict clients together have an N mu."""
    mu = level / STRICT_CLIENTS
    return float(brentq(lambda epsilon: mu_of(epsilon, DELTA) - mu, 1e-4, 100.0))


def plan_of(level: float, floor: float) -> Plan:
    """The plan of an N mu with a least share for the strict, and none for others."""
    strict = {
        "name": "strict",
        "clients": STRICT_CLIENTS,
        "epsilon": epsilon_of(level),
        "least_share": floor,
    }
    loose = {"name": "loose", "clients": LOOSE_CLIENTS, "epsilon": LOOSE_EPSILON}
    data = {
        "name": "audible",
        "groups": [strict, loose],
        "delta": DELTA,
        "rounds": 60,
        "cohort": 90,
        "local": {"steps": 5, "batch_size": 5, "learning_rate_decay": 0.99},
        "model": {"name": "mlp-digits", "parameters": 2410},
        "planning": {"least_share": 0.0},
    }
    return solve(Spec.parse(data), second_opinion=False)


def train(
    levels: list[float], floors: list[float], seeds: list[int], rows: Path
) -> None:
    """Train what is missing, and append a row after each run."""
    finished = {(row["level"], row["floor"], row["seed"]) for row in read(rows)}
    for seed in seeds:
        for level in levels:
            for floor in floors:
                if (level, floor, seed) in finished:
                    continue
                row = _trained(level, floor, seed)
                with rows.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)


def _trained(level: float, floor: float, seed: int) -> dict[str, Any]:
    """A run as a row."""
    plan = plan_of(level, floor)
    with tempfile.TemporaryDirectory() as folder:
        request = Request(
            plan,
            "planned",
            "digits",
            Path(folder) / "run",
            seed=seed,
            partition=f"by-class:strict={HELD_CLASS}",
        )
        record = execute(request).record
    other_accuracies = [
        accuracy
        for name, accuracy in record.accuracy_by_class.items()
        if name != HELD_CLASS
    ]
    return {
        "level": level,
        "floor": floor,
        "seed": seed,
        "epsilon": plan.groups[0].epsilon,
        "weight": plan.groups[0].weight,
        "held": record.accuracy_by_class[HELD_CLASS],
        "others": statistics.mean(other_accuracies),
    }


def read(rows: Path) -> list[dict[str, Any]]:
    """The rows of a file; none where there is no file."""
    if not rows.exists():
        return []
    return [json.loads(line) for line in rows.read_text().splitlines()]


def table(rows: list[dict[str, Any]]) -> str:
    """Accuracy of the held class and of the others, by N mu and floor."""
    runs: dict[tuple[float, float], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        runs[row["level"], row["floor"]].append(row)
    floors = sorted({floor for _, floor in runs})
    names = ["no floor" if floor == 0 else f"floor {floor:g}" for floor in floors]
    header = ["N mu", "epsilon", *(f"{name}: held, others" for name in names), "seeds"]
    lines = [
        f"| {' | '.join(header)} |",
        "|" + "--:|" * len(header),
    ]
    for level in sorted({level for level, _ in runs}):
        cells = [f"{level:g}", f"{runs[level, floors[0]][0]['epsilon']:.2f}"]
        for floor in floors:
            cells.append(", ".join(_means(runs[level, floor])))
        cells.append(str(min(len(runs[level, floor]) for floor in floors)))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _means(rows: list[dict[str, Any]]) -> list[str]:
    """Means of the accuracies with their standard errors, in percent."""
    means: list[str] = []
    for key in KEYS:
        percent = [100 * row[key] for row in rows]
        mean = f"{statistics.mean(percent):.1f}"
        if len(percent) > 1:
            mean += f" ± {statistics.stdev(percent) / math.sqrt(len(percent)):.1f}"
        means.append(mean)
    return means


def _numbers(text: str) -> list[float]:
    """Numbers with commas between."""
    return [float(part) for part in text.split(",")]


def main() -> None:
    """Train and print, or write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--levels", default=",".join(f"{x:g}" for x in LEVELS))
    parser.add_argument("--floors", default=",".join(f"{x:g}" for x in FLOORS))
    parser.add_argument("--seeds", default="0,1,2,3,4,5,6,7")
    parser.add_argument("--rows", type=Path, default=Path("audible.jsonl"))
    parser.add_argument("--table", type=Path, default=None, metavar="PAGE")
    options = parser.parse_args()
    if options.table is None:
        seeds = [int(seed) for seed in options.seeds.split(",")]
        levels = _numbers(options.levels)
        train(levels, _numbers(options.floors), seeds, options.rows)
        return
    # The table stands alone in the page, so that its first and last row delimit it.
    page = options.table.read_text()
    rows = read(options.rows)
    content = re.sub(r"(?m)^\| N mu(.*\n\|)*.*\n", lambda _: table(rows), page)
    write_text(options.table, content)


if __name__ == "__main__":
    main()
