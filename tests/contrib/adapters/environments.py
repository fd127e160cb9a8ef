"""Virtual environments of other frameworks, made by the slow tests that need them.

An environment sees the packages of the one that runs the tests, and has the framework
with the versions that it pins before them. ``PRIVPLAN_TEST_ENVIRONMENTS`` names a
folder that keeps them.
"""

import json
import os
import subprocess
import sysconfig
import tempfile
import venv
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[3]
FLOWER_141 = ("flwr==1.41.*",)
FLOWER_142_NEEDS = (
    "grpcio<2",
    "grpcio-health-checking",
    "protobuf>=5.28,<7",
    "cryptography>=50,<51",
    "pycryptodome<4",
    "iterators<0.0.3",
    "typer<0.21",
    "tomli",
    "tomli-w",
    "rich>=14,<15",
    "httpx<1",
    "packaging<26",
    "alembic",
    "uvicorn>=0.49,<0.50",
    "fastapi>=0.138,<0.139",
    "starlette>=1.3.1,<1.4",
)
"""What flwr 1.42 needs beside itself, which is installed without dependencies."""


@cache
def python_of(name, packages, alone=()):
    """The interpreter of an environment with packages; skips the test if none is made.

    Packages in ``alone`` are installed without their dependencies.
    """
    root = os.environ.get("PRIVPLAN_TEST_ENVIRONMENTS")
    folder = Path(root or tempfile.mkdtemp(prefix="privplan-")) / name
    python = folder / "bin" / "python"
    if (folder / "ready").exists():
        return str(python)

    # Named to be read last: what the environment has itself comes first on the path.
    venv.create(folder, with_pip=True, clear=True)
    [site_packages] = folder.glob("lib/*/site-packages")
    (site_packages / "zz_base.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")

    for options, chosen in (((), packages), (("--no-deps",), alone)):
        command = [str(python), "-m", "pip", "install", "--quiet", *options, *chosen]
        if not chosen:
            continue
        done = run(command, timeout=500)
        if done.returncode:
            reason = [line for line in done.stderr.splitlines() if "ERROR" in line][-1:]
            pytest.skip(
                f"{name} cannot be installed: {' '.join(reason) or 'pip failed'}"
            )
    (folder / "ready").touch()
    return str(python)


def flower(version):
    """The interpreter of an environment with flwr 1.41 or 1.42."""
    if version == "1.41":
        return python_of("flower-1.41", FLOWER_141)
    return python_of("flower-1.42", FLOWER_142_NEEDS, ("flwr==1.42.*",))


def run(command, folder=ROOT, *, timeout=300):
    """Run a command in a folder, with what is there and in the repository to import."""
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{folder}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def started(command, output=subprocess.DEVNULL):
    """Start a command in a process group of its own, by default without its output."""
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=output,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill_all(process):
    """Kill a process and all that it started, whatever group they are in."""
    parent = psutil.Process(process.pid)
    for member in (parent, *parent.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            member.kill()
    process.wait()


def lines_of(text):
    """The lines of a text that are JSON objects."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
