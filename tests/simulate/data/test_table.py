"""Every registered data set is in the help and in the documentation."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

import simulate
from simulate.cli.train import simulate_command as command
from simulate.data import formats
from simulate.data.registry import ALIASES, DATASETS

ROOT = Path(simulate.__file__).parent


def test_every_module_of_a_format_registers_a_data_set() -> None:
    modules = {path.stem for path in Path(formats.__path__[0]).glob("*.py")} - {"__init__"}
    owners = {
        getattr(loader, "__module__", type(loader).__module__) for _, loader in DATASETS.items()
    }
    assert {owner.rpartition(".")[2] for owner in owners} == modules
    assert set(ALIASES.values()) <= set(DATASETS)


def test_every_data_set_is_in_help_and_docs() -> None:
    shown = CliRunner().invoke(command, ["--help"], terminal_width=10_000).output
    page = (ROOT.parent / "docs" / "data.md").read_text()
    for name in DATASETS:
        assert f" {name}," in shown or f" {name}." in shown, name
        assert f"| `{name}`" in page or f", `{name}`" in page, name
