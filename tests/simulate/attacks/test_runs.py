"""Attacks on a finished run: its own releases, its participants, and its report."""

import json

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from privplan.attacked import ATTACKED, RunAttacks
from privplan.errors import InputError
from privplan.report.page import page_of
from simulate.attacks.dense import labels_of
from simulate.attacks.run_round import public_run, run_rounds
from simulate.data.registry import load
from simulate.engine.round import participants
from simulate.runs.request import Request, prepare
from simulate.runs.run import execute
from tests.simulate.attacks.test_command import _command, call  # noqa: F401


@pytest.fixture(scope="module")
def run(short_plan, tmp_path_factory):
    """The folder of a run without noise, and its request."""
    folder = tmp_path_factory.mktemp("attacked") / "run"
    request = Request(short_plan, "FedAvg", "digits", folder, seed=3, device="cpu")
    execute(request)
    return folder, request


def test_the_views_are_the_stored_releases_and_the_records_those_of_clients(run):
    folder, request = run
    rounds = run_rounds(folder, load("digits"), public_run(folder), 3)
    assert len(rounds) == 3
    experiment = prepare(request)
    assert_close(rounds[0].view.parameters, experiment.start)
    for index, round_ in enumerate(rounds.heads["round"]):
        clients = np.concatenate(participants(experiment, round_))
        rows = [experiment.partition.records(int(client)) for client in clients]
        assert rounds.truth(index).rows.tolist() == sorted(np.concatenate(rows))
        assert rounds[index].view.clients == len(clients)
    # The update lowers the loss: its labels are those of the cohort, mostly.
    labels = labels_of(rounds[0].view)
    truth = rounds.truth(0).labels
    common = torch.minimum(labels.bincount(minlength=10), truth.bincount(minlength=10))
    assert int(common.sum()) / len(truth) > 0.8


@pytest.mark.slow
def test_a_run_is_attacked_and_its_report_says_what_was_read(run):
    folder, _ = run
    done = call("attack", folder, "--attack", "closed,ig", "--images", 20, "--steps", 2)
    assert done.exit_code == 0, done.stderr
    assert "as the run released" in done.stdout
    rows = RunAttacks.load(folder).rows
    assert [row.attack for row in rows] == ["closed", "ig"]
    assert rows[0].releases == 2
    assert "what attacks read from the releases" in page_of(folder)
    stored = json.loads((folder / ATTACKED).read_text())
    stored["rows"][0]["labels"] = 7
    (folder / ATTACKED).write_text(json.dumps(stored))
    with pytest.raises(InputError, match="labels"):
        page_of(folder)
    (folder / ATTACKED).unlink()
    assert "what attacks read" not in page_of(folder)


def test_what_no_run_can_tell_is_refused(run):
    folder, _ = run
    done = call("attack", folder, "--attack", "membership")
    assert done.exit_code == 2
    assert "for a run, found 'membership'" in done.stderr
    done = call("attack", folder, "--algorithm", "FedAvg")
    assert done.exit_code == 2
    assert "left out for a run" in done.stderr
    with pytest.raises(InputError, match="must be the one of"):
        run_rounds(folder, load("digits:500"), public_run(folder), 1)


def test_a_run_on_own_data_is_refused(run, tmp_path):
    folder, _ = run
    record = json.loads((folder / "record.json").read_text())
    record["configuration"]["own_data"] = True
    (tmp_path / "record.json").write_text(json.dumps(record))
    with pytest.raises(InputError, match="registered public data"):
        public_run(tmp_path)
