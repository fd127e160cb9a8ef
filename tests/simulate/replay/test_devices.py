"""A run on another kind of device is executed again on the CPU, by the same limits."""

from privplan.record import RunRecord
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate.replay.runs import replayed, short_plan


def test_the_device_that_a_record_names_is_compared_with_nothing(tmp_path):
    """No limit is wider for the run of a GPU, which adds in another order."""
    folder = tmp_path / "run"
    execute(Request(short_plan(), "GDPFed+", "digits", folder, seed=3))
    on_cpu = replayed(folder)
    record = RunRecord.load(folder)
    assert record.device == "cpu"
    record.model_copy(update={"device": "cuda"}).save(folder)
    on_gpu = replayed(folder)
    assert (on_cpu.outcome, on_gpu.outcome) == ("passed", "passed")
    assert on_cpu.tolerance == on_gpu.tolerance
