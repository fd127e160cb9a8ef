"""``privplan init``."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from privplan.cli import main
from privplan.spec.presets import PRESETS
from privplan.spec.spec import Spec


@pytest.mark.parametrize("name", PRESETS)
def test_writes_a_commented_spec(name: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / "spec.yaml"
    done = CliRunner().invoke(main, ["init", "--preset", name, "-o", str(path)])
    assert done.exit_code == 0, done.output
    assert Spec.load(path).name == name
    assert path.read_text().count("#") > 10


def test_schema_is_json_schema() -> None:
    done = CliRunner().invoke(main, ["init", "--schema"])
    schema = json.loads(done.stdout)
    assert {"groups", "rounds", "cohort", "planning"} <= set(schema["properties"])
    assert all("description" in field for field in schema["properties"].values())


def test_keeps_a_file_that_exists_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("mine")
    refused = CliRunner().invoke(main, ["init", "-o", str(path)])
    assert refused.exit_code == 2
    assert "must not exist yet" in refused.stderr
    assert path.read_text() == "mine"
    forced = CliRunner().invoke(main, ["init", "-o", str(path), "--force"])
    assert forced.exit_code == 0
    assert Spec.load(path).name == "digits"
