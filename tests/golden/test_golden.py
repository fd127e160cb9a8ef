"""Commands answer as they did when ``record.py`` recorded ``expected/``."""

import pytest

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.record import PLAN, RECORD
from privplan.report.page import page_of
from privplan.report.style import Panel
from tests.golden import record
from tests.golden.cases import CASES

WITH_PAGE = ("preset-digits", "run-planned")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if case.slow else [], id=name)
        for name, case in CASES.items()
    ],
)
def test_answers_are_as_recorded_and_have_a_report(name, tmp_path, monkeypatch):
    shown = record.difference(name, record.answer(CASES[name], tmp_path))
    assert not shown, f"\n{shown}"

    # Every kind of plan and run has its page in tests/report.
    if not (CASES[name].slow or name in WITH_PAGE):
        return
    # Drawing takes most of the time.
    monkeypatch.setattr(Panel, "inline", lambda panel: panel.alt)
    for source in reported(tmp_path):
        assert "How to reproduce" in page_of(source)


def reported(folder):
    """What a case left that a report can be of: sound plan, runs, comparison."""
    plans = [path for path in folder.glob("plan.json") if is_sound(path)]
    runs = [
        path.parent
        for path in folder.glob("*/record.json")
        if (path.parent / PLAN).exists()
    ]
    sound = [run for run in runs if (run / RECORD).read_text() != "{"]
    return [
        *plans,
        *sound,
        *{path.parents[2] for path in folder.glob("*/*/*/record.json")},
    ]


def is_sound(path):
    """Whether a plan can be read; refusals leave one that contradicts its spec."""
    try:
        Plan.load(path)
    except InputError:
        return False
    return True


def test_every_stored_answer_has_its_case():
    assert {path.stem for path in record.EXPECTED.glob("*.txt")} == set(CASES)
