"""The examples of docs/threat-model.md, run in their order with the exit codes that they state."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from privplan.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "threat-model.md").read_text()
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", PAGE, re.DOTALL)


def shell(line: str) -> None:
    """Run a line, and compare with its comment."""
    command, _, comment = line.partition("#")
    done = CliRunner().invoke(main, shlex.split(command)[1:])
    code = int(re.findall(r"exit code (\d)", comment)[0]) if comment else 0
    assert done.exit_code == code, (command, done.output)
    words = comment.partition(";")[2].strip()
    if words.startswith("evidence"):
        verdict = json.loads(Path("run/verdict.json").read_text())
        assert words == f"evidence: {', '.join(verdict['evidence'])}"
    elif words:
        assert words in " ".join(done.output.split())


def test_the_examples_do_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [kind for kind, _ in BLOCKS] == ["sh", "python", "sh"]
    for kind, block in BLOCKS:
        if kind == "python":
            exec(compile(block, "threat-model.md", "exec"), {})
        else:
            for line in block.splitlines():
                shell(line)
