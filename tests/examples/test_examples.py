"""The examples: trained, interrupted, resumed to the same bits and verified."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import torch

from privplan.record import LEDGER, RunRecord
from simulate.runs.run import InterruptedRunError

ROOT = Path(__file__).parents[2]
EXAMPLES = ("images", "patients", "residual", "text", "regression")
LIBRARIES = {"text": ("peft", "lora"), "regression": ("pyarrow", "tables")}
MODULES = ("data", "nets", "train")


@pytest.fixture
def example(request, tmp_path, monkeypatch):
    """A copy of an example, as the working directory; its modules are importable."""
    name = request.param
    if name in LIBRARIES:
        library, extra = LIBRARIES[name]
        pytest.importorskip(library, reason=f"pip install 'privplan[{extra}]'")
    folder = shutil.copytree(ROOT / "examples" / name, tmp_path / name)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    before = {module: sys.modules.pop(module, None) for module in MODULES}
    yield folder
    for module, value in before.items():
        sys.modules.pop(module, None)
        if value is not None:
            sys.modules[module] = value


@pytest.mark.filterwarnings("ignore")  # of other libraries
@pytest.mark.parametrize(
    "example",
    [
        pytest.param(name, marks=() if name == "regression" else pytest.mark.slow)
        for name in EXAMPLES
    ],
    indirect=True,
)
def test_from_python_interrupted_and_resumed(example):
    def stop(done, rounds):
        if done == rounds // 2:
            raise KeyboardInterrupt

    write = getattr(import_module("data"), "write", None)
    if write is not None:
        write()
    # The same noise in both folders.
    main = partial(import_module("train").main, noise="seeded")
    uninterrupted = main("whole")
    assert uninterrupted.verdict.outcome == "rehearsal"
    assert set(uninterrupted.by_group) == {"strict", "loose"}
    with pytest.raises(InterruptedRunError):
        main("cut", report=stop)
    resumed = main("cut")
    assert not resumed.reused
    assert resumed.record.chain == uninterrupted.record.chain
    assert resumed.score == uninterrupted.score
    pairs = zip(
        resumed.model().parameters(), uninterrupted.model().parameters(), strict=True
    )
    assert all(
        torch.equal(resumed_values, whole_values)
        for resumed_values, whole_values in pairs
    )


def commands():
    """The lines of ``run.sh`` in the working directory, for this interpreter."""
    lines = (Path("run.sh")).read_text().splitlines()
    words = [shlex.split(line) for line in lines if line and not line.startswith("#")]
    programs = {
        "python": [sys.executable],
        "privplan": [sys.executable, "-m", "privplan"],
    }
    return [[*programs[program], *arguments] for program, *arguments in words]


def killed(command, ledger):
    """Kill a run once releases are in its ledger; whether it was still training."""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
        while run.poll() is None:
            if ledger.exists() and len(ledger.read_text().splitlines()) >= 3:
                run.send_signal(signal.SIGKILL)
                break
            time.sleep(0.002)
    return run.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("example", EXAMPLES, indirect=True)
def test_from_the_shell_killed_and_resumed(example, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
    *before, train, verify = commands()
    for command in before:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert killed(train, Path("run") / LEDGER)
    assert RunRecord.load(Path("run")).status == "running"
    subprocess.run(train, check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run(verify, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "kept" in done.stdout
    assert RunRecord.load(Path("run")).status == "complete"
