"""What the book keeps of a run: its shares, verdict and cost, its noise once."""

import json
import sqlite3

import pytest

from privplan.book.database import address_of
from privplan.book.entry import booking_of
from privplan.book.spending import account_of
from privplan.book.store import add, runs
from privplan.errors import BrokenRunError, InputError
from privplan.ledger import history_of, read_ledger
from privplan.record import LEDGER, RECORD, RunRecord
from tests.book.runs import as_recorded, run, two_groups
from tests.command import answer, privplan, refused
from tests.verification.honest_run import GROUPS, releases
from tests.verification.test_outcomes import edit_record, forged


def _lines(folder):
    return (folder / LEDGER).read_text().splitlines(keepends=True)


def test_shares_are_the_histories_of_the_ledger(tmp_path):
    folder = run(tmp_path / "run")
    plan = two_groups()
    booked = booking_of(folder, "staff").run
    ledger = read_ledger(folder, plan.digest)
    assert booked.chain == ledger.chain
    assert [share.group for share in booked.shares] == ["loose", "strict"]
    for share in booked.shares:
        assert share.history == history_of(ledger.records, share.group)
        assert share.relation == plan.spec.relation
        assert share.epsilon == plan.group(share.group).epsilon
        assert share.delta == 1e-4
    assert booked.population == "staff"


def test_steps_count_and_units_stay_apart(tmp_path):
    first_release, second_release = releases(two_groups())[:2]
    share = first_release.shares[0].model_copy(
        update={"participants": (0,), "records": 50}
    )
    of_records = {"unit": "record", "steps": 7, "shares": (share,)}
    changed = first_release.model_copy(update=of_records)
    booked = as_recorded(
        run(tmp_path / "run", records=[first_release, second_release, changed])
    )
    rounds = {
        (share.group, share.unit): share.history.rounds for share in booked.shares
    }
    assert rounds == {
        ("strict", "client"): 1,
        ("strict", "record"): 7,
        ("loose", "client"): 1,
    }


def test_silent_releases_cost_nothing_and_bare_ones_everything(tmp_path):
    first_release, second_release = releases(two_groups())[:2]
    nothing = {
        "noise_std": 0.0,
        "dimension": 0,
        "noise_sum_squares": 0.0,
        "residual": None,
    }
    records = [
        first_release.model_copy(update={"family": "silent", **nothing}),
        second_release.model_copy(update={"family": "none", **nothing}),
    ]
    loose, strict = as_recorded(run(tmp_path / "run", records=records)).shares
    assert strict.releases == ()
    [bare] = loose.releases
    assert bare.noise_multiplier == 0.0


@pytest.mark.parametrize(
    ("harm", "line"),
    [
        (lambda lines: [*lines[:-1], lines[-1][:-20]], "line 60 is torn"),
        (lambda lines: [*lines[:4], *lines[5:]], "line 5 does not follow"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "line 1 does not follow"),
        (
            lambda lines: [lines[0].replace('"cohort":', '"cohort":1'), *lines[1:]],
            "line 1 ",
        ),
        (lambda lines: [], "must hold a release"),
    ],
)
def test_a_ledger_that_is_not_sound_is_refused_in_one_line(tmp_path, harm, line):
    folder = run(tmp_path / "run")
    (folder / LEDGER).write_text("".join(harm(_lines(folder))))  # type: ignore[operator]
    with pytest.raises(InputError, match=line) as refused:
        booking_of(folder, "")
    assert len(str(refused.value).splitlines()) == 1


def test_a_complete_run_whose_last_lines_are_gone_is_refused(tmp_path):
    folder = run(tmp_path / "run")
    chain = booking_of(folder, "").run.chain
    RunRecord.load(folder).model_copy(update={"chain": chain}).save(folder)
    booking_of(folder, "")
    (folder / LEDGER).write_text("".join(_lines(folder)[:-2]))
    with pytest.raises(InputError, match="last line"):
        booking_of(folder, "")


def test_a_record_of_another_plan_is_refused(tmp_path):
    folder = run(tmp_path / "run")
    data = json.loads((folder / RECORD).read_text())
    (folder / RECORD).write_text(json.dumps({**data, "plan_digest": "0" * 64}))
    with pytest.raises(InputError, match="another plan"):
        booking_of(folder, "")


def _halved(records):
    """The releases, with half of the noise that was drawn."""
    return [
        record.model_copy(update={"noise_sum_squares": record.noise_sum_squares / 4})
        for record in records
    ]


def _without_participants(records):
    changed = []
    for record in records:
        shares = tuple(
            share.model_copy(update={"participants": None}) for share in record.shares
        )
        changed.append(record.model_copy(update={"shares": shares}))
    return changed


def test_a_broken_run_is_refused_with_exit_code_4_in_one_line(tmp_path):
    folder = run(tmp_path / "run", records=_halved(releases(two_groups())))
    book = tmp_path / "b"
    line = refused("book", "add", folder, "--address", book, code=4)
    rule = "must not be broken (--infinite books one that was published)"
    assert line.startswith(f"run: {rule}, found")
    assert "noise drawn: round 1" in line
    assert not book.exists()
    with pytest.raises(BrokenRunError):
        booking_of(folder, "")


