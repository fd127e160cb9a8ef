"""``privplan attack``: output, files, resuming, runs, bad input in one line."""

from __future__ import annotations

import itertools
import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import privplan.cli
from privplan.plan import Plan
from simulate.attacks import evaluate
from simulate.attacks import membership as members
from simulate.attacks.membership import Membership


@pytest.fixture(autouse=True)
def _command(monkeypatch: pytest.MonkeyPatch) -> None:
    points = dict(privplan.cli._extensions())
    points["attack"] = EntryPoint("attack", "simulate.cli.attack:command", "privplan.commands")
    monkeypatch.setattr(privplan.cli, "_extensions", lambda *group: {} if group else points)


def call(*arguments: object) -> Result:
    return CliRunner().invoke(privplan.cli.main, [str(argument) for argument in arguments])


def test_a_plan_is_attacked_and_the_same_command_resumes(
    short_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "attacks"
    arguments = ["attack", short_path, "--algorithm", "FedAvg,DP-FedAvg", "--attack", "closed,ig"]
    arguments += ["--images", 4, "--steps", 3, "-o", output]
    done = call(*arguments)
    assert done.exit_code == 0, done.stderr
    assert "leaks: " in done.stdout
    data = json.loads((output / "attacks.json").read_text())
    first, *_, last = data["rows"]
    assert (first["algorithm"], first["epsilon"], last["algorithm"]) == (
        "FedAvg",
        "inf",
        "DP-FedAvg",
    )
    assert first["scores"]["identified"][0] == 1.0
    assert last["epsilon"] <= 2.0
    assert set(first["nulls"]) == {"mean image", "noise", "another image's update"}
    assert (output / "sheet.png").read_bytes().startswith(b"\x89PNG")
    assert "| FedAvg | closed |" in (output / "attacks.md").read_text()

    def fail(*_: object) -> None:
        raise AssertionError("a finished chunk was computed again")

    monkeypatch.setattr(evaluate, "_attacked", fail)
    again = call(*arguments)
    assert again.exit_code == 0, again.stderr
    assert json.loads((output / "attacks.json").read_text()) == data
    other = call(*arguments[:-3], 4, "-o", output)
    assert other.exit_code == 2
    assert "output: must not hold results of other settings" in other.stderr


def test_a_round_of_a_run_is_replayed(short_path: Path, short_plan: Plan, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert call("simulate", short_path, "--algorithm", "planned", "-o", run).exit_code == 0
    arguments = ["attack", run, "--attack", "closed,ig", "--round", 2, "--steps", 2]
    done = call(*arguments)
    assert done.exit_code == 0, done.stderr
    assert "planned" in done.stdout
    lines = (run / "ledger.jsonl").read_text().splitlines()
    assert len(lines) >= short_plan.spec.rounds
    row = json.loads(call(*arguments, "--format", "json").stdout)["rows"][0]
    groups = {group.name: group.epsilon for group in short_plan.groups}
    assert set(row["groups"]) == set(groups)
    assert row["group"] == max(groups, key=lambda name: groups[name])
    assert f"group {row['group']}, delta" in done.stdout
    ignored = call(*arguments, "--clients", 3, "--local-steps", 2, "--dataset", "mnist")
    ignored_too = call(*arguments, "--partition", "iid", "--set", "rho=1", "--noise", "0.5")
    assert (ignored.exit_code, ignored_too.exit_code) == (2, 2)
    rule = "must be left out for a run, which is replayed as it was, found"
    for field, found in (("clients", "3"), ("local-steps", "2"), ("dataset", "mnist")):
        assert f"{field}: {rule} '{found}'" in ignored.stderr
    assert f"set: {rule} 'rho=1'" in ignored_too.stderr
    (run / "ledger.jsonl").write_text("\n".join(lines[:1]) + "\n")
    short = call(*arguments)
    assert short.exit_code == 2
    assert "ledger: must hold the " in short.stderr
    beyond = call("attack", run, "--round", 9)
    assert beyond.exit_code == 2
    assert "round: must be in [1, 8], the rounds that were run, found 9" in beyond.stderr


def test_the_sweep_lowers_the_noise_until_an_attack_succeeds(
    short_path: Path, tmp_path: Path
) -> None:
    output = tmp_path / "sweep"
    arguments = ["attack", short_path, "--algorithm", "FedAvg,DP-FedAvg", "--attack", "closed"]
    arguments += ["--images", 8, "--sweep", "-o", output]
    done = call(*arguments)
    assert done.exit_code == 0, done.stderr
    data = json.loads((output / "attacks.json").read_text())
    without, noisy = data["sweep"]
    assert without["holds_at"] is None
    assert without["breaks_at"]["epsilon"] == "inf"
    broken, holds = noisy["breaks_at"], noisy["holds_at"]
    assert broken["noise_multiplier"] < holds["noise_multiplier"]
    assert broken["epsilon"] > holds["epsilon"]
    levels = [line["noise_multiplier"] for line in data["rows"] if line["unit"] == "client"]
    ratios = [high / low for high, low in itertools.pairwise(levels)]
    assert ratios == pytest.approx([10**0.5] * len(ratios))
    assert "better than null from sigma" in done.stdout
    nothing = call("attack", short_path, "--algorithm", "DP-FedAvg", "--attack", "rog", "--sweep")
    assert "DP-FedAvg, rog: not available: its network" in nothing.stdout
    assert (output / "epsilon.png").read_bytes().startswith(b"\x89PNG")


def test_membership_on_a_run_folder_resumes(
    short_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, output = tmp_path / "run", tmp_path / "attack"
    assert call("simulate", short_path, "--algorithm", "planned", "-o", run).exit_code == 0
    trained: list[int] = []

    def scores(attack: Membership, index: int) -> dict[str, list[float]]:
        trained.append(index)
        attack.experiment(index)
        coins = [float(coin) for coin in attack.included(index)]
        return {"included": coins, "loss": coins, "odds": coins}

    monkeypatch.setattr(members, "scores_of_run", scores)
    arguments = ["attack", run, "--attack", "membership", "--targets", 4, "-o", output]
    done = call(*arguments)
    assert done.exit_code == 0, done.stderr
    assert trained == list(range(65))
    [found] = json.loads((output / "attacks.json").read_text())["membership"]
    assert (found["algorithm"], found["unit"], found["runs"]) == ("planned", "client", 65)
    assert found["epsilon"] <= 12.0
    assert found["scores"]["loss"][0]["tpr"][0] == 1.0
    assert "above the certificate" in done.stdout  # perfect scores: no run has them
    trained.clear()
    assert call(*arguments).exit_code == 0
    assert trained == []


WRONG = (
    "attack --attack guess", "algorithm --algorithm SGD", "images --images 99999",
    "clients --clients 0", "clients --clients 1.5", "clients --clients 51", "noise --noise x",
    "dataset --dataset mnist9", "sweep --sweep --noise 2", "sweep --sweep --attack membership",
    "targets --attack membership --targets 9999", "round --round 3", "partition --partition iid",
    "targets --targets 2", "rog-network --attack rog --rog-network none.pt2",
    "rog-network --rog-network x.pt2",
)  # fmt: skip
"""The field that a refusal names, and the options."""


@pytest.mark.parametrize("words", WRONG)
def test_bad_input_is_one_line(words: str, short_path: Path, tmp_path: Path) -> None:
    field, *options = words.split()
    options = options if "--algorithm" in options else ["--algorithm", "FedAvg", *options]
    done = call("attack", short_path, *options, "-o", tmp_path / "out")
    assert done.exit_code == 2, done.stdout
    [line] = done.stderr.splitlines()
    assert line.startswith(f"privplan: {field}: ")
    assert not (tmp_path / "out").exists()
