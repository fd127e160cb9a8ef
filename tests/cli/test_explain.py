"""``privplan explain``."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from privplan.cli import main
from privplan.planning.solver import solve
from tests.planning.problems import make_spec


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    solve(make_spec(planning={"ratios": "balanced"})).save(path)
    return path


def test_shows_formulas_and_numbers(plan_file: Path) -> None:
    done = CliRunner().invoke(main, ["explain", str(plan_file)])
    assert done.exit_code == 0, done.stderr
    for word in ("balanced", "bias", "Theorem 3", "needs Delta", "HyperFL", "Robust-HDP"):
        assert word in done.stdout


def test_one_bound_as_json(plan_file: Path) -> None:
    done = CliRunner().invoke(
        main, ["explain", str(plan_file), "--bound", "problem_1", "--format", "json"]
    )
    rows = json.loads(done.stdout)
    assert {row["term"] for row in rows} == {"local_variance", "sparsification", "privacy_noise"}
    assert all(row["value"] is not None for row in rows)


def test_an_unknown_bound_or_file_is_one_line(plan_file: Path) -> None:
    for arguments in (["explain", str(plan_file), "--bound", "x"], ["explain", "none.json"]):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 2
        assert len(done.stderr.splitlines()) == 1
