"""Two copies of a guarded run never release what the book counts once."""

import shutil

import numpy as np
import pytest

from privplan.accounting.release import History
from privplan.book.composition import composition_of
from privplan.book.database import address_of
from privplan.book.reservations import FencedError, Reservation
from privplan.book.spending import account_of
from privplan.book.store import runs
from privplan.errors import InputError
from privplan.guard import Guard
from privplan.guard.rounds import released_of
from privplan.record import LEDGER, RECORD
from tests.guard.plans import SIZE, ledger_of, two_groups
from tests.guard.plans import train as loop

ROUNDS = 12
PLAN = two_groups(ROUNDS)


class Killed(BaseException):
    """What a test raises in place of a kill."""


def step(guard):
    """One round of a guard; the mean that it handed out."""
    round_ = guard.round
    guard.draw(round_)
    mean = guard.release(round_, {"strict": np.full(SIZE, 0.1)}).mean
    guard.record(round_, mean)
    return mean


def killed(guard):
    """Leave the folder as a kill would: nothing is added to the book."""
    guard._stack.close()


def stored_mean(guard, round_):
    """The mean of a stored release, also before the guard hands it out."""
    return released_of(guard.plan, *guard._storage.release(round_)).mean


def booked_rounds(address):
    """Booked and reserved releases of the strict group, which fit its budget."""
    account = account_of(runs(address_of(address)), "", "strict")
    budget = PLAN.group("strict").epsilon
    assert composition_of(account, budget, PLAN.group("strict").delta).fits(History())
    return account.history.rounds


