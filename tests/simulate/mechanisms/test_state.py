"""A mechanism with a state: each round sees what the last left, also after a checkpoint."""

from __future__ import annotations

from dataclasses import replace

import torch

from simulate.algorithm import compose
from simulate.components import Mechanism
from simulate.engine.loop import initial_state, train
from simulate.mechanisms import unprotected
from simulate.runs import run as checkpoint
from simulate.runs.ledger_writer import MemoryLedger
from tests.simulate import tiny


def _counting() -> Mechanism:
    """The sum in the clear, with a count of the rounds."""
    plain = unprotected()

    def stateful(round_, sums, weights, noise, state):
        return plain.release(round_, sums, weights, noise), {"rounds": state["rounds"] + 1}

    def start(theta):
        return {"rounds": torch.zeros(1)}

    return replace(plain, start=start, stateful=stateful)


def _setting():
    return tiny.setting(compose("counting", tiny.plan(), mechanism=_counting(), local=tiny.LOCAL))


def test_the_state_goes_from_round_to_round():
    setting = _setting()
    done = train(setting, MemoryLedger(setting.algorithm.plan.digest))
    assert done.mechanism["rounds"].item() == setting.rounds > 0
    assert initial_state(setting).mechanism["rounds"].item() == 0


def test_a_run_goes_on_from_the_state_in_a_checkpoint(tmp_path):
    setting = _setting()
    begun = replace(initial_state(setting), mechanism={"rounds": torch.full((1,), 7.0)})
    checkpoint.save(tmp_path, begun)
    found = checkpoint.load(tmp_path, torch.device("cpu"))
    assert found is not None
    done = train(setting, MemoryLedger(setting.algorithm.plan.digest), found)
    assert done.mechanism["rounds"].item() == 7 + setting.rounds
