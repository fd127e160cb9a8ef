"""Misses of forecasts: plans drawn by a seed that is written down first, forecast, then run.

scikit-learn's digits (`mlp-digits`, 143 clients of 10) and MNIST (`cnn-2-valid`, 6,000 clients of
10), each forecast from proxy runs on the same data with partitions drawn at random; a part of the
proxy runs on MNIST have two fifths of the clients. The data set, the partition, budgets, rounds,
cohort and recipe of the new plans are drawn at random. Prints the mean error overall and per group,
the coverage of the 90% intervals, the rank correlation and every miss; then plans for targets of
accuracy and what they reach. A run on digits has 355 test records and a standard deviation of 2.6
points over seeds, so plans for digits are also compared with the mean over some seeds. All results
are written after every plan, and the same command goes on where it was interrupted.

    python benchmarks/forecast.py [--seed SEED] [--plans 24] [--targets 10] [--seeds 4] [-o OUT]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from privplan.forecast.features import even_coverage
from privplan.forecast.model import Forecaster
from privplan.forecast.table import ProxyRun
from privplan.forecast.target import solve_for_accuracy
from privplan.io.files import read_text, write_text
from privplan.io.text import load_json
from privplan.spec.spec import Spec
from simulate.tuning.proxy import DRAWN, Variation, proxy_run, proxy_table, variations
from simulate.tuning.trials import DECAYS, Setting, trained

GROUPS = ("strict", "medium", "loose")
SEED = 0
"""Seed of the new plans; committed before the first of them was drawn."""
Todo = Callable[[], dict[str, Any]]
"""Trains one plan; returns its row."""


@dataclass(frozen=True)
class Task:
    """A data set with the spec around which plans are drawn.

    Attributes:
        clients: clients of each group.
        epsilons: epsilon of each group.
        model: the network and its number of parameters.
        drawn: number, seed and share of the cohort of the proxy runs.
        targets: range of the targets of accuracy, in percent.
    """

    clients: tuple[int, int, int]
    epsilons: tuple[float, float, float]
    model: dict[str, Any]
    drawn: tuple[tuple[int, int, float], ...]
    targets: tuple[float, float]


TASKS = {
    "digits": Task(
        (47, 48, 48),
        (1.0, 3.0, 8.0),
        {"name": "mlp-digits", "parameters": 2410},
        ((300, 1000, 1.0),),
        (80.0, 93.0),
    ),
    "mnist": Task(
        (2000, 2000, 2000),
        (2.0, 5.0, 12.0),
        {"name": "cnn-2-valid", "parameters": 18378},
        ((16, 5000, 1.0), (64, 6000, 0.4)),
        (90.0, 95.0),
    ),
}


def spec_data(
    task: Task, epsilons: tuple[float, ...], rounds: int = 40, cohort: int = 40
) -> dict[str, Any]:
    """Plain data of a spec of a task's clients."""
    groups = [
        {"name": name, "clients": clients, "epsilon": epsilon}
        for name, clients, epsilon in zip(GROUPS, task.clients, epsilons, strict=True)
    ]
    return {
        "name": "forecast",
        "groups": groups,
        "rounds": rounds,
        "cohort": cohort,
        "local": {"steps": 2, "batch_size": 10, "learning_rate": 0.1},
        "model": task.model,
        "planning": {"accountant": "rdp"},
    }


def setting_of(dataset: str, data: dict[str, Any], partition: str) -> Setting:
    """A data set with a spec's plain data."""
    plain = Spec.parse(data).model_dump(mode="json", exclude={"groups_from"})
    return Setting(spec=plain, algorithm="planned", dataset=dataset, partition=partition)


def proxies(dataset: str, folder: Path) -> Forecaster:
    """The forecaster of a data set, from its proxy runs; those in the folder are not repeated."""
    task = TASKS[dataset]
    data = spec_data(task, task.epsilons)
    todo = [
        one
        for count, seed, share in task.drawn
        for one in variations(Spec.parse(data), [DRAWN], count, seed, share)
    ]
    table = proxy_table(setting_of(dataset, data, "proxy"), todo, folder / f"{dataset}.runs")
    table.save(folder / f"{dataset}.json")
    return Forecaster(table)


