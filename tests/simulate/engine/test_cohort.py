"""Clients of several small groups are trained in one batch, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from privplan.planning.solver import solve
from simulate.components import ClientBatch, LocalResult, LocalRule
from simulate.engine.experiment import Experiment
from simulate.engine.loop import initial_state, run_round
from simulate.runs.ledger_writer import MemoryLedger
from simulate.runs.request import Request, prepare
from tests.simulate.conftest import digits_spec

SHARED = ["FedAvg", "planned", "DP-FedSAM", "DP-FedPGN", "DP-FedAvg-BLUR", "PPSGD", "CENTAUR"]


def experiment(name: str) -> Experiment:
    plan = solve(digits_spec(rounds=3))
    return prepare(Request(plan, name, "digits", Path("unused"), seed=3))


def watched(local: LocalRule, batches: list[int]) -> LocalRule:
    """The rule, which also notes how many clients each batch has."""

    def train(batch: ClientBatch) -> LocalResult:
        batches.append(len(batch.clients))
        return local.train(batch)

    return replace(local, train=train)


def three_rounds(setting: Experiment, local: LocalRule) -> tuple[torch.Tensor, str, list[int]]:
    """Model and chain of the ledger after three rounds, and the batches that were trained."""
    batches: list[int] = []
    algorithm = replace(setting.algorithm, local=watched(local, batches))
    setting = replace(setting, algorithm=algorithm)
    ledger = MemoryLedger(algorithm.plan.digest)
    progress = initial_state(setting)
    for _ in range(3):
        progress = run_round(setting, progress, ledger)
    return progress.theta, progress.chain, batches


@pytest.mark.parametrize("name", SHARED)
def test_the_groups_of_a_batch_change_no_bit(name):
    setting = experiment(name)
    local = setting.algorithm.local
    assert local.across_groups
    theta, chain, batches = three_rounds(setting, local)
    apart, other_chain, more = three_rounds(setting, replace(local, across_groups=False))
    assert torch.equal(theta, apart)
    assert chain == other_chain
    assert len(batches) == 3
    assert len(more) == 9
    assert sum(batches) == sum(more)


def test_a_rule_that_reads_the_group_gets_one_group_at_a_time():
    setting = experiment("DP-FedAvg")
    groups: list[str] = []

    def train(batch):
        groups.append(batch.group.name)
        return LocalResult(torch.zeros(len(batch.clients), setting.dimension))

    three_rounds(setting, LocalRule("reads the group", train))
    assert groups == [group.name for group in setting.algorithm.plan.groups] * 3
