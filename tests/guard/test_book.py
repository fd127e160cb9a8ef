"""A guard with a book: earlier runs count by the rule with which the plan was made."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from privplan.accounting.accountant import accountant, at_most
from privplan.accounting.certificate import Certificate, certify
from privplan.accounting.release import History, Relation
from privplan.book.accounts import Budgets
from privplan.book.book import Book
from privplan.book.composition import composition_of
from privplan.book.database import address_of
from privplan.book.entry import booking_of
from privplan.book.replan import solve_at
from privplan.book.spending import account_of
from privplan.book.store import runs
from privplan.errors import InputError
from privplan.guard import BudgetExceededError, Guard
from privplan.guard.booked import add_to_book, booked_lines
from privplan.planning.solver import solve
from privplan.record import LEDGER, RESERVED
from privplan.spec.spec import Spec
from tests.command import privplan
from tests.guard.plans import SIZE, plan_of, two_groups
from tests.guard.plans import train as loop
from tests.planning.problems import members

DELTA = 1e-4


def spec(epsilon, rounds=12, **changes):
    """A strict and a loose group."""
    groups = [members("strict", 300, epsilon), members("loose", 200, 3 * epsilon)]
    data = {
        "name": "guarded",
        "groups": groups,
        "rounds": rounds,
        "cohort": 30,
        "delta": DELTA,
        "clipping_norm": 0.5,
        "model": {"name": "cnn-digits", "parameters": SIZE},
        # Uniform ratios, which take no search.
        "planning": {"ratios": "uniform"},
    }
    return Spec.parse({**data, **changes})


def train(plan, folder, book=None, population=""):
    """Rounds that a guard with the book releases, and why it refuses the next."""
    with Guard(plan, folder, book, population=population) as guard:
        loop(guard)
        refusal = guard.refusal()
        done = guard.round - 1
        guard.finish()
    return done, refusal


def longer(plan, rounds):
    """The plan with more rounds of the same noise, and room in its own epsilon."""

    def with_room(groups):
        return tuple(
            group.model_copy(update={"epsilon": 2 * group.epsilon}) for group in groups
        )

    changes = {"rounds": rounds, "groups": with_room(plan.spec.groups)}
    spec_ = plan.spec.model_copy(update=changes)
    wider = plan.model_copy(update={"spec": spec_, "groups": with_room(plan.groups)})
    rows = []
    for group in wider.groups:
        rows += certify(
            wider.history(group.name),
            group=group.name,
            delta=group.delta,
            relation=spec_.relation,
            accountants=("pld",),
        )
    return wider.model_copy(update={"certificate": Certificate(rows)})


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """Two runs of a part of the budgets of later tests."""
    folder = tmp_path_factory.mktemp("book")
    address = str(folder / "book.sqlite")
    plan = solve(spec(0.5))
    for name in ("first", "second"):
        assert train(plan, folder / name)[0] == 12
        add_to_book(address, "", folder / name)
    return address


def copied(book, tmp_path):
    """A book of the test's own."""
    address = tmp_path / "book.sqlite"
    address.write_bytes(Path(book).read_bytes())
    return str(address)


@pytest.mark.parametrize("rule", [None, pytest.param("exact", marks=pytest.mark.slow)])
def test_a_plan_from_the_book_runs_in_full_and_no_round_more(book, tmp_path, rule):
    address = copied(book, tmp_path)
    plan = solve_at(spec(2.0), address, rule=rule)
    assert {budget.rule for budget in plan.book} == {rule or "renyi"}
    done, refusal = train(longer(plan, 14), tmp_path / "longer", copied(book, tmp_path))
    assert done == 12  # the plan uses at least 99.8% of the budget over all runs
    phrase = "accountant pld" if rule else "renyi filter at order"
    assert (
        " over all runs (delta 0.0001, poisson sampling, add_remove, " + phrase
        in refusal
    )
    assert refusal.split(", found")[0].endswith("with the release of round 13")
    assert train(plan, tmp_path / "third", copied(book, tmp_path)) == (
        12,
        "round: must be one of the 12 planned rounds, found 13",
    )


