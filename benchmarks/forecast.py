"""Misses of forecasts: plans drawn by a seed that is written down first, then run.

scikit-learn's digits (`mlp-digits`, 143 clients of 10) and MNIST (`cnn-2-valid`, 6,000
clients of 10), each forecast from proxy runs on the same data with partitions drawn at
random; a part of the proxy runs on MNIST have two fifths of the clients. The data set,
the partition, budgets, rounds, cohort and recipe of the new plans are drawn at random.
Prints the mean error overall and per group, the coverage of the 90% intervals, the rank
correlation and every miss; then plans for targets of accuracy and what they reach. A
run on digits has 355 test records and a standard deviation of 1 to 3 points over seeds,
so plans for digits are also compared with the mean over some seeds. Every run is
journalled in OUT, and the same command goes on where it was interrupted.

    python benchmarks/forecast.py [--seed SEED] [--plans 24] [--targets 10] [--seeds 4]
        [--jobs 1] [--small] [-o OUT]

``--small`` takes three small tasks instead, with 32 proxy runs of each.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from privplan.files import write_text
from privplan.forecast.coverage import even_coverage
from privplan.forecast.model import Forecaster, with_forecast
from privplan.forecast.proxy_table import ProxyRun
from privplan.plan import Plan
from privplan.planning.inverse import solve_for
from privplan.processes import in_jobs
from privplan.spec.spec import Spec
from privplan.sweeps import Journal, finish, key_of, resumable
from privplan.values import digest
from simulate.proxy.candidate import DECAYS
from simulate.proxy.table import proxy_run, proxy_table
from simulate.proxy.training import Setting, trained
from simulate.proxy.variations import DRAWN, Variation, variations

GROUPS = ("strict", "medium", "loose")
SEED = 20261122
"""Seed of the new plans; committed before the first of them was drawn."""
ROWS = "rows.jsonl"
"""Journal of what is trained."""


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
        ((200, 1000, 1.0),),
        (80.0, 93.0),
    ),
    "mnist": Task(
        (2000, 2000, 2000),
        (2.0, 5.0, 12.0),
        {"name": "cnn-2-valid", "parameters": 18378},
        ((12, 5000, 1.0), (48, 6000, 0.4)),
        (90.0, 95.0),
    ),
}

SMALL = {
    name: Task(
        (clients,) * 3, (1.5, 4.0, 10.0), network, ((32, 4242, 1.0),), (50.0, 90.0)
    )
    for name, clients, network in (
        ("digits", 47, {"name": "cnn-digits", "parameters": 2730}),
        ("mnist", 600, {"name": "mlp-digits:1x28x28", "parameters": 25450}),
        ("fashion-mnist", 600, {"name": "mlp-digits:1x28x28", "parameters": 25450}),
    )
}
"""Other models, data and numbers of clients than those by which the curve was developed."""


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
    return Setting(
        spec=plain, algorithm="planned", dataset=dataset, partition=partition
    )


def proxies(dataset: str, folder: Path) -> Forecaster:
    """The forecaster of a data set, from its proxy runs; finished ones stay."""
    task = TASKS[dataset]
    data = spec_data(task, task.epsilons)
    todo: list[Variation] = []
    for count, seed, share in task.drawn:
        todo += variations(Spec.parse(data), [DRAWN], count, seed, share)
    setting = setting_of(dataset, data, "proxy")
    table = proxy_table(setting, todo, folder / f"{dataset}.runs")
    table.save(folder / f"{dataset}.json")
    return Forecaster(table)


def new_partition(source: np.random.Generator) -> str:
    """IID, Dirichlet, or one group alone holds one to four classes."""
    kind = source.choice(["iid", "dirichlet", "by-class", "by-class"])
    if kind == "iid":
        return "iid"
    if kind == "dirichlet":
        return f"dirichlet:{10 ** source.uniform(-0.7, 0.2):.2g}"
    classes = sorted(
        source.choice(10, size=source.integers(1, 5), replace=False).tolist()
    )
    return f"by-class:{source.choice(GROUPS)}={','.join(map(str, classes))}"


def new_plan(source: np.random.Generator, partition: str, rounds: int) -> Variation:
    """Budgets, rounds and, for every second plan, a recipe, around those of a spec."""

    def factor(largest: float) -> float:
        return float(f"{largest ** source.uniform(-1, 1):.4g}")

    common = factor(4.0)
    decay = float(source.choice(DECAYS))
    recipe: dict[str, Any] = {"clip": factor(4.0), "step": factor(2.5), "decay": decay}
    return Variation(
        epsilons=tuple(float(f"{common * factor(1.5):.4g}") for _ in GROUPS),
        rounds=max(2, round(rounds * factor(2.0))),
        partition=partition,
        seed=int(source.integers(2**30)),
        share=1.0,
        **(recipe if source.random() < 0.5 else {}),
    )


@dataclass(frozen=True)
class Todo:
    """A plan to train with some seeds.

    Attributes:
        setting: its data set.
        plan: a new plan around the setting's spec, or the plan for a target of
            accuracy.
        seed: the first seed.
        seeds: number of seeds.
        target: the target, in percent; None for a new plan.
    """

    setting: Setting
    plan: Variation | Plan
    seed: int
    seeds: int
    target: float | None = None


def new_plans(source: np.random.Generator, count: int, seeds: int) -> Iterator[Todo]:
    """Plans drawn at random."""
    for _ in range(count):
        dataset = str(source.choice(sorted(TASKS)))
        task = TASKS[dataset]
        epsilons = tuple(
            float(np.round(epsilon * 3 ** source.uniform(-1, 1), 3))
            for epsilon in task.epsilons
        )
        rounds = int(source.integers(25, 61))
        cohort = int(source.integers(25, 61))
        partition = new_partition(source)
        plan = new_plan(source, partition, rounds)
        data = spec_data(task, epsilons, rounds, cohort)
        setting = setting_of(dataset, data, partition)
        yield Todo(setting, plan, plan.seed, seeds if dataset == "digits" else 1)


def targets(
    models: dict[str, Forecaster], source: np.random.Generator, count: int, seeds: int
) -> Iterator[Todo]:
    """Plans for targets drawn at random, IID."""
    for _ in range(count):
        dataset = str(source.choice(sorted(TASKS)))
        target = float(source.uniform(*TASKS[dataset].targets))
        seed = int(source.integers(2**30))
        data = spec_data(TASKS[dataset], TASKS[dataset].epsilons)
        spec = Spec.parse(data)
        even = even_coverage(spec, 10)
        expect = partial(with_forecast, model=models[dataset], coverage=even)
        plan = solve_for(
            spec, {"accuracy": target}, forecast=expect, second_opinion=False
        )
        repeats = seeds if dataset == "digits" else 1
        yield Todo(setting_of(dataset, data, "iid"), plan, seed, repeats, target)


def train(todo: Todo) -> list[Any]:
    """The runs of a new plan, as data of a ``ProxyRun``, or a target's accuracies."""
    seeds = range(todo.seed, todo.seed + todo.seeds)
    if isinstance(todo.plan, Plan):
        setting = todo.setting
        return [trained(setting, todo.plan, 1.0, seed)[1].accuracy for seed in seeds]
    plans = [todo.plan.model_copy(update={"seed": seed}) for seed in seeds]
    return [proxy_run((todo.setting, plan)) for plan in plans]


