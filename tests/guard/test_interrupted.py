"""Calls that do not come to their end: the guard stops, and its folder goes on."""

import os
import random
import secrets
from contextlib import suppress

import numpy as np
import pytest

from privplan.book.book import Book
from privplan.errors import InputError
from privplan.guard import Guard, storage
from tests.guard.plans import SIZE, two_groups

ROUNDS = 2


class Injected:
    """Ends the n-th call of functions, before or after it is carried out."""

    def __init__(self, monkeypatch, number, error, *, after):
        self.left = number
        self._error = error
        self._after = after
        for module, name in (
            (os, "fsync"),
            (os, "replace"),
            (storage, "append_bytes"),
        ):
            monkeypatch.setattr(module, name, self._injected(getattr(module, name)))

    def _injected(self, function):
        def call(*args, **options):
            self.left -= 1
            if self.left == 0 and not self._after:
                raise self._error
            result = function(*args, **options)
            if self.left == 0 and self._after:
                raise self._error
            return result

        return call


def take_rounds(guard, handed_out):
    """Release what is left, and note by round each vector that is handed out."""
    interrupted = guard.interrupted
    if interrupted is not None:
        note(handed_out, interrupted)
        guard.record(interrupted.round, interrupted.mean)
    for round_ in guard.rounds():
        for group, client in guard.draw(round_).members:
            guard.add(round_, group, client, np.full(SIZE, 0.01))
        released = guard.release(round_)
        note(handed_out, released)
        guard.record(round_, released.mean)


def note(handed_out, released):
    handed_out.setdefault(released.round, set()).add(released.mean.tobytes())


def refusals(guard):
    """What each call answers after one that did not end."""
    calls = [
        lambda: guard.release(guard.round),
        lambda: guard.released(1),
        lambda: guard.interrupted,
        lambda: guard.draw(guard.round),
        lambda: guard.record(1),
        lambda: guard.fail(guard.round, "lost"),
    ]
    for call in calls:
        with pytest.raises(InputError) as error:
            call()
        yield str(error.value)


class TimeLimitError(Exception):
    """What a program's own signal handler raises."""


INTERRUPT = KeyboardInterrupt()
TIME_LIMIT = TimeLimitError()
FULL_DISK = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("error", "after", "with_book", "rounds"),
    [
        (INTERRUPT, False, False, ROUNDS),
        (FULL_DISK, False, False, 1),
        # A book is slow, so the quick tests have it for a round, and calls carried out.
        (INTERRUPT, True, True, 1),
        *(
            pytest.param(error, after, with_book, ROUNDS, marks=pytest.mark.slow)
            for error, after, with_book in [
                (TIME_LIMIT, False, False),
                (INTERRUPT, True, False),
                (TIME_LIMIT, True, False),
                (FULL_DISK, True, False),
                (INTERRUPT, False, True),
                (TIME_LIMIT, False, True),
                (FULL_DISK, False, True),
                (TIME_LIMIT, True, True),
                (FULL_DISK, True, True),
            ]
        ),
    ],
)
def test_no_round_is_handed_out_twice_wherever_it_is_interrupted(
    error, after, with_book, rounds, tmp_path, monkeypatch
):
    """As in a notebook, where a cell is run again on the guard that is still open."""
    # A verdict on honest noise is a false alarm once in thousands; here are many.
    monkeypatch.setattr(secrets, "token_bytes", random.Random(5).randbytes)
    book = f"sqlite:///{tmp_path / 'book.sqlite'}" if with_book else None
    ends = 0
    for number in range(1, 100):
        folder = tmp_path / f"run-{number}"
        handed_out = {}
        guard = Guard(two_groups(rounds), folder, book, population=str(number))
        with monkeypatch.context() as patched:
            injected = Injected(patched, number, error, after=after)
            try:
                take_rounds(guard, handed_out)
            except (KeyboardInterrupt, TimeLimitError, InputError, OSError):
                ends += 1
        if injected.left > 0:
            break
        if not guard.access.is_whole:
            assert all("closed and opened again" in line for line in refusals(guard))
        else:
            with suppress(InputError):  # a release that waits for its record
                take_rounds(guard, handed_out)
        guard.close()
        with Guard(two_groups(rounds), folder, book, population=str(number)) as again:
            take_rounds(again, handed_out)
        assert again.verdict().outcome == "kept", number
        assert {len(bits) for bits in handed_out.values()} == {1}, number
    assert ends > 4 * rounds
    guard.close()
    if with_book:
        assert all(row.cost == "recorded" for row in Book(book).runs)


