"""Runs of another kind of device, or of clients trained otherwise: the same limits."""

import math

import pytest

from privplan.record import RunRecord
from simulate.models import basis
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate.replay.runs import ROUNDS, comparison, replayed, short_plan


def test_the_device_that_a_record_names_is_compared_with_nothing(tmp_path):
    """No limit is wider for the run of a GPU, which adds in another order."""
    folder = tmp_path / "run"
    execute(Request(short_plan(), "GDPFed+", "digits", folder, seed=3))
    on_cpu = replayed(folder)
    record = RunRecord.load(folder)
    assert record.device == "cpu"
    record.model_copy(update={"device": "cuda"}).save(folder)
    on_gpu = replayed(folder)
    assert on_cpu.outcome == "passed"
    assert on_gpu.outcome == "passed"
    assert on_cpu.tolerance == on_gpu.tolerance


@pytest.mark.parametrize(("first", "second"), [(0, math.inf), (math.inf, 0)])
def test_clients_in_sequence_and_in_a_batch_make_the_same_releases(
    first, second, tmp_path, monkeypatch
):
    folder = tmp_path / "run"
    monkeypatch.setitem(basis.IN_SEQUENCE_FROM, "cpu", first)
    execute(Request(short_plan(), "planned", "digits", folder, seed=3))
    monkeypatch.setitem(basis.IN_SEQUENCE_FROM, "cpu", second)
    report = replayed(folder)
    assert report.outcome == "passed"
    assert comparison(report, "releases") == (ROUNDS * 3, 0)
