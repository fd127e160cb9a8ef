"""Which data sets count as public, and what a run cannot deny."""

import json

import numpy as np
import pytest

import simulate
from privplan.errors import InputError, MissingDataError, UnverifiedRunError
from privplan.planning.solver import solve
from privplan.public_data import (
    ALIASES,
    BUILT_IN,
    DIGESTS,
    is_public,
)
from privplan.publishing import publish
from privplan.record import RECORD, RunRecord
from privplan.verification.verify import judge, load_run
from simulate.cli.replay import OPTIONS
from simulate.data.registry import DATASETS, load
from tests.command import privplan
from tests.simulate.conftest import digits_spec
from tests.simulate.data.test_images import idx
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
    assert set(DIGESTS) <= BUILT_IN


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


@pytest.mark.parametrize("name", sorted(DIGESTS))
def test_known_digests_are_of_the_published_records(name):
    try:
        data = load(name)
    except MissingDataError:
        pytest.skip(f"{name} is not on this machine")
    assert data.digest in DIGESTS[name]


def _own_images(root, name="MNIST", count=400):
    """Own images in the files of a public data set, as code for it reads them."""
    source = np.random.default_rng(5)
    folder = root / name / "raw"
    folder.mkdir(parents=True)
    for split, records in (("train", count), ("t10k", 20)):
        images = source.integers(0, 255, (records, 28, 28))
        (folder / f"{split}-images-idx3-ubyte").write_bytes(idx(images))
        labels = np.arange(records) % 10
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(idx(labels))


@pytest.mark.parametrize(
    "name", ["mnist", "mnist:20", "fmnist", "MNIST", "Mnist:300", "fashion_mnist"]
)
def test_own_records_in_the_files_of_a_public_data_set_are_refused(name, tmp_path):
    _own_images(tmp_path, "MNIST")
    _own_images(tmp_path, "FashionMNIST")
    registered = "fashion-mnist" if name.startswith("f") else "mnist"
    rule = f"published records of {registered}; name your own data with --data"
    with pytest.raises(InputError, match=rule):
        load(name, tmp_path)


def test_a_run_on_them_is_not_verified(tmp_path, monkeypatch):
    """Somebody trained past the refusal; whoever verifies has only those files."""
    _own_images(tmp_path, "MNIST")
    plan = solve(digits_spec(rounds=2, model={"name": "cnn-2", "parameters": 28938}))
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("simulate.data.registry.DIGESTS", {})
        simulate.train(plan, dataset="mnist", data_dir=tmp_path, folder=folder)
    verdict = judge(load_run(folder), options={OPTIONS: {"data_dir": tmp_path}})
    assert verdict.outcome == "unverified"
    assert "published records of mnist" in verdict.not_executed


def test_a_seeded_run_on_data_of_no_known_digest_is_not_published(
    tmp_path, monkeypatch
):
    folder = tmp_path / "run"
    monkeypatch.setattr("privplan.public_data.DIGESTS", {})
    plan = solve(digits_spec(rounds=2))
    run = simulate.train(plan, dataset="digits", folder=folder)
    verdict = run.verdict
    assert verdict.outcome == "kept"
    assert verdict.level == "executed"
    assert verdict.is_unseen_simulation
    assert verdict.why_unseen == "no digest of digits is published"
    with pytest.raises(UnverifiedRunError, match="must be executed again"):
        publish(folder, tmp_path / "bundle")
