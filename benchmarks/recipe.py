"""Accuracy of training recipes: decided without data, tuned on a proxy, of 0.1.0.

``fmnist``: Fashion-MNIST, `cnn-2-valid`, 6,000 clients of 10, 50 rounds, 120 clients
per round, budgets 0.5, 1.5 and 3.0; IID, Dirichlet(0.3), and a strict group that alone
holds classes 0, 8, 9. ``mnist``: the same on MNIST. ``cifar10``: `cnn-3`, 600 clients
of 50 images, budgets 2, 6, 12. ``shakespeare``: 714 roles (give --splits natural),
budgets, rounds, cohort and local training of gdpfed-shakespeare, and instead of its
recurrent network, which a CPU trains for hours, one of 11,024 parameters over the last
10 characters (`characters-10`). Runs are kept in a folder and not repeated; results
with seeds and spread are written as JSON after each run. Fashion-MNIST decides nothing:
give --tuned a spec that `privplan proxy tune SPEC --dataset mnist -o TUNED` wrote
(`--spec` writes the SPEC to tune).

    python benchmarks/recipe.py [fmnist] [--seeds 5] [--folder runs/recipe]
        [--json results.json] [--kinds default,eps60] [--splits iid]
        [--tuned tuned.yaml] [--fedavg fedavg.yaml]
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from privplan.files import write_text
from privplan.laws.sampling_law import SamplingLaw
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.record import RunRecord
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from privplan.yaml_text import load_yaml
from simulate.models.modular import Modular
from simulate.models.registry import MODELS as MODEL_NAMES
from simulate.runs.request import Request
from simulate.runs.run import execute

MODELS = {
    "fmnist": (
        "gdpfed-fmnist",
        {"name": "cnn-2-valid", "parameters": 18378},
        "fashion-mnist",
    ),
    "cifar10": ("gdpfed-cifar10", {"name": "cnn-3", "parameters": 62346}, "cifar-10"),
    "mnist": ("gdpfed-fmnist", {"name": "cnn-2-valid", "parameters": 18378}, "mnist"),
    "shakespeare": (
        "gdpfed-shakespeare",
        {"name": "characters-10", "parameters": 11_024},
        "shakespeare",
    ),
}
SPLITS = {
    "iid": "iid",
    "dirichlet": "dirichlet:0.3",
    "by-class": "by-class:strict=0,8,9",
}
KINDS = {
    "published": "GDPFed+",
    "before": "planned",
    "before-rate": "planned",
    "default": "planned",
    "given-rate": "planned",
    "eps60": "planned",
    "correlated": "planned",
    "correlated-eps60": "planned",
    "tuned": "planned",
    "tuned-eps60": "planned",
    "fedavg": "FedAvg",
    "fedavg-tuned": "FedAvg",
}
"""Algorithm by kind of plan.

