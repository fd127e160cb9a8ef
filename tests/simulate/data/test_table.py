"""Every data set is in the table, the help and the docs."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

import simulate
from simulate.cli.simulate import command
from simulate.data.registry import ALIASES, DATASETS

ROOT = Path(simulate.__file__).parent


def test_every_file_of_a_data_set_is_in_the_table() -> None:
    files = {path.stem for path in (ROOT / "data" / "sets").glob("*.py")} - {"__init__"}
    made = {getattr(load, "func", load).__module__ for load in DATASETS.values()}
    assert {module.rpartition(".")[2] for module in made} == files
    assert set(ALIASES.values()) <= set(DATASETS)


def test_every_data_set_is_in_help_and_docs() -> None:
    shown = CliRunner().invoke(command, ["--help"], terminal_width=10_000).output
    page = (ROOT.parent / "docs" / "data.md").read_text()
    for name in DATASETS:
        assert f" {name}," in shown or f" {name}." in shown, name
        assert f"| `{name}`" in page or f", `{name}`" in page, name
