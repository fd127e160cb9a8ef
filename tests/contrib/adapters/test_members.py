"""What clients reply with, and whose it is, as adapters of frameworks share it."""

import numpy as np
import pytest

from privplan.contrib.adapters.members import updates_of
from privplan.guard import Layout

MODEL = {"w": np.ones((2, 2), "f4"), "b": np.zeros(2, "f4")}
LAYOUT = Layout.of(MODEL)
START = LAYOUT.vector(MODEL)
FITTING = {"w": np.full((2, 2), 3.0, "f4"), "b": np.ones(2, "f4")}


@pytest.mark.parametrize(
    "other",
    [None, {}, {"w": FITTING["w"]}, {**FITTING, "w": np.ones((3, 2), "f4")}],
    ids=["nothing", "no array", "too few", "another shape"],
)
def test_a_reply_of_another_model_is_not_finite_and_ends_no_run(other, caplog):
    updates = updates_of(LAYOUT, START, {("all", 0): FITTING, ("all", 1): other})
    assert updates["all", 0].tolist() == [2.0] * 4 + [1.0] * 2
    assert updates["all", 1].shape == START.shape
    assert np.isnan(updates["all", 1]).all()
    # Who is drawn alone ends none, either.
    alone = updates_of(LAYOUT, START, {("all", 1): other})
    assert np.isnan(alone["all", 1]).all()
    assert "an update does not fit and counts as zero" in caplog.text
