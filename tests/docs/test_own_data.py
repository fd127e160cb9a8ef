"""The examples of docs/own-data.md, run as they are printed."""

from __future__ import annotations

import re
import shlex
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import privplan.cli
from privplan.cli import GROUP, main
from privplan.record import RunRecord

PAGE = (Path(__file__).parent.parent.parent / "docs" / "own-data.md").read_text()
SPEC, MODULE, PYTHON, SHELL, STATISTICS = re.findall(r"```\w+\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def _workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the page, in the working directory."""
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "nets.py").write_text(MODULE)
    (tmp_path / "statistics.json").write_text(STATISTICS)
    generator = np.random.default_rng(0)
    x, client = generator.normal(size=(400, 4)), np.arange(400) % 20
    group, y = np.where(client < 12, "strict", "loose"), (x[:, 0] > 0).astype(int)
    np.savez(tmp_path / "patients.npz", x=x, y=y, client=client, group=group)
    lines = ["age,sex,bmi,ill,patient,unit"] + [
        f"{50 + 10 * x[i, 0]:.2f},{('f', 'm', '')[i % 3]},{25 + x[i, 1]:.2f},{y[i]},p{client[i]},"
        f"{group[i]}"
        for i in range(400)
    ]
    (tmp_path / "patients.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    points = {
        **privplan.cli._extensions(),
        "check-data": EntryPoint("check-data", "simulate.cli.check_data:command", GROUP),
    }
    monkeypatch.setattr(privplan.cli, "_extensions", lambda *group: {} if group else points)
    monkeypatch.delitem(sys.modules, "nets", raising=False)


@pytest.mark.usefixtures("_workplace")
def test_the_python_example_trains(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.syspath_prepend(".")
    names: dict[str, object] = {}
    exec(PYTHON, names)
    assert capsys.readouterr().out.endswith("True\n")
    assert type(names["module"]).__name__ == "Net"


@pytest.mark.usefixtures("_workplace")
def test_the_shell_example_trains() -> None:
    said = {}
    for line in SHELL.strip().splitlines():
        program, *words = shlex.split(line)
        assert program == "privplan"
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        said[words[0]] = done.stdout
    assert "400 records of shape 4" in said["check-data"]
    assert "group strict: 12 clients, records: at least 20 per client" in said["check-data"]
    record = RunRecord.load(Path("run-csv"))
    assert (record.dataset, record.partition, record.model) == ("patients.csv", "clients", "my-net")
    assert record.accuracy is not None
