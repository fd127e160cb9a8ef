"""A run folder of a stranger costs its reader an error message, nothing else."""

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from privplan import limits
from privplan.cli import main
from privplan.plan import Plan
from tests.verification import honest_run


def _link(folder):
    target = folder.parent / "outside.json"
    target.write_text("mine")
    (folder / "verdict.json").symlink_to(target)


def _pipe(folder):
    (folder / "ledger.jsonl").unlink()
    os.mkfifo(folder / "ledger.jsonl")


def _device(folder):
    (folder / "noise.jsonl").unlink(missing_ok=True)
    (folder / "noise.jsonl").symlink_to("/dev/zero")


def _sparse(folder):
    with open(folder / "record.json", "r+b") as file:
        file.truncate(2**30)


def _bomb(folder):
    with zipfile.ZipFile(folder / "clients.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("group.npy", bytes(2**21))


def _many_clients(folder):
    plan = Plan.load(folder / "plan.json")
    groups = tuple(one.model_copy(update={"clients": 10**9}) for one in plan.groups)
    asked = tuple(one.model_copy(update={"clients": 10**9}) for one in plan.spec.groups)
    spec = plan.spec.model_copy(update={"groups": asked})
    plan.model_copy(update={"groups": groups, "spec": spec}).save(folder / "plan.json")


MADE: dict[str, Callable[[Path], None]] = {
    "link": _link, "pipe": _pipe, "device": _device, "sparse": _sparse, "bomb": _bomb,
    "clients": _many_clients,
}  # fmt: skip


@pytest.mark.parametrize("kind", MADE)
def test_a_strange_folder_is_refused_in_one_line(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MOST_UNPACKED", 2**20)
    run = tmp_path / "run"
    run.mkdir()
    honest_run.write_run(run, honest_run.releases(honest_run.plan()))
    MADE[kind](run)
    before = {path.name: path.lstat().st_mtime_ns for path in tmp_path.iterdir()}
    done = CliRunner().invoke(main, ["verify", "--rounds=0", str(run)])
    assert done.exit_code == 2, done.output
    assert len(done.stderr.strip().splitlines()) == 1
    assert {
        path.name: path.lstat().st_mtime_ns for path in tmp_path.iterdir()
    }.keys() == before.keys()
    outside = tmp_path / "outside.json"
    assert not outside.exists() or outside.read_text() == "mine"