def test_a_half_written_line_is_taken_back(tmp_path, monkeypatch):
    """A disk that is full in the middle of the ledger's line."""
    write = storage.append_bytes

    def torn(path, content, *args, **options):
        write(path, content[: len(content) // 2], *args, **options)
        raise InputError.one("ledger", "must be writable (File too large)", str(path))

    guard = Guard(two_groups(ROUNDS), tmp_path)
    guard.draw(1)
    released = guard.release(1)
    with monkeypatch.context() as patched:
        patched.setattr(storage, "append_bytes", torn)
        with pytest.raises(InputError, match="must be writable"):
            guard.record(1)
    with pytest.raises(InputError, match="closed and opened again"):
        guard.record(1)
    guard.close()
    handed_out = {}
    with Guard(two_groups(ROUNDS), tmp_path) as again:
        assert np.array_equal(again.interrupted.mean, released.mean)
        take_rounds(again, handed_out)
    assert again.verdict().outcome == "kept"


def test_a_refusal_ends_no_guard(tmp_path):
    with Guard(two_groups(ROUNDS), tmp_path) as guard:
        with pytest.raises(InputError):
            guard.release(1)
        guard.draw(1)
        with pytest.raises(InputError, match="array of real numbers"):
            guard.add(1, "strict", guard.draw(1).members[0][1], [[1.0], [1.0, 2.0]])
        assert guard.access.is_whole
        guard.release(1)


@pytest.mark.parametrize("name", ["release", "released", "finish", "interrupted"])
def test_a_signal_handler_changes_nothing_in_the_midst_of_a_release(
    name, tmp_path, monkeypatch
):
    """As one that ends a job which is preempted, while noise.jsonl is written."""
    refused = []
    guard = Guard(two_groups(ROUNDS), tmp_path)

    def handled(*args, **options):
        calls = {"finish": guard.finish, "interrupted": lambda: guard.interrupted}
        call = calls.get(name, lambda: getattr(guard, name)(1))
        with pytest.raises(InputError, match="a call did not come to its end"):
            call()
        refused.append(name)
        return append(*args, **options)

    append = storage.append_bytes
    guard.draw(1)
    with monkeypatch.context() as patched:
        patched.setattr(storage, "append_bytes", handled)
        released = guard.release(1)
    assert refused == [name]
    guard.record(1, released.mean)
    guard.finish()
    assert guard.verdict().outcome == "kept"
    guard.close()


def test_a_release_is_not_handed_out_by_a_guard_that_was_closed(tmp_path, monkeypatch):
    guard = Guard(two_groups(ROUNDS), tmp_path)
    append = storage.append_bytes

    def handled(*args, **options):
        guard.close()
        return append(*args, **options)

    guard.draw(1)
    with monkeypatch.context() as patched:
        patched.setattr(storage, "append_bytes", handled)
        with pytest.raises(InputError, match="must be held by an open guard"):
            guard.release(1)


def test_a_child_that_lives_on_keeps_no_lock(tmp_path):
    guard = Guard(two_groups(ROUNDS), tmp_path)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reader, 1)  # until the parent is done
        os._exit(0)
    try:
        guard.close()
        Guard(two_groups(ROUNDS), tmp_path).close()
    finally:
        os.write(writer, b"x")
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda guard: guard.record(1, {"layer": object()}),
        lambda guard: guard.record(1, [[1.0], [1.0, 2.0]]),
        lambda guard: guard.add(1, 5, 0, np.zeros(SIZE)),
        lambda guard: guard.draw(2, {"strict": 5}),
        lambda guard: guard.fail(1, ValueError("lost")),
    ],
)
def test_a_wrong_argument_ends_no_guard(call, tmp_path):
    with Guard(two_groups(ROUNDS), tmp_path) as guard:
        guard.draw(1)
        released = guard.release(1)
        with pytest.raises((InputError, TypeError, AttributeError, IndexError)):
            call(guard)
        guard.record(1, released.mean)
        assert guard.access.is_whole


def test_tensors_of_another_library_are_stored(tmp_path):
    torch = pytest.importorskip("torch")
    with Guard(two_groups(ROUNDS), tmp_path) as guard:
        guard.draw(1)
        guard.release(1)
        guard.record(1, {"layer": torch.arange(3.0)})
        assert guard.model["layer"].tolist() == [0, 1, 2]
        with pytest.raises(InputError, match=r"model\.layer: must hold arrays"):
            guard.record(1, {"layer": torch.ones(2, requires_grad=True)})
