"""Checkpoints: private, as small as the next round allows, and removed."""

import os
import shutil

import pytest
import torch

from privplan.files import write_bytes
from privplan.planning.solver import solve
from privplan.record import CHECKPOINT
from simulate.engine.loop import PAST
from simulate.runs import checkpoint, run
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate.conftest import digits_spec, interrupt


def _mode(path):
    return path.stat().st_mode & 0o777


def _stored(folder):
    return torch.load(folder / CHECKPOINT, weights_only=True)


def test_only_its_owner_may_read_it(short_plan, tmp_path):
    request = Request(short_plan, "planned", "digits", tmp_path / "run")
    interrupt(request, 3)
    assert _mode(tmp_path / "run" / CHECKPOINT) == 0o600


def test_a_private_file_is_so_from_its_first_byte(tmp_path, monkeypatch):
    seen = []
    rename = os.replace

    def noted(source, target):
        seen.append(_mode(source))
        rename(source, target)

    monkeypatch.setattr(os, "replace", noted)
    write_bytes(tmp_path / "file", b"secret", private=True)
    assert seen == [0o600]
    assert _mode(tmp_path / "file") == 0o600


def test_nothing_is_left_of_a_finished_run(short_plan, tmp_path):
    request = Request(short_plan, "planned", "digits", tmp_path / "run")
    interrupt(request, 3)
    unfinished = shutil.copy(tmp_path / "run" / CHECKPOINT, tmp_path)
    killed = tmp_path / "run" / f".{CHECKPOINT}.killed.tmp"
    killed.write_bytes(b"a writer that was killed")
    execute(request)
    names = [path.name for path in (tmp_path / "run").iterdir()]
    assert not [name for name in names if CHECKPOINT in name]

    # A run that was killed after its record was complete leaves one; opening the run
    # removes it.
    shutil.copy(unfinished, tmp_path / "run")
    assert execute(request).reused
    assert not (tmp_path / "run" / CHECKPOINT).exists()


def test_past_sums_are_kept_for_the_next_round_only(tmp_path, monkeypatch):
    planning = {"ratios": "balanced", "accountant": "pld"}
    spec = digits_spec(rounds=6, sampling="cyclic_poisson:3", planning=planning)
    plan = solve(spec)
    request = Request(plan, "planned", "digits", tmp_path / "run")
    interrupt(request, 4)
    assert _stored(tmp_path / "run")["mechanism"][PAST].abs().sum() > 0

    # After the last round no round follows, so the state that is evaluated has none.
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "remove", lambda folder: None)
        execute(request)
    assert _stored(tmp_path / "run")["round"] == 6
    assert "mechanism" not in _stored(tmp_path / "run")


@pytest.mark.parametrize(
    "algorithm", ["planned", pytest.param("PPSGD", marks=pytest.mark.slow)]
)
def test_a_run_that_was_killed_after_its_last_round_is_completed(
    algorithm, short_plan, tmp_path, monkeypatch
):
    uninterrupted = execute(
        Request(short_plan, algorithm, "digits", tmp_path / "whole")
    ).record
    request = Request(short_plan, algorithm, "digits", tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(run, "spent_by_group", _killed)
        with pytest.raises(ZeroDivisionError):
            execute(request)
    record = execute(request).record
    assert record.accuracy == uninterrupted.accuracy
    assert record.accuracy_by_group == uninterrupted.accuracy_by_group


def _killed(folder, plan):
    raise ZeroDivisionError