def plan_row(
    models: dict[str, Forecaster], todo: Todo, trained_runs: list[Any]
) -> dict[str, Any]:
    """Forecast and accuracies of a new plan; the forecast knows its features alone."""
    runs = [ProxyRun.model_validate(run) for run in trained_runs]
    first = runs[0]
    expected = models[todo.setting.dataset].forecast(first.plan, first.coverage, GROUPS)
    forecasts = np.array([group.accuracy for group in expected.groups])
    lower = np.array([group.lower for group in expected.groups])
    upper = np.array([group.upper for group in expected.groups])
    reached = np.array(first.accuracy_by_group)
    means = np.mean([run.accuracy_by_group for run in runs], axis=0)
    is_inside = (lower <= reached) & (reached <= upper)
    return {
        "dataset": todo.setting.dataset,
        "partition": first.partition,
        "rounds": first.plan.rounds,
        "noise": round(first.plan.noise, 2),
        "forecast": 100 * expected.accuracy,
        "interval": [100 * expected.lower, 100 * expected.upper],
        "reached": 100 * first.accuracy,
        "mean": 100 * float(np.mean([run.accuracy for run in runs])),
        "inside": expected.lower <= first.accuracy <= expected.upper,
        "group_errors": (100 * np.abs(forecasts - reached)).tolist(),
        "distance": expected.distance,
        "mean_group_errors": (100 * np.abs(forecasts - means)).tolist(),
        "groups_inside": is_inside.tolist(),
        "runs": trained_runs,
    }


def target_row(todo: Todo, accuracies: list[Any]) -> dict[str, Any]:
    """The target of accuracy, its plan's budgets, and what it reached."""
    assert isinstance(todo.plan, Plan)
    return {
        "dataset": todo.setting.dataset,
        "target": todo.target,
        "epsilons": [group.epsilon for group in todo.plan.groups],
        "reached": [100 * accuracy for accuracy in accuracies],
    }


def line(row: dict[str, Any]) -> str:
    """A row of the table of misses."""
    low, high = row["interval"]
    return (
        f"| {row['dataset']} | {row['partition']} | {row['rounds']} | {row['noise']:g} | "
        f"{row['forecast']:.1f} [{low:.1f}, {high:.1f}] | {row['reached']:.1f} | "
        f"{row['mean']:.1f} | {row['mean'] - row['forecast']:+.1f} |"
    )


