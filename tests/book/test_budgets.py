"""Accounts, reservations, expiry, ceilings and filters; on both databases."""

import math
from datetime import timedelta

import pytest
from sqlalchemy import update

from privplan.accounting.release import History, Release, SamplingLaw
from privplan.book import filters
from privplan.book.account_rows import ACCOUNTS
from privplan.book.accounts import Budgets
from privplan.book.book import Book
from privplan.errors import InfeasibleError, InputError, UnsupportedError
from tests.book.runs import run
from tests.command import refused


def releases(count, noise=20.0):
    return History.repeated(Release(noise, 1.0, SamplingLaw.FULL), count)


def sampled(count):
    return History.repeated(Release(3.0, 0.02), count)


class Clock:
    now = 1e9

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def budgets(address, clock):
    return Budgets(address, clock)


def test_what_is_not_used_returns(budgets):
    budgets.open("p/strict", 1.0, 1e-5)
    name = budgets.reserve("run-1", {"p/strict": sampled(100)})
    full = budgets.state("p/strict")
    assert full.spent == 0 < full.committed < 1
    budgets.spend(name, {"p/strict": sampled(30)})
    budgets.close(name)
    after = budgets.state("p/strict")
    assert after.reserved_units == 0
    assert after.spent_units * 100 == full.reserved_units * 30
    with pytest.raises(InputError, match="must be open, not closed"):
        budgets.spend(name, {"p/strict": sampled(1)})


def test_a_reservation_that_does_not_fit_is_refused_in_all_accounts(budgets):
    budgets.open("a", 8.0, 1e-5)
    budgets.open("b", 0.3, 1e-5)
    with pytest.raises(
        InfeasibleError, match=r"b: of epsilon 0.3 at delta 1e-05 \(renyi filter\)"
    ):
        budgets.reserve("run", {"a": sampled(400), "b": sampled(400)})
    assert budgets.state("a").reserved_units == 0


def test_a_run_cannot_spend_more_than_it_reserved(budgets):
    budgets.open("a", 2.0, 1e-5)
    name = budgets.reserve("run", {"a": sampled(10)})
    with pytest.raises(InfeasibleError, match="more than it reserved"):
        budgets.spend(name, {"a": sampled(11)})
    budgets.spend(name, {"a": sampled(10)})
    with pytest.raises(InfeasibleError):
        budgets.spend(name, {"a": sampled(1)})


def test_a_step_is_spent_once(budgets):
    budgets.open("a", 2.0, 1e-5)
    name = budgets.reserve("run", {"a": sampled(10)}, reservation="mine")
    assert budgets.reserve("run", {"a": sampled(10)}, reservation="mine") == name
    for step in (0, 1, 1, 0, 1):
        budgets.spend(name, {"a": sampled(1)}, step=step)
    state = budgets.state("a")
    assert state.spent_units * 4 == state.reserved_units


def test_a_step_is_repeated_with_the_same_releases_only(budgets):
    budgets.open("a", 2.0, 1e-5)
    name = budgets.reserve("run", {"a": sampled(10)})
    budgets.spend(name, {"a": sampled(1)}, step=1)
    budgets.spend(name, {"a": sampled(1)}, step=5)
    before = budgets.state("a")
    with pytest.raises(
        InputError, match=r"^step: was spent with other releases; .*found 1$"
    ):
        budgets.spend(name, {"a": sampled(2)}, step=1)
    with pytest.raises(InputError, match=r"^step: must be larger than 5, .*found 3$"):
        budgets.spend(name, {"a": sampled(1)}, step=3)
    budgets.spend(name, {"a": sampled(1)}, step=1)
    assert budgets.state("a") == before


def test_an_expired_reservation_returns_the_rest_and_spends_no_more(budgets, clock):
    budgets.open("a", 2.0, 1e-5)
    for wrong in (timedelta(days=1), -1):
        with pytest.raises(InputError, match="expires_in: must be positive seconds"):
            budgets.reserve("run", {"a": sampled(10)}, expires_in=wrong)
    name = budgets.reserve("run", {"a": sampled(10)}, expires_in=60)
    budgets.spend(name, {"a": sampled(4)})
    clock.now += 61
    with pytest.raises(InputError, match="must be open, not expired"):
        budgets.spend(name, {"a": sampled(1)})
    assert budgets.state("a").reserved_units == 0 < budgets.state("a").spent_units