def new_partition(source: np.random.Generator) -> str:
    """IID, Dirichlet, or one group alone holds one to four classes."""
    kind = source.choice(["iid", "dirichlet", "by-class", "by-class"])
    if kind == "iid":
        return "iid"
    if kind == "dirichlet":
        return f"dirichlet:{10 ** source.uniform(-0.7, 0.2):.2g}"
    classes = sorted(source.choice(10, size=source.integers(1, 5), replace=False).tolist())
    return f"by-class:{source.choice(GROUPS)}={','.join(map(str, classes))}"


def new_plan(source: np.random.Generator, partition: str, rounds: int) -> Variation:
    """Budgets, rounds and, for every second plan, a recipe, around those of a spec."""

    def factor(most: float) -> float:
        return float(f"{most ** source.uniform(-1, 1):.4g}")

    common, decay = factor(4.0), float(source.choice(DECAYS))
    recipe: dict[str, Any] = {"clip": factor(4.0), "step": factor(2.5), "decay": decay}
    return Variation(
        epsilons=tuple(float(f"{common * factor(1.5):.4g}") for _ in GROUPS),
        rounds=max(2, round(rounds * factor(2.0))),
        partition=partition,
        seed=int(source.integers(2**30)),
        share=1.0,
        **(recipe if source.random() < 0.5 else {}),
    )


def new_plans(
    models: dict[str, Forecaster], source: np.random.Generator, count: int, seeds: int
) -> Iterator[tuple[str, Todo]]:
    """Plans drawn at random: the data set, and what forecasts and trains one."""
    for _ in range(count):
        dataset = str(source.choice(sorted(TASKS)))
        task = TASKS[dataset]
        epsilons = tuple(
            float(np.round(one * 3 ** source.uniform(-1, 1), 3)) for one in task.epsilons
        )
        rounds, cohort = int(source.integers(25, 61)), int(source.integers(25, 61))
        held = new_partition(source)
        one = new_plan(source, held, rounds)
        setting = setting_of(dataset, spec_data(task, epsilons, rounds, cohort), held)
        repeats = seeds if dataset == "digits" else 1
        yield dataset, partial(plan_row, models, setting, one, repeats)


def plan_row(
    models: dict[str, Forecaster], setting: Setting, one: Variation, seeds: int
) -> dict[str, Any]:
    """Forecast and accuracies of a new plan; the forecast knows its features alone."""
    runs = [
        ProxyRun.model_validate(
            proxy_run((setting, one.model_copy(update={"seed": one.seed + number})))
        )
        for number in range(seeds)
    ]
    first = runs[0]
    found = models[setting.dataset].forecast(first.plan, first.coverage, GROUPS)
    groups = list(zip(found.groups, first.accuracy_by_group, strict=True))
    mean_groups = np.mean([run.accuracy_by_group for run in runs], axis=0).tolist()
    row = {
        "dataset": setting.dataset,
        "partition": one.partition,
        "rounds": first.plan.rounds,
        "noise": round(first.plan.noise, 2),
        "forecast": 100 * found.accuracy,
        "interval": [100 * found.lower, 100 * found.upper],
        "reached": 100 * first.accuracy,
        "mean": 100 * float(np.mean([run.accuracy for run in runs])),
        "inside": found.lower <= first.accuracy <= found.upper,
        "group_errors": [100 * abs(one.accuracy - seen) for one, seen in groups],
        "distance": found.distance,
        "mean_group_errors": [
            100 * abs(one.accuracy - seen)
            for one, seen in zip(found.groups, mean_groups, strict=True)
        ],
        "groups_inside": [one.lower <= seen <= one.upper for one, seen in groups],
        "runs": [run.model_dump(mode="json") for run in runs],
    }
    print(line(row), flush=True)
    return row


def line(row: dict[str, Any]) -> str:
    """A row of the table of misses."""
    low, high = row["interval"]
    return (
        f"| {row['dataset']} | {row['partition']} | {row['rounds']} | {row['noise']:g} | "
        f"{row['forecast']:.1f} [{low:.1f}, {high:.1f}] | {row['reached']:.1f} | "
        f"{row['mean']:.1f} | {row['mean'] - row['forecast']:+.1f} |"
    )


def targets(
    models: dict[str, Forecaster], source: np.random.Generator, count: int, seeds: int
) -> Iterator[tuple[str, Todo]]:
    """Targets drawn at random, IID: the data set, and what plans and trains one."""
    for _ in range(count):
        dataset = str(source.choice(sorted(TASKS)))
        target, seed = float(source.uniform(*TASKS[dataset].targets)), int(source.integers(2**30))
        repeats = seeds if dataset == "digits" else 1
        yield dataset, partial(target_row, models[dataset], dataset, target, seed, repeats)


