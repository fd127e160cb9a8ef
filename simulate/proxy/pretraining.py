"""Initial parameters trained on public or proxy data, and what they are worth on other classes.

Public training needs no clients: it is federated averaging over one client with all records, so
the engine's loop does it. Whether what was learned is of use elsewhere cannot be seen on the same
records: parameters trained on half of the classes start the spec's run on the other half, whose
accuracy is compared with that from random parameters. The head is drawn in both.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch

from privplan.errors import InputError
from privplan.files import load_yaml, write_bytes
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.processes import Journal, Progress, finish, in_jobs, key_of, resumable
from privplan.spec.spec import Spec
from privplan.spec.training import Initial
from privplan.values import Count, Natural, Positive, Value, digest, parse
from simulate.algorithms.registry import algorithm
from simulate.data.dataset import Dataset
from simulate.data.partition.schemes import partition, scheme
from simulate.engine.experiment import Experiment
from simulate.models.network import save
from simulate.models.registry import model
from simulate.proxy.search import Setting, loaded, of_classes, trained, with_fields
from simulate.runs.study import to_the_end

JOURNAL = "trials.jsonl"
SEEDS = 2
"""Runs from pretrained and from random parameters each."""
BATCH = 64
MOMENTUM = 0.9
LAST_RATE = 0.1
"""Learning rate of the last epoch over that of the first."""
LEAST_CLASSES = 4
"""With fewer classes there are no two halves of two."""


class PublicTraining(Value):
    """How parameters are trained on public data."""

    epochs: Count
    learning_rate: Positive  # of the first epoch; it falls to a tenth in the last
    seed: Natural  # of initialisation and mini-batches


@dataclass(frozen=True)
class Pretrained:
    """Initial parameters and the evidence for them: accuracies on the other classes per seed.

    The accuracies are empty where there are too few classes.
    """

    initial: Initial | None  # the spec's ``model.initial``; None where nothing was gained
    warm: tuple[float, ...]  # from pretrained parameters
    cold: tuple[float, ...]  # from random ones

    @property
    def gain(self) -> float:
        """Mean difference of the accuracies; 0 without any."""
        return fmean(self._differences) if self.warm else 0.0

    @property
    def error(self) -> float:
        """Its standard error over seeds."""
        return stdev(self._differences) / math.sqrt(len(self.warm)) if self.warm else 0.0

    @property
    def _differences(self) -> list[float]:
        return [warm - cold for warm, cold in zip(self.warm, self.cold, strict=True)]


def pretrain(
    setting: Setting,
    training: PublicTraining,
    output: Path,
    folder: Path,
    jobs: int = 1,
    progress: Progress = lambda done, total: None,
) -> Pretrained:
    """Train initial parameters for a spec on public data."""
    plan, data = _checked(setting, output, folder)
    present = np.unique(data.train_y.numpy()).tolist()
    halves = (present[::2], present[1::2]) if len(present) >= LEAST_CLASSES else None
    total = 1 if halves is None else 2 + 2 * SEEDS
    identity = {
        "setting": setting.model_dump(mode="json", exclude={"data_dir"}),
        "training": training.model_dump(mode="json"),
    }

    def check(point: Any, result: Any) -> None:
        """Check that a line of the journal can be a run's."""
        if not isinstance(result, float) or not 0 <= result <= 1 or set(point) != {"start", "seed"}:
            raise ValueError

    journal: Journal[float] = Journal(folder / JOURNAL, digest(identity), check)
    journal.load()  # another search is refused before the lock is created
    with resumable(folder):
        found = Pretrained(None, (), ())
        progress(0, total)
        if halves is not None:
            half = _trained_on(of_classes(data, halves[0]), plan, training, folder / "half")
            progress(1, total)
            cold = setting.model_copy(update={"classes": tuple(halves[1])})
            spec = _with_initial(setting.spec, _initial(half, setting.dataset))
            starts = {"warm": cold.model_copy(update={"spec": spec}), "cold": cold}
            items = {
                key_of({"start": name, "seed": seed}): (one, seed)
                for name, one in starts.items()
                for seed in range(SEEDS)
            }
            scores = finish(
                items,
                _accuracy,
                spread=in_jobs(min(jobs, len(items))),
                journal=journal,
                progress=lambda done, _: progress(1 + done, total),
            )
            ordered = [scores[key] for key in items]
            found = Pretrained(None, tuple(ordered[:SEEDS]), tuple(ordered[SEEDS:]))
        if not found.warm or found.gain > 0:
            whole = _trained_on(data, plan, training, folder / "all")
            write_bytes(output, whole.read_bytes())
            found = replace(found, initial=_initial(output, setting.dataset))
        progress(total, total)
    return found


