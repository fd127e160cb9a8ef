"""Guards that reserve their plan in accounts: never more than the budget, whatever runs at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from privplan.book.accounts import Budgets
from privplan.errors import InfeasibleError, InputError
from privplan.guard.guard import ReservingGuard
from tests.guard.plans import SIZE, train, two_groups

ACCOUNTS = {"strict": "people/strict", "loose": "people/loose"}


@pytest.fixture
def book(tmp_path: Path) -> str:
    """Accounts with enough for the loose group's plan, and not for two."""
    address = str(tmp_path / "book.sqlite")
    budgets, plan = Budgets(address), two_groups(6)
    for group in plan.groups:
        history = plan.history(group)
        epsilon = 2.0 if group.name == "loose" else 20.0
        budgets.open(ACCOUNTS[group.name], epsilon, 1e-4, typical=history)
    return address


def test_a_second_run_waits_for_what_the_first_returns(tmp_path: Path, book: str) -> None:
    plan = two_groups(6)
    with ReservingGuard(plan, tmp_path / "one", ACCOUNTS, book) as first:
        train(first, most=1)
        with pytest.raises(InfeasibleError, match="people/loose"):
            ReservingGuard(plan, tmp_path / "two", ACCOUNTS, book)
    with ReservingGuard(plan, tmp_path / "one", ACCOUNTS, book) as first:
        assert first.round == 2
        first.finish()
    with ReservingGuard(two_groups(3), tmp_path / "three", ACCOUNTS, book) as second:
        train(second)
        assert second.finished


def test_a_round_is_spent_once(tmp_path: Path, book: str) -> None:
    """The first guard ends between the release and its record; nothing is spent twice."""
    plan = two_groups(6)
    guard = ReservingGuard(plan, tmp_path / "run", ACCOUNTS, book)
    guard.draw(1)
    first = guard.release(1, {"strict": np.ones(SIZE)})
    again = guard.release(1, {"strict": np.zeros(SIZE)})
    assert np.array_equal(first.sums[0], again.sums[0])
    guard.close()
    with ReservingGuard(plan, tmp_path / "run", ACCOUNTS, book) as guard:
        train(guard)
        assert guard.finished
    with ReservingGuard(plan, tmp_path / "run", ACCOUNTS, book) as guard:
        assert guard.finished


def test_every_group_needs_an_account(tmp_path: Path, book: str) -> None:
    with pytest.raises(InputError, match="must name an account for strict, loose"):
        ReservingGuard(two_groups(2), tmp_path / "run", {"strict": "people/strict"}, book)
    accounts = {**ACCOUNTS, "loose": "people/none"}
    with pytest.raises(InputError, match="people/none"):
        ReservingGuard(two_groups(2), tmp_path / "run", accounts, book)
    with ReservingGuard(two_groups(2), tmp_path / "run", ACCOUNTS, book) as guard:
        train(guard)
