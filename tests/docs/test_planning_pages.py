"""The examples of docs/inverse.md and docs/horizons.md, each page run in one folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from privplan.cli import main

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "counts", "shown", "warned"),
    [
        pytest.param(
            "inverse",
            (4, 8),
            "Risks: no attack exceeds",
            "target_noise: 0.8 asks for rounds",
            marks=pytest.mark.slow,
        ),
        ("horizons", (2, 2), "Certificate: epsilon over all rounds of all runs", ""),
    ],
)
def test_every_command_of_the_page_runs(
    page: str,
    counts: tuple[int, int],
    shown: str,
    warned: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    specs = re.findall(r"```yaml (\S+)\n(.*?)```", text, re.DOTALL)
    commands = [
        line.removeprefix("privplan ").split()
        for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
    ]
    monkeypatch.chdir(tmp_path)
    for name, content in specs:
        (tmp_path / name).write_text(content)
    assert (len(specs), len(commands)) == counts
    for command in commands:
        with pytest.raises(SystemExit) as done:
            main(command)
        assert done.value.code == 0, command
    output = capsys.readouterr()
    assert shown in output.out
    assert warned in output.err
