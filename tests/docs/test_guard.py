"""The examples of docs/guard.md and docs/adapters.md, run as they are printed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from privplan.cli import main
from tests.guard.plans import two_groups

DOCS = Path(__file__).parents[2] / "docs"


FENCED = re.compile(r"^```(\w+)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page."""
    return [code for kind, code in FENCED.findall((DOCS / page).read_text()) if kind == language]


def printed(page: str) -> list[str]:
    """The indented blocks of a page, without the indentation."""
    found = re.findall(r"(?:^    .*\n)+", FENCED.sub("", (DOCS / page).read_text()), re.MULTILINE)
    return [re.sub("^    ", "", block, flags=re.MULTILINE) for block in found]


@pytest.fixture(autouse=True)
def _workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of two groups in the working directory."""
    monkeypatch.chdir(tmp_path)
    two_groups().save("plan.json")


def test_the_guard_trains_and_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for code in blocks("guard.md", "python"):
        exec(code, names)
    [expected] = printed("guard.md")
    assert capsys.readouterr().out == expected


def test_the_accountant_and_the_loop_of_torch(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    for code in blocks("adapters.md", "python"):
        exec(code, {})
    assert capsys.readouterr().out == "True\nTrue ()\n"


def test_projects_are_exported() -> None:
    [commands] = blocks("adapters.md", "sh")
    refusal = printed("adapters.md")[0]
    *sound, last = commands.splitlines()
    for command in sound:
        done = CliRunner().invoke(main, shlex.split(command)[1:])
        assert done.exit_code == 0, done.output
    done = CliRunner().invoke(main, shlex.split(last)[1:])
    assert (done.exit_code, done.stderr) == (2, refusal)