def test_a_ceiling_holds_for_the_worst_group_of_a_site(budgets):
    budgets.open("site:a", 0.5, 1e-5)
    budgets.open("a/strict", 1.0, 1e-5, ceilings=["site:a"])
    budgets.open("a/loose", 8.0, 1e-5, ceilings=["site:a"])
    name = budgets.reserve("one", {"a/strict": sampled(5), "a/loose": sampled(20)})
    assert budgets.state("site:a").reserved_units > 0
    budgets.spend(name, {"a/strict": sampled(5)})
    budgets.spend(name, {"a/loose": sampled(20)})  # the larger of both, not their sum
    budgets.close(name)
    with pytest.raises(InfeasibleError, match=r"site:a: of epsilon 0\.5"):
        budgets.reserve("two", {"a/loose": sampled(4000)})


def test_a_run_of_the_book_costs_its_account_what_its_reservation_would(
    budgets, address
):
    counts = releases(30)
    budgets.open("p/reserved", 2.0, 1e-5)
    budgets.commit(budgets.reserve("run", {"p/reserved": counts}))
    budgets.open("p/declared", 2.0, 1e-5)
    Book(address).declare("counts", counts, population="p", group="declared", clients=9)
    reserved = budgets.state("p/reserved")
    declared = budgets.state("p/declared")
    assert 0 < declared.spent_units == reserved.spent_units
    assert declared.committed == reserved.committed

    remaining_units = reserved.capacity - reserved.spent_units
    fitting = int(remaining_units / (reserved.spent_units / 30))
    with pytest.raises(InfeasibleError, match=r"p/declared: of epsilon 2 at"):
        budgets.reserve("next", {"p/declared": releases(fitting + 1)})
    budgets.reserve("next", {"p/declared": releases(fitting)})


def test_what_an_account_holds_is_not_left(tmp_path):
    address = tmp_path / "book.sqlite"
    book = Book(address)
    book.declare("counts", releases(9), population="p", group="a", clients=9)
    budgets = Budgets(str(address))
    budgets.open("p/a", 4.0, 1e-5)
    next_run = {"population": "p", "delta": 1e-5}
    assert book.left("a", 4.0, **next_run).headroom > 0
    reserved = budgets.reserve("run", {"p/a": releases(9)})
    with pytest.raises(InputError, match=r"^group: must have nothing .* 'p/a'$"):
        book.left("a", 4.0, **next_run)
    words = ("--group", "a", "--population", "p", "--epsilon", 4, "--delta", 1e-5)
    line = refused("book", "left", *words, "--address", address)
    assert "(privplan book budgets, solve --from-book)" in line
    budgets.close(reserved)
    assert book.left("a", 4.0, **next_run).headroom > 0


def test_what_is_added_after_a_reservation_refuses_its_steps(budgets, address):
    """Of all rounds that fit one is spent, and all but three are added."""
    budgets.open("p", 8.0, 1e-5)
    budgets.reserve("one", {"p": releases(1)}, reservation="one")
    state = budgets.state("p")
    rounds = state.capacity // state.reserved_units
    budgets.commit("one", {"p": releases(1)})
    name = budgets.reserve("run", {"p": releases(rounds - 1)})
    Book(address).declare("counts", releases(rounds - 3), group="p", clients=9)
    for step in range(2):
        budgets.spend(name, {"p": releases(1)}, step=step)
    before = budgets.state("p")
    with pytest.raises(InfeasibleError, match=r"^p: of epsilon 8 at delta 1e-05"):
        budgets.spend(name, {"p": releases(1)}, step=2)
    assert budgets.state("p") == before
    assert before.spent <= 8.0 < before.committed

    # A step that was spent may be repeated; what happened is recorded all the same.
    budgets.spend(name, {"p": releases(1)}, step=1)
    budgets.commit(name, {"p": releases(1)})
    assert budgets.state("p").spent > 8.0


def test_runs_of_the_book_cost_a_ceiling_the_largest_of_its_groups(budgets, address):
    budgets.open("site", 8.0, 1e-5)
    for group, count in (("strict", 10), ("loose", 30)):
        budgets.open(f"p/{group}", 4.0, 1e-5, ceilings=["site"])
        Book(address).declare(
            group, releases(count), population="p", group=group, clients=9
        )
    # Each declaration is a run of its own, so that the ceiling bears both.
    budgets.open("forty", 8.0, 1e-5)
    budgets.commit(budgets.reserve("run", {"forty": releases(40)}))
    assert budgets.state("site").spent_units == budgets.state("forty").spent_units


