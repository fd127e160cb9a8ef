"""The constants of Theorem 3."""

import pytest

from privplan.convergence.theorem_3 import step_constants


def test_constants_by_hand() -> None:
    constants = step_constants(0.1, 30)
    assert constants.progress == pytest.approx(3.0)
    assert constants.mu4 == pytest.approx(32 * 3 + 0.1 + 0.1 / 30)
    assert constants.mu5 == pytest.approx(4 / 3)