before is the default plan of 0.1.0, given-rate the default recipe with the preset's
local learning rate of 0.1, which the default recipe otherwise decides, too: 0.1 again,
except for Shakespeare. before-rate is before with the rate that the recipe decides.
correlated is default with the law of --sampling and the noise that goes with it.
"""
LAST = 10
"""Characters that `characters-10` sees, of the 80 of a record."""


class Characters(nn.Module):
    """The next character from the last ones: embeddings, a hidden layer, logits.

    Args:
        classes: number of logits.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(80, 8)
        self.hidden = nn.Linear(8 * LAST, 64)
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Characters [B, T], int64, to logits [B, classes]."""
        hidden = torch.relu(self.hidden(self.embedding(x[:, -LAST:]).flatten(1)))
        logits: Tensor = self.head(hidden)
        return logits


def characters(
    name: str, *, shape: tuple[int, ...] = (80,), classes: int = 80
) -> Modular:
    """A small network that predicts the next character."""
    return Modular(name, shape, classes, partial(Characters, classes))


def spec_data(options: argparse.Namespace) -> dict[str, Any]:
    """The preset's plain data with the task's network, without norm and planning."""
    name, network, _ = MODELS[options.task]
    data = dict(load_yaml(preset(name), "preset"))
    del data["planning"], data["clipping_norm"]
    data["model"] = network
    if options.rounds is not None:
        data["rounds"] = options.rounds
    if options.cohort is not None:
        data["cohort"] = options.cohort
    if options.least_share is not None:
        data["planning"] = {"least_share": options.least_share}
    if options.shift is not None:
        data["local"] = {**data["local"], "augmentation": {"shift": options.shift}}
    return data


def open_data(data: dict[str, Any]) -> dict[str, Any]:
    """Plain data that leave the local learning rate to the recipe, too."""
    local = {
        key: value for key, value in data["local"].items() if key != "learning_rate"
    }
    return {**data, "local": local}


def plan_of(kind: str, options: argparse.Namespace) -> Plan:
    """The solved plan of a kind; see KINDS."""
    data = spec_data(options)
    published = dict(load_yaml(preset(MODELS[options.task][0]), "preset"))
    norm = {"clipping_norm": published["clipping_norm"]}
    if kind in ("published", "fedavg"):
        return solve(Spec.parse({**data, **norm, "planning": published["planning"]}))
    if kind == "before":
        return solve(Spec.parse({**data, **norm}))
    if kind == "before-rate":
        rate = Spec.parse(open_data(data)).local.learning_rate
        local = {**data["local"], "learning_rate": rate}
        return solve(Spec.parse({**data, **norm, "local": local}))
    if kind == "fedavg-tuned":
        return solve(Spec.load(options.fedavg))

    if kind.startswith("tuned"):
        spec = Spec.load(options.tuned)
    elif kind.startswith("correlated"):
        correlated = {**open_data(data), "sampling": options.sampling}
        if SamplingLaw(options.sampling).law.everyone:
            del correlated["cohort"]
        spec = Spec.parse(correlated)
    elif kind == "given-rate":
        spec = Spec.parse(data)
    else:
        spec = Spec.parse(open_data(data))
    plan = solve(spec)
    if not kind.endswith("eps60"):
        return plan

    # The recipe of the strict budgets, with budgets that need hardly any noise.
    loose = {**plan.spec.model_dump(mode="json"), "recipe": "none"}
    loose["groups"] = [{**group, "epsilon": 60.0} for group in loose["groups"]]
    return solve(Spec.parse(loose))


class Trained(NamedTuple):
    """A run, with its kind and split as on the command line."""

    kind: str
    split: str
    seed: int
    record: RunRecord
    plan: Plan

    @property
    def accuracy(self) -> float:
        """Test accuracy in percent."""
        return 100 * (self.record.accuracy or 0.0)


def runs(options: argparse.Namespace) -> Iterator[Trained]:
    """Every run, trained unless its folder holds it."""
    kinds = options.kinds.split(",")
    plans = {kind: plan_of(kind, options) for kind in kinds}
    for seed in range(options.seeds):
        for split in options.splits.split(","):
            for kind, plan in plans.items():
                request = Request(
                    plan,
                    KINDS[kind],
                    MODELS[options.task][2],
                    options.folder / options.task / f"{kind}-{split}" / f"seed-{seed}",
                    seed=seed,
                    partition=SPLITS.get(split, split),
                    data_dir=options.data_dir,
                )
                request.folder.parent.mkdir(parents=True, exist_ok=True)
                record = execute(request).record
                yield Trained(kind, split, seed, record, plan)


def summary(trained: list[Trained]) -> list[dict[str, Any]]:
    """Rows by kind and split: seeds, accuracies in percent, and means of groups."""
    by_cell: dict[tuple[str, str], list[Trained]] = {}
    for run in trained:
        by_cell.setdefault((run.kind, run.split), []).append(run)
    rows = []
    for (kind, split), cell in by_cell.items():
        scores = [run.accuracy for run in cell]
        groups: dict[str, float] = {}
        for name in cell[0].record.accuracy_by_group:
            shares = [100 * run.record.accuracy_by_group[name] for run in cell]
            groups[name] = round(statistics.fmean(shares), 2)
        spec = cell[0].plan.spec.model_dump(mode="json")
        fields = ("clipping_norm", "server", "averaging", "local", "recipe")
        rows.append(
            {
                "kind": kind,
                "split": split,
                "seeds": [run.seed for run in cell],
                "accuracy": [round(score, 2) for score in scores],
                "mean": round(statistics.fmean(scores), 2),
                "sd": round(statistics.stdev(scores), 2) if len(scores) > 1 else None,
                "groups": groups,
                "recipe": {name: spec[name] for name in fields if name in spec},
            }
        )
    return rows


def main() -> None:
    """Train what is missing; write and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", nargs="?", choices=sorted(MODELS), default="fmnist")
    parser.add_argument("--kinds", default="default")
    parser.add_argument("--splits", default=",".join(SPLITS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--cohort", type=float, default=None)
    parser.add_argument(
        "--sampling", default="cyclic_poisson:5", help="of kinds correlated"
    )
    parser.add_argument(
        "--least-share", type=float, default=None, help="planning.least_share"
    )
    parser.add_argument(
        "--shift", type=int, default=None, help="of images in training, in pixels"
    )
    parser.add_argument("--tuned", type=Path, default=None)
    parser.add_argument("--fedavg", type=Path, default=None)
    parser.add_argument("--folder", type=Path, default=Path("runs/recipe"))
    parser.add_argument("--json", type=Path, default=Path("recipe.json"))
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument(
        "--spec", type=Path, default=None, help="write the spec to tune, and stop"
    )
    options = parser.parse_args()
    MODEL_NAMES.register("characters-10", characters)
    if options.spec is not None:
        write_text(options.spec, json.dumps(spec_data(options), indent=1) + "\n")
        return
    trained: list[Trained] = []
    for run in runs(options):
        trained.append(run)
        print(f"{run.kind} {run.split} seed {run.seed}: {run.accuracy:.2f}", flush=True)
        write_text(options.json, json.dumps(summary(trained), indent=1) + "\n")


if __name__ == "__main__":
    main()
