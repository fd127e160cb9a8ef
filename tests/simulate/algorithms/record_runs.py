"""Runs of methods that protect records, for several tests."""

from __future__ import annotations

import torch

from privplan.plan import Plan
from simulate.algorithms.registry import algorithm
from simulate.data.partition.schemes import partition, scheme
from simulate.data.registry import load
from simulate.engine.experiment import Experiment
from simulate.engine.round import RoundContext
from simulate.models.registry import model


def setting(name: str, plan: Plan, held_as: str = "iid", data: str = "digits") -> Experiment:
    """A run of a method that protects records."""
    found = load(data)
    held = partition(scheme(held_as), found.train_y.numpy(), plan.groups, 3, found.train_people)
    fewest = {group.name: 4 for group in plan.groups}
    built = algorithm(name, plan, records=fewest)
    network = model(plan.spec.model.name)
    return Experiment(built, network, found, held, 3, torch.device("cpu"))


def context_of(run: Experiment) -> RoundContext:
    return RoundContext(1, run.start, {}, None, {})
