"""Every notebook runs as it stands, and is stored with its outputs."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
EXECUTE = """
import sys, nbformat
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.enable_gui = lambda self, gui=None: None  # there is no window
shell = InteractiveShell.instance()
for cell in nbformat.read(sys.argv[1], 4).cells:
    if cell.cell_type == "code":
        shell.run_cell(cell.source).raise_error()
"""
"""Cell by cell in the shell of a notebook's kernel, without a second process to talk to."""


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path):
    settings = {
        "IPYTHONDIR": str(tmp_path),
        "MPLBACKEND": "agg",
        "PYTHONPATH": str(FOLDER.parent),
    }
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
        env={**os.environ, **settings},
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_stored_with_outputs_and_defines_no_classes(path):
    cells = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
    assert sum(bool(cell.outputs) for cell in cells) >= len(cells) - 2
    assert not any("class " in cell.source for cell in cells)
