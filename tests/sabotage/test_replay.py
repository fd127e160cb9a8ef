"""Replay of all rounds detects every planted fault of an algorithm that it supports."""

from __future__ import annotations

from pathlib import Path

import pytest

from privplan.errors import InputError
from simulate.replay.replay import Replay
from tests.sabotage import FAULTS, Fault, planted

QUICK = ("noise halved, evidence forged",)


def outcome(fault: Fault, folder: Path) -> str:
    """What replay says; a fault with which nobody can train is one that failed."""
    try:
        planted(fault, folder)
    except InputError as error:
        return "failed" if error.faults[0].field == "releases" else str(error)
    return Replay(folder).run(None, None, lambda done, total: None).outcome


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_fault_is_detected(fault: Fault, tmp_path: Path) -> None:
    assert outcome(fault, tmp_path / "run") == "failed"


@pytest.mark.parametrize(
    "fault", [f for f in FAULTS if f.name in QUICK], ids=lambda f: f.name
)
def test_noise_and_plan_are_checked(fault: Fault, tmp_path: Path) -> None:
    assert outcome(fault, tmp_path / "run") == "failed"
