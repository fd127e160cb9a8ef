"""``privplan attack``: output, files, runs, bad input in one line."""

import json
from importlib.metadata import EntryPoint

import pytest
from click.testing import CliRunner

import privplan.cli


@pytest.fixture(autouse=True)
def _command(monkeypatch):
    points = dict(privplan.cli._extensions())
    points["attack"] = EntryPoint(
        "attack", "simulate.cli.attack:command", "privplan.commands"
    )
    monkeypatch.setattr(
        privplan.cli, "_extensions", lambda *group: {} if group else points
    )


def call(*arguments):
    return CliRunner().invoke(
        privplan.cli.main, [str(argument) for argument in arguments]
    )


def test_a_plan_is_attacked(short_path, tmp_path):
    output = tmp_path / "attacks"
    arguments = [
        "attack",
        short_path,
        "--algorithm",
        "FedAvg,DP-FedAvg",
        "--attack",
        "closed,ig",
    ]
    arguments += ["--images", 4, "--steps", 3, "-o", output]
    done = call(*arguments)
    assert done.exit_code == 0, done.stderr
    assert "leaks: " in done.stdout
    first_row, *_, last_row = json.loads((output / "attacks.json").read_text())["rows"]
    assert first_row["algorithm"] == "FedAvg"
    assert last_row["algorithm"] == "DP-FedAvg"
    assert first_row["epsilon"] == "inf"
    assert first_row["scores"]["identified"][0] == 1.0
    assert last_row["epsilon"] <= 2.0
    assert set(first_row["nulls"]) == {"mean image", "noise", "another image's update"}
    assert (output / "sheet.png").read_bytes().startswith(b"\x89PNG")
    assert "| FedAvg | closed |" in (output / "attacks.md").read_text()


def test_less_noise_than_planned_is_reported_with_its_epsilon(short_path, tmp_path):
    output = tmp_path / "levels"
    arguments = ["attack", short_path, "--algorithm", "DP-FedAvg", "--attack", "closed"]
    done = call(*arguments, "--images", 8, "--noise", "1,0.1,0.0001", "-o", output)
    assert done.exit_code == 0, done.stderr
    planned, tenth, hardly = json.loads((output / "attacks.json").read_text())["rows"]
    assert tenth["noise_multiplier"] == pytest.approx(planned["noise_multiplier"] / 10)
    assert planned["epsilon"] < tenth["epsilon"] < hardly["epsilon"]
    assert planned["verdict"] == "not above null"
    assert hardly["verdict"] == "leaks"


def test_the_papers_inversion_attacks_few_images_by_default(short_path, tmp_path):
    arguments = ["attack", short_path, "--algorithm", "FedAvg", "--steps", 1]
    arguments += ["--attack", "closed,ig-paper", "--clients", "1,3", "-o", tmp_path]
    done = call(*arguments)
    assert done.exit_code == 0, done.stderr
    assert "images: 50 is not a multiple of 3 clients" in done.stderr
    assert "images: 4 is not a multiple of 3 clients" in done.stderr
    rows = json.loads((tmp_path / "attacks.json").read_text())["rows"]
    releases = [(row["attack"], row["clients"], row["releases"]) for row in rows]
    assert releases == [
        ("closed", 1, 50),
        ("ig-paper", 1, 4),
        ("closed", 3, 16),
        ("ig-paper", 3, 1),
    ]
