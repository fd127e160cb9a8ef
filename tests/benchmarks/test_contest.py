"""The processes of the simulation benchmark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = """
from contest.processes import Contestant
if __name__ == "__main__":
    one = Contestant("W1", 1, {name!r})
    one.leave()
    print(one._process.exitcode)
"""


def played(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A script that starts a contestant and lets it leave."""
    script = folder / "one.py"
    script.write_text(CODE.format(name=name))
    path = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
    return subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_a_contestant_that_dies_is_not_waited_for(tmp_path: Path) -> None:
    done = played("nobody", tmp_path)
    assert done.returncode == 1
    assert "RuntimeError: nobody died with exit code 1" in done.stderr


@pytest.mark.slow
def test_a_contestant_that_leaves_has_ended(tmp_path: Path) -> None:
    done = played("plain loop", tmp_path)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
