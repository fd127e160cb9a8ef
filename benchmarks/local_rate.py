"""How the best server step and local learning rate depend on local momentum.

Development of the default recipe (docs/recipe.md): scikit-learn's digits (`mlp-digits`,
143 clients of 10, 60 rounds, cohort 30), and text that is not the evaluation's: the
docstrings of 800 Python modules of this environment, one per client, with the plan of
benchmarks/recipe.py for Shakespeare (714 clients, 50 rounds, cohort 71,
`characters-10`). Plans, with their noise, are privplan's; training is a small
simulation that steps all clients of a round at once, some ten times faster than
``simulate`` on such networks and close to it, but not the same run.

    python -m benchmarks.local_rate digits|text steps|rates [--seeds 4]
        [--factors 0.4,1,3]

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
from typing import Any, NamedTuple

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
from simulate.engine.batches import ABSENT, fill_schedule

PACKAGES = ("numpy", "scipy", "sklearn", "torch", "sympy", "pandas", "networkx")
"""Packages whose docstrings are read where they are installed.

Those of the standard library are read, too.
"""
MODULES = 800
"""Modules of the text."""
CHARACTERS = 3000
"""Of a module, at most."""
FEWEST_CHARACTERS = 400
"""Shorter docstrings are no client."""
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
    """Inputs and labels, and the person of each training record of text."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    people: np.ndarray | None


def docstrings() -> dict[str, str]:
    """Docstrings of each module, without line breaks: the text of one client each."""
    purelib = Path(sysconfig.get_path("purelib"))
    library = Path(sysconfig.get_path("stdlib"))
    texts: dict[str, str] = {}
    for folder in (*(purelib / name for name in PACKAGES), library):
        for path in sorted(folder.rglob("*.py")):
            inside = str(path.relative_to(folder.parent))
            if "test" in inside or "site-packages" in str(path.relative_to(folder)):
                continue
            text = text_of(path)
            if len(text) > FEWEST_CHARACTERS:
                texts[inside] = text[:CHARACTERS]
    names = sorted(texts)
    random.Random(7).shuffle(names)
    return {name: texts[name] for name in sorted(names[:MODULES])}


DOCUMENTED = (ast.Module, ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)
"""What may have a docstring."""


def text_of(path: Path) -> str:
    """The docstrings of a module in ASCII; nothing of what is no module."""
    try:
        nodes = ast.walk(ast.parse(path.read_text()))
    except (SyntaxError, ValueError):
        return ""
    texts = [
        ast.get_docstring(node) or "" for node in nodes if isinstance(node, DOCUMENTED)
    ]
    words = " ".join(texts).split()
    return " ".join(words).encode("ascii", "ignore").decode()


@cache
def records(task: str) -> Records:
    """The records of a task."""
    if task == "digits":
        data = load("digits", Path())
        train_x = data.inputs(data.train_x).flatten(1)
        test_x = data.inputs(data.test_x).flatten(1)
        return Records(train_x, data.train_y, test_x, data.test_y, None)

    # Inputs and labels of training, the same of the test, and the person.
    by_person: list[tuple[np.ndarray, ...]] = []
    for number, text in enumerate(docstrings().values()):
        x, y = sliding_windows(text)
        train, test = split_windows(len(y))
        people = np.full(len(train), number)
        by_person.append((x[train], y[train], x[test], y[test], people))
    arrays = [np.concatenate(parts) for parts in zip(*by_person, strict=True)]
    tensors = [torch.from_numpy(array).long() for array in arrays[:4]]
    train_x = tensors[0][:, -LAST:]
    test_x = tensors[2][:, -LAST:]
    return Records(train_x, tensors[1], test_x, tensors[3], arrays[4])


class Perceptron:
    """Dense layers with rectifiers of many clients, after an embedding or not.

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
        values: list[Tensor] = []
        inputs = 1
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
        """Inputs of each layer and logits [b, k, ...]; the rows of the embeddings."""
        tensors = self.layers(flat)
        rows = x
        if self.embedded:
            table = tensors.pop(0)
            rows = (x + 80 * torch.arange(len(x))[:, None, None]).reshape(-1)
            x = table.reshape(-1, self.embedded)[rows].view(*x.shape[:2], -1)
        values = [x]
        for layer in range(0, len(tensors), 2):
            weight = tensors[layer]
            bias = tensors[layer + 1]
            x = torch.baddbmm(bias[:, None, :], x, weight.transpose(1, 2))
            if layer + 2 < len(tensors):
                x = torch.relu(x)
            values.append(x)
        return values, rows

    def gradient(self, flat: Tensor, x: Tensor, y: Tensor, into: Tensor) -> None:
        """Gradients of the mean cross entropy of each client's batch, into [b, d]."""
        values, rows = self.forward(flat, x)
        present = y != ABSENT
        # The slope of the cross entropy by the logits: probabilities less the labels.
        slope = torch.softmax(values[-1], -1)
        labels = y.clamp(min=0)[..., None]
        slope.scatter_add_(2, labels, torch.full((*y.shape, 1), -1.0))
        slope = slope * (present / present.sum(1, keepdim=True))[..., None]
        tensors = self.layers(flat)
        slopes = self.layers(into)
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
    """The default plan of a task, with epsilons times a factor, and local training."""
    shakespeare = argparse.Namespace(
        task="shakespeare", rounds=50, cohort=71, least_share=None, shift=None
    )
    data = DIGITS if task == "digits" else spec_data(shakespeare)
    groups = [
        {**group, "epsilon": factor * group["epsilon"]} for group in data["groups"]
    ]
    local = {"learning_rate": UNIT, **data["local"], **local}
    return planned(json.dumps({**data, "groups": groups, "local": local}))