def test_a_filter_refuses_what_was_booked_after_planning(book, tmp_path):
    """The releases stay within the budget by the filter, and would not with another."""
    address = copied(book, tmp_path)
    plan = solve_at(spec(2.0), address)
    assert train(solve(spec(0.4)), tmp_path / "between")[0] == 12
    add_to_book(address, "", tmp_path / "between")
    done, refusal = train(plan, tmp_path / "late", address)
    assert 0 < done < 12
    account = account_of(runs(address_of(address)), "", refusal.split(".")[1])
    (stored,) = (budget for budget in plan.book if budget.group == account.group)
    composition = composition_of(account, stored.budget, DELTA, stored.rule)
    assert composition.fits(History())
    release, _ = next(iter(plan.history(plan.group(account.group))))
    next_round = History.repeated(release, 1)
    assert not composition.fits(next_round)
    assert f"found {at_most(composition.epsilon(next_round), 6)}" in refusal


def test_a_plan_without_a_book_is_composed_by_a_filter(book, tmp_path):
    """Exact composition, which no adaptive run may use, would accept more rounds."""
    plan = solve(spec(1.2, planning={"ratios": "uniform"}))
    done, refusal = train(plan, tmp_path / "run", copied(book, tmp_path))
    assert "renyi filter" in refusal
    name = refusal.split(".")[1]
    history = plan.history(plan.group(name))
    ((release, _),) = history
    past = account_of(runs(address_of(book)), "", name).history
    refused = past + History.repeated(release, done + 1)
    exact = accountant("pld").epsilon(refused, DELTA, Relation.ADD_REMOVE)
    assert exact.upper <= plan.group(name).epsilon
    assert train(plan, tmp_path / "elsewhere", copied(book, tmp_path), "other")[0] == 12


def test_the_first_run_fixes_the_filter_also_when_it_goes_on(tmp_path):
    """Its own entry counts once, and keeps its place at the beginning of the book."""
    book = str(tmp_path / "book.sqlite")
    plan = solve(spec(1.0))
    with Guard(plan, tmp_path / "first", book) as guard:
        loop(guard, rounds=3)
    assert train(solve(spec(0.3, rounds=3, cohort=250)), tmp_path / "later")[0] == 3
    add_to_book(book, "", tmp_path / "later")
    with Guard(plan, tmp_path / "first", book) as guard:
        spent = {group.name: guard.epsilon(group.name) for group in plan.groups}
    for group in plan.groups:
        account = account_of(runs(address_of(book)), "", group.name)
        composition = composition_of(account, group.epsilon, DELTA)
        assert spent[group.name].upper == composition.epsilon(History())
        assert 0 < spent[group.name].lower < spent[group.name].upper
        alone = composition_of(
            replace(account, histories=account.histories[1:]), 1.0, DELTA
        )
        assert alone.order != composition.order


def test_a_rule_that_does_not_cover_the_book_is_one_line(book, tmp_path):
    plan = solve_at(spec(2.0), copied(book, tmp_path))
    booked = tuple(
        budget.model_copy(update={"rule": "gaussian"}) for budget in plan.book
    )
    plan = plan.model_copy(update={"book": booked})
    with pytest.raises(
        InputError, match=r"^rule: must cover the releases, .*everybody takes part"
    ):
        Guard(plan, tmp_path / "run", copied(book, tmp_path))


def test_a_book_of_accounts_only_has_no_runs(tmp_path):
    address = str(tmp_path / "accounts.sqlite")
    Budgets(address).open("strict", 2.0, 1e-5)
    with Guard(solve(spec(1.0)), tmp_path / "run", address) as guard:
        assert guard.may_release()


