"""The page of a book: spent, over which runs, and left, as the book computes it."""

import re
import shutil

import pytest

from privplan.accounting.release import History, Release
from privplan.book.accounts import Budgets
from privplan.book.book import Book
from privplan.file_kinds import is_book
from privplan.report.book_page import book_page
from privplan.report.numbers import six
from privplan.report.style import Panel
from tests.book.runs import run
from tests.command import answer, refused


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A book of a run and a published count."""
    base = tmp_path_factory.mktemp("book")
    book = Book(base / "book.sqlite")
    book.add(run(base / "run"), rounds=0)
    count = History([(Release(20.0, 1.0, "full", "laplace"), 1)])
    book.declare("ages", count, group="strict", clients=100)
    return book


def cells_of(written, name):
    """The cells of the row of a group, by the heads of the columns."""
    lines = [line.strip("| ").split(" | ") for line in written.splitlines()]
    head = next(line for line in lines if line[0] == "group")
    row = next(line for line in lines if line[0] == name and len(line) == len(head))
    return dict(zip(head, row, strict=True))


def test_each_group_has_what_the_book_composes(book):
    words = ["report", book.address, "--format", "markdown"]
    written = answer(*words, "--budget", "strict=9")
    for spending in book.spent():
        cells = cells_of(written, spending.group)
        assert cells["spent, at least"] == six(spending.epsilon_lower, False)
        assert cells["spent, at most"] == six(spending.epsilon_upper)
        assert cells["runs"] == str(spending.runs)
    remaining = book.left("strict", 9.0)
    assert cells_of(written, "strict")["left"] == six(9.0 - remaining.spent, False)
    further = {spending.group for spending in book.spent()} - {"strict"}
    assert cells_of(written, further.pop())["budget"] == "not stated"


def test_a_used_up_budget_is_the_first_thing_said(book, monkeypatch):
    monkeypatch.setattr(Panel, "inline", lambda panel: "")
    page = book_page(book.address, {"strict": 0.01})
    [headline] = re.findall(r"<strong>(.*?)</strong>", page)
    assert "nothing is left for strict" in headline


def test_an_account_states_the_budget(book, tmp_path):
    address = shutil.copy(book.address, tmp_path / "accounts.sqlite")
    budgets = Budgets(str(address))
    budgets.open("strict", 4.0, 1e-5)
    written = answer("report", address, "--format", "markdown")
    cells = cells_of(written, "strict")
    assert cells["budget"] == "4"
    # The runs of the book are spent, though nobody reserved them.
    spent = budgets.state("strict").spent
    assert spent > 0
    assert cells["left"] == six(4.0 - spent, False)


def test_the_page_has_its_pictures_before_its_tables(book):
    page = book_page(book.address, {"strict": 9.0})
    assert page.rindex("<svg") < page.index("<table>")
    assert "<script" not in page
    assert "ages" in page


def test_only_books_are_read_as_books(book, tmp_path):
    assert is_book(book.address)
    assert not is_book(tmp_path)
    (tmp_path / "plan.json").write_text("{}")
    assert not is_book(tmp_path / "plan.json")
    rule = "must be a group of the book"
    assert rule in refused("report", book.address, "--budget", "nobody=1")
    for budget in ("strict", "5", "=5"):
        words = ("report", book.address, "--budget", budget)
        assert "must be GROUP=EPSILON" in refused(*words)
    assert "html or markdown" in refused("report", book.address, "--format", "json")
