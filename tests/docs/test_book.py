"""The Python examples of docs/book.md, run; the commands of its pages and docs/report.md exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from privplan.cli.book import command
from privplan.cli.verify import report_command as report

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "book.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_example_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/book.md", "exec"), {})


def test_every_command_and_option_of_the_page_exists() -> None:
    assert isinstance(command, click.Group)
    lines = re.findall(r"^privplan book (\w+)([^#\n]*)", PAGE, re.MULTILINE)
    assert {name for name, _ in lines} == set(command.commands) - {"declare"}
    for name, words in lines:
        options = {o for one in command.commands[name].params for o in one.opts}
        assert set(re.findall(r"--[\w-]+", words)) <= options
    options = {o for one in report.params for o in one.opts}
    text = (DOCS / "report.md").read_text(encoding="utf-8")
    assert set(re.findall(r"--[\w-]+", text)) <= options
