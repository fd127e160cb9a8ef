"""The example of docs/lint.md, run; every alarm of the code is in its table."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "lint.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(EXAMPLE, "docs/lint.md", "exec"), {})


def test_every_alarm_is_in_the_table() -> None:
    files = (ROOT / "privplan" / "lint").rglob("*.py")
    code = " ".join(path.read_text(encoding="utf-8") for path in files)
    used = set(re.findall(r'\.alarm\(\s*"([a-z-]+)"', code))
    table = PAGE.partition("## Alarms")[2]
    listed = set(re.findall(r"`([a-z-]+)`(?=[^|\n]*\|[^|\n]+\|\n)", table))
    assert len(used) > 15
    assert used <= listed
