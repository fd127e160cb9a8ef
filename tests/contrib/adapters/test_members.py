"""What clients reply with, and whose it is, as adapters of frameworks share it."""

import numpy as np
import pytest

from privplan.contrib.adapters import members
from privplan.contrib.adapters.members import updates_of
from privplan.errors import InputError
from privplan.guard import Guard, Layout
from tests.guard.plans import two_groups

MODEL = {"w": np.ones((2, 2), "f4"), "b": np.zeros(2, "f4")}
LAYOUT = Layout.of(MODEL)
START = LAYOUT.vector(MODEL)
FITTING = {"w": np.full((2, 2), 3.0, "f4"), "b": np.ones(2, "f4")}


def as_it_is(reply):
    """A reply that is arrays already."""
    return reply


@pytest.mark.parametrize(
    "other",
    [
        None,
        {},
        7,
        {"w": FITTING["w"]},
        {**FITTING, "w": np.ones((3, 2), "f4")},
        {**FITTING, "b": [1.0, 2.0]},
        {**FITTING, "b": np.array(["one", "two"])},
        {**FITTING, "b": np.array([None, {}], object)},
        {**FITTING, "b": np.array([10**400, 1], object)},
        {**FITTING, "b": np.zeros(2, [("a", int), ("b", int)])},
    ],
    ids=[
        "nothing",
        "no array",
        "a number",
        "too few",
        "another shape",
        "a list",
        "words",
        "objects",
        "beyond floats",
        "structures",
    ],
)
def test_a_reply_of_another_model_is_not_finite_and_ends_no_run(other, caplog):
    replies = {("all", 0): FITTING, ("all", 1): other}
    updates = updates_of(LAYOUT, START, replies, as_it_is)
    assert updates["all", 0].tolist() == [2.0] * 4 + [1.0] * 2
    assert updates["all", 1].shape == START.shape
    assert np.isnan(updates["all", 1]).all()
    # Who is drawn alone ends none, either.
    alone = updates_of(LAYOUT, START, {("all", 1): other}, as_it_is)
    assert np.isnan(alone["all", 1]).all()
    assert "an update does not fit and counts as zero" in caplog.text


def test_a_reply_that_cannot_be_read_ends_no_run(caplog):
    """Frameworks read the bytes of a client when its arrays are asked for."""

    def unreadable(reply):
        raise OSError("\n" + 1000 * reply)

    updates = updates_of(LAYOUT, START, {("all", 1): "x"}, unreadable)
    assert np.isnan(updates["all", 1]).all()
    [message] = caplog.messages
    assert "\n" not in message
    assert len(message) < 300


def test_a_guard_is_closed_once_and_by_its_own_process(tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(members.atexit, "register", lambda *call: closed.append(call))
    two_groups(2).save(tmp_path / "plan.json")
    first = members.opened(tmp_path / "plan.json", tmp_path / "run", "any")
    second = members.opened(tmp_path / "plan.json", tmp_path / "run", "any")
    with pytest.raises(InputError, match="closed"):
        first.draw(1)
    second.draw(1)
    close, process, guard = closed[1]
    close(process + 1, guard)
    assert second.draw(1) is not None
    close(process, guard)
    with Guard(tmp_path / "plan.json", tmp_path / "run"):
        pass
