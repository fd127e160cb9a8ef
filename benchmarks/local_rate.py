"""How the best step of the server and the best local learning rate depend on local momentum.

Development of the default recipe (docs/recipe.md): scikit-learn's digits (`mlp-digits`,
143 clients of 10, 60 rounds, cohort 30), and text that is not the evaluation's: the
docstrings of 800 Python modules of this environment, one per client, with the plan of
benchmarks/recipe.py for Shakespeare (714 clients, 50 rounds, cohort 71,
`characters-10`). Plans, with their noise, are privplan's; training is a small
simulation that steps all clients of a round at once, some ten times faster than
``simulate`` on such networks and close to it, but not the same run.

    python -m benchmarks.local_rate digits|text steps|rates [--seeds 4] [--factors 0.4,1,3]

``steps`` varies the length S of the server's step, ``rates`` the local learning rate at
the recipe's step. --factors multiply all epsilons. Prints a row of JSON per cell.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import random
import statistics
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.recipe import LAST, spec_data
from privplan.plan import Plan
from privplan.planning.recipe import DECAY, STEP_LENGTH, relative_noise
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from privplan.spec.training import UNIT
from simulate.data.formats.leaf import sliding_windows, split_windows
from simulate.data.registry import load
from simulate.engine.batches import ABSENT, schedule

PACKAGES = ("numpy", "scipy", "sklearn", "torch", "sympy", "pandas", "networkx")
"""Packages whose docstrings are read where they are installed, beside the standard library."""
MODULES, CHARACTERS = 800, 3000
"""Modules of the text, and most characters of each."""
DIGITS = {
    "name": "digits",
    "groups": [
        {"name": "strict", "clients": 47, "epsilon": 1.0},
        {"name": "medium", "clients": 48, "epsilon": 3.0},
        {"name": "loose", "clients": 48, "epsilon": 8.0},
    ],
    "rounds": 60,
    "cohort": 30,
    "model": {"name": "mlp-digits", "parameters": 2410},
    "local": {"batch_size": 5},
}
LOCAL = (
    {"steps": 5, "momentum": 0.0},
    {"steps": 30, "momentum": 0.0, "batch_size": 4},
    {"steps": 30, "momentum": 0.9, "batch_size": 4},
)
"""Local training whose best step of the server is compared."""
STEPS = (0.2, 0.4, 0.8, 1.6, 3.2)
RATES = ((0.0, 0.1), (0.9, 0.0047), (0.9, 0.014), (0.9, 0.047), (0.9, 0.1))
"""Local momentum and learning rate of 30 steps of 4 records."""


@dataclass(frozen=True)
class Records:
    """Inputs and labels, and the person of each training record where there are people."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    people: np.ndarray | None


def docstrings() -> dict[str, str]:
    """Docstrings of each module, without line breaks: the text of one client each."""
    purelib, library = (
        Path(sysconfig.get_path(name)) for name in ("purelib", "stdlib")
    )
    texts = {}
    for folder in (*(purelib / name for name in PACKAGES), library):
        for path in sorted(folder.rglob("*.py")):
            inside = str(path.relative_to(folder.parent))
            if "test" in inside or "site-packages" in str(path.relative_to(folder)):
                continue
            try:
                nodes = ast.walk(ast.parse(path.read_text()))
            except (SyntaxError, ValueError):
                continue
            documented = (
                ast.Module,
                ast.FunctionDef,
                ast.ClassDef,
                ast.AsyncFunctionDef,
            )
            found = [
                ast.get_docstring(one) or ""
                for one in nodes
                if isinstance(one, documented)
            ]
            text = " ".join(" ".join(found).split()).encode("ascii", "ignore").decode()
            if len(text) > 400:
                texts[inside] = text[:CHARACTERS]
    names = sorted(texts)
    random.Random(7).shuffle(names)
    return {name: texts[name] for name in sorted(names[:MODULES])}


@cache
def records(task: str) -> Records:
    """The records of a task."""
    if task == "digits":
        data = load("digits", Path())
        x, test = (
            data.inputs(data.train_x).flatten(1),
            data.inputs(data.test_x).flatten(1),
        )
        return Records(x, data.train_y, test, data.test_y, None)
    parts: list[list[np.ndarray]] = [[], [], [], [], []]
    for number, text in enumerate(docstrings().values()):
        x, y = sliding_windows(text)
        train, test_rows = split_windows(len(y))
        kept = (
            x[train],
            y[train],
            x[test_rows],
            y[test_rows],
            np.full(len(train), number),
        )
        for part, values in zip(parts, kept, strict=True):
            part.append(values)
    *tensors, people = (np.concatenate(part) for part in parts)
    train_x, train_y, test_x, test_y = (torch.from_numpy(one).long() for one in tensors)
    return Records(train_x[:, -LAST:], train_y, test_x[:, -LAST:], test_y, people)


