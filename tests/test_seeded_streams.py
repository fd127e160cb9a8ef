"""Streams of the seed: many at once are the same as one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from privplan.streams import stream, streams

LAST = np.array([0, 1, 17, 99_999, 2**31, 2**32 - 1])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", [0, 5, 2**32 - 1, 2**32, 2**64 - 1, 2**130 + 7])
@pytest.mark.parametrize("before", [(), (7,), (2**33, 0)])
def test_many_streams_are_those_of_one_at_a_time(seed: int, before: tuple[int, ...]) -> None:
    together = streams(seed, 4, *before, clients=LAST)
    for number, found in zip(LAST, together, strict=True):
        expected = stream(seed, 4, *before, int(number))
        for draw in range(2):
            assert found.permutation(5).tolist() == expected.permutation(5).tolist(), draw
            assert found.random(3).tolist() == expected.random(3).tolist()
            assert found.integers(9, size=3).tolist() == expected.integers(9, size=3).tolist()


def test_no_stream_of_no_numbers() -> None:
    assert list(streams(1, 4, 2, clients=LAST[:0])) == []
