"""How strongly a run was checked, in the book, by the judge of ``verify``."""

from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from privplan.book.book import Book
from privplan.book.database import address_of, engine_of
from privplan.book.entry import BookedRun, booking_of
from privplan.book.store import add, runs
from privplan.evidence.replay import ReplayReport
from privplan.verification.verify import load_run
from tests.book.runs import run
from tests.command import answer, privplan


def _executing(monkeypatch, outcome, rounds=(1, 2)):
    """An executor of rounds that finds this outcome of any run."""

    def executed(folder, number, seconds, options):
        read = load_run(folder)
        return ReplayReport.model_validate(
            {
                "outcome": outcome,
                "reason": "releases",
                "rounds": rounds,
                "of": 30,
                "selection_seed": 1,
                "tolerance": 1e-5,
                "comparisons": (),
                "differences": (),
                "plan_digest": read.plan.digest,
                "chain": read.ledger.chain,
                "record": read.record.digest,
                "versions": {},
                "seconds": 1.0,
            }
        )

    executor = SimpleNamespace(load=lambda: executed)
    monkeypatch.setattr("privplan.verification.verify.points", lambda group: [executor])


def test_what_verify_calls_broken_is_not_booked_as_kept(tmp_path, monkeypatch):
    """The fault is one that only executing rounds again finds."""
    folder = run(tmp_path / "run")
    book = str(tmp_path / "b.sqlite")
    _executing(monkeypatch, "failed")
    assert privplan("verify", folder).exit_code == 4
    refused = privplan("book", "add", folder, "--address", book)
    assert refused.exit_code == 4
    assert refused.stdout == ""
    assert not (tmp_path / "b.sqlite").exists()
    assert answer("book", "add", folder, "--address", book, "--rounds", 0)
    assert [booked.checked for booked in Book(book).runs] == ["as recorded"]


def test_the_level_is_stored_and_shown(tmp_path, monkeypatch):
    book = str(tmp_path / "b.sqlite")
    _executing(monkeypatch, "passed")
    added = answer("book", "add", run(tmp_path / "1", seed=1), "--address", book)
    assert "executed again" in added
    answer("book", "add", run(tmp_path / "2", seed=2), "--address", book, "--rounds", 0)
    assert [booked.level for booked in Book(book).runs] == ["executed", "recorded"]
    levels = {"executed again": 1, "as recorded": 1}
    assert Book(book).spent("strict")[0].levels == levels
    assert Book(book).left("strict", 9.0).levels == levels
    options = ("--address", book, "--group", "strict")
    assert "1 executed again, 1 as recorded" in answer(
        "book", "left", *options, "--epsilon", 9
    )
    assert "1 executed again, 1 as recorded" in " ".join(
        answer("book", "show", *options).split()
    )


def test_a_run_that_was_executed_again_later_is_judged_anew(tmp_path, monkeypatch):
    folder = run(tmp_path / "run")
    url = address_of(str(tmp_path / "b.sqlite"))
    _executing(monkeypatch, "passed")
    assert Book(url.database).add(folder, rounds=0) == "added"
    assert Book(url.database).add(folder) == "judged"
    assert (
        Book(url.database).add(folder, rounds=0) == "known"
    )  # shows less than the book has
    [booked] = runs(url)
    assert booked.level == "executed"
    assert booked.cost == "recorded"
    _executing(monkeypatch, "failed")
    assert Book(url.database).add(folder, infinite=True) == "judged"
    before = runs(url)
    assert [booked.level for booked in before] == ["broken"]
    assert [booked.cost for booked in before] == ["infinite for good"]

    # Who takes away what showed the fault gets nothing for it.
    _executing(monkeypatch, "passed")
    for rounds in (0, 1):
        assert Book(url.database).add(folder, rounds=rounds) == "known"
    assert runs(url) == before


def test_books_of_earlier_versions_are_read_and_upgraded(tmp_path):
    """Rows of a book without levels keep their digest, and count as recorded."""
    url = address_of(str(tmp_path / "b.sqlite"))
    booking = booking_of(run(tmp_path / "run"), "")
    plain = BookedRun.model_validate({**booking.run.model_dump(), "level": None})
    add(url, type(booking)(plain, booking.links, booking.states))
    with engine_of(url, write=True).begin() as connection:
        connection.execute(sa.text("DROP TABLE privplan_book_levels"))
        connection.execute(sa.text("UPDATE privplan_book SET schema_version = 2"))
    [old] = runs(url)
    assert old == plain
    assert old.level is None
    assert old.checked == "as recorded"
    add(url, booking_of(run(tmp_path / "other", seed=2), ""))
    assert [booked.checked for booked in runs(url)] == ["as recorded", "as recorded"]


def test_a_level_that_was_edited_is_found(tmp_path):
    url = address_of(str(tmp_path / "b.sqlite"))
    add(url, booking_of(run(tmp_path / "run"), ""))
    changes = (
        "UPDATE privplan_book_levels SET level = 'executed'",
        "DELETE FROM privplan_book_levels",
    )
    for change in changes:
        with engine_of(url, write=True).begin() as connection:
            connection.execute(sa.text(change))
        with pytest.raises(Exception, match="was edited"):
            runs(url)
