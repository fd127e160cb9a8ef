"""Random streams of a simulation, which its seed, a purpose and indices determine.

The simulator draws from them, and a check regenerates cohorts and noise. Where the key
of the noise is secret (``privplan.secure_stream``), only statistical tests remain. A
stream depends on no earlier draw, so results depend neither on chunk sizes nor on
interruptions, and no state of a generator is used twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from enum import IntEnum

import numpy as np

from privplan.record import LETTERS, Mask
from privplan.secure_stream import SecureStream

# Constants of ``numpy.random.SeedSequence`` (M. E. O'Neill, "Developing a seed_seq
# alternative", 2015), whose results NumPy guarantees to keep: bits of a word, words of
# its pool, and start and factor of the hashes that fill the pool and read it.
_WORD = 32
_POOL = 4
_HASH = 0x43B0D7E5
_HASH_FACTOR = 0x931E8875
_STATE = 0x8B51F9DD
_STATE_FACTOR = 0x58F38DED
# Factors on both words of the pool that are mixed.
_LEFT = np.uint32(0xCA01F9DD)
_RIGHT = np.uint32(0x4973F715)
_SHIFT = np.uint32(16)


class Purpose(IntEnum):
    """Purpose of a stream.

    The numbers never change, because they determine a seed's results.
    """

    INITIAL = 0
    PARTITION = 1
    GROUPS = 2
    # Of cohorts: (round, index of the group).
    SAMPLING = 3
    CLIENT = 4
    # (round, index of the release in the round)
    NOISE = 5
    # Of public masks: (round, index of the transform).
    SUPPORT = 6
    OWN_TEST = 7
    RECORD_NOISE = 8
    EVALUATION = 9
    CANARY = 10
    DROPOUT = 12
    AUGMENTATION = 13


def key_of_client(name: object) -> int:
    """The index of the streams of a client that has a name.

    It follows from the name alone. With a client's number in its place, one person more
    would give all later ones other mini-batches, and no clipping norm would bound what
    that changes. Two clients of 2^32 may share streams, which is harmless: each draws
    from its own records.
    """
    text = f"privplan client v1\n{name}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def private_seed(seed: int, spec_digest: str, group: str = "") -> int:
    """The seed of noise and Poisson batches under a spec's plans, and of cohorts.

    Each group has a seed of its cohorts.
    """
    text = f"privplan private seed v3\n{seed}\n{spec_digest}\n{group}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def stream(seed: int, purpose: int, *indices: int) -> np.random.Generator:
    """The generator of one stream, independent of earlier draws and other streams."""
    sequence = np.random.SeedSequence(entropy=seed, spawn_key=(int(purpose), *indices))
    return np.random.Generator(np.random.Philox(sequence))


def streams(
    seed: int, purpose: int, *indices: int, clients: np.ndarray
) -> Iterator[np.random.Generator]:
    """Yields the generators of one stream per client, each until the next is asked for.

    They are equal to those of ``stream``, at a tenth of its cost: there is one
    generator, which is set to the next stream.
    """
    philox = np.random.Philox(0)
    generator = np.random.Generator(philox)
    state = philox.state
    for words in _philox_keys(seed, (int(purpose), *indices), clients):
        state["state"]["key"] = words
        philox.state = state
        yield generator


def _philox_keys(
    seed: int, shared_indices: tuple[int, ...], last_indices: np.ndarray
) -> np.ndarray:
    """Keys [n, 2], uint64, of generators from ``SeedSequence``.

    The pool of all words before the last is computed once; the last word is mixed into
    a copy of it for each stream.

    Args:
        seed: entropy of the sequences.
        shared_indices: of their spawn keys, before the last.
        last_indices: the last of each spawn key [n].
    """
    shared = np.random.SeedSequence(seed, spawn_key=shared_indices).pool
    # Each word of the pool is filled once, mixed with each other one, and with each
    # word of entropy that the pool has no place for. Each time the hash has another
    # factor, so the number of times gives the factor of the last word.
    words = max(_POOL, _words(seed)) + sum(map(_words, shared_indices))
    hashes = _POOL + _POOL * (_POOL - 1) + _POOL * (words - _POOL)
    factor = _HASH * pow(_HASH_FACTOR, hashes, 2**_WORD) % 2**_WORD
    entropy = last_indices.astype(np.uint32)
    pool = []
    for word in shared[:, None]:
        value, factor = _hashed(entropy, factor, _HASH_FACTOR)
        mixed = _LEFT * word - _RIGHT * value
        pool.append(mixed ^ (mixed >> _SHIFT))

    state = np.empty((len(last_indices), _POOL), "<u4")
    factor = _STATE
    for column, word in enumerate(pool):
        state[:, column], factor = _hashed(word, factor, _STATE_FACTOR)
    return state.view("<u8").astype(np.uint64)


def _hashed(value: np.ndarray, factor: int, multiplier: int) -> tuple[np.ndarray, int]:
    """One step of the hash of ``SeedSequence``, and the factor of the next."""
    next_factor = factor * multiplier % 2**_WORD
    value = (value ^ np.uint32(factor)) * np.uint32(next_factor)
    return value ^ (value >> _SHIFT), next_factor


def _words(number: int) -> int:
    """Number of 32-bit words of a number."""
    return max(1, -(-number.bit_length() // _WORD))


def fingerprint(generator: np.random.Generator | SecureStream) -> str:
    """A hash of the state before a draw: equal states would draw equal noise."""
    if isinstance(generator, SecureStream):
        return generator.fingerprint()
    state = generator.bit_generator.state
    words = [state["bit_generator"]]
    words += [state["state"][name] for name in sorted(state["state"])]
    text = "|".join(str(np.asarray(word).tolist()) for word in words)
    # Words of a block that were not drawn yet.
    text += f"|{state.get('buffer_pos')}"
    return hashlib.sha256(text.encode()).hexdigest()[:LETTERS]


def mask_digest(coordinates: np.ndarray) -> str:
    """A hash of sorted coordinates."""
    content = np.ascontiguousarray(coordinates, dtype="<i8").tobytes()
    return hashlib.sha256(content).hexdigest()[:LETTERS]


def draw_mask(
    seed: int, round_: int, masks: Sequence[Mask], dimension: int
) -> np.ndarray:
    """The coordinates in all public masks of a round, sorted.

    They are drawn from the seed, without data.
    """
    released = np.arange(dimension)
    for mask in masks:
        generator = stream(seed, Purpose.SUPPORT, round_, mask.index)
        drawn = generator.choice(
            dimension, size=mask.size, replace=False, shuffle=False
        )
        released = np.intersect1d(released, drawn)
    return released
