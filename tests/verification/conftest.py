"""A run of the simulator that the tests may damage."""

import shutil
from pathlib import Path

import pytest

from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate.replay.runs import short_plan


@pytest.fixture(scope="session")
def honest(tmp_path_factory):
    """The folder of an honest run, which nobody changes."""
    folder = tmp_path_factory.mktemp("honest") / "run"
    execute(Request(short_plan(planning="joint"), "planned", "digits", folder, seed=3))
    return folder


@pytest.fixture
def run(honest, tmp_path):
    """A copy of the folder of the honest run."""
    return Path(shutil.copytree(honest, tmp_path / "run"))