def target_row(
    model: Forecaster, dataset: str, target: float, seed: int, seeds: int
) -> dict[str, Any]:
    """The plan for a target of accuracy, and what it reaches."""
    task = TASKS[dataset]
    data = spec_data(task, task.epsilons)
    even = even_coverage(Spec.parse(data), 10)
    plan = solve_for_accuracy(Spec.parse(data), target, model, even, second_opinion=False)
    setting = setting_of(dataset, data, "iid")
    found = [
        100 * trained(setting, plan, 1.0, seed + number)[1].accuracy for number in range(seeds)
    ]
    epsilons = [group.epsilon for group in plan.groups]
    print(f"{dataset}: target {target:.1f}, reached {np.round(found, 1)}", flush=True)
    return {"dataset": dataset, "target": target, "epsilons": epsilons, "reached": found}


def summary(rows: list[dict[str, Any]], asked: list[dict[str, Any]]) -> dict[str, float]:
    """Mean errors in points, coverage, rank correlation, and targets within 1.5 points."""
    if not rows:
        return {}
    forecasts, seen, means = ([row[key] for row in rows] for key in ("forecast", "reached", "mean"))
    first = [abs(row["reached"][0] - row["target"]) for row in asked]
    misses = [abs(np.mean(row["reached"]) - row["target"]) for row in asked]
    return {
        "plans": len(rows),
        "mean_error": float(np.abs(np.subtract(forecasts, means)).mean()),
        "mean_error_one_run": float(np.abs(np.subtract(forecasts, seen)).mean()),
        "mean_only_error": float(np.abs(np.subtract(np.mean(means), means)).mean()),
        "group_error": float(np.mean([row["mean_group_errors"] for row in rows])),
        "group_error_one_run": float(np.mean([row["group_errors"] for row in rows])),
        "coverage": float(np.mean([row["inside"] for row in rows])),
        "group_coverage": float(np.mean([row["groups_inside"] for row in rows])),
        "interval_width": float(np.mean([row["interval"][1] - row["interval"][0] for row in rows])),
        "rank_correlation": float(spearmanr(forecasts, means).statistic) if rows[2:] else 0.0,
        "targets": len(asked),
        "targets_within_1.5": int(np.sum(np.less_equal(misses, 1.5))),
        "targets_within_1.5_one_run": int(np.sum(np.less_equal(first, 1.5))),
        "target_error": float(np.mean(misses)) if misses else 0.0,
    }


def results(known: dict[str, Any], models: dict[str, Forecaster]) -> dict[str, Any]:
    """Seed, errors of held-out proxy runs, and the summary of all rows and of each data set."""
    found: dict[str, Any] = {"seed": known["seed"], "all": summary(known["rows"], known["asked"])}
    found["held_out_error"] = {
        name: float(100 * np.abs(model.held_out()).mean()) for name, model in models.items()
    }
    for dataset in TASKS:
        own = [
            [row for row in known[part] if row["dataset"] == dataset] for part in ("rows", "asked")
        ]
        found[dataset] = summary(*own)
    return found


def main() -> None:
    """Draw, forecast, train and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--plans", type=int, default=24)
    parser.add_argument("--targets", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/forecast"))
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    path = asked.output / "forecast.json"
    identity = {name: getattr(asked, name) for name in ("seed", "plans", "targets", "seeds")}
    write_text(asked.output / "seed.txt", f"{asked.seed}\n")  # before anything is drawn
    known: dict[str, Any] = {**identity, "rows": [], "asked": []}
    if path.exists():
        stored = load_json(read_text(path, "output"))
        if any(stored.get(name) != value for name, value in identity.items()):
            parser.error(f"{path} is of other arguments")
        known |= {part: stored[part] for part in ("rows", "asked")}
    models = {dataset: proxies(dataset, asked.output) for dataset in TASKS}
    source = np.random.default_rng(asked.seed)
    for part, todo in (
        ("rows", new_plans(models, source, asked.plans, asked.seeds)),
        ("asked", targets(models, source, asked.targets, asked.seeds)),
    ):
        for at, (_, work) in enumerate(todo):
            if at < len(known[part]):
                continue
            known[part].append(work())
            write_text(path, json.dumps({**results(known, models), **known}, indent=1) + "\n")
    print(json.dumps(results(known, models), indent=1))


if __name__ == "__main__":
    main()
