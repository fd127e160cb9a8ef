"""Third parties' distributions as pip leaves them, and ``privplan`` beside them."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import privplan

ROOT = Path(privplan.__file__).parents[1]
COMMANDS = """
import json, os, sys
from click.testing import CliRunner
from privplan.cli import main
for line in sys.stdin:
    folder, words = json.loads(line)
    os.chdir(folder)
    done = CliRunner().invoke(main, words)
    print(json.dumps([done.exit_code, done.stdout, done.stderr]), flush=True)
"""
"""A process of many commands, each a line of JSON with its folder."""


def install(folder, module, points):
    """Put one module and metadata with its entry points into a folder."""
    (folder / module.name).write_text(module.read_text())
    info = folder / f"{module.stem}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {module.stem}\nVersion: 1\n"
    )
    (info / "entry_points.txt").write_text(points)
    return folder


@contextmanager
def process_with(installed):
    """A process that finds the distributions of a folder."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{installed}"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, "-c", COMMANDS]
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:
        yield process
        process.stdin.close()


def run(process, cwd, *arguments, code=0):
    """What a command prints in such a process; its errors if it fails."""
    process.stdin.write(json.dumps([str(cwd), arguments]) + "\n")
    process.stdin.flush()
    exit_code, output, errors = json.loads(process.stdout.readline())
    assert exit_code == code, errors
    assert "Traceback" not in errors
    return output if code == 0 else errors