def test_a_filter_that_does_not_cover_a_run_of_the_book_leaves_nothing(tmp_path):
    address = tmp_path / "book.sqlite"
    Book(address).add(run(tmp_path / "run"), "p", rounds=0)
    budgets = Budgets(str(address))
    budgets.open("p/strict", 900.0, 1e-5, rule="gaussian")
    assert budgets.state("p/strict").spent == math.inf
    with pytest.raises(InfeasibleError, match="inf is spent"):
        budgets.reserve("next", {"p/strict": releases(1)})


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ({"members": 5}, "with members or a refill period"),
        ({"period": 60.0}, "with members or a refill period"),
        ({"rule": "exact", "sealed": True}, r"of declared runs \(exact\)"),
    ],
)
def test_a_removed_kind_of_account_is_refused_and_the_rest_of_the_book_works(
    budgets, clock, kind, what, caplog
):
    # A command with --quiet may have been before.
    caplog.set_level("WARNING", "privplan")
    for name in ("old", "kept"):
        budgets.open(name, 2.0, 1e-5)
    charges = {"old": sampled(5), "kept": sampled(5)}
    reservation = budgets.reserve("run", charges, expires_in=60)
    changed = update(ACCOUNTS).where(ACCOUNTS.c.name == "old").values(**kind)
    budgets._run(lambda connection: connection.execute(changed))
    refused = rf"^account: {what} was removed in 0\.2; use .*found 'old'$"
    for attempt in (
        lambda: budgets.state("old"),
        lambda: budgets.reserve("more", {"old": sampled(5)}),
        lambda: budgets.commit(reservation),
    ):
        with pytest.raises(InputError, match=refused):
            attempt()
    clock.now += 61  # what was reserved returns
    [state] = budgets.states()
    assert state.name == "kept"
    assert state.reserved_units == 0
    assert "old" in caplog.text
    budgets.commit(budgets.reserve("later", {"kept": sampled(5)}))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"epsilon": -1.0}, "budget: must have epsilon"),
        ({"delta": 1.0}, "budget: must have epsilon"),
        ({"rule": "naive"}, "rule: must be one of renyi, gaussian, found"),
        ({"ceilings": ["nowhere"]}, "account: must be in the book"),
        ({"name": ""}, "account: must be a name"),
    ],
)
def test_bad_accounts_are_refused_in_one_line(arguments, line, tmp_path):
    budgets = Budgets(str(tmp_path / "book.sqlite"))
    with pytest.raises(InputError, match=line):
        budgets.open(**{"name": "a", "epsilon": 1.0, "delta": 1e-5, **arguments})


def test_the_gaussian_filter_costs_nothing_and_covers_no_sampling():
    from privplan.accounting.accountant import accountant

    history = releases(40) + releases(10, noise=7.0)
    units = filters.cost("gaussian", history, "add_remove", 0)
    exact = accountant("pld").epsilon(history, 1e-5, "add_remove").upper
    assert filters.spent_epsilon("gaussian", units, 1e-5, 0) == pytest.approx(
        exact, rel=1e-6
    )
    with pytest.raises(UnsupportedError, match="everybody takes part"):
        filters.cost("gaussian", sampled(1), "add_remove", 0)


@pytest.mark.parametrize("rule", ["gaussian", "renyi"])
def test_filters_refuse_persons_with_several_clients(rule):
    """Releases of single clients in the same account would count for such a person."""
    full = SamplingLaw("full")
    of_person = History([(Release(30.0, 1.0, full.of_person(3)), 20)])
    with pytest.raises(UnsupportedError, match="persons with one client each"):
        filters.cost(rule, of_person, "add_remove", 0)
    assert filters.cost(rule, releases(20), "add_remove", 0) > 0


def test_the_renyi_filter_is_the_bound_of_one_order():
    from privplan.accounting.accountant import accountant

    order = filters.order_of(1.0, 1e-5)
    units = filters.cost("renyi", sampled(300), "add_remove", order)
    ours = filters.spent_epsilon("renyi", units, 1e-5, order)
    assert accountant("rdp").epsilon(sampled(300), 1e-5, "add_remove").upper <= ours
    capacity = filters.capacity("renyi", 1.0, 1e-5, order)
    assert filters.spent_epsilon("renyi", capacity, 1e-5, order) <= 1.0
    silent = History.repeated(Release(0.0, 0.5), 1)
    assert filters.cost("renyi", silent, "add_remove", order) > capacity


def test_a_typical_run_sets_the_order_and_lets_more_runs_fit(budgets):
    run = History.repeated(Release(1.5, 0.02), 100)
    budgets.open("plain", 1.5, 1e-5)
    budgets.open("typical", 1.5, 1e-5, typical=run)
    name = budgets.reserve("run", {"plain": run, "typical": run})
    typical = budgets.state("typical")
    plain = budgets.state("plain")
    part_of_typical = typical.reserved_units / typical.capacity
    assert part_of_typical < plain.reserved_units / plain.capacity <= 1
    budgets.close(name)
