"""Replay of all rounds detects every planted fault of an algorithm that it supports."""

import pytest

from simulate.replay.replay import Replay
from tests.sabotage import FAULTS, planted

UNSUPPORTED = {"personal parameters released", "data-dependent mask booked as public"}
"""Faults of CENTAUR and Fed-SMP."""
QUICK = ("noise halved, evidence forged",)


def outcome(fault, folder):
    planted(fault, folder)
    return Replay(folder).run(None, None, lambda done, total: None).outcome


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_fault_is_detected(fault, tmp_path):
    expected = "not shown" if fault.name in UNSUPPORTED else "failed"
    assert outcome(fault, tmp_path / "run") == expected


@pytest.mark.parametrize(
    "fault", [one for one in FAULTS if one.name in QUICK], ids=lambda f: f.name
)
def test_noise_and_plan_are_checked(fault, tmp_path):
    assert outcome(fault, tmp_path / "run") == "failed"