@pytest.mark.parametrize("copied_after", [pytest.param(0, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("copy_opens", ["first", "last"])
def test_of_two_open_copies_the_later_one_goes_on(
    address, tmp_path, copied_after, copy_opens
):
    with Guard(PLAN, tmp_path / "run", address) as guard:
        for _ in range(copied_after):
            step(guard)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    folders = [tmp_path / "run", tmp_path / "copy"]
    if copy_opens == "first":
        folders.reverse()
    earlier, later = (Guard(PLAN, folder, address) for folder in folders)
    handed_out = [step(later)]
    with pytest.raises(FencedError) as refused:
        step(earlier)
    assert str(refused.value) == (
        "ledger: must be the only open copy of its run; another one was opened since, "
        f"found {str(folders[0])!r}"
    )
    assert earlier.round == copied_after + 1
    assert not earlier.may_release()
    assert not list((folders[0] / "guard").glob(f"release-{copied_after + 1}.bin"))
    handed_out += [step(later) for _ in range(ROUNDS - copied_after - 1)]
    earlier.close()
    assert earlier.round == copied_after + 1  # also when it closed
    later.close()
    assert len({mean.tobytes() for mean in handed_out}) == ROUNDS - copied_after
    assert booked_rounds(address) == ROUNDS
    with pytest.raises(FencedError, match="must hold every release of its run"):
        Guard(PLAN, folders[0], address)


@pytest.mark.parametrize("finished", [False, True])
def test_an_old_copy_is_refused_when_it_is_opened(address, tmp_path, finished):
    with Guard(PLAN, tmp_path / "run", address) as guard:
        for rounds in range(4):
            killed_copy = tmp_path / f"copy{rounds}"
            shutil.copytree(tmp_path / "run", killed_copy)
            step(guard)
        if finished:
            guard.finish()
    for rounds in range(4):
        with pytest.raises(
            FencedError, match="another copy released since, or the book was"
        ):
            Guard(PLAN, tmp_path / f"copy{rounds}", address)
    assert booked_rounds(address) == (4 if finished else ROUNDS)


@pytest.mark.parametrize(("rounds", "is_refused"), [(1, False), (2, True), (12, True)])
def test_a_folder_that_is_filled_by_hand_is_refused(tmp_path, rounds, is_refused):
    """A killed guard leaves one round at most that its book did not see."""
    address = str(tmp_path / "book.sqlite")
    plan = two_groups(12)
    Guard(plan, tmp_path / "run", address).close()
    with Guard(plan, tmp_path / "other") as guard:
        for _ in range(rounds):
            step(guard)
        if rounds < 12:
            guard.fail(rounds + 1, "restart")
    for name in (LEDGER, RECORD):
        shutil.copy(tmp_path / "other" / name, tmp_path / "run" / name)
    if is_refused:
        with pytest.raises(FencedError, match="at most one that the book did not see"):
            Guard(plan, tmp_path / "run", address)
    else:
        Guard(plan, tmp_path / "run", address).close()
    statuses = {entry.status for entry in runs(address_of(address))}
    assert ("running" in statuses) is not is_refused


@pytest.mark.parametrize("moved", [False, True])
def test_a_kill_at_the_fence_loses_and_doubles_nothing(
    address, tmp_path, monkeypatch, moved
):
    """Before the fence moved or after it: the stored bits are handed out, once."""
    move = Reservation.move

    def interrupted(self, chain):
        if moved:
            move(self, chain)
        raise Killed

    guard = Guard(PLAN, tmp_path / "run", address)
    step(guard)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    with monkeypatch.context() as patched:
        patched.setattr(Reservation, "move", interrupted)
        with pytest.raises(Killed):
            step(guard)
    stored = stored_mean(guard, 2)
    killed(guard)
    assert booked_rounds(address) == ROUNDS
    if moved:
        with pytest.raises(FencedError):
            Guard(PLAN, tmp_path / "copy", address)
    with Guard(PLAN, tmp_path / "run", address) as guard:
        assert booked_rounds(address) == ROUNDS
        assert np.array_equal(guard.interrupted.mean, stored)
        guard.record(2, stored)
        loop(guard)
    assert booked_rounds(address) == ROUNDS
    with pytest.raises(FencedError):
        Guard(PLAN, tmp_path / "copy", address)


def test_a_stored_release_that_lost_the_race_is_never_handed_out(tmp_path, monkeypatch):
    address = str(tmp_path / "book.sqlite")

    def interrupted(self, chain):
        raise Killed

    guard = Guard(PLAN, tmp_path / "run", address)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    with monkeypatch.context() as patched:
        patched.setattr(Reservation, "move", interrupted)
        with pytest.raises(Killed):
            step(guard)
    killed(guard)
    with Guard(PLAN, tmp_path / "copy", address) as copy:
        step(copy)
    with pytest.raises(FencedError):
        Guard(PLAN, tmp_path / "run", address)
    with Guard(PLAN, tmp_path / "copy", address) as copy:
        copy.finish()
    assert booked_rounds(address) == 1


def test_a_release_whose_answer_was_lost_is_the_same_when_it_is_asked_for_again(
    address, tmp_path, monkeypatch
):
    move = Reservation.move

    def unheard(self, chain):
        move(self, chain)
        raise InputError.one(
            "book", "must be a budget book that can be written", "timeout"
        )

    with Guard(PLAN, tmp_path / "run", address) as guard:
        guard.draw(1)
        with monkeypatch.context() as patched:
            patched.setattr(Reservation, "move", unheard)
            with pytest.raises(InputError, match="timeout"):
                guard.release(1, {"strict": np.ones(SIZE)})
        with pytest.raises(InputError, match="must be released before it is recorded"):
            guard.record(1)
        stored = stored_mean(guard, 1)
        again = guard.release(1, {"strict": np.zeros(SIZE)}).mean
        assert np.array_equal(again, stored)
        guard.record(1)
        loop(guard)
    assert booked_rounds(address) == ROUNDS


def test_noise_of_others_passes_the_fence_before_it_is_booked(tmp_path, monkeypatch):
    address = str(tmp_path / "book.sqlite")
    plan = two_groups(3)
    std = max(group.noise_multiplier * group.scale * 0.5 for group in plan.groups)
    with Guard(plan, tmp_path / "run", address, evidence="public") as guard:
        guard.draw(1)
        guard.record_noised(1, SIZE, std)
        guard.draw(2)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    earlier, later = (
        Guard(plan, tmp_path / name, address, evidence="public")
        for name in ("run", "copy")
    )
    later.record_noised(2, SIZE, std)
    with pytest.raises(FencedError):
        earlier.record_noised(2, SIZE, std)
    assert len(ledger_of(tmp_path / "run", plan)) == 1
    killed(earlier)
    killed(later)
    with Guard(plan, tmp_path / "copy", address, evidence="public") as later:
        assert later.interrupted is None
        later.draw(3)
        later.record_noised(3, SIZE, std)
    with pytest.raises(FencedError):
        Guard(plan, tmp_path / "run", address, evidence="public")


def test_releases_of_a_killed_run_stay_reserved_when_it_goes_on(tmp_path):
    """They are in no entry of the book until the guard closes, and count anyway."""
    address = str(tmp_path / "book.sqlite")
    guard = Guard(PLAN, tmp_path / "run", address)
    for _ in range(5):
        step(guard)
    killed(guard)
    for _ in range(2):
        guard = Guard(PLAN, tmp_path / "run", address)
        assert guard.round == 6
        assert booked_rounds(address) == ROUNDS
        killed(guard)
    with Guard(PLAN, tmp_path / "run", address):
        pass
    assert [run.status for run in runs(address_of(address))] == ["running", "reserved"]
    guard = Guard(PLAN, tmp_path / "run", address)
    step(guard)
    killed(guard)
    with Guard(PLAN, tmp_path / "run", address) as guard:
        assert booked_rounds(address) == ROUNDS
        guard.finish()
    assert booked_rounds(address) == 6


def test_a_run_goes_on_with_its_own_book_only(tmp_path):
    address = str(tmp_path / "book.sqlite")
    with Guard(PLAN, tmp_path / "run", address) as guard:
        step(guard)
    for wrong in (None, str(tmp_path / "other.sqlite")):
        with pytest.raises(
            InputError, match="must be the book in which the run reserved"
        ):
            Guard(PLAN, tmp_path / "run", wrong)
    assert not (tmp_path / "other.sqlite").exists()
    with Guard(PLAN, tmp_path / "run", address) as guard:
        guard.finish()
    assert Guard(PLAN, tmp_path / "run").finished


@pytest.mark.parametrize("opened", ["before", "never"])
def test_a_copy_of_a_run_that_has_drawn_goes_on_with_no_other_book(opened, tmp_path):
    """Both would have the cohort of the open round, and no book would know."""
    first, second = (str(tmp_path / f"{name}.sqlite") for name in ("first", "second"))
    if opened == "before":
        with Guard(PLAN, tmp_path / "run", first):
            pass
    with Guard(PLAN, tmp_path / "run", second) as guard:
        guard.draw(1)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    with Guard(PLAN, tmp_path / "run", second) as guard:
        step(guard)
        guard.finish()
    with pytest.raises(InputError, match="must be the book in which the run reserved"):
        Guard(PLAN, tmp_path / "copy", first)
    assert booked_rounds(second) == 1