def summary(
    rows: list[dict[str, Any]], target_rows: list[dict[str, Any]]
) -> dict[str, float]:
    """Mean errors in points, coverage, rank correlation, and targets met."""
    if not rows:
        return {}
    forecasts = np.array([row["forecast"] for row in rows])
    means = np.array([row["mean"] for row in rows])
    reached = np.array([row["reached"] for row in rows])
    widths = [row["interval"][1] - row["interval"][0] for row in rows]
    rank_correlation = 0.0
    if len(rows) > 2:
        rank_correlation = float(spearmanr(forecasts, means).statistic)

    first_misses = [abs(row["reached"][0] - row["target"]) for row in target_rows]
    misses = [abs(np.mean(row["reached"]) - row["target"]) for row in target_rows]
    return {
        "plans": len(rows),
        "mean_error": float(np.abs(forecasts - means).mean()),
        "mean_error_one_run": float(np.abs(forecasts - reached).mean()),
        "mean_only_error": float(np.abs(np.mean(means) - means).mean()),
        "group_error": float(np.mean([row["mean_group_errors"] for row in rows])),
        "group_error_one_run": float(np.mean([row["group_errors"] for row in rows])),
        "coverage": float(np.mean([row["inside"] for row in rows])),
        "group_coverage": float(np.mean([row["groups_inside"] for row in rows])),
        "interval_width": float(np.mean(widths)),
        "rank_correlation": rank_correlation,
        "targets": len(target_rows),
        "targets_within_1.5": int(np.sum(np.less_equal(misses, 1.5))),
        "targets_within_1.5_one_run": int(np.sum(np.less_equal(first_misses, 1.5))),
        "target_error": float(np.mean(misses)) if misses else 0.0,
    }


def results(
    seed: int,
    models: dict[str, Forecaster],
    rows: list[dict[str, Any]],
    target_rows: list[dict[str, Any]],
) -> dict[str, Any]:
    """Seed, errors of held-out proxy runs, and summaries by data set and of all."""
    summaries: dict[str, Any] = {"seed": seed, "all": summary(rows, target_rows)}
    summaries["held_out_error"] = {
        name: float(100 * np.abs(model.held_out()).mean())
        for name, model in models.items()
    }
    for dataset in TASKS:
        plans = [row for row in rows if row["dataset"] == dataset]
        of_targets = [row for row in target_rows if row["dataset"] == dataset]
        summaries[dataset] = summary(plans, of_targets)
    return summaries


def ask() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--plans", type=int, default=24)
    parser.add_argument("--targets", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--small", action="store_true", help="Three small tasks instead."
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/forecast"))
    return parser.parse_args()


def train_all(
    todo: list[Todo], models: dict[str, Forecaster], options: argparse.Namespace
) -> list[list[Any]]:
    """What ``train`` returns of each plan; what the journal holds is not repeated."""
    identity = {
        "seed": options.seed,
        "plans": options.plans,
        "targets": options.targets,
        "seeds": options.seeds,
        "tables": {dataset: model.table.digest for dataset, model in models.items()},
    }
    journal: Journal[list[Any]] = Journal(
        options.output / ROWS, digest(identity), lambda key, runs: None
    )
    items = {key_of(number): plan for number, plan in enumerate(todo)}
    with resumable(options.output):
        results_by_key = finish(
            items, train, spread=in_jobs(options.jobs), journal=journal, progress=shown
        )
    return [results_by_key[key] for key in items]


def main() -> None:
    """Draw, forecast, train and print."""
    options = ask()
    if options.small:
        TASKS.clear()
        TASKS.update(SMALL)
    options.output.mkdir(parents=True, exist_ok=True)
    # Before anything is drawn.
    write_text(options.output / "seed.txt", f"{options.seed}\n")

    models = {dataset: proxies(dataset, options.output) for dataset in TASKS}
    source = np.random.default_rng(options.seed)
    new = list(new_plans(source, options.plans, options.seeds))
    for_targets = list(targets(models, source, options.targets, options.seeds))
    done = train_all([*new, *for_targets], models, options)
    rows = [
        plan_row(models, todo, runs)
        for todo, runs in zip(new, done[: len(new)], strict=True)
    ]
    target_rows = [
        target_row(todo, accuracies)
        for todo, accuracies in zip(for_targets, done[len(new) :], strict=True)
    ]
    summaries = results(options.seed, models, rows, target_rows)
    report = {**summaries, "rows": rows, "asked": target_rows}
    write_text(options.output / "forecast.json", json.dumps(report, indent=1) + "\n")
    print("\n".join(map(line, rows)))
    print(json.dumps(summaries, indent=1))


def shown(done: int, total: int) -> None:
    """Print how many plans are trained."""
    print(f"{done} of {total}", flush=True)


if __name__ == "__main__":
    main()