def _checked(setting: Setting, output: Path, folder: Path) -> tuple[Plan, Dataset]:
    """The spec's plan and the public data."""
    spec = Spec.parse(setting.spec)
    if spec.model.initial is not None:
        raise InputError.one("model.initial", "must be left out", spec.model.initial.file)
    parse(Initial, {"file": str(output), "sha256": "0" * 64})  # a name that a spec can hold
    if output.exists() and not folder.exists():
        rule = f"must not exist before {folder} does, since the parameters would replace it"
        raise InputError.one("output", rule, str(output))
    scheme(setting.partition)
    plan = solve(spec, second_opinion=False)
    executed = algorithm(setting.algorithm, plan).plan.spec.model
    if executed.name != spec.model.name:
        rule = f"must train {spec.model.name}; {setting.algorithm} trains {executed.name}"
        raise InputError.one("algorithm", rule, setting.algorithm)
    data = loaded(setting)
    if data.targets is not None:
        raise InputError.one("dataset", "must be one of classes", data.name)
    return plan, data


def _initial(path: Path, source: str) -> Initial:
    """The spec's ``model.initial`` for parameters whose head is drawn."""
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Initial(file=str(path), sha256=sha256, head="drawn", source=source)


def _with_initial(spec: dict[str, Any], initial: Initial) -> dict[str, Any]:
    """A spec's plain data with initial parameters."""
    start = initial.model_dump(mode="json")
    return {**spec, "model": {**spec["model"], "initial": start}}


def _accuracy(task: tuple[Setting, int]) -> float:
    """Test accuracy of one run, in [0, 1]."""
    setting, seed = task
    plan = solve(Spec.parse(setting.spec), second_opinion=False)
    return trained(setting, plan, 1.0, seed)[1].accuracy


def _trained_on(data: Dataset, plan: Plan, training: PublicTraining, stem: Path) -> Path:
    """The file with parameters trained on all records, whose name holds its digest.

    A file that is there already is kept if it still has that digest.
    """
    for known in stem.parent.glob(f"{stem.name}-*.npy"):
        if known.stem == f"{stem.name}-{hashlib.sha256(known.read_bytes()).hexdigest()}":
            return known
    count, epochs = len(data.train_y), training.epochs
    local = {
        "steps": max(1, count // BATCH),
        "batch_size": BATCH,
        "learning_rate": training.learning_rate,
        "learning_rate_decay": LAST_RATE ** (1 / max(1, epochs - 1)),
        "momentum": MOMENTUM,
    }
    spec = {
        "name": "public",
        "groups": [{"name": "public", "clients": 1, "epsilon": 1.0, "delta": 1e-5}],
        "rounds": epochs,
        "cohort": 1,
        "clipping_norm": 1.0,
        "recipe": "none",
        "model": plan.spec.model.model_dump(mode="json"),
        "local": local,
    }
    # federated averaging adds no noise, so this plan's budget has no meaning
    built = algorithm("FedAvg", solve(Spec.parse(spec), second_opinion=False))
    groups, seed = built.plan.groups, training.seed
    assigned = partition(scheme("iid"), data.train_y.numpy(), groups, seed, None)
    network, device = model(plan.spec.model.name), torch.device("cpu")
    end = to_the_end(Experiment(built, network, data, assigned, seed, device, workers=1))
    sha256 = save(stem.with_name(f"{stem.name}.npy"), end.theta)
    return stem.with_name(f"{stem.name}.npy").rename(stem.with_name(f"{stem.name}-{sha256}.npy"))


def pretrained_text(text: str, found: Pretrained) -> str:
    """The text of a spec with initial parameters; as it was where they are not kept."""
    rows = ["Initial parameters: public or proxy data only."]
    if found.warm:
        warm, cold = (100 * fmean(scores) for scores in (found.warm, found.cold))
        rows += [
            "On classes of the public data that they were not trained on, mean accuracy of "
            f"{len(found.warm)} seeds in percent:",
            f"{warm:.2f}, from random parameters {cold:.2f}; standard error of the gain "
            f"{100 * found.error:.2f}.",
        ]
    data = load_yaml(text, "spec")
    if found.initial is None:
        return with_fields(text, data, data, [*rows, "So they are not used."])
    return with_fields(text, data, _with_initial(data, found.initial), rows)
