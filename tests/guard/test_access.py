"""One call of a guard at a time: by threads, processes and locks that are gone."""

import copy
import math
import multiprocessing
import os
import pickle
import threading

import numpy as np
import pytest

from privplan.errors import InputError
from privplan.files import LOCK
from privplan.guard import Guard
from privplan.guard.rounds import planned_noise_std
from tests.guard.plans import SIZE, two_groups

THREADS = 8


def filled(folder, book=None, **options):
    """A guard whose first round is drawn, and has an update of each client."""
    guard = Guard(two_groups(2), folder, book, **options)
    for group, client in guard.draw(1).members:
        guard.add(1, group, client, np.full(SIZE, 0.01))
    return guard


@pytest.mark.parametrize("evidence", ["internal", "public"])
def test_threads_that_release_a_round_at_once_get_the_same_bits(tmp_path, evidence):
    book = f"sqlite:///{tmp_path / 'book.sqlite'}"
    released = []
    barrier = threading.Barrier(THREADS)

    def release(guard):
        barrier.wait()
        released.append(guard.release(1).sums)

    with filled(tmp_path / "run", book, evidence=evidence) as guard:
        threads = [
            threading.Thread(target=release, args=(guard,)) for _ in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        guard.record(1)
        assert not guard.verdict().failed
    assert len(released) == THREADS
    for sums in released:
        for noisy_sum, expected in zip(sums, released[0], strict=True):
            assert np.array_equal(noisy_sum, expected)


def test_a_forked_process_is_refused(tmp_path):
    book = f"sqlite:///{tmp_path / 'book.sqlite'}"
    with filled(tmp_path / "run", book, evidence="public") as guard:
        context = multiprocessing.get_context("fork")
        parent, child = context.Pipe()

        def release():
            try:
                guard.release(1)
                child.send("released")
            except InputError as error:
                child.send(str(error))
            os._exit(0)

        process = context.Process(target=release)
        process.start()
        answer = parent.recv()
        process.join()
        assert "must be used in the process that opened it" in answer
        guard.release(1)


def test_nothing_is_released_without_the_lock(tmp_path):
    first_guard = filled(tmp_path)
    (tmp_path / LOCK).unlink()
    with Guard(two_groups(2), tmp_path) as second_guard:
        with pytest.raises(InputError, match="keeps its lock"):
            first_guard.release(1)
        # The draw is that of the folder.
        assert second_guard.draw(1).members


def test_a_closed_guard_releases_nothing(tmp_path):
    guard = filled(tmp_path)
    guard.close()
    with pytest.raises(InputError, match="held by an open guard"):
        guard.release(1)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_guard_cannot_be_copied(tmp_path, copied):
    with filled(tmp_path) as guard, pytest.raises(TypeError, match="cannot be copied"):
        copied(guard)


@pytest.mark.parametrize("value", [math.inf, math.nan, 1e300, 1j, "1"])
def test_sums_are_finite_numbers(tmp_path, value):
    with Guard(two_groups(2), tmp_path) as guard:
        guard.draw(1)
        sums = {"strict": np.full(SIZE, value), "loose": np.zeros(SIZE)}
        with pytest.raises(InputError, match=r"sums\.strict: must"):
            guard.release(1, sums)


def test_bits_before_the_fence_are_handed_out_nowhere(tmp_path, monkeypatch):
    book = tmp_path / "book.sqlite"
    with filled(tmp_path / "run", f"sqlite:///{book}") as guard:
        moved = book.rename(tmp_path / "away.sqlite")
        with pytest.raises(InputError):
            guard.release(1)
        with pytest.raises(InputError, match="which the book has not allowed"):
            guard.released(1)
        moved.rename(book)
        released = guard.release(1)
        assert np.array_equal(guard.released(1).sums[0], released.sums[0])


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"keep": 1.5}, "keep: must be a whole number, 1 or more, found 1.5"),
        ({"coordinates": 0}, "coordinates: must be a whole number, 1 or more, found 0"),
        ({"coordinates": 1e9}, "coordinates: must be a whole number, 1 or more"),
        ({"framework": ""}, "algorithm: must be up to 100 letters"),
    ],
)
def test_settings_are_refused_in_one_line(settings, rule, tmp_path):
    with pytest.raises(InputError, match=rule) as refused:
        Guard(two_groups(2), tmp_path, **settings)
    assert "\n" not in str(refused.value)


def test_numbers_that_no_round_has_are_refused_in_one_line(tmp_path):
    plan = two_groups(2)
    with Guard(plan, tmp_path) as guard:
        with pytest.raises(InputError, match="round: must be the number of a round"):
            guard.draw(np.int64(1))
        group, client = guard.draw(1).members[0]
        with pytest.raises(InputError, match=r"of real numbers, found .*shape \(0,\)"):
            guard.add(1, group, client, np.ones(0))
        for dimension in (0, -1):
            with pytest.raises(InputError, match="must be the number of coordinates o"):
                guard.record_noised(1, dimension, planned_noise_std(plan, 1, None))


@pytest.mark.parametrize("factor", [0.999, 1.001, 1e99, math.inf, math.nan])
def test_noise_of_others_is_the_planned_noise(tmp_path, factor):
    plan = two_groups(2)
    with Guard(plan, tmp_path) as guard:
        guard.draw(1)
        with pytest.raises(InputError, match="noise_std: must be"):
            guard.record_noised(1, SIZE, factor * planned_noise_std(plan, 1, None))
