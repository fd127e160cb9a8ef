"""Names: what is refused, and which two a reader takes for one."""

import pytest

from privplan.book.accounts import Budgets
from privplan.book.book import Book
from privplan.errors import InputError
from privplan.names import LONGEST, name_faults, skeleton
from privplan.spec.spec import Spec
from tests.book.runs import run
from tests.verification import honest_run

CYRILLIC = "ѕt" + "rict"  # begins with a Cyrillic letter that looks like a Latin s
WHOLLY_CYRILLIC = "сосо"  # as a whole it looks like the Latin coco


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("strict ", "no space"),
        ("\u00a0strict", "printable|no space"),
        ("stri\u200bct", "printable"),
        ("stri\u202ect", "printable"),
        ("e\u0301cole", "composed"),
        (CYRILLIC, "one script"),
        ("", "1 to"),
        ("x" * (LONGEST + 1), "1 to"),
    ],
)
def test_what_is_no_name_is_refused_everywhere(name, rule, tmp_path):
    assert list(name_faults("account", name))
    with pytest.raises(InputError, match=rule):
        Budgets(str(tmp_path / "b.sqlite")).open(name, 1.0, 1e-5)
    data = honest_run.spec().model_dump(mode="json")
    data["groups"][0]["name"] = name
    with pytest.raises(InputError, match="group"):
        Spec.parse(data)
    if name:
        with pytest.raises(InputError, match=rule):
            Book(str(tmp_path / "b.sqlite")).add(
                run(tmp_path / "run", rounds=3), name, rounds=0
            )


@pytest.mark.parametrize(
    "name", ["strict", "Klinik Süd/streng", "école", "строгая", "東京 カナ", "g-1"]
)
def test_ordinary_names_are_names(name):
    assert not list(name_faults("account", name))


@pytest.mark.parametrize(
    ("before", "after"),
    [("strict", "STRICT"), ("coco", WHOLLY_CYRILLIC), ("ﬁx", "fix")],
)
def test_an_account_that_looks_like_another_is_refused_by_name(before, after, tmp_path):
    budgets = Budgets(str(tmp_path / "b.sqlite"))
    budgets.open(before, 1.0, 1e-5)
    assert skeleton(before) == skeleton(after)
    with pytest.raises(InputError) as error:
        budgets.open(after, 1.0, 1e-5)
    assert ascii(before) in str(error.value)
    budgets.open("other", 1.0, 1e-5)


def test_a_population_that_looks_like_another_is_refused(tmp_path):
    book = Book(str(tmp_path / "b.sqlite"))
    book.add(run(tmp_path / "1", rounds=3), "clinic", rounds=0)
    with pytest.raises(InputError, match="must not look like 'clinic'"):
        book.add(run(tmp_path / "2", seed=2, rounds=3), "Clinic", rounds=0)
    assert (
        book.add(run(tmp_path / "3", seed=3, rounds=3), "clinic", rounds=0) == "added"
    )


def test_groups_of_a_spec_do_not_look_alike():
    data = honest_run.spec().model_dump(mode="json")
    data["groups"][1]["name"] = "Strict"
    with pytest.raises(InputError, match="look alike"):
        Spec.parse(data)
