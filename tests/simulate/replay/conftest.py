"""A run with the evidence that replay needs."""

import pytest

from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate.replay.runs import short_plan


@pytest.fixture
def run(tmp_path):
    """The folder of an honest run of GDPFed+."""
    folder = tmp_path / "run"
    execute(Request(short_plan(), "GDPFed+", "digits", folder, seed=3))
    return folder
