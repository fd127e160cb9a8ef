"""What a guard books of its run, and what the book refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from privplan.book.store import address_of, runs
from privplan.errors import InputError
from privplan.guard import BudgetExceededError, Guard
from privplan.record import LEDGER
from tests.guard.plans import plan_of, train, two_groups


def test_the_book_counts_earlier_runs_and_gets_this_one(tmp_path: Path) -> None:
    plan, book = two_groups(12), str(tmp_path / "book.sqlite")
    rounds = []
    for number in range(4):
        with Guard(plan, tmp_path / f"run{number}", book) as guard:
            train(guard)
            rounds.append(guard.round - 1)
            guard.finish()
    assert rounds[0] == 12
    assert 0 <= rounds[3] < 12  # 48 rounds exceed the budgets
    with Guard(plan, tmp_path / "run0", book) as guard:  # its own entry does not count twice
        spent = guard.epsilon("strict").upper
    assert spent <= plan.group("strict").epsilon


def test_a_deployment_in_the_book_has_no_seed(tmp_path: Path) -> None:
    book = str(tmp_path / "book.sqlite")
    with Guard(two_groups(6), tmp_path / "run", book) as guard:
        train(guard, most=1)
    (run,) = runs(address_of(book))
    assert run.seed is None
    assert run.source == str(tmp_path / "run")


def test_a_run_that_the_book_refuses_from_the_start_ends_with_the_refusal(tmp_path: Path) -> None:
    plan, book = two_groups(12), str(tmp_path / "book.sqlite")
    for number in range(5):
        with Guard(plan, tmp_path / f"run{number}", book) as guard:
            train(guard)
    assert not (tmp_path / "run4" / LEDGER).exists()
    with (
        pytest.raises(BudgetExceededError, match="epsilon"),
        Guard(plan, tmp_path / "run5", book) as guard,
    ):
        guard.draw(1)


def test_noise_of_others_is_booked_when_it_suffices(tmp_path: Path) -> None:
    plan = plan_of({"all": (1000, 2.0, 0.05, 1.2)}, 20)
    with Guard(plan, tmp_path) as guard:
        with pytest.raises(InputError, match=r"noise_std: must be 0\.6 or more, found 0\.5"):
            guard.record_noised(1, 10, 0.5)
        for round_ in guard.rounds():
            guard.record_noised(round_, 10, 0.6)
        with pytest.raises(BudgetExceededError, match="20 planned rounds"):
            guard.record_noised(21, 10, 0.6)
    verdict = Guard(plan, tmp_path).verdict()
    assert verdict.groups[0].realised_upper == verdict.groups[0].planned
    assert "noise fresh" in {check.name for check in verdict.not_shown}
