"""What may go wrong around a run: one clear line, and nothing is lost.

Every fault of a run is set up, met, taken away again, and the same request then gives
the files of a run that nothing disturbed.
"""

import errno
import io
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
import torch
import yaml

from privplan.errors import InputError
from privplan.planning.solver import solve
from privplan.record import CHECKPOINT, LEDGER, PLAN
from simulate.runs import checkpoint, run
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.command import refused
from tests.faults.test_kill import run_is_same as same
from tests.planning.problems import spec_data
from tests.simulate.conftest import digits_spec, interrupt

ROUNDS = 5


@pytest.fixture(scope="module")
def plan():
    """A plan for a few rounds on the digits."""
    return solve(digits_spec(rounds=ROUNDS))


@pytest.fixture(scope="module")
def undisturbed(plan, tmp_path_factory):
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    execute(_request(plan, folder))
    return folder


def _request(plan, folder):
    return Request(plan, "GDPFed+", "digits", folder, seed=5)


@pytest.fixture(scope="module")
def interrupted(plan, tmp_path_factory):
    """A run that was interrupted after its third round."""
    request = _request(plan, tmp_path_factory.mktemp("interrupted") / "run")
    interrupt(request, 3)
    return request.folder


@pytest.fixture
def request_(plan, interrupted, tmp_path):
    """A request whose run was interrupted, in a folder of its own."""
    return _request(plan, shutil.copytree(interrupted, tmp_path / "run"))


@contextmanager
def failing(monkeypatch, code, after, lost_bytes=None):
    """``fsync`` fails after ``after`` calls; ``lost_bytes`` of the line are lost."""
    sync = os.fsync
    calls = []

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) > after:
            if lost_bytes is not None:
                os.ftruncate(
                    descriptor, max(0, os.fstat(descriptor).st_size - lost_bytes)
                )
            raise OSError(code, os.strerror(code))
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        yield


@pytest.mark.parametrize(
    ("code", "after"),
    [
        (errno.ENOSPC, 0),
        (errno.EIO, 2),
        pytest.param(errno.ENOSPC, 2, marks=pytest.mark.slow),
        pytest.param(errno.EIO, 0, marks=pytest.mark.slow),
    ],
)
def test_a_disk_that_fails_at_any_write(
    code, after, plan, undisturbed, tmp_path, monkeypatch
):
    monkeypatch.setattr(run, "SAVE_SECONDS", 0.0)
    request = _request(plan, tmp_path / "run")
    with (
        failing(monkeypatch, code, after, lost_bytes=30),
        pytest.raises(InputError) as caught,
    ):
        execute(request)
    [line] = str(caught.value).splitlines()
    assert f"must be writable ({os.strerror(code)})" in line
    execute(request)
    same(tmp_path / "run", undisturbed)
    assert not list((tmp_path / "run").glob(".*.tmp"))


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
from privplan.cli import main
main()
"""


@pytest.mark.slow
def test_a_file_that_outgrows_its_limit(plan, undisturbed, tmp_path):
    plan.save(tmp_path / PLAN)
    size = (undisturbed / LEDGER).stat().st_size * 2 // 3
    named = ["--algorithm", "GDPFed+", "--seed", "5", "-o", str(tmp_path / "run")]
    command = [
        sys.executable,
        "-c",
        LIMITED,
        str(size),
        "simulate",
        str(tmp_path / PLAN),
        *named,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("privplan: ")
    assert os.strerror(errno.EFBIG) in line
    execute(_request(plan, tmp_path / "run"))
    same(tmp_path / "run", undisturbed)


class Bomb:
    """A pickle that would make a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def _bytes_of(data):
    content = io.BytesIO()
    torch.save(data, content)
    return content.getvalue()


def _one_bit(sound, _):
    middle = len(sound) // 2
    return sound[:middle] + bytes([sound[middle] ^ 1]) + sound[middle + 1 :]


DAMAGED = {
    "empty": lambda sound, path: b"",
    "cut": lambda sound, path: sound[: len(sound) // 2],
    "one bit": _one_bit,
    "random": lambda sound, path: random.Random(6).randbytes(5000),
    "pickle bomb": lambda sound, path: pickle.dumps(Bomb(path)),
    "bomb in a checkpoint": lambda sound, path: _bytes_of(
        {"version": checkpoint.VERSION, "round": Bomb(path)}
    ),
    "another version": lambda sound, path: _bytes_of({"version": 0}),
    "no mapping": lambda sound, path: _bytes_of([1, 2]),
    "zip of nothing": lambda sound, path: b"PK\x05\x06" + bytes(18),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_checkpoint(kind, request_, undisturbed, tmp_path):
    path = tmp_path / "run" / CHECKPOINT
    path.write_bytes(DAMAGED[kind](path.read_bytes(), tmp_path / "exploded"))
    with pytest.raises(
        InputError, match="checkpoint: must be a sound checkpoint; remove it"
    ):
        execute(request_)
    assert not (tmp_path / "exploded").exists()
    path.unlink()
    execute(request_)
    same(tmp_path / "run", undisturbed)


@pytest.mark.parametrize("cut", [1, 40, 300])
def test_a_torn_ledger_line(cut, request_, undisturbed, tmp_path):
    path = tmp_path / "run" / LEDGER
    (tmp_path / "run" / CHECKPOINT).unlink()  # the line is newer than the checkpoint
    path.write_bytes(path.read_bytes()[:-cut])
    assert "is torn" in refused("verify", tmp_path / "run")
    execute(request_)
    same(tmp_path / "run", undisturbed)


HEARING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from privplan.cli import main
main()
"""
"""A program that hears Ctrl-C where the tests run in the background, too."""


@pytest.mark.slow
def test_ctrl_c_at_a_terminal(tmp_path):
    """All processes of a sweep hear it; one line is printed, and the sweep goes on."""
    data = spec_data(planning={"ratios": "balanced", "accountant": "pld"})
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(data))
    varied = ["--vary", "groups.strict.epsilon=0.5:2:40", "--workers", "2"]
    arguments = [
        "what-if",
        str(tmp_path / "spec.yaml"),
        *varied,
        "-o",
        str(tmp_path / "out"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", HEARING, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    journal = tmp_path / "out" / "what-if.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if journal.exists() and journal.stat().st_size:
            break
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, standard_error = process.communicate(timeout=60)
    assert process.returncode == 130, standard_error
    # On a slow machine the sweep also prints how far it is.
    *_, line = standard_error.splitlines()
    assert "same command" in line
