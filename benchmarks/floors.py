"""What a floor on every group's weight keeps, beside everybody at the strictest epsilon.

Fashion-MNIST, `cnn-2-valid`, 6,000 clients of 10 records, 50 rounds, 120 clients per round, the
default recipe. Four settings of group sizes and budgets, four splits (the last two: the strictest
group alone holds two classes), several seeds. Runs are kept in a folder and not repeated; rows are
appended as JSON lines, so an interrupted call goes on.

    python benchmarks/floors.py --data-dir DATA [--seeds 3] [--kinds uniform,floor-0.85]
        [--settings A,C,E,F] [--splits iid,dirichlet,hold-8-9,hold-0-3] [--folder runs/floors]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from simulate.runs.request import Request
from simulate.runs.run import execute

SETTINGS: dict[str, list[tuple[int, float]]] = {
    "A": [(2000, 0.5), (2000, 1.5), (2000, 3.0)],
    "C": [(500, 0.3), (2500, 2.0), (3000, 8.0)],
    "E": [(1000, 0.2), (2000, 1.0), (3000, 4.0)],
    "F": [(300, 0.5), (300, 0.5), (5400, 8.0)],
}
"""Clients and epsilon of each group, the strictest first."""
SPLITS = {
    "iid": "iid",
    "dirichlet": "dirichlet:0.1",
    "hold-8-9": "by-class:strict=8,9",
    "hold-0-3": "by-class:strict=0,3",
}
NAMES = ("strict", "medium", "loose")


def plan_of(setting: str, kind: str) -> Plan:
    """The plan of a setting: ``uniform``, ``default``, or ``floor-F``, with that least share."""
    sizes = SETTINGS[setting]
    strictest = min(epsilon for _, epsilon in sizes)
    floor = float(kind.removeprefix("floor-")) if kind.startswith("floor-") else None
    groups: list[dict[str, Any]] = []
    for name, (clients, epsilon) in zip(NAMES, sizes, strict=True):
        own = strictest if kind == "uniform" else epsilon
        groups.append({"name": name, "clients": clients, "epsilon": own})
    return solve(
        Spec.parse(
            {
                "name": f"floors-{setting}",
                "groups": groups,
                "delta": "n^-1.1",
                "rounds": 50,
                "cohort": 120,
                "local": {"steps": 5, "batch_size": 10, "learning_rate_decay": 0.99},
                "model": {"name": "cnn-2-valid", "parameters": 18378},
                "planning": {} if floor is None else {"least_share": floor},
            }
        )
    )


def main() -> None:
    """Train what is missing; append and print rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default="uniform,floor-0.85")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--splits", default=",".join(SPLITS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--folder", type=Path, default=Path("runs/floors"))
    parser.add_argument("--rows", type=Path, default=Path("floors.jsonl"))
    parser.add_argument("--data-dir", type=Path, default=None)
    asked = parser.parse_args()
    done = set()
    if asked.rows.exists():
        for line in asked.rows.read_text().splitlines():
            row = json.loads(line)
            done.add((row["setting"], row["split"], row["kind"], row["seed"]))
    plans: dict[tuple[str, str], Plan] = {}
    for seed in map(int, asked.seeds.split(",")):
        for setting in asked.settings.split(","):
            for split in asked.splits.split(","):
                for kind in asked.kinds.split(","):
                    if (setting, split, kind, seed) in done:
                        continue
                    if (setting, kind) not in plans:
                        plans[setting, kind] = plan_of(setting, kind)
                    plan = plans[setting, kind]
                    folder = asked.folder / f"{setting}-{split}-{kind}" / f"seed-{seed}"
                    folder.parent.mkdir(parents=True, exist_ok=True)
                    record = execute(
                        Request(
                            plan,
                            "planned",
                            "fashion-mnist",
                            folder,
                            seed=seed,
                            partition=SPLITS[split],
                            data_dir=asked.data_dir,
                        )
                    ).record
                    row = {
                        "setting": setting,
                        "split": split,
                        "kind": kind,
                        "seed": seed,
                        "accuracy": record.accuracy,
                        "by_group": dict(record.accuracy_by_group),
                        "weights": [round(group.weight, 5) for group in plan.groups],
                        "noise": plan.mean_noise_std,
                    }
                    with asked.rows.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    scores = {
                        name: f"{100 * v:.1f}"
                        for name, v in record.accuracy_by_group.items()
                    }
                    print(
                        setting,
                        split,
                        kind,
                        seed,
                        f"{100 * (record.accuracy or 0):.2f}",
                        scores,
                        flush=True,
                    )


if __name__ == "__main__":
    main()
