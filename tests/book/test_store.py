"""A run stands in the book once, whole, and as it was; on SQLite and on PostgreSQL."""

import sqlite3
from dataclasses import replace
from itertools import permutations

import pytest
from sqlalchemy import create_engine, func, select, text

from privplan.accounting.release import SamplingLaw
from privplan.book import database
from privplan.book.database import address_of
from privplan.book.entry import booking_of
from privplan.book.run_rows import FAMILIES, RELEASES, RUNS, SHARES
from privplan.book.store import add, runs
from privplan.errors import InputError
from tests.book.runs import PER_ROUND, run, two_groups
from tests.verification.honest_run import releases
from tests.verification.test_outcomes import edit_record


def _rows(url):
    engine = create_engine(url)
    with engine.connect() as connection:
        tables = (RUNS, SHARES, RELEASES)
        counts = [
            connection.execute(select(func.count()).select_from(table)).scalar()
            for table in tables
        ]
    engine.dispose()
    return counts


def _change(url, statement):
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def test_a_run_comes_back_as_it_was_added(address, tmp_path):
    url = address_of(address)
    bookings = [booking_of(run(tmp_path / f"{seed}", seed), "") for seed in (1, 2)]
    assert [add(url, booking).outcome for booking in bookings] == ["added", "added"]
    assert runs(url) == tuple(booking.run for booking in bookings)


def _discrete(booking):
    """The booking with discrete noise in half of the releases of its first group."""
    first_share, *further = booking.run.shares
    [equal] = first_share.releases
    half = equal.count // 2
    releases = (
        equal.model_copy(update={"family": "discrete_gaussian", "count": half}),
        equal.model_copy(update={"family": "gaussian", "count": equal.count - half}),
    )
    shares = (first_share.model_copy(update={"releases": releases}), *further)
    return replace(booking, run=booking.run.model_copy(update={"shares": shares}))


def test_a_run_with_discrete_noise_comes_back_beside_others(address, tmp_path):
    url = address_of(address)
    selves = [
        _discrete(booking_of(run(tmp_path / f"{n}", 1, rounds=n), "")) for n in (10, 20)
    ]
    plain = booking_of(run(tmp_path / "other", 2), "")
    assert add(url, selves[0]).outcome == "added"
    assert add(url, plain).outcome == "added"
    assert runs(url) == (selves[0].run, plain.run)
    assert add(url, selves[1]).outcome == "replaced"
    assert runs(url) == (selves[1].run, plain.run)


def test_laws_of_long_names_fit_into_old_books(address, tmp_path):
    url = address_of(address)
    old = booking_of(run(tmp_path / "old", 2), "")
    add(url, old)
    if url.get_backend_name() == "postgresql":  # as it was created until 0.2
        _change(
            url,
            "ALTER TABLE privplan_book_releases ALTER COLUMN sampling TYPE VARCHAR(16)",
        )
    new = booking_of(run(tmp_path / "new", 1), "")
    law = SamplingLaw("random_allocation:500")
    shares = []
    for share in new.run.shares:
        [equal] = share.releases
        releases = (equal.model_copy(update={"sampling": law}),)
        shares.append(share.model_copy(update={"releases": releases}))
    new = replace(new, run=new.run.model_copy(update={"shares": tuple(shares)}))
    assert add(url, new).outcome == "added"
    assert runs(url) == (old.run, new.run)


def test_a_book_without_a_table_of_families_is_read(address, tmp_path):
    url = address_of(address)
    booking = booking_of(run(tmp_path / "run"), "")
    add(url, booking)
    _change(url, f"DROP TABLE {FAMILIES.name}")
    assert runs(url) == (booking.run,)
    later = _discrete(booking_of(run(tmp_path / "later", 2), ""))
    add(url, later)
    assert runs(url) == (booking.run, later.run)


def test_the_same_run_is_added_once(address, tmp_path):
    url = address_of(address)
    folder = run(tmp_path / "run")
    add(url, booking_of(folder, ""))
    before = _rows(url)
    again = add(url, booking_of(run(tmp_path / "copy"), ""))
    assert again.outcome == "known"
    assert again.lines == 60
    assert _rows(url) == before == [1, 2, 2]


def test_a_run_that_grew_replaces_its_shorter_self_and_not_the_other_way(
    address, tmp_path
):
    url = address_of(address)
    short_run = run(tmp_path / "short", rounds=10)
    long_run = run(tmp_path / "long", rounds=25)
    assert add(url, booking_of(short_run, "")).outcome == "added"
    grown = add(url, booking_of(long_run, ""))
    assert grown.outcome == "replaced"
    assert grown.lines == 10 * PER_ROUND
    late = add(url, booking_of(short_run, ""))
    assert late.outcome == "longer"
    assert late.lines == 25 * PER_ROUND
    (booked,) = runs(url)
    assert [share.history.rounds for share in booked.shares] == [25, 25]
    assert _rows(url) == [1, 2, 2]


def test_whatever_the_order_the_longest_self_of_a_run_stays(tmp_path):
    selves = [booking_of(run(tmp_path / f"{n}", rounds=n), "") for n in (5, 10, 20)]
    for number, order in enumerate(permutations(selves)):
        url = address_of(str(tmp_path / f"{number}.sqlite"))
        for booking in order:
            add(url, booking)
        assert runs(url) == (selves[-1].run,)