def test_the_book_counts_earlier_runs_and_gets_this_one(tmp_path):
    plan = two_groups(12)
    book = str(tmp_path / "book.sqlite")
    rounds = []
    for number in range(4):
        with Guard(plan, tmp_path / f"run{number}", book) as guard:
            loop(guard)
            rounds.append(guard.round - 1)
            guard.finish()
    assert rounds[0] == 12
    assert 0 <= rounds[3] < 12  # 48 rounds exceed the budgets
    assert {run.seed for run in runs(address_of(book))} == {None}
    # Its own entry does not count twice.
    with Guard(plan, tmp_path / "run0", book) as guard:
        spent = guard.epsilon("strict").upper
    assert spent <= plan.group("strict").epsilon


def test_a_run_that_the_book_refuses_from_the_start_ends_with_the_refusal(tmp_path):
    plan = two_groups(12)
    book = str(tmp_path / "book.sqlite")
    for number in range(5):
        with Guard(plan, tmp_path / f"run{number}", book) as guard:
            loop(guard)
    assert not (tmp_path / "run4" / LEDGER).exists()
    with (
        pytest.raises(BudgetExceededError, match="epsilon"),
        Guard(plan, tmp_path / "run5", book) as guard,
    ):
        guard.draw(1)


def test_noise_of_others_is_booked_when_it_suffices(tmp_path):
    plan = plan_of({"all": (1000, 2.0, 0.05, 1.2)}, 20)
    with Guard(plan, tmp_path) as guard:
        with pytest.raises(
            InputError, match=r"noise_std: must be 0\.6, as planned, found 0\.5"
        ):
            guard.record_noised(1, 10, 0.5)
        for round_ in guard.rounds():
            with pytest.raises(InputError, match="round: must be drawn by the guard"):
                guard.record_noised(round_, 10, 0.6)
            guard.draw(round_)
            if round_ > 1:
                with pytest.raises(
                    InputError, match="must be the 10 coordinates of al"
                ):
                    guard.record_noised(round_, 9, 0.6)
            guard.record_noised(round_, 10, 0.6)
        with pytest.raises(BudgetExceededError, match="20 planned rounds"):
            guard.record_noised(21, 10, 0.6)
    verdict = Guard(plan, tmp_path).verdict()
    assert verdict.groups[0].realised_upper == verdict.groups[0].planned
    assert "noise fresh" in {check.name for check in verdict.not_shown}


def test_guards_at_once_never_overspend(tmp_path):
    plan = two_groups(12)
    book = str(tmp_path / "book.sqlite")
    guards = [Guard(plan, tmp_path / f"run{number}", book) for number in range(5)]
    for guard in reversed(guards):
        loop(guard)
    done = [guard.round - 1 for guard in guards]
    assert done[:2] == [12, 12]
    assert 12 > done[2] > done[3] == done[4] == 0  # 60 rounds exceed the budgets
    assert "over all runs" in str(guards[4].refusal())
    for guard in guards:
        guard.close()
    booked = runs(address_of(book))
    for group in plan.groups:
        account = account_of(booked, "", group.name)
        assert account.history.rounds == sum(done)
        assert composition_of(account, group.epsilon, DELTA).fits(History())


def test_what_a_run_reserved_counts_until_it_ends(tmp_path):
    """Also after a kill: the folder is opened again, and its reservation is its own."""
    plan = two_groups(30)
    book = str(tmp_path / "book.sqlite")
    guard = Guard(plan, tmp_path / "one", book)
    loop(guard, rounds=2)
    guard._stack.close()  # as a kill: nothing is added
    [entry] = runs(address_of(book))
    assert entry.status == "reserved"
    assert {share.history.rounds for share in entry.shares} == {30}
    with Guard(plan, tmp_path / "two", book) as second:
        few = second._book.affordable_rounds
        second.draw(1)
    with Guard(plan, tmp_path / "one", book) as guard:
        assert guard.round == 3
    assert [run.status for run in runs(address_of(book))] == [
        "running",
        "reserved",
        "reserved",
    ]
    with Guard(plan, tmp_path / "two", book) as second:
        assert second._book.affordable_rounds == few < 30
        second.finish()
    with Guard(plan, tmp_path / "one", book) as guard:
        guard.finish()
    assert "reserved" not in {run.status for run in runs(address_of(book))}
    with Guard(plan, tmp_path / "three", book) as third:
        assert third._book.affordable_rounds == few + 28


