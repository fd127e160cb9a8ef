"""Every example of CONTRIBUTING.md runs, each in a process of its own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(
    r"^### ([^\n]+)\n.*?```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE
)


RUN_EACH = """
import json, os, sys
import torch, privplan, simulate, simulate.runs.run  # once for all examples

for title, code in json.load(sys.stdin):
    child = os.fork()
    if not child:
        exec(compile(code, title, "exec"), {"__name__": "__main__"})
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0, title
"""
"""Every example in a process of its own, forked from one that has loaded the libraries."""


@pytest.mark.slow
def test_the_examples_run(tmp_path):
    assert len(EXAMPLES) >= 5
    done = subprocess.run(
        [sys.executable, "-c", RUN_EACH],
        input=json.dumps(EXAMPLES),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "OMP_NUM_THREADS": "1"},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_registry_of_the_project_is_in_the_table():
    files = [*(ROOT / "privplan").rglob("*.py"), *(ROOT / "simulate").rglob("*.py")]
    call = re.compile(r'Registry(?:\[[^]]*\])?\(\s*"[^"]*",\s*"(privplan\.\w+)"')
    groups = set()
    for path in files:
        groups.update(call.findall(path.read_text(encoding="utf-8")))
    assert len(groups) >= 8
    assert groups <= set(re.findall(r"`(privplan\.\w+)` \|", PAGE))
