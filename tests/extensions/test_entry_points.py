"""A law and an accountant of another distribution, by entry points, through every command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import privplan
from tests.extensions import toy_package

ROOT = Path(privplan.__file__).parents[1]
SPEC = """
name: toy
groups:
  - {name: strict, clients: 20, epsilon: 3.0}
  - {name: loose, clients: 20, epsilon: 12.0}
delta: n^-1.1
rounds: 4
cohort: 16
sampling: SAMPLING
local: {steps: 2, batch_size: 5, learning_rate: 0.1, momentum: 0.0}
model: {name: mlp-digits, parameters: 2410}
planning: {accountant: ACCOUNTANT, ratios: uniform}
"""
POINTS = """
[privplan.laws]
coins = toy_package:Coins
broken = no_such_package:Law
[privplan.accountants]
doubled = toy_package:Doubled
broken = no_such_package:Accountant
[privplan.server_optimisers]
sign = toy_package:sign
"""
MECHANISM = ["--noise-multiplier=1.5", "--rounds=50", "--delta=1e-5", "--sampling-ratio=.02"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder as pip leaves it: the module, and metadata with its entry points."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "toy_package.py").write_text(Path(toy_package.__file__).read_text())
    metadata = folder / "toy_package-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-package\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(POINTS)
    return folder


def run(installed: Path, cwd: Path, *arguments: str, code: int = 0) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{installed}"}
    done = subprocess.run(
        [sys.executable, "-m", "privplan", *arguments], capture_output=True, text=True, cwd=cwd,
        env=environment, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr


def epsilons(text: str) -> dict[str, float]:
    return {row["accountant"]: float(row["epsilon_upper"]) for row in json.loads(text)}


def test_account_and_calibrate(installed, tmp_path):
    as_json = ["--format=json"]
    coins = run(installed, tmp_path, "account", *MECHANISM, "--sampling=coins", *as_json)
    poisson = run(installed, tmp_path, "account", *MECHANISM, *as_json)
    found, expected = epsilons(coins), epsilons(poisson)
    assert found["pld"] == pytest.approx(expected["pld"], rel=1e-12)
    assert found["rdp"] == pytest.approx(expected["rdp"], rel=1e-9)
    assert found["doubled"] == pytest.approx(2 * found["rdp"])
    assert not {"gdp", "closed_form"} & set(found)
    assert "coins" in run(installed, tmp_path, "account", "--help")
    noise = run(
        installed,
        tmp_path,
        *("calibrate", "--solve-for=noise_multiplier", "--epsilon=2", "--rounds=50"),
        *("--delta=1e-5", "--sampling-ratio=.02", "--sampling=coins", "--accountant=doubled"),
        *as_json,
    )
    assert "coins" in noise


def test_a_broken_entry_point_fails_only_where_it_is_asked_for(installed, tmp_path):
    message = run(installed, tmp_path, "account", *MECHANISM, "--accountant=broken", code=2)
    assert "accountant: entry point 'no_such_package:Accountant'" in message
    message = run(installed, tmp_path, "account", *MECHANISM, "--sampling=broken", code=2)
    assert "sampling: entry point 'no_such_package:Law'" in message
    assert message.count("\n") == 1


def test_solve_simulate_and_verify(installed, tmp_path):
    plans = {}
    for sampling, accountant in (("coins", "pld"), ("poisson", "pld"), ("coins", "doubled")):
        text = SPEC.replace("SAMPLING", sampling).replace("ACCOUNTANT", accountant)
        (tmp_path / "spec.yaml").write_text(text)
        plan = tmp_path / f"{sampling}-{accountant}.json"
        run(installed, tmp_path, "solve", "spec.yaml", "-o", str(plan))
        plans[sampling, accountant] = json.loads(plan.read_text())
    noise = {key: [g["noise_multiplier"] for g in p["groups"]] for key, p in plans.items()}
    assert noise["coins", "pld"] == pytest.approx(noise["poisson", "pld"], rel=2e-4)
    assert min(noise["coins", "doubled"]) > max(noise["coins", "pld"]) * 0.5
    assert noise["coins", "doubled"][0] > noise["coins", "pld"][0]
    simulated = ("simulate", "coins-pld.json", "--algorithm=planned", "--seed=3", "--device=cpu")
    run(installed, tmp_path, *simulated, "-o", "run")
    verdict = json.loads(run(installed, tmp_path, "verify", "run", "--format=json"))
    assert verdict["kept"]
    assert {group["sampling"] for group in verdict["groups"]} == {"coins"}


def test_a_server_optimiser_trains_and_is_not_shown_by_replay(installed, tmp_path):
    text = SPEC.replace("SAMPLING", "poisson").replace("ACCOUNTANT", "pld")
    (tmp_path / "spec.yaml").write_text(text + "server: {optimizer: sign, learning_rate: 0.02}\n")
    run(installed, tmp_path, "solve", "spec.yaml", "-o", "plan.json")
    simulated = ("simulate", "plan.json", "--algorithm=planned", "--seed=3", "--device=cpu")
    assert "test accuracy" in run(installed, tmp_path, *simulated, "-o", "run")
    report = json.loads((tmp_path / "run" / "record.json").read_text())
    assert report["status"] == "complete"
    shown = run(installed, tmp_path, "replay", "run", code=5)
    assert shown == "" or "server optimiser sign" in shown
    replayed = json.loads((tmp_path / "run" / "replay.json").read_text())
    assert "server optimiser sign" in json.dumps(replayed)