def test_a_run_that_drew_nothing_gives_back_what_it_reserved(tmp_path):
    """As a false start, whose folder is removed."""
    plan = two_groups(4)
    book = str(tmp_path / "book.sqlite")
    with Guard(plan, tmp_path / "run", book):
        assert len(runs(address_of(book))) == 1
    assert runs(address_of(book)) == ()
    with Guard(plan, tmp_path / "run", book) as guard:
        loop(guard)
    assert [run.lines for run in runs(address_of(book))] == [4]


def test_a_run_goes_on_as_one_of_the_same_people(tmp_path):
    book = f"sqlite:///{tmp_path / 'book.sqlite'}"
    plan = two_groups(4)
    for closed in ("reserved", "booked"):
        folder = tmp_path / closed
        with Guard(plan, folder, book, population="north") as guard:
            guard.draw(1)
            if closed == "booked":
                loop(guard, rounds=1)
        for population in ("south", ""):
            with pytest.raises(InputError, match="population: must be 'north'"):
                Guard(plan, folder, book, population=population)
        with Guard(plan, folder, book, population="north") as guard:
            assert guard.may_release()


@pytest.mark.parametrize("rounds", [2, 4])
def test_a_run_that_its_guard_booked_is_known(rounds, tmp_path):
    """Its evidence shows a reader less than the guard saw."""
    book = str(tmp_path / "book.sqlite")
    plan = two_groups(4)
    with Guard(plan, tmp_path / "run", book, evidence="public") as guard:
        loop(guard, rounds=rounds)
    before = runs(address_of(book))
    assert before[0].verdict == "unverified"
    added = privplan("book", "add", tmp_path / "run", "--address", book)
    assert "nothing added" in added.stdout
    assert "releases are booked as recorded" in added.stderr
    assert runs(address_of(book)) == before


def test_the_name_of_another_guards_reservation_keeps_no_run_finite(tmp_path):
    book = str(tmp_path / "book.sqlite")
    plan = two_groups(2)
    for name, address in (("booked", book), ("alone", None)):
        with Guard(plan, tmp_path / name, address) as guard:
            loop(guard)
    alone = tmp_path / "alone"
    assert Book(book).add(alone) == "added"
    for evidence in alone.glob("noise*"):
        evidence.unlink()
    shutil.copy(tmp_path / "booked" / "guard" / "reserved", alone / "guard")
    Book(book).add(alone)
    assert {run.cost for run in runs(address_of(book))} == {"recorded", "infinite"}


def test_a_run_that_was_added_without_evidence_counts_as_its_guard_says(tmp_path):
    book = str(tmp_path / "book.sqlite")
    guard = Guard(two_groups(4), tmp_path / "run", book, evidence="public")
    loop(guard, rounds=2)
    assert Book(book).add(tmp_path / "run") == "added"
    assert "infinite" in {run.cost for run in runs(address_of(book))}
    guard.finish()
    guard.close()
    [booked] = runs(address_of(book))
    assert (booked.lines, booked.cost) == (2, "recorded")


@pytest.mark.parametrize("finished", [False, True])
def test_a_run_that_was_booked_at_infinite_epsilon_goes_on_so(finished, tmp_path):
    book = str(tmp_path / "book.sqlite")
    plan = two_groups(4)
    with Guard(plan, tmp_path / "run", book) as guard:
        loop(guard, rounds=4 if finished else 2)
    assert Book(book).add(tmp_path / "run", infinite=True) == "judged"
    with Guard(plan, tmp_path / "run", book) as guard:
        loop(guard)
        guard.finish()
    [booked] = runs(address_of(book))
    assert (booked.lines, booked.verdict) == (4, "kept")
    assert {share.history.rounds for share in booked.shares} == {1}
    assert Book(book).spent("strict")[0].epsilon_upper is None
    added = privplan("book", "add", tmp_path / "run", "--address", book)
    assert "is kept: its releases are booked at infinite epsilon" in added.stderr


