"""Plans on the digits, solved once."""

import os
from pathlib import Path

import pytest
import yaml

from privplan.planning.solver import solve
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from tests.simulate.data import published


def digits_spec(**changes):
    """The preset for the digits, changed."""
    text = preset("digits")
    return Spec.parse({**yaml.safe_load(text), **changes})


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


@pytest.fixture(scope="session")
def cifar_10_folder(tmp_path_factory):
    """A data folder with CIFAR-10's usual files; skips where PRIVPLAN_DATA has none to make."""
    data = Path(os.environ.get("PRIVPLAN_DATA", "."))
    if (data / "cifar-10-batches-py").is_dir():
        return data
    if not (data / "CIFAR10" / "train.npz").is_file():
        pytest.skip("PRIVPLAN_DATA has no CIFAR-10")
    return published.cifar_10(data / "CIFAR10", tmp_path_factory.mktemp("cifar-10"))
