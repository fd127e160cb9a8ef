"""Plans on the digits, solved once."""

import pytest
import yaml

from privplan.planning.solver import solve
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from simulate.runs.run import InterruptedRunError, execute


def digits_spec(**changes):
    """The preset for the digits, changed."""
    return Spec.parse({**yaml.safe_load(preset("digits")), **changes})


def stop_after(rounds):
    """A report of progress that interrupts a run after so many rounds."""

    def stop(done, total):
        if done == rounds:
            raise KeyboardInterrupt

    return stop


def interrupt(request, after):
    """Begin a run, and interrupt it after a round."""
    with pytest.raises(
        InterruptedRunError, match=f"{after} of .* rounds are saved in .*resumes"
    ):
        execute(request, stop_after(after))


@pytest.fixture(scope="session")
def digits_plan():
    """The plan of the preset."""
    return solve(digits_spec())


@pytest.fixture(scope="session")
def middle_plan():
    """The same for twenty rounds."""
    return solve(digits_spec(rounds=20))


@pytest.fixture(scope="session")
def short_plan():
    """The same for eight rounds."""
    return solve(digits_spec(rounds=8))


@pytest.fixture
def short_path(short_plan, tmp_path):
    """``plan.json`` of the short plan."""
    short_plan.save(tmp_path / "plan.json")
    return tmp_path / "plan.json"
