"""The word of a spec for whom budgets protect stands wherever the unit is named."""

import json
import sqlite3

import pytest

from privplan.accounting.release import History, Release, named_unit, with_article
from privplan.book.book import Book
from privplan.errors import InputError
from privplan.plan import Plan
from privplan.report.book_page import book_page
from privplan.report.page import page_of
from privplan.report.style import Panel
from privplan.spec.spec import Spec
from tests.book.runs import as_recorded, run
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


def test_a_book_names_the_patient_of_its_runs(tmp_path):
    book = Book(tmp_path / "book.sqlite")
    first_run = run(tmp_path / "first", person="patient")
    book.add(first_run, rounds=0)
    assert as_recorded(first_run).person == "patient"
    count = History([(Release(20.0, 1.0, "full", "laplace"), 1)])
    book.declare("ages", count, group="strict", clients=100)
    [strict] = [group for group in book.spent() if group.group == "strict"]
    assert strict.person == "patient"
    assert "patient" in answer("book", "show", "--address", book.address)
    words = ["book", "left", "--address", book.address, "--group", "strict"]
    assert ", for each patient)" in answer(*words, "--epsilon", "9")
    assert "patient" in book_page(book.address, {})

    # What a second run calls otherwise is a person, and no word of either.
    book.add(run(tmp_path / "second", seed=2, person="donor"), rounds=0)
    assert ", for each person)" in answer(*words, "--epsilon", "9")
    assert {group.person for group in book.spent()} == {"person"}


def test_a_book_without_the_word_is_that_of_earlier_versions(tmp_path):
    book = Book(tmp_path / "book.sqlite")
    folder = run(tmp_path / "run")
    book.add(folder, rounds=0)
    assert "person" not in as_recorded(folder).model_dump(mode="json")
    [group, _] = book.spent()
    assert "person" not in group.model_dump(mode="json")
    # A book that was made before the table of words is read all the same.
    with sqlite3.connect(tmp_path / "book.sqlite") as connection:
        connection.execute("DROP TABLE privplan_book_persons")
    assert book.spent()[0] == group
    book.add(run(tmp_path / "next", seed=2, person="patient"), rounds=0)
    assert book.spent()[0].person == "person"


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
