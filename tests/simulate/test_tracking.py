"""Callbacks and trackers: what they see, and what they write."""

import privplan
from simulate.runs.request import Request, prepare
from simulate.runs.run import run_prepared
from simulate.tracking import Callback


class Recorder(Callback):
    """Notes every call."""

    def __init__(self):
        self.calls = []
        self.spent = {}

    def on_start(self, plan, record):
        self.calls.append(("start", record.rounds_done))

    def on_round(self, record):
        self.calls.append(("round", record.rounds_done))

    def on_end(self, record, spent):
        assert record.status == "complete"
        self.calls.append(("end", record.rounds_done))
        self.spent = spent

    def close(self):
        self.calls.append(("close", 0))


def _request(plan, folder, **fields):
    return Request(plan, "planned", "digits", folder, device="cpu", **fields)


def test_a_callback_sees_start_every_round_and_the_end(short_plan, tmp_path):
    request = _request(short_plan, tmp_path / "run")
    recorder = Recorder()
    run_prepared(request, prepare(request), callbacks=[recorder])
    rounds = [("round", number) for number in range(1, 9)]
    assert recorder.calls == [("start", 0), *rounds, ("end", 8), ("close", 0)]
    for group in privplan.judge(privplan.load_run(tmp_path / "run"), 0).groups:
        upper = group.realised_upper
        lower = group.realised_lower
        assert (
            lower
            <= recorder.spent[group.group]
            <= min(upper * (1 + 2e-3), group.budget or 0)
        )
