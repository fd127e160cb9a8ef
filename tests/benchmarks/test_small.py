"""Every benchmark begins, and those with a small size end."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
PROGRAMS = [
    path.name
    for path in sorted((ROOT / "benchmarks").glob("*.py"))
    if "argparse" in path.read_text() and "__main__" in path.read_text()
]
[_NAMES] = re.findall(r"^BENCHMARKS \?= (.+)$", (ROOT / "Makefile").read_text(), re.M)
SMALL = {
    **{f"{name}.py": ("--small",) for name in _NAMES.split()},
    "proofs.py": ("--small", "proofs.csv"),
    "bases.py": ("--small",),
    "host.py": ("--small",),
    "gpu_steps.py": ("--small", "--device", "cpu"),
}
"""Arguments of a small size: of the programs of ``make bench``, and of others."""


def program(name, *words):
    command = [sys.executable, str(ROOT / "benchmarks" / name), *words]
    return subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_with_options_says_what_it_takes(name):
    done = program(name, "--help")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "usage:" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_small_sizes_end(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = program(name, *SMALL[name])
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout
