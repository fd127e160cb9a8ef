"""Distributions of third parties as pip leaves them, and ``privplan`` in a process beside them."""

import os
import subprocess
import sys
from pathlib import Path

import privplan

ROOT = Path(privplan.__file__).parents[1]


def install(folder, module, points):
    """Put one module and metadata with its entry points into a folder."""
    (folder / module.name).write_text(module.read_text())
    info = folder / f"{module.stem}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module.stem}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(points)
    return folder


def run(installed, cwd, *arguments, code=0):
    """What a command prints that finds the distributions of a folder; its errors if it fails."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{installed}"}
    done = subprocess.run(
        [sys.executable, "-m", "privplan", *arguments], capture_output=True, text=True, cwd=cwd,
        env=environment, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr
