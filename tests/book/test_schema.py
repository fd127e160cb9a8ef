"""A book is plain tables: views in their place and triggers are refused in one line."""

import pytest
import sqlalchemy as sa

from privplan.book.book import Book
from privplan.book.database import address_of, engine_of
from privplan.book.entry import booking_of
from privplan.book.store import add
from tests.book.runs import run
from tests.command import refused

ENDLESS = (
    "CREATE VIEW privplan_book_runs AS WITH RECURSIVE c(x) AS "
    "(SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS id FROM c"
)
DELETING = (
    "CREATE TRIGGER quiet AFTER INSERT ON privplan_book_runs BEGIN "
    "DELETE FROM privplan_book_runs WHERE id = NEW.id; END"
)
VIRTUAL = "CREATE VIRTUAL TABLE privplan_book_runs USING fts5(x)"
COMPUTED = "ALTER TABLE privplan_book_runs ADD COLUMN more AS (id + 1)"

QUIET_RULE = "CREATE RULE quiet AS ON DELETE TO privplan_book_runs DO INSTEAD NOTHING"


@pytest.fixture
def book(tmp_path):
    """Address of a book with a run."""
    address = tmp_path / "book.sqlite"
    add(address_of(str(address)), booking_of(run(tmp_path / "run", rounds=3), ""))
    return str(address)


def _changed(book, *statements):
    engine = sa.create_engine(f"sqlite:///{book}")
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


@pytest.mark.parametrize(
    ("statements", "part"),
    [
        (("DROP TABLE privplan_book_runs", ENDLESS), "the view 'privplan_book_runs'"),
        ((DELETING,), "the trigger 'quiet'"),
        (("DROP TABLE privplan_book_runs", VIRTUAL), "the virtual table"),
        ((COMPUTED,), "the computed column 'more'"),
    ],
)
def test_anything_but_plain_tables_is_refused(book, tmp_path, statements, part):
    _changed(book, *statements)
    further = run(tmp_path / "further", seed=2, rounds=3)
    commands = (
        ["show"],
        ["add", further],
        ["budgets"],
        ["open", "b", "--epsilon=1", "--delta=.1"],
        ["left", "--group=strict", "--epsilon=9"],
    )
    for words in commands:
        assert part in refused("book", *words, "--address", book)


def test_further_tables_of_the_database_are_not_the_books(book):
    _changed(
        book,
        "CREATE TABLE mine (x INTEGER)",
        "CREATE VIEW of_mine AS SELECT x FROM mine",
    )
    assert len(Book(book).runs) == 1


def test_a_trigger_in_postgres_is_refused(postgres, tmp_path):
    url = address_of(postgres)
    add(url, booking_of(run(tmp_path / "run", rounds=3), ""))
    assert len(Book(postgres).runs) == 1
    with engine_of(url, write=True).begin() as connection:
        connection.execute(sa.text(QUIET_RULE))
    assert "the rule 'quiet'" in refused("book", "show", "--address", postgres)
