"""A part of the training records of a data set, by ``NAME:RECORDS``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from click.testing import CliRunner

from privplan.cli import main
from privplan.files import load_yaml
from privplan.planning.solver import solve
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from simulate.data.registry import load


def test_a_part_keeps_the_classes_and_the_test_records() -> None:
    whole, part = load("digits"), load("Digits:100")
    assert (len(part.train_y), part.name) == (100, "digits:100")
    assert torch.equal(part.test_x, whole.test_x)
    shares = np.bincount(whole.train_y.numpy()) * 100 / len(whole.train_y)
    assert (abs(np.bincount(part.train_y.numpy()) - shares) <= 1).all()
    assert load("digits:100").digest == part.digest != whole.digest
    everything = load(f"digits:{len(whole.train_y)}")
    assert torch.equal(everything.train_x, whole.train_x)


def test_a_run_on_a_part_is_recorded_and_replayed(tmp_path: Path) -> None:
    spec = {**load_yaml(preset("digits"), "preset"), "rounds": 2}
    solve(Spec.parse(spec)).save(tmp_path / "plan.json")
    words = [str(tmp_path / "plan.json"), "--dataset=digits:300", f"--output={tmp_path / 'run'}"]
    ran = CliRunner().invoke(main, ["simulate", *words, "--algorithm=DP-FedAvg", "--format=json"])
    assert ran.exit_code == 0, ran.output
    assert "digits:300" in (tmp_path / "run" / "record.json").read_text()
    assert json.loads(ran.stdout)["accuracy"] > 0
    replayed = CliRunner().invoke(main, ["replay", str(tmp_path / "run")])
    assert replayed.exit_code == 0, replayed.output
