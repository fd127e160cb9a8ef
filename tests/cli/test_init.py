"""``privplan init``."""

import json
from pathlib import Path

import pytest

from privplan.spec.presets import PRESETS
from privplan.spec.spec import Spec
from tests.command import answer, refused


@pytest.mark.parametrize("name", PRESETS)
def test_writes_a_commented_spec(name: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / "spec.yaml"
    answer("init", "--preset", name, "-o", path)
    assert Spec.load(path).name == name
    assert path.read_text().count("#") > 10


def test_schema_is_json_schema() -> None:
    schema = json.loads(answer("init", "--schema"))
    assert {"groups", "rounds", "cohort", "planning"} <= set(schema["properties"])
    assert all("description" in field for field in schema["properties"].values())


def test_keeps_a_file_that_exists_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("mine")
    assert "must not exist yet" in refused("init", "-o", path)
    assert path.read_text() == "mine"
    answer("init", "-o", path, "--force")
    assert Spec.load(path).name == "digits"