class Perceptron:
    """Dense layers with rectifiers, after an embedding of characters or not, of many clients.

    Args:
        widths: of the layers.
        embedded: length of the embedding of each of 80 characters; 0 for none.
    """

    def __init__(self, widths: tuple[int, ...], embedded: int) -> None:
        self.embedded = embedded
        self.shapes: list[tuple[int, ...]] = [(80, embedded)] if embedded else []
        for inputs, outputs in pairwise(widths):
            self.shapes += [(outputs, inputs), (outputs,)]
        self.sizes = [math.prod(shape) for shape in self.shapes]

    def start(self, source: torch.Generator) -> Tensor:
        """PyTorch's initial values [d]."""
        values, inputs = [], 1
        for shape in self.shapes:
            if shape == (80, self.embedded):
                values.append(torch.randn(shape, generator=source))
                continue
            inputs = shape[1] if len(shape) == 2 else inputs
            spread = 1 / math.sqrt(inputs)
            values.append((torch.rand(shape, generator=source) * 2 - 1) * spread)
        return torch.cat([value.flatten() for value in values])

    def layers(self, flat: Tensor) -> list[Tensor]:
        """The parameters [b, d] as views, one per tensor."""
        parts = flat.split(self.sizes, 1)
        return [
            part.view(len(flat), *shape)
            for part, shape in zip(parts, self.shapes, strict=True)
        ]

    def forward(self, flat: Tensor, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """Inputs of each layer and the logits [b, k, ...], and the rows of the embeddings."""
        tensors, rows = self.layers(flat), x
        if self.embedded:
            table = tensors.pop(0)
            rows = (x + 80 * torch.arange(len(x))[:, None, None]).reshape(-1)
            x = table.reshape(-1, self.embedded)[rows].view(*x.shape[:2], -1)
        values = [x]
        for layer in range(0, len(tensors), 2):
            weight, bias = tensors[layer], tensors[layer + 1]
            x = torch.baddbmm(bias[:, None, :], x, weight.transpose(1, 2))
            x = torch.relu(x) if layer + 2 < len(tensors) else x
            values.append(x)
        return values, rows

    def gradient(self, flat: Tensor, x: Tensor, y: Tensor, into: Tensor) -> None:
        """Gradients of the mean cross entropy of each client's batch, into a tensor [b, d]."""
        values, rows = self.forward(flat, x)
        present = y != ABSENT
        slope = torch.softmax(values[-1], -1)
        slope.scatter_add_(
            2, y.clamp(min=0)[..., None], torch.full((*y.shape, 1), -1.0)
        )
        slope = slope * (present / present.sum(1, keepdim=True))[..., None]
        tensors, slopes = self.layers(flat), self.layers(into)
        for depth in range(len(values) - 2, -1, -1):
            layer = 2 * depth + bool(self.embedded)
            slopes[layer].copy_(torch.bmm(slope.transpose(1, 2), values[depth]))
            slopes[layer + 1].copy_(slope.sum(1))
            if depth == 0 and not self.embedded:
                return
            slope = torch.bmm(slope, tensors[layer])
            if depth:
                slope = slope * (values[depth] > 0)
        table = torch.zeros(len(flat) * 80, self.embedded)
        table.index_add_(0, rows, slope.reshape(-1, self.embedded))
        slopes[0].copy_(table.view_as(slopes[0]))


@cache
def planned(text: str) -> Plan:
    """The plan of a spec as JSON."""
    return solve(Spec.parse(json.loads(text)), second_opinion=False)


def plan_of(task: str, factor: float, local: dict[str, Any]) -> Plan:
    """The default plan of a task with all epsilons times a factor and its local training."""
    shakespeare = argparse.Namespace(task="shakespeare", rounds=50, cohort=71)
    data = DIGITS if task == "digits" else spec_data(shakespeare)
    groups = [
        {**group, "epsilon": factor * group["epsilon"]} for group in data["groups"]
    ]
    local = {"learning_rate": UNIT, **data["local"], **local}
    return planned(json.dumps({**data, "groups": groups, "local": local}))


def accuracy(plan: Plan, task: str, step: float, seed: int) -> float:
    """Accuracy in percent after all rounds, with a step of length S and averaged models."""
    spec, data, local = plan.spec, records(task), plan.spec.local
    source, torch_source = (
        np.random.default_rng(seed),
        torch.Generator().manual_seed(seed),
    )
    net = Perceptron(
        (64, 32, 10) if task == "digits" else (80, 64, 80), 8 * (task == "text")
    )
    clients = spec.population
    if data.people is None:
        parts = np.array_split(source.permutation(len(data.train_y)), clients)
    else:
        chosen = source.permutation(data.people.max() + 1)[:clients]
        parts = [np.flatnonzero(data.people == person) for person in chosen]
    sizes = [group.clients for group in spec.groups]
    owner = source.permutation(np.repeat(np.arange(len(sizes)), sizes))
    centre = net.start(torch_source)
    mean, noise = centre.clone(), plan.mean_noise_std / spec.clipping_norm
    for round_ in range(spec.rounds):
        cohort, weights = draw(plan, owner, source)
        batches = [
            schedule(parts[one], local.steps, local.batch_size, source)
            for one in cohort
        ]
        release = noise * torch.randn(len(centre), generator=torch_source)
        if batches:
            rate = local.learning_rate * local.learning_rate_decay**round_
            update = (
                trained(net, centre, data, np.stack(batches), rate, local.momentum)
                - centre
            )
            release += (weights / torch.clamp(update.norm(dim=1), min=UNIT)) @ update
        centre = centre + step * release
        mean = DECAY * mean + (1 - DECAY) * centre if round_ else centre
    logits = net.forward(mean[None], data.test_x[None])[0][-1][0]
    return 100 * float((logits.argmax(-1) == data.test_y).float().mean())


def draw(
    plan: Plan, owner: np.ndarray, source: np.random.Generator
) -> tuple[list[int], Tensor]:
    """Clients of a Poisson cohort, and the weight of each in the mean update."""
    cohort, weights = [], []
    for number, group in enumerate(plan.groups):
        members = np.flatnonzero(owner == number)
        taken = members[source.random(len(members)) < group.sampling_ratio]
        cohort += taken.tolist()
        weights += [group.weight / (group.sampling_ratio * len(members))] * len(taken)
    return cohort, torch.tensor(weights)


def trained(
    net: Perceptron,
    centre: Tensor,
    data: Records,
    rows: np.ndarray,
    rate: float,
    momentum: float,
) -> Tensor:
    """Parameters [b, d] of clients after local training on rows [b, steps, size]."""
    chosen = torch.from_numpy(rows)
    flat = centre.expand(len(rows), -1).clone()
    slope, speed = torch.zeros_like(flat), torch.zeros_like(flat)
    for step in range(chosen.shape[1]):
        batch = chosen[:, step]
        y = torch.where(batch == ABSENT, ABSENT, data.train_y[batch.clamp(min=0)])
        net.gradient(flat, data.train_x[batch.clamp(min=0)], y, slope)
        speed.mul_(momentum).add_(slope)
        flat.sub_(speed, alpha=rate)
    return flat


def cells(asked: argparse.Namespace) -> Iterator[tuple[dict[str, Any], Plan, float]]:
    """The cells of a table: local training, its plan, and the length of the server's step."""
    for factor in map(float, asked.factors.split(",")):
        if asked.table == "steps":
            for local in LOCAL if asked.task == "digits" else LOCAL[1:]:
                plan = plan_of(asked.task, factor, local)
                yield from ((local, plan, step) for step in STEPS)
            continue
        for momentum, rate in RATES:
            local = {"steps": 30, "batch_size": 4, "momentum": momentum}
            noise = relative_noise(plan_of(asked.task, factor, local))
            plan = plan_of(asked.task, factor, {**local, "learning_rate": rate})
            yield (
                {**local, "rate": rate},
                plan,
                STEP_LENGTH * UNIT / math.hypot(1, noise),
            )


def main() -> None:
    """Train and print every cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("digits", "text"))
    parser.add_argument("table", choices=("steps", "rates"))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--factors", default="0.4,1,3")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for local, plan, step in cells(asked):
        scores = [accuracy(plan, asked.task, step, seed) for seed in range(asked.seeds)]
        row = {
            "noise": round(relative_noise(plan), 2),
            **local,
            "step": round(step, 3),
            "accuracy": round(statistics.fmean(scores), 2),
            "by_seed": [round(score, 2) for score in scores],
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