def test_a_book_that_another_program_holds_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "_WAIT", 0.05)
    url = address_of(str(tmp_path / "b.sqlite"))
    booking = booking_of(run(tmp_path / "run"), "")
    add(url, booking)
    holder = sqlite3.connect(tmp_path / "b.sqlite", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(InputError, match=r"book: .*\(database is locked\)"):
        add(url, booking)
    holder.close()
    assert add(url, booking).outcome == "known"


def test_a_book_that_may_only_be_read_is_read_and_not_written(tmp_path):
    file = tmp_path / "b.sqlite"
    booking = booking_of(run(tmp_path / "run"), "")
    add(address_of(str(file)), booking)
    read_only = address_of(f"sqlite:///file:{file}?mode=ro&uri=true")
    assert runs(read_only) == (booking.run,)
    with pytest.raises(InputError, match="readonly database"):
        add(read_only, booking_of(run(tmp_path / "other", 2), ""))


def test_of_copies_that_went_apart_one_counts_as_recorded(address, tmp_path):
    """They share drawn cohorts: their releases are no independent draws."""
    url = address_of(address)
    common_lines = 10 * PER_ROUND
    first_releases, second_releases = (releases(two_groups(), seed) for seed in (1, 2))
    mixed = [*first_releases[:common_lines], *second_releases[common_lines:]]
    add(url, booking_of(run(tmp_path / "first", records=first_releases), ""))
    folder = run(tmp_path / "mixed", records=mixed)
    with pytest.raises(InputError, match=r"must not be a copy of .*first that went"):
        add(url, booking_of(folder, ""))
    assert add(url, booking_of(folder, "", infinite=True)).outcome == "added"
    assert [booked.cost for booked in runs(url)] == [
        "recorded",
        "infinite for good",
    ]


def _broken_in_an_earlier_book(booking):
    """As books before 0.3 stored a broken run that somebody added."""
    changes = {"verdict": "broken", "cost": "infinite"}
    return replace(booking, run=booking.run.model_copy(update=changes))


@pytest.mark.parametrize(
    "booked",
    [lambda booking: booking, _broken_in_an_earlier_book],
    ids=["chosen", "old"],
)
def test_infinite_for_good_is_so_whatever_is_shown_later(tmp_path, booked):
    """A run that grows, loses evidence and gets it back costs no less."""
    url = address_of(str(tmp_path / "b.sqlite"))
    short = booking_of(run(tmp_path / "short", rounds=10), "", infinite=True)
    add(url, booked(short))
    without_evidence = run(tmp_path / "without")
    edit_record(without_evidence, executed=None)
    for folder in (without_evidence, run(tmp_path / "whole")):
        add(url, booking_of(folder, ""))
        [row] = runs(url)
        assert row.lines == 60
        assert row.cost == "infinite for good"
        assert {share.history for share in row.shares} == {
            share.history for share in short.run.shares
        }


def test_an_older_copy_of_a_booked_run_is_no_reason_for_infinite_epsilon(tmp_path):
    """Nothing would be added, and the book go on to say what the run has cost."""
    url = address_of(str(tmp_path / "b.sqlite"))
    older = booking_of(run(tmp_path / "older", rounds=10), "", infinite=True)
    whole = booking_of(run(tmp_path / "whole"), "")
    add(url, whole)
    with pytest.raises(InputError, match="must be the one that the book holds, of 60"):
        add(url, older)
    assert runs(url) == (whole.run,)
    add(url, booking_of(tmp_path / "whole", "", infinite=True))
    assert add(url, older).outcome == "longer"


def test_a_run_belongs_to_one_population(address, tmp_path):
    url = address_of(address)
    folder = run(tmp_path / "run", rounds=10)
    add(url, booking_of(folder, "north"))
    for rounds in (10, 20):
        again = booking_of(run(tmp_path / f"{rounds}", rounds=rounds), "south")
        with pytest.raises(InputError, match="population: must be 'north'"):
            add(url, again)
    assert [booked.population for booked in runs(url)] == ["north"]


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE privplan_book_releases SET noise_multiplier = 99",
        "UPDATE privplan_book_shares SET relation = 'replace_one'",
        "UPDATE privplan_book_runs SET population = 'elsewhere'",
        "DELETE FROM privplan_book_releases",
        "UPDATE privplan_book_releases SET sampling = 'magic'",
        "UPDATE privplan_book_releases SET count = -5",
    ],
)
def test_an_edited_row_is_refused(address, tmp_path, edit):
    url = address_of(address)
    add(url, booking_of(run(tmp_path / "run", rounds=5), ""))
    _change(url, edit)
    with pytest.raises(InputError):
        runs(url)


def test_a_book_of_another_version_is_refused(address, tmp_path):
    url = address_of(address)
    booking = booking_of(run(tmp_path / "run", rounds=5), "")
    add(url, booking)
    _change(url, "UPDATE privplan_book SET schema_version = 7")
    for use in (lambda: runs(url), lambda: add(url, booking)):
        with pytest.raises(InputError, match="schema version 3 or earlier, not 7"):
            use()
