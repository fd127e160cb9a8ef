"""Accuracy under the same budgets: published plan, default plan, free clipping norm.

Fashion-MNIST, `cnn-2-valid`, 6,000 clients of 10 images, 50 rounds, 120 clients per
round, budgets 0.5, 1.5 and 3.0. The published plan trains as GDPFed+, the others as
`planned`, and FedAvg without privacy is beside them. The clipping norm rests on a pilot
on MNIST, never on Fashion-MNIST. Runs are kept in a folder and are not repeated; then
the tables and the picture of docs/planning.md.

    python benchmarks/accuracy.py [--seeds 5] [--jobs 2] [--folder runs/accuracy]
        [--draw PNG]
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from privplan.files import write_bytes
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.report.style import LIGHT, figure, saved, styled
from privplan.spec.measured import provisional, written
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from privplan.yaml_text import load_yaml
from simulate.proxy.pilot import Pilot, run
from simulate.runs.compare import compare
from simulate.runs.request import Request

SPLITS = {
    "iid": "iid",
    "dirichlet": "dirichlet:0.3",
    "by-class": "by-class:strict=0,8,9",
}
METHODS = {
    "GDPFed+, published plan": ("published", "GDPFed+"),
    "default plan": ("default", "planned"),
    "clipping norm free": ("free", "planned"),
    "FedAvg, not private": ("published", "FedAvg"),
}
METHOD_LINES = {
    name: name.replace(", ", ",\n").replace("t plan", "t\nplan") for name in METHODS
}
METHOD_LINES["clipping norm free"] = "clipping\nnorm free"
LOWEST = 50
"""Where the picture begins; a group below is written as a number."""
MODEL = {"name": "cnn-2-valid", "parameters": 18378}
FREE = "planning:\n  free: [ratios, weights, clipping_norm]\n"

Records = dict[tuple[str, str], list[dict[str, Any]]]
"""Method and split to the records of its runs, one per seed."""


def plan_of(kind: str, data_dir: Path | None) -> Plan:
    """The published or the default plan, or one whose norm a pilot decides."""
    text = preset("gdpfed-fmnist").replace(
        "{name: cnn-2, parameters: 28938}", json.dumps(MODEL)
    )
    if kind == "published":
        return solve(Spec.parse(load_yaml(text, "preset")))
    text = text[: text.index("planning:")]
    if kind == "default":
        return solve(Spec.parse(load_yaml(text, "preset")))
    text += FREE
    measured = run(Pilot(provisional(text), "mnist", data_dir=data_dir))
    return solve(Spec.parse(load_yaml(written(text, measured), "spec")))


def train(folder: Path, seeds: int, jobs: int, data_dir: Path | None) -> None:
    """Every run that the folder does not hold yet."""
    algorithms_by_kind = {
        "published": ["GDPFed+", "FedAvg"],
        "default": ["planned"],
        "free": ["planned"],
    }
    for kind, algorithms in algorithms_by_kind.items():
        plan = plan_of(kind, data_dir)
        for split, partition in SPLITS.items():
            if kind == "free" and split == "by-class":
                continue  # a pilot on mixed clients says nothing about unlike groups
            base = Request(
                plan,
                algorithms[0],
                "fashion-mnist",
                folder / f"{kind}-{split}",
                partition=partition,
                data_dir=data_dir,
            )
            compare(base, algorithms, range(seeds), jobs, lambda done, total: None)
            print(f"{kind}, {split}: done", flush=True)


def read(folder: Path) -> Records:
    """The records of all runs in the folder."""
    records: Records = {}
    for method, (kind, algorithm) in METHODS.items():
        for split in SPLITS:
            runs = folder / f"{kind}-{split}" / algorithm
            paths = sorted(runs.glob("seed-*/record.json"))
            if paths:
                records[method, split] = [
                    json.loads(path.read_text()) for path in paths
                ]
    return records


def tables(records: Records) -> None:
    """Accuracy by method, split, group and class, and the share of the gap."""
    print("| who holds what | method | seeds | accuracy | strict | medium | loose |")
    print("|---|---|---|---|---|---|---|")
    for (method, split), runs in sorted(records.items(), key=lambda item: item[0][1]):
        groups = [f"{mean(runs, 'accuracy_by_group', name):.2f}" for name in GROUPS]
        cells = [split, method, str(len(runs)), mean_and_spread(runs), *groups]
        print(f"| {' | '.join(cells)} |")
    chosen = {
        method: runs for (method, split), runs in records.items() if split == "by-class"
    }
    classes = list(next(iter(chosen.values()))[0]["accuracy_by_class"])
    print(f"\n| by-class | {' | '.join(classes)} |\n|---{'|---' * len(classes)}|")
    for method, runs in chosen.items():
        cells = [f"{mean(runs, 'accuracy_by_class', name):.1f}" for name in classes]
        print(f"| {method} | {' | '.join(cells)} |")
    published = statistics.fmean(scores(records["GDPFed+, published plan", "iid"]))
    not_private = statistics.fmean(scores(records["FedAvg, not private", "iid"]))
    free = statistics.fmean(scores(records["clipping norm free", "iid"]))
    share = (free - published) / (not_private - published)
    print(f"\nshare of the gap closed, iid: {share:.1%}")


GROUPS = ("strict", "medium", "loose")


def scores(runs: list[dict[str, Any]]) -> list[float]:
    """Test accuracy of each run, in percent."""
    return [100 * record["accuracy"] for record in runs]


def mean(runs: list[dict[str, Any]], field: str, name: str) -> float:
    """Mean over the runs of one entry, in percent."""
    return 100 * statistics.fmean(record[field][name] for record in runs)


def mean_and_spread(runs: list[dict[str, Any]]) -> str:
    """Mean and standard deviation over the seeds."""
    values = scores(runs)
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.2f} ± {spread:.2f}"


def draw(records: Records, path: Path) -> None:
    """Accuracy by method, a panel per split, a mark per group and a dot per seed."""
    with styled(LIGHT):
        page = figure(10.0, 3.4)
        panels = page.subplots(1, len(SPLITS), sharey=True)
        marks = dict(zip(GROUPS, "v^s", strict=True))
        for axes, (split, partition) in zip(panels, SPLITS.items(), strict=True):
            shown = [method for method in METHODS if (method, split) in records]
            for place, method in enumerate(shown):
                runs = records[method, split]
                values = scores(runs)
                axes.bar(
                    place,
                    statistics.fmean(values),
                    color=LIGHT.good,
                    width=0.6,
                    alpha=0.5,
                )
                axes.plot(
                    [place] * len(values), values, ".", color=LIGHT.ink, markersize=3
                )
                for name, mark in marks.items():
                    label = f"{name} group" if place == 0 else None
                    level = mean(runs, "accuracy_by_group", name)
                    axes.plot(
                        place + 0.2,
                        max(level, 51),
                        mark,
                        color=LIGHT.bad,
                        ms=4,
                        label=label,
                    )
                    if level < LOWEST:
                        axes.annotate(
                            f" {level:.1f}", (place + 0.2, 51), fontsize=7, va="center"
                        )
            axes.set_title(partition)
            axes.set_xticks(
                range(len(shown)), [METHOD_LINES[name] for name in shown], fontsize=7
            )
        panels[0].set_ylabel("test accuracy (%)")
        panels[0].set_ylim(LOWEST, 90)
        panels[0].legend(fontsize=7, frameon=False, loc="upper left")
        write_bytes(path, saved(page, "png"))


def main() -> None:
    """Train what is missing, print the tables, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("runs/accuracy"))
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--draw", type=Path, default=None)
    options = parser.parse_args()
    train(options.folder, options.seeds, options.jobs, options.data_dir)
    records = read(options.folder)
    tables(records)
    if options.draw is not None:
        draw(records, options.draw)


if __name__ == "__main__":
    main()
