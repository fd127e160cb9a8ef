"""The word of a spec for whom budgets protect stands wherever the unit is named."""

import json

import pytest

from privplan.accounting.release import named_unit, with_article
from privplan.errors import InputError
from privplan.plan import Plan
from privplan.report.page import page_of
from privplan.report.style import Panel
from privplan.spec.spec import Spec
from tests.book.runs import run
from tests.command import answer
from tests.planning.problems import spec_data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A spec of patients, its plan, and a run of it."""
    base = tmp_path_factory.mktemp("person")
    data = {**spec_data(), "person": "patient"}
    (base / "spec.yaml").write_text(json.dumps(data))
    answer("solve", base / "spec.yaml", "-o", base / "plan.json")
    return base


def test_each_sentence_on_a_plan_names_the_patient(folder, monkeypatch):
    monkeypatch.setattr(Panel, "inline", lambda panel: "")
    solved = answer("solve", folder / "spec.yaml")
    assert "nearest to its own is a patient of" in solved
    assert "unit client (each patient)" in " ".join(solved.split())
    assert "protected: each patient;" in answer("explain", folder / "plan.json")
    page = page_of(folder / "plan.json")
    assert "Each patient (a participant with all its data) is promised" in page
    assert "guesses whether one certain patient took part" in page
    assert "No attack on one patient exceeds" in page


def test_the_word_says_nothing_of_records():
    of_records = {**spec_data(), "unit": "record", "person": "patient"}
    with pytest.raises(InputError, match="person: must be left out with unit: record"):
        Spec.parse(of_records)
    for word in ("records", "Record"):
        with pytest.raises(InputError, match="must not be the name of another unit"):
            Spec.parse({**spec_data(), "person": word})
    with pytest.raises(InputError, match="person: must be one word"):
        Spec.parse({**spec_data(), "person": "patient: epsilon 0.1"})


def test_a_plan_without_the_word_is_that_of_earlier_versions(tmp_path):
    plan = Plan.load(run(tmp_path / "run") / "plan.json")
    assert "person" not in plan.to_json()
    assert plan.whom() == "client"
    assert "(each" not in plan.identity


@pytest.mark.parametrize(
    ("unit", "person", "contributions", "word"),
    [
        ("client", None, 1, "client"),
        ("client", None, 2, "person"),
        ("client", "patient", 1, "patient"),
        ("client", "patient", 2, "patient"),
        ("record", None, 1, "record"),
        ("record", None, 2, "person"),
    ],
)
def test_a_person_with_several_units_is_no_unit(unit, person, contributions, word):
    assert named_unit(unit, person, contributions) == word


def test_an_article_fits_its_word():
    assert with_article("patient") == "a patient"
    assert with_article("employee") == "an employee"
