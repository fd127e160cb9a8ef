"""``privplan solve`` warns of values in a spec that its recipe replaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from privplan.cli import main
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from tests.planning.problems import spec_data


def warnings(spec: dict[str, Any], folder: Path) -> list[str]:
    """The lines on standard error that say that the recipe replaces a value."""
    (folder / "spec.yaml").write_text(json.dumps(spec))
    done = CliRunner().invoke(main, ["solve", str(folder / "spec.yaml")])
    assert done.exit_code == 0, done.stderr
    return [line for line in done.stderr.splitlines() if "is replaced by" in line]


def test_a_replaced_value_is_named_once(tmp_path: Path) -> None:
    data = spec_data(planning={"accountant": "rdp"}, clipping_norm=5.0)
    decides = ["clipping_norm", "server", "averaging"]
    edited = {**data, "recipe": {"source": "default", "decides": decides}}
    [line] = warnings(edited, tmp_path)
    assert line.startswith("warning: clipping_norm: 5.0 in the spec is replaced by 0.1, which the")
    solved = solve(Spec.parse(edited)).spec.model_dump(mode="json")
    assert warnings(solved, tmp_path) == []
    assert warnings(data, tmp_path) == []