def test_a_broken_run_can_be_booked_at_infinite_epsilon(tmp_path):
    folder = run(tmp_path / "run", records=_halved(releases(two_groups())))
    book = tmp_path / "b"
    done = privplan("book", "add", folder, "--infinite", "--address", book)
    assert done.exit_code == 0
    assert "is broken: its releases are booked at infinite epsilon" in done.stderr
    command = ("book", "left", "--group", "strict", "--epsilon", 40, "--address", book)
    assert "nothing is left" in refused(*command, code=3)


def test_a_forged_run_costs_infinite_epsilon_for_every_group(tmp_path):
    folder = run(tmp_path / "run", records=forged(two_groups()))
    edit_record(folder, executed=None)
    booked = booking_of(folder, "").run
    assert booked.verdict == "unverified"
    assert booked.cost == "infinite"
    assert {share.group for share in booked.shares} == set(GROUPS)
    for share in booked.shares:
        assert {release.noise_multiplier for release in share.releases} == {0}


def test_without_participants_nothing_is_known_of_a_client(tmp_path):
    """How often a client was drawn may be more than the noise was made for."""
    records = _without_participants(releases(two_groups()))
    booked = booking_of(run(tmp_path / "run", records=records), "").run
    assert booked.verdict == "unverified"
    assert booked.cost == "infinite"
    for share in booked.shares:
        assert {release.noise_multiplier for release in share.releases} == {0}


def test_full_participation_of_earlier_books_counts_as_infinite(tmp_path):
    """It forgot that a law moves a sum by two norms, and persons by more."""
    booked = booking_of(run(tmp_path / "run"), "").run
    earlier = booked.model_copy(update={"cost": "full participation"})
    assert account_of([booked], "", "strict").history.rounds == 30
    account = account_of([earlier], "", "strict")
    assert [release.noise_multiplier for release, _ in account.history] == [0]


def test_a_run_that_is_not_finished_is_booked_as_recorded(tmp_path):
    booked = booking_of(run(tmp_path / "run", rounds=7), "").run
    assert booked.verdict == "unverified"
    assert booked.cost == "recorded"
    assert [share.history.rounds for share in booked.shares] == [7, 7]


def test_equal_noise_in_two_runs_is_refused_in_one_line(tmp_path):
    """One seed on other data: the same states of the generator, but other sums."""
    book = tmp_path / "b"
    first_releases = releases(two_groups(), 1)
    states = [release.noise_state for release in first_releases]
    second_releases = [
        release.model_copy(update={"noise_state": state})
        for release, state in zip(releases(two_groups(), 2), states, strict=True)
    ]
    answer(
        "book", "add", run(tmp_path / "one", records=first_releases), "--address", book
    )
    line = refused(
        "book",
        "add",
        run(tmp_path / "two", 2, records=second_releases),
        "--address",
        book,
    )
    assert "run: must have noise of its own" in line
    assert "60 equal noise states" in line
    assert len(runs(address_of(str(book)))) == 1


def test_one_state_in_common_is_enough(tmp_path):
    url = address_of(str(tmp_path / "b"))
    second = releases(two_groups(), 2)
    state = {"noise_state": releases(two_groups(), 1)[5].noise_state}
    mixed = [*second[:40], second[40].model_copy(update=state), *second[41:]]
    add(url, booking_of(run(tmp_path / "one", 1), ""))
    with pytest.raises(InputError, match="1 equal noise states"):
        add(url, booking_of(run(tmp_path / "two", 2, records=mixed), ""))


def test_a_book_of_version_1_is_read_and_upgraded(tmp_path):
    """Version 1 had no table of verdicts, and digests without verdict and cost."""
    file = tmp_path / "b.sqlite"
    booking = booking_of(run(tmp_path / "run"), "")
    add(address_of(str(file)), booking)
    old = booking.run.model_copy(update={"verdict": None})
    with sqlite3.connect(file) as book:
        book.execute("DROP TABLE privplan_book_verdicts")
        book.execute("UPDATE privplan_book SET schema_version = 1")
        book.execute("UPDATE privplan_book_runs SET digest = ?", (old.digest,))
    assert runs(address_of(str(file))) == (old,)
    second = booking_of(run(tmp_path / "second", 2), "")
    assert add(address_of(str(file)), second).outcome == "added"
    assert runs(address_of(str(file))) == (old, second.run)
    shown = answer(
        "book", "show", "--group", "strict", "--address", file, "--format", "json"
    )
    assert '"kept": 1' in shown


def test_an_edited_verdict_is_found(tmp_path):
    url = address_of(str(tmp_path / "b.sqlite"))
    add(url, booking_of(run(tmp_path / "run", rounds=5), ""))
    with sqlite3.connect(tmp_path / "b.sqlite") as book:
        book.execute("UPDATE privplan_book_verdicts SET verdict = 'kept'")
    with pytest.raises(InputError, match="was edited"):
        runs(url)
