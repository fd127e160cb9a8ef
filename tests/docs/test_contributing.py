"""Every example of CONTRIBUTING.md runs, each in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^### ([^\n]+)\n.*?```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("title", "code"), EXAMPLES, ids=[title for title, _ in EXAMPLES])
def test_the_example_runs(title: str, code: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "OMP_NUM_THREADS": "1"},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_registry_of_the_project_is_in_the_table() -> None:
    files = [path for part in ("privplan", "simulate") for path in (ROOT / part).rglob("*.py")]
    call = re.compile(r'Registry(?:\[[^]]*\])?\(\s*"[^"]*",\s*"(privplan\.\w+)"')
    groups = {group for path in files for group in call.findall(path.read_text(encoding="utf-8"))}
    assert len(groups) >= 8
    assert groups <= set(re.findall(r"`(privplan\.\w+)` \|", PAGE))