def test_a_run_under_a_guard_is_added_as_one_of_the_same_people(tmp_path):
    """Else it could neither go on nor be taken out of the book."""
    book = str(tmp_path / "book.sqlite")
    with Guard(two_groups(4), tmp_path / "run", book, population="north") as guard:
        loop(guard, rounds=1)
        with pytest.raises(InputError, match="population: must be 'north'"):
            Book(book).add(tmp_path / "run", "south")
        loop(guard, rounds=1)
    with Guard(two_groups(4), tmp_path / "run", book, population="north") as guard:
        assert guard.round == 3


def test_lines_in_a_book_are_those_of_the_run_s_own_ledger():
    plan = SimpleNamespace(digest="own")

    def booked(*rows):
        runs_of_book = []
        for digest, chain, lines in rows:
            run = SimpleNamespace(plan=digest, chain=chain, lines=lines)
            runs_of_book.append(run)
        return booked_lines(runs_of_book, plan, {"first", "second"})

    assert booked() == 0
    assert booked(("own", "elsewhere", 7), ("other", "first", 9)) == 0
    assert booked(("own", "first", 2), ("own", "second", 4)) == 4


@pytest.mark.parametrize("evidence", ["internal", "public"])
def test_a_run_that_ends_without_a_further_release_ends_in_the_book(evidence, tmp_path):
    book = str(tmp_path / "book.sqlite")
    plan = two_groups(4)
    with Guard(plan, tmp_path / "run", book, evidence=evidence) as guard:
        for round_number in (1, 2):
            for group, client in guard.draw(round_number).members:
                guard.add(round_number, group, client, np.ones(SIZE))
            guard.record(round_number, guard.release(round_number).mean)
    with Guard(plan, tmp_path / "run", book, evidence=evidence) as guard:
        guard.finish()
    [booked] = runs(address_of(book))
    assert (booked.lines, booked.status) == (2, "complete")


def test_a_guard_keeps_the_account_of_its_group_and_the_ceiling(tmp_path):
    """Seven rounds are left beside what is reserved and a run of another group."""
    plan = plan_of({"strict": (60, 4.0, 0.1, 2.0)}, 12)
    of_loose = plan_of({"loose": (60, 4.0, 0.1, 2.0)}, 4)
    ((release, _),) = plan.history(plan.groups[0])
    book = str(tmp_path / "book.sqlite")
    budgets = Budgets(book)
    budgets.open("site", 4.0, DELTA)
    for name in ("strict", "loose", "rest"):
        budgets.open(name, 8.0, DELTA, ceilings=["site"])
    budgets.reserve("a round", {"rest": History.repeated(release, 1)})
    site = budgets.state("site")
    elsewhere = site.capacity // site.reserved_units - 1 - 4 - 7
    budgets.reserve("elsewhere", {"rest": History.repeated(release, elsewhere)})
    assert train(of_loose, tmp_path / "other", book)[0] == 4

    # What a guard reserved does not count beside it when the folder is opened again.
    with Guard(plan, tmp_path / "run", book) as guard:
        loop(guard, rounds=1)
        assert budgets.state("site").committed <= 4.0
    done, refusal = train(plan, tmp_path / "run", book)
    assert done == 7
    assert refusal.startswith("groups.strict.epsilon: must stay within the budget 4 ")
    assert "of the account site (delta 0.0001, poisson sampling" in refusal
    assert budgets.state("site").committed <= 4.0


