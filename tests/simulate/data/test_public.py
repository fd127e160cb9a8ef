"""Which data sets count as public, and what a run cannot deny."""

import json

import numpy as np
import pytest

import simulate
from privplan.public_data import ALIASES, BUILT_IN, is_public
from privplan.record import RECORD, RunRecord
from simulate.data.registry import DATASETS
from tests.command import privplan
from tests.simulate.own_runs import Net, arrays, data
from tests.simulate.own_runs import plan as own_plan


def test_the_public_names_are_those_of_the_registry():
    formats = {
        name
        for name in DATASETS.names()
        if DATASETS.get(name).__module__.startswith("simulate.")
    }
    assert formats == BUILT_IN
    assert set(ALIASES.values()) <= BUILT_IN


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("digits", True),
        ("mnist:500", True),
        ("FMNIST", True),
        ("own data", False),
        ("patients.csv", False),
        ("", False),
    ],
)
def test_a_name_that_is_not_known_is_own_data(name, public):
    assert is_public(name) == public


def _without_own_data(folder):
    fields = json.loads((folder / RECORD).read_text())
    del fields["configuration"]["own_data"]
    (folder / RECORD).write_text(json.dumps(fields))
    return RunRecord.load(folder)


def test_a_rehearsal_cannot_deny_its_own_data(tmp_path):
    folder = tmp_path / "run"
    simulate.train(
        own_plan(tmp_path), model=Net, data=data(), folder=folder, noise="seeded"
    )
    assert _without_own_data(folder).scores_are_of_members
    done = privplan("verify", folder, "--rounds", 0)
    assert done.exit_code == 5
    assert done.stdout.startswith("a rehearsal")


def test_own_data_under_a_public_name_are_not_executed(tmp_path):
    folder = tmp_path / "run"
    simulate.train(
        own_plan(tmp_path),
        model=Net,
        data=data(name="digits"),
        folder=folder,
        noise="seeded",
    )
    _without_own_data(folder)
    np.savez(tmp_path / "mine.npz", **arrays())
    # Without own data the run's digest is not that of the public data set.
    done = privplan("verify", folder)
    assert done.stdout.startswith("unverified, not shown: replay")
    assert "must be the data of the run" in done.stdout
    executed = privplan("verify", folder, "--data", tmp_path / "mine.npz")
    assert executed.exit_code == 2
    refusal = "data: must be left out for a run that names a registered data set"
    assert refusal in executed.stderr
