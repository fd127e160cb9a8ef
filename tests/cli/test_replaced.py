"""Commands that read a spec warn of values in it that its recipe replaces, as solve does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from privplan.cli import main
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from tests.planning.problems import spec_data

COMMANDS = {
    "solve": [],
    "what-if": ["--vary", "rounds=9:10:2", "--workers", "1"],
    "what-if as JSON": ["--vary", "rounds=9:10:2", "--workers", "1", "--format", "json"],
    "what-if as a frontier": ["--frontier"],
}


def warnings(command: str, spec: dict[str, Any], folder: Path) -> list[str]:
    """The lines on standard error that say that the recipe replaces a value."""
    (folder / "spec.yaml").write_text(json.dumps(spec))
    words = [command.partition(" ")[0], str(folder / "spec.yaml"), *COMMANDS[command]]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.stderr
    return [line for line in done.stderr.splitlines() if "is replaced by" in line]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_replaced_value_is_named_once(command: str, tmp_path: Path) -> None:
    data = spec_data(planning={"accountant": "rdp"}, clipping_norm=5.0)
    decides = ["clipping_norm", "server", "averaging"]
    edited = {**data, "recipe": {"source": "default", "decides": decides}}
    [line] = warnings(command, edited, tmp_path)
    assert line.startswith("warning: clipping_norm: 5.0 in the spec is replaced by 0.1, which the")
    solved = solve(Spec.parse(edited)).spec.model_dump(mode="json")
    assert warnings(command, solved, tmp_path) == []
    assert warnings(command, data, tmp_path) == []
