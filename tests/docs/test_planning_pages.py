"""The examples of docs/inverse.md, run in one folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from privplan.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "inverse.md"


@pytest.mark.slow
def test_every_command_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    specs = re.findall(r"```yaml (\S+)\n(.*?)```", text, re.DOTALL)
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    commands = [line.split()[1:] for block in blocks for line in block.splitlines()]
    monkeypatch.chdir(tmp_path)
    for name, content in specs:
        (tmp_path / name).write_text(content)
    assert (len(specs), len(commands)) == (3, 7)
    for command in commands:
        with pytest.raises(SystemExit) as done:
            main(command)
        assert done.value.code == 0, command
    output = capsys.readouterr()
    assert "Risks: no attack exceeds" in output.out
    assert "target_noise: 0.8 asks for rounds" in output.err
