"""A run on another kind of device is executed again on the CPU, by the same limits."""

from dataclasses import replace

import pytest
import torch

from privplan.record import RunRecord
from simulate.runs import request as requests
from simulate.runs import run as runs
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate.device import pretend
from tests.simulate.replay.runs import replayed, short_plan
from tests.simulate.replay.test_coverage import plan


@pytest.mark.parametrize(
    ("algorithm", "executed"),
    [
        pytest.param("GDPFed+", short_plan(), id="clients"),
        pytest.param(
            "DPFedAvg", plan("poisson", "record"), id="records", marks=pytest.mark.slow
        ),
    ],
)
def test_the_device_of_a_run_changes_no_limit(
    algorithm, executed, monkeypatch, tmp_path
):
    """The pretend device sums in another order; its record says that it is a GPU."""
    folder = tmp_path / "run"
    record_of = runs.initial_record

    def of_gpu(request, experiment):
        return record_of(request, replace(experiment, device=torch.device("cuda")))

    with monkeypatch.context() as patch, pretend.in_use():
        patch.setattr(requests, "device_of", lambda name, ranks: pretend.device())
        patch.setattr(runs, "initial_record", of_gpu)
        execute(Request(executed, algorithm, "digits", folder, seed=3))
    record = RunRecord.load(folder)
    assert record.device == "cuda"
    report = replayed(folder)
    assert report.outcome == "passed", report.reason

    # The device that a record names is compared with nothing.
    record.model_copy(update={"device": "cpu"}).save(folder)
    assert replayed(folder, 1).outcome == "passed"
