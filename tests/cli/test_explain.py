"""``privplan explain``."""

import json
from pathlib import Path

from privplan.planning.solver import solve
from tests.command import answer
from tests.planning.problems import make_spec


def test_one_bound_as_json(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    solve(make_spec(planning={"ratios": "balanced"})).save(path)
    rows = json.loads(answer("explain", path, "--bound", "problem_1", "--format", "json"))
    assert {row["term"] for row in rows} == {"local_variance", "sparsification", "privacy_noise"}
    assert all(row["value"] is not None for row in rows)
