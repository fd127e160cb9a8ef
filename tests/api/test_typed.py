"""What a type checker says of a user's programs."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRONG = """
import privplan
import simulate

plan = privplan.solve("spec.yaml")
plan.groups["strict"].sigma
privplan.account(noise=1.5, rounds=50)
privplan.calibrate("1.0", rounds=50)
simulate.compare(plan, ["planned"], machine="cpu")
"""


def checked(*paths):
    words = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(ROOT / "pyproject.toml"),
    ]
    done = subprocess.run(
        [*words, *map(str, paths)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.slow
def test_ten_programs_are_typed_and_wrong_ones_are_named(tmp_path):
    pytest.importorskip("mypy")
    programs = ROOT / "tests" / "api" / "typed.py"
    assert programs.read_text().count("\ndef ") == 10
    assert "Success: no issues found" in checked(programs)
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    output = checked(wrong)
    for line in range(6, 10):
        assert f"wrong.py:{line}: error" in output, output
