"""The examples of docs/inverse.md, run in one folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from privplan.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "inverse.md").read_text(encoding="utf-8")
SPECS = re.findall(r"```yaml (\S+)\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    line.removeprefix("privplan ").split()
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]


def test_every_command_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in SPECS:
        (tmp_path / name).write_text(text)
    assert len(SPECS) == 4
    assert len(COMMANDS) == 8
    for command in COMMANDS:
        with pytest.raises(SystemExit) as done:
            main(command)
        assert done.value.code == 0, command
    shown = capsys.readouterr()
    assert "target_noise: 0.8 asks for rounds" in shown.err
    assert "Risks: no attack exceeds" in shown.out
