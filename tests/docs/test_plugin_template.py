"""The plug-in template of docs/, installed as pip leaves it, and its commands."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import privplan
from privplan.record import RunRecord

ROOT = Path(privplan.__file__).parents[1]
TEMPLATE = ROOT / "docs" / "plugin-template"
README = (TEMPLATE / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)[0].splitlines()


def _run(cwd, python, path, words):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [str(python), "-m", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _commands(cwd, python, path):
    """The commands of the README, after the installation."""
    shutil.copy(TEMPLATE / "spec.yaml", cwd)
    install, *examples = map(shlex.split, COMMANDS)
    assert install == ["pip", "install", "."]
    outputs = [_run(cwd, python, path, words) for words in examples]
    assert "coins sampling" in outputs[0]
    assert "half-step on stripes" in outputs[1]
    assert "kept" in outputs[2].splitlines()[0]
    record = RunRecord.load(cwd / "run")
    assert record.accuracy is not None
    assert record.accuracy > 0.9
    assert record.configuration["numbers"] == {"factor": 0.5}


@pytest.mark.slow
def test_the_template_installs_into_an_environment(tmp_path):
    """pip builds and installs the template; all else is this process's libraries."""
    pytest.importorskip("setuptools")
    shutil.copytree(TEMPLATE, tmp_path / "copy")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    install = [
        "pip",
        "install",
        "--no-deps",
        "--no-build-isolation",
        str(tmp_path / "copy"),
    ]
    _run(tmp_path, python, [*libraries], install)
    assert "my-privplan-plugin" in _run(tmp_path, python, [], ["pip", "list"])
    _commands(tmp_path, python, [ROOT, *libraries])
