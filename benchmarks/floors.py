"""What a floor on every group's weight does to accuracy, by group and with errors.

Each setting is trained with the strictest budget for everybody and with other floors,
with the same seeds. Rows are appended as JSON lines, so an interrupted call goes on;
`--table` writes the table of docs/evidence/fairness.md from them and trains nothing.

    python benchmarks/floors.py --rows floors.jsonl [--data-dir DATA] [--seeds 0,1,2]
        [--settings half,demo] [--kinds strictest,default,1.0]
    python benchmarks/floors.py --rows floors.jsonl --table docs/evidence/fairness.md
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privplan.files import write_text
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from simulate.runs.request import Request
from simulate.runs.run import execute

STRICTEST = "strictest"  # everybody has the strictest group's budget
DEFAULT = "default"  # the floor that a spec has which states none
SPENDING = "spending"  # the default floor, and all that budgets allow is spent
NAMES = ("strict", "medium", "loose")
_DIGITS: dict[str, Any] = {
    "rounds": 60,
    "cohort": 90,
    "local": {"steps": 5, "batch_size": 5, "learning_rate_decay": 0.99},
    "model": {"name": "mlp-digits", "parameters": 2410},
}
_FASHION: dict[str, Any] = {
    "rounds": 50,
    "cohort": 120,
    "local": {"steps": 5, "batch_size": 10, "learning_rate_decay": 0.99},
    "model": {"name": "cnn-2-valid", "parameters": 18378},
}


@dataclass(frozen=True)
class Setting:
    """Groups with their budgets, and how records are spread over their clients.

    Attributes:
        dataset: digits or fashion-mnist.
        groups: clients and epsilon of each, the strictest first.
        split: the partition of a run.
    """

    dataset: str
    groups: tuple[tuple[int, float], ...]
    split: str

    @property
    def sizes(self) -> str:
        """The groups for the table, such as 150:2, 150:12."""
        return ", ".join(f"{clients}:{epsilon:g}" for clients, epsilon in self.groups)

    def plan(self, kind: str) -> Plan:
        """The plan of a kind: one of those above, or a least share."""
        strictest = self.groups[0][1]
        groups: list[dict[str, Any]] = []
        for name, (clients, epsilon) in zip(NAMES, self.groups, strict=False):
            budget = strictest if kind == STRICTEST else epsilon
            groups.append({"name": name, "clients": clients, "epsilon": budget})
        planning = {}
        if kind == SPENDING:
            planning["slack"] = 0.0
        elif kind not in (STRICTEST, DEFAULT):
            planning["least_share"] = float(kind)
        training = _DIGITS if self.dataset == "digits" else _FASHION
        data = {"name": "floors", "groups": groups, "delta": "n^-1.1", **training}
        return solve(Spec.parse({**data, "planning": planning}), second_opinion=False)


_DEMO = ((100, 2.0), (100, 6.0), (100, 12.0))
_HALVES = ((150, 2.0), (150, 12.0))
_FEW = ((40, 2.0), (260, 12.0))
_C = ((500, 0.3), (2500, 2.0), (3000, 8.0))
SETTINGS = {
    "half-5": Setting("digits", _HALVES, "by-class:strict=0,1,2,3,4"),
    "half-2": Setting("digits", _HALVES, "by-class:strict=8,9"),
    "half-dirichlet": Setting("digits", _HALVES, "dirichlet:0.1"),
    "half-iid": Setting("digits", _HALVES, "iid"),
    "demo-3": Setting("digits", _DEMO, "by-class:strict=1,5,8"),
    "demo-1": Setting("digits", _DEMO, "by-class:strict=3"),
    "demo-2": Setting("digits", _DEMO, "by-class:strict=8,9"),
    "demo-dirichlet": Setting("digits", _DEMO, "dirichlet:0.1"),
    "demo-iid": Setting("digits", _DEMO, "iid"),
    "few-1": Setting("digits", _FEW, "by-class:strict=3"),
    "few-dirichlet": Setting("digits", _FEW, "dirichlet:0.1"),
    "few-iid": Setting("digits", _FEW, "iid"),
    "fashion-800": Setting(
        "fashion-mnist",
        ((800, 0.5), (2600, 2.0), (2600, 8.0)),
        "by-class:strict=3,6",
    ),
    "fashion-C": Setting("fashion-mnist", _C, "by-class:strict=8,9"),
    "fashion-C-iid": Setting("fashion-mnist", _C, "iid"),
    "fashion-F": Setting(
        "fashion-mnist", ((300, 0.5), (300, 0.5), (5400, 8.0)), "by-class:strict=8,9"
    ),
}


def train(
    names: list[str], kinds: list[str], seeds: list[int], rows: Path, data: Path | None
) -> None:
    """Train what is missing, and append a row after each run."""
    finished = {(row["setting"], row["kind"], row["seed"]) for row in read(rows)}
    for seed in seeds:
        for name in names:
            for kind in kinds:
                if (name, kind, seed) in finished:
                    continue
                setting = SETTINGS[name]
                with tempfile.TemporaryDirectory() as folder:
                    request = Request(
                        setting.plan(kind),
                        "planned",
                        setting.dataset,
                        Path(folder) / "run",
                        seed=seed,
                        partition=setting.split,
                        data_dir=data,
                    )
                    record = execute(request).record
                row = {
                    "setting": name,
                    "kind": kind,
                    "seed": seed,
                    "accuracy": record.accuracy,
                    "by_group": dict(record.accuracy_by_group),
                }
                with rows.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)


def read(rows: Path) -> list[dict[str, Any]]:
    """The rows of a file; none where there is no file."""
    if not rows.exists():
        return []
    return [json.loads(line) for line in rows.read_text().splitlines()]


def table(rows: list[dict[str, Any]]) -> str:
    """Points above the strictest budget for everybody, by setting and kind."""
    runs = {(row["setting"], row["kind"], row["seed"]): row for row in rows}
    strict_gains: dict[tuple[str, str], list[float]] = defaultdict(list)
    all_gains: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (name, kind, seed), row in runs.items():
        reference = runs.get((name, STRICTEST, seed))
        if kind == STRICTEST or reference is None:
            continue
        strict = row["by_group"]["strict"] - reference["by_group"]["strict"]
        strict_gains[name, kind].append(100 * strict)
        all_gains[name, kind].append(100 * (row["accuracy"] - reference["accuracy"]))

    kinds = sorted({kind for _, kind in strict_gains}, key=_place_of_kind)
    heads = [f"strict: {kind}" for kind in kinds] + [f"all: {kind}" for kind in kinds]
    lines = [
        f"| data | clients:epsilon | split | {' | '.join(heads)} | seeds |",
        "|---|---|---|" + "--:|" * (len(heads) + 1),
    ]
    for name, setting in SETTINGS.items():
        if not any((name, kind) in strict_gains for kind in kinds):
            continue
        cells = [_mean(strict_gains[name, kind]) for kind in kinds]
        cells += [_mean(all_gains[name, kind]) for kind in kinds]
        seeds = max(len(strict_gains[name, kind]) for kind in kinds)
        lines.append(
            f"| {setting.dataset} | {setting.sizes} | {setting.split} | "
            f"{' | '.join(cells)} | {seeds} |"
        )
    return "\n".join(lines) + "\n"


def _place_of_kind(kind: str) -> tuple[bool, str]:
    """The default comes first."""
    return kind != DEFAULT, kind


def _mean(values: list[float]) -> str:
    """Mean with its standard error, in points; empty where nothing was trained."""
    if not values:
        return ""
    if len(values) < 2:
        return f"{values[0]:+.1f}"
    error = statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.mean(values):+.1f} ± {error:.1f}"


def main() -> None:
    """Train and print, or write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", default=f"{STRICTEST},{DEFAULT},1.0")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--seeds", default="0,1,2,3,4,5,6,7")
    parser.add_argument("--rows", type=Path, default=Path("floors.jsonl"))
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--table", type=Path, default=None, metavar="PAGE")
    options = parser.parse_args()
    if options.table is None:
        names = options.settings.split(",")
        seeds = [int(seed) for seed in options.seeds.split(",")]
        kinds = options.kinds.split(",")
        train(names, kinds, seeds, options.rows, options.data_dir)
        return
    # The table stands alone in the page, so that its first and last row delimit it.
    page = options.table.read_text()
    content = re.sub(
        r"(?m)^\| data(.*\n\|)*.*\n", lambda _: table(read(options.rows)), page
    )
    write_text(options.table, content)


if __name__ == "__main__":
    main()
