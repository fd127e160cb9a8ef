"""Random streams of a simulation, which its seed, a purpose and indices determine.

A check regenerates cohorts and noise from them; ``simulate.engine.seeds`` draws from the same
streams. Where the key of the noise is secret, only statistical tests remain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from privplan.secure_streams import SecureStream

SAMPLING = 3
"""Key of the streams of cohorts: (round, index of the group)."""
NOISE = 5
"""Key of the streams of noise: (round, index of the release in the round)."""
LETTERS = 24
"""Length of the hash of a generator's state."""


def seeded_stream(seed: int, key: int, *indices: int) -> np.random.Generator:
    """Returns the generator of one stream.

    Args:
        seed: the run's seed, 0 or more.
        key: key of the purpose.
        indices: for example (round, client) or (round, release), each 0 or more.

    Returns:
        A Philox generator keyed by all arguments; equal arguments give equal streams.
    """
    sequence = np.random.SeedSequence(entropy=seed, spawn_key=(key, *indices))
    return np.random.Generator(np.random.Philox(sequence))


_WORD = 32
_POOL = 4
"""Words of the pool of ``numpy.random.SeedSequence``."""
_HASH, _HASH_FACTOR = 0x43B0D7E5, 0x931E8875
_STATE, _STATE_FACTOR = 0x8B51F9DD, 0x58F38DED
_LEFT, _RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
"""Constants of ``numpy.random.SeedSequence`` (M. E. O'Neill, "Developing a seed_seq alternative",
2015), whose results NumPy guarantees to keep."""


def seeded_streams(
    seed: int, key: int, *indices: int, last: np.ndarray
) -> Iterator[np.random.Generator]:
    """Yields the generators of many streams that differ in their last index.

    They are equal to those of ``seeded_stream``, at a tenth of its cost. There is one generator,
    which is set to the next stream when that is asked for.

    Args:
        seed: the run's seed, 0 or more.
        key: key of the purpose.
        indices: the indices before the last, each 0 or more.
        last: the last index of each stream [n], each in [0, 2^32).
    """
    philox = np.random.Philox(0)
    generator, state = np.random.Generator(philox), philox.state
    for words in _philox_keys(seed, (key, *indices), last):
        state["state"]["key"] = words
        philox.state = state
        yield generator


def _philox_keys(seed: int, before: tuple[int, ...], last: np.ndarray) -> np.ndarray:
    """Keys [n, 2], uint64, of generators from ``SeedSequence(seed, spawn_key=(*before, last))``.

    The pool of all words before the last is computed once; the last word is mixed into a copy of
    it for each stream.
    """
    words = max(_POOL, _words(seed)) + sum(map(_words, before))
    mixed = _POOL + _POOL * (_POOL - 1) + _POOL * (words - _POOL)
    factor = _HASH * pow(_HASH_FACTOR, mixed, 2**_WORD) % 2**_WORD
    shared = np.random.SeedSequence(seed, spawn_key=before).pool
    entropy, pool = last.astype(np.uint32), []
    for word in shared[:, None]:
        value, factor = _hashed(entropy, factor, _HASH_FACTOR)
        found = _LEFT * word - _RIGHT * value
        pool.append(found ^ (found >> np.uint32(16)))
    state, factor = np.empty((len(last), _POOL), "<u4"), _STATE
    for column, word in enumerate(pool):
        state[:, column], factor = _hashed(word, factor, _STATE_FACTOR)
    return state.view("<u8").astype(np.uint64)


def _hashed(value: np.ndarray, factor: int, by: int) -> tuple[np.ndarray, int]:
    """One step of the hash of ``SeedSequence``, and the factor of the next."""
    following = factor * by % 2**_WORD
    value = (value ^ np.uint32(factor)) * np.uint32(following)
    return value ^ (value >> np.uint32(16)), following


def _words(number: int) -> int:
    """Number of 32-bit words of a number."""
    return max(1, -(-number.bit_length() // _WORD))


def fingerprint(generator: np.random.Generator | SecureStream) -> str:
    """A hash of the state before a draw: equal states would draw equal noise."""
    if isinstance(generator, SecureStream):
        return generator.fingerprint()
    found = generator.bit_generator.state
    words = [found["bit_generator"], *(found["state"][name] for name in sorted(found["state"]))]
    text = "|".join(str(np.asarray(word).tolist()) for word in words)
    return hashlib.sha256(f"{text}|{found.get('buffer_pos')}".encode()).hexdigest()[:LETTERS]
