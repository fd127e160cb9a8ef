"""The command line answers as it did when ``expected/`` was recorded; see ``record.py``."""

import pytest

from tests.golden import record
from tests.golden.cases import CASES


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if case.slow else [], id=name)
        for name, case in CASES.items()
    ],
)
def test_answers_are_as_recorded(name, tmp_path):
    shown = record.difference(name, record.answer(CASES[name], tmp_path))
    assert not shown, f"\n{shown}"


def test_every_stored_answer_has_its_case():
    assert {path.stem for path in record.EXPECTED.glob("*.txt")} == set(CASES)
