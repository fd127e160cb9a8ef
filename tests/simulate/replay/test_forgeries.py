"""Forgeries that leave plan, ledger and evidence consistent: which of them replay detects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from privplan.evidence import EVIDENCE, VECTORS
from privplan.record import LEDGER, RunRecord
from simulate.algorithms.gdpfed import gdpfed, gdpfed_plus
from simulate.algorithms.registry import Hyperparameters
from simulate.engine import round as engine_round
from simulate.replay.lines import planned_lines
from simulate.replay.replay import Replay
from simulate.runs.request import Request, prepare
from simulate.runs.run import execute, run_prepared
from tests.simulate.replay.runs import replayed, short_plan

SEED = 3


def run_of(folder: Path, planning: str, algorithm: str = "GDPFed+") -> Path:
    """The folder of a run."""
    execute(Request(short_plan(planning=planning), algorithm, "digits", folder, seed=SEED))
    return folder


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        ("GDPFed+", "GDPFed"), ("GDPFed+", "DP-FedAvg"), ("GDPFed+", "FedAvg"),
        ("DP-FedAvg", "FedAvg"), ("FedAvg", "DP-FedAvg"),
    ],
)  # fmt: skip
def test_a_run_that_names_another_algorithm_fails(algorithm, name, tmp_path):
    folder = run_of(tmp_path / "run", "quantiles", algorithm)
    RunRecord.load(folder).model_copy(update={"algorithm": name}).save(folder)
    report = replayed(folder)
    assert report.outcome == "failed"
    if name == "GDPFed":
        assert "model" in {one.name for one in report.differences}


def test_gdpfed_plus_is_gdpfed_under_a_plan_that_keeps_all_coordinates(tmp_path):
    plan = short_plan()
    assert {group.kept_fraction for group in plan.groups} == {1.0}
    folders = []
    for make in (gdpfed, gdpfed_plus):
        folder = tmp_path / make.__name__
        request = Request(plan, "GDPFed+", "digits", folder, seed=SEED)
        run_prepared(request, replace(prepare(request), algorithm=make(plan, Hyperparameters())))
        folders.append(folder)
    for name in (LEDGER, VECTORS, EVIDENCE):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name
    for name in ("GDPFed+", "GDPFed"):
        RunRecord.load(folders[1]).model_copy(update={"algorithm": name}).save(folders[1])
        assert replayed(folders[1]).outcome == "passed"


def clients(folder: Path) -> tuple[set[int], set[int]]:
    """Clients that took part in some round of a run, and all clients."""
    world = Replay(folder).world
    rounds = range(1, world.plan.spec.rounds + 1)
    parts = [part for one in rounds for line in planned_lines(world, one) for part in line.parts]
    members = world.run.partition.members
    return {one for part in parts for one in part.clients.tolist()}, {*np.concatenate(members)}


@pytest.mark.parametrize("takes_part", [True, False])
def test_one_client_trained_on_other_images_shows_if_it_takes_part(
    takes_part, tmp_path, monkeypatch
):
    honest = run_of(tmp_path / "honest", "per_group")
    took_part, everyone = clients(honest)
    client, batches = min(took_part if takes_part else everyone - took_part), engine_round.batches

    def other_images(data, partition, clients, **options):
        x, y = batches(data, partition, clients, **options)
        rows = torch.from_numpy(np.asarray(clients) == client)
        x[rows] = x[rows].flip(-1)
        return x, y

    monkeypatch.setattr(engine_round, "batches", other_images)
    folder = run_of(tmp_path / "run", "per_group")
    report = replayed(folder)
    same = (folder / VECTORS).read_bytes() == (honest / VECTORS).read_bytes()
    assert same != takes_part
    assert report.outcome == ("failed" if takes_part else "passed"), report.reason
    if takes_part:
        assert {"releases", "model"} <= {one.name for one in report.differences}