def test_a_round_that_failed_makes_no_room_in_the_book(tmp_path):
    """Of seven rounds that the account affords, and the run reserved."""
    plan = two_groups(12)
    book = str(tmp_path / "book.sqlite")
    Budgets(book).open("strict", 0.75, DELTA)
    with Guard(plan, tmp_path / "run", book) as guard:
        guard.fail(1, "restart")
        loop(guard)
        assert guard.refusal() == (
            "round: must be one of the first 7, reserved in the run's book, found 8"
        )
    with Guard(plan, tmp_path / "run", book) as guard:
        assert "must be one of the first 7" in guard.refusal()


def test_an_account_without_room_refuses_the_first_round(tmp_path):
    plan = plan_of({"strict": (60, 4.0, 0.1, 2.0)}, 12)
    book = str(tmp_path / "book.sqlite")
    Budgets(book).open("staff/strict", 1e-3, DELTA)
    with (
        pytest.raises(BudgetExceededError, match="of the account staff/strict"),
        Guard(plan, tmp_path / "run", book, population="staff") as guard,
    ):
        guard.draw(1)


def test_a_book_is_named_from_the_first_round_on(tmp_path):
    """Else the folder may be made up, or a copy with the cohorts of another one."""
    plan = plan_of({"strict": (60, 4.0, 0.1, 2.0)}, 3)
    with Guard(plan, tmp_path / "run") as guard:
        loop(guard, rounds=1)
    with pytest.raises(InputError, match="book: must be named from the first round"):
        Guard(plan, tmp_path / "run", str(tmp_path / "book.sqlite"))


def test_a_run_that_ended_without_a_book_is_not_on_the_guard_s_word(tmp_path):
    """Nothing but the folder says that a guard executed it."""
    plan = plan_of({"strict": (60, 4.0, 0.1, 2.0)}, 3)
    with Guard(plan, tmp_path / "run", evidence="public") as guard:
        loop(guard)
    book = tmp_path / "book.sqlite"
    for name in (None, "reserved-anywhere"):
        if name is not None:
            (tmp_path / "run" / RESERVED).write_text(name)
        with pytest.raises(InputError, match="book: must be "):
            Guard(plan, tmp_path / "run", str(book), evidence="public")
    assert not book.exists()
    assert booking_of(tmp_path / "run", "").run.cost == "infinite"


def test_a_book_is_named_before_the_first_draw(tmp_path):
    """A copy of the folder would have the same cohort."""
    plan = plan_of({"strict": (60, 4.0, 0.1, 2.0)}, 3)
    with Guard(plan, tmp_path / "run") as guard:
        guard.draw(1)
    with pytest.raises(InputError, match="book: must be named from the first round"):
        Guard(plan, tmp_path / "run", str(tmp_path / "book.sqlite"))


def test_an_account_of_another_relation_is_refused(tmp_path):
    plan = plan_of({"strict": (60, 4.0, 0.1, 2.0)}, 3)
    book = str(tmp_path / "book.sqlite")
    Budgets(book).open("strict", 8.0, DELTA, relation="replace_one")
    with pytest.raises(InputError, match="must be replace_one, that of account strict"):
        Guard(plan, tmp_path / "run", book)
    Guard(plan, tmp_path / "run").close()  # nothing was reserved


def test_people_have_a_name_that_a_book_takes(tmp_path):
    """Else the run could be released, and never booked."""
    book = tmp_path / "book.sqlite"
    with pytest.raises(InputError, match="population: must have printable lett"):
        Guard(two_groups(2), tmp_path / "run", str(book), population="hospital\n")
    assert not book.exists()


def test_only_the_owner_reads_what_a_guard_drew(tmp_path):
    plan = plan_of({"strict": (60, 4.0, 0.1, 2.0)}, 3)
    with Guard(plan, tmp_path / "run", evidence="public") as guard:
        guard.draw(1)
    [draw] = tmp_path.glob("run/**/draw.json")
    assert draw.stat().st_mode & 0o777 == 0o600