class Sources(NamedTuple):
    """Randomness of a run: of cohorts and batches, and of weights and noise."""

    numpy: np.random.Generator
    torch: torch.Generator


def accuracy(plan: Plan, task: str, step: float, seed: int) -> float:
    """Accuracy in percent of the averaged model, with a server's step of length S."""
    data = records(task)
    sources = Sources(np.random.default_rng(seed), torch.Generator().manual_seed(seed))
    net = Perceptron((64, 32, 10), 0)
    if task == "text":
        net = Perceptron((80, 64, 80), 8)
    parts = parts_of_clients(data, plan.spec.population, sources.numpy)
    sizes = [group.clients for group in plan.spec.groups]
    owner = sources.numpy.permutation(np.repeat(np.arange(len(sizes)), sizes))
    centre = net.start(sources.torch)
    mean = centre.clone()
    for round_ in range(plan.spec.rounds):
        cohort, weights = draw(plan, owner, sources.numpy)
        rows = [parts[client] for client in cohort]
        centre = centre + step * released(
            plan, net, centre, data, rows, weights, round_, sources
        )
        mean = DECAY * mean + (1 - DECAY) * centre if round_ else centre
    values, _ = net.forward(mean[None], data.test_x[None])
    return 100 * float((values[-1][0].argmax(-1) == data.test_y).float().mean())


def parts_of_clients(
    data: Records, clients: int, source: np.random.Generator
) -> list[np.ndarray]:
    """Training records of each client: those of a person, where there are people."""
    if data.people is None:
        return np.array_split(source.permutation(len(data.train_y)), clients)
    chosen = source.permutation(data.people.max() + 1)[:clients]
    return [np.flatnonzero(data.people == person) for person in chosen]


def released(
    plan: Plan,
    net: Perceptron,
    centre: Tensor,
    data: Records,
    rows_of_cohort: list[np.ndarray],
    weights: Tensor,
    round_: int,
    sources: Sources,
) -> Tensor:
    """The noisy weighted mean of the clipped updates of a cohort, in clipping norms."""
    local = plan.spec.local
    batches = np.full((len(rows_of_cohort), local.steps, local.batch_size), ABSENT)
    for chosen, rows in zip(batches, rows_of_cohort, strict=True):
        fill_schedule(chosen, rows, sources.numpy)
    noise = plan.mean_noise_std / plan.spec.clipping_norm
    release = noise * torch.randn(len(centre), generator=sources.torch)
    if len(batches):
        rate = local.learning_rate * local.learning_rate_decay**round_
        models = trained(net, centre, data, batches, rate, local.momentum)
        update = models - centre
        release += (weights / torch.clamp(update.norm(dim=1), min=UNIT)) @ update
    return release


def draw(
    plan: Plan, owner: np.ndarray, source: np.random.Generator
) -> tuple[list[int], Tensor]:
    """Clients of a Poisson cohort, and the weight of each in the mean update."""
    cohort: list[int] = []
    weights: list[float] = []
    for number, group in enumerate(plan.groups):
        members = np.flatnonzero(owner == number)
        drawn = members[source.random(len(members)) < group.sampling_ratio]
        cohort += drawn.tolist()
        weight = group.weight / (group.sampling_ratio * len(members))
        weights += [weight] * len(drawn)
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
    slope = torch.zeros_like(flat)
    speed = torch.zeros_like(flat)
    for step in range(chosen.shape[1]):
        batch = chosen[:, step]
        y = torch.where(batch == ABSENT, ABSENT, data.train_y[batch.clamp(min=0)])
        net.gradient(flat, data.train_x[batch.clamp(min=0)], y, slope)
        speed.mul_(momentum).add_(slope)
        flat.sub_(speed, alpha=rate)
    return flat


def cells(options: argparse.Namespace) -> Iterator[tuple[dict[str, Any], Plan, float]]:
    """The cells of a table: local training, its plan, and the server's step."""
    for factor in map(float, options.factors.split(",")):
        if options.table == "steps":
            for local in LOCAL if options.task == "digits" else LOCAL[1:]:
                plan = plan_of(options.task, factor, local)
                yield from ((local, plan, step) for step in STEPS)
            continue
        for momentum, rate in RATES:
            local = {"steps": 30, "batch_size": 4, "momentum": momentum}
            noise = relative_noise(plan_of(options.task, factor, local))
            plan = plan_of(options.task, factor, {**local, "learning_rate": rate})
            step = STEP_LENGTH * UNIT / math.hypot(1, noise)
            yield {**local, "rate": rate}, plan, step


def main() -> None:
    """Train and print every cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("digits", "text"))
    parser.add_argument("table", choices=("steps", "rates"))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--factors", default="0.4,1,3")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for local, plan, step in cells(options):
        scores = [
            accuracy(plan, options.task, step, seed) for seed in range(options.seeds)
        ]
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
