"""Random streams of a simulation, which its seed, a purpose and indices determine.

The simulator draws from them, and a check regenerates cohorts and noise. Where the key of the noise
is secret, only statistical tests remain. A stream depends on no earlier draw, so results depend
neither on chunk sizes nor on interruptions, and no state of a generator is used twice.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from privplan.errors import InputError, UnsupportedError
from privplan.files import read_secret, write_secret
from privplan.record import LETTERS, Mask

# --- Cryptographic random streams, whose key comes from the operating system and is in no record. -
# A stream is SHAKE-256 (FIPS 202), a sponge with a capacity of 512 bits, keyed by a prefix as in
# KMAC (NIST SP 800-185): without the 256-bit key its output is computationally indistinguishable
# from random bits, and no stream can be computed from another. The standard library has it, so
# that no package is needed. Of the key a record holds a commitment, and of each stream a
# fingerprint: both are hashes, from which the key cannot be found.

KEY_BYTES = 32
_FIRST, _LAST = (
    10,
    20,
)  # logs of the sizes of the first and of the largest block, in bytes


@dataclass(frozen=True, repr=False)
class NoiseKey:
    """The secret of all streams of one run."""

    content: bytes

    @property
    def commitment(self) -> str:
        """SHA-256 of the key with its context, which a record may hold."""
        return hashlib.sha256(
            b"privplan noise key commitment v1\n" + self.content
        ).hexdigest()

    def stream(self, purpose: int, *indices: int) -> SecureStream:
        """The stream of a purpose, from its start; equal arguments give equal streams."""
        name = ",".join(map(str, (purpose, *indices)))
        message = f"privplan stream v1\n{name}".encode()
        return SecureStream(hmac.digest(self.content, message, "sha256"))

    def save(self, path: Path) -> None:
        """Write the key to a new file that only its owner may read (mode 600)."""
        write_secret(path, f"{self.content.hex()}\n".encode(), "noise-key-file")

    @classmethod
    def new(cls) -> NoiseKey:
        """A key from the operating system."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def load(cls, path: Path, what: str = "noise-key-file") -> NoiseKey:
        """Read a key."""
        try:
            content = bytes.fromhex(read_secret(path, what).decode("ascii"))
        except ValueError:
            content = b""
        if len(content) != KEY_BYTES:
            rule = f"must hold a key of {KEY_BYTES} bytes in hexadecimal"
            raise InputError.one(what, rule, str(path))
        return cls(content)

    @classmethod
    def of_run(
        cls, folder: Path, commitment: object, given: Path | None
    ) -> NoiseKey | None:
        """The key of a run that is given, or the one beside its folder; None without."""
        beside, what = key_beside(folder), "noise-key"
        if commitment is None and given is not None:
            raise InputError.one(what, "is only for runs with secure noise", str(given))
        if commitment is None or (given is None and not beside.is_file()):
            return None
        key = cls.load(given or beside, what)
        if key.commitment != commitment:
            rule = f"must be the key of the run, with commitment {commitment}"
            raise InputError.one(what, rule, key.commitment)
        return key


def key_beside(folder: Path) -> Path:
    """Where the key of a run on own data is kept: beside its folder, which may be handed on."""
    whole = Path(os.path.abspath(folder))
    return whole.with_name(f"{whole.name}.key")


class SecureStream:
    """A cryptographic stream with the methods of ``numpy.random.Generator`` that laws use.

    Args:
        key: the 32 secret bytes of the stream.
    """

    def __init__(self, key: bytes) -> None:
        self._key, self._block, self._read = key, 0, 0
        self._words: np.ndarray = np.empty(0, np.uint64)
        self._used = 0

    def fingerprint(self) -> str:
        """A hash of key and position: equal ones would draw equal values."""
        text = f"privplan stream state v1\n{self._read}".encode()
        return hmac.digest(self._key, text, "sha256").hex()[:LETTERS]

    def words(self, count: int) -> np.ndarray:
        """The next words [count], uint64, independent and uniform."""
        parts, available = [self._words], len(self._words)
        while available < count:
            size = 1 << min(_FIRST + self._block, _LAST)
            need = self._used + 8 * (count - available)
            # The hash is read as far as needed the first time, which is often the only one.
            last = size if self._used or need > size else need
            block = hashlib.shake_256(
                self._key + self._block.to_bytes(8, "little")
            ).digest(last)
            parts.append(np.frombuffer(block, "<u8")[self._used // 8 :])
            available += len(parts[-1])
            self._block, self._used = (
                (self._block, last) if last < size else (self._block + 1, 0)
            )
        found = np.concatenate(parts) if len(parts) > 1 else parts[0]
        self._words, self._read = found[count:], self._read + count
        return found[:count]

    def random(self, size: int) -> np.ndarray:
        """Uniform multiples of 2^-53 in [0, 1), shape [size]."""
        return (self.words(size) >> np.uint64(11)) * 2.0**-53

    def standard_normal(self, size: int) -> np.ndarray:
        """Standard normals [size] by the method of Box and Muller, in floating-point numbers."""
        pairs = (size + 1) // 2
        words = self.words(2 * pairs)
        radius = np.sqrt(
            -2.0 * np.log((words[:pairs].astype(np.float64) + 1.0) * 2.0**-64)
        )
        angle = (words[pairs:] >> np.uint64(11)) * (2.0**-52 * np.pi)
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]

    def binomial(self, n: int, p: float) -> int:
        """The number of successes in ``n`` trials of probability ``p`` (a multiple of 2^-53)."""
        return int((self.random(int(n)) < p).sum())

    def integers(self, high: int, size: int) -> np.ndarray:
        """Uniform whole numbers [size] below ``high``."""
        words, last = np.array(self.words(size)), np.uint64(2**64 - 2**64 % high - 1)
        while (beyond := words > last).any():
            words[beyond] = self.words(int(beyond.sum()))
        return (words % np.uint64(high)).astype(np.int64)

    def permutation(self, x: int | Sequence[int] | np.ndarray) -> np.ndarray:
        """A uniform permutation of an array, or of the numbers below ``x``."""
        items = np.arange(x) if isinstance(x, int | np.integer) else np.asarray(x)
        while True:
            words = self.words(len(items))
            order = np.argsort(words)
            if (np.diff(words[order]) > 0).all():
                return items[order]

    def choice(
        self, a: int, size: int, *, replace: bool = True, shuffle: bool = True
    ) -> np.ndarray:
        """A uniform subset of the numbers below ``a``, in random order."""
        if replace:
            raise UnsupportedError("secure stream: choice is without replacement only")
        if not 0 <= size <= a:
            raise InputError.one("size", f"must be in [0, {a}]", size)
        return self.permutation(int(a))[:size]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnsupportedError(f"secure stream: has no method {name}")


def secure_stream() -> SecureStream:
    """A stream with a new key from the operating system, for one draw.

    The ledger has a hash of its key and position, from which the key cannot be found.
    """
    return SecureStream(secrets.token_bytes(KEY_BYTES))


# --- Random streams of a simulation, which its seed, a purpose and indices determine. ------------


class Purpose(IntEnum):
    """Purpose of a stream. The numbers never change, because they determine a seed's results."""

    INITIAL = 0
    PARTITION = 1
    GROUPS = 2
    SAMPLING = 3  # of cohorts: (round, index of the group)
    CLIENT = 4
    NOISE = 5  # (round, index of the release in the round)
    SUPPORT = 6  # of public masks: (round, index of the transform)
    OWN_TEST = 7
    RECORD_NOISE = 8
    EVALUATION = 9
    CANARY = 10
    DROPOUT = 12
    AUGMENTATION = 13


def private_seed(seed: int, spec_digest: str, group: str = "") -> int:
    """The seed of cohorts (by group), noise and Poisson batches under the plans of one spec."""
    text = f"privplan private seed v3\n{seed}\n{spec_digest}\n{group}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def stream(seed: int, purpose: int, *indices: int) -> np.random.Generator:
    """The generator of one stream, independent of earlier draws and of all other streams."""
    sequence = np.random.SeedSequence(entropy=seed, spawn_key=(int(purpose), *indices))
    return np.random.Generator(np.random.Philox(sequence))


_WORD = 32
_POOL = 4  # words of the pool of ``numpy.random.SeedSequence``
_HASH, _HASH_FACTOR = 0x43B0D7E5, 0x931E8875
_STATE, _STATE_FACTOR = 0x8B51F9DD, 0x58F38DED
_LEFT, _RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
"""Constants of ``numpy.random.SeedSequence`` (M. E. O'Neill, "Developing a seed_seq alternative",
2015), whose results NumPy guarantees to keep."""


def streams(
    seed: int, purpose: int, *indices: int, clients: np.ndarray
) -> Iterator[np.random.Generator]:
    """Yields the generators of one stream per client, each valid until the next is asked for.

    They are equal to those of ``stream``, at a tenth of its cost: there is one generator, which
    is set to the next stream.
    """
    philox = np.random.Philox(0)
    generator, state = np.random.Generator(philox), philox.state
    for words in _philox_keys(seed, (int(purpose), *indices), clients):
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
    words = [
        found["bit_generator"],
        *(found["state"][name] for name in sorted(found["state"])),
    ]
    text = "|".join(str(np.asarray(word).tolist()) for word in words)
    return hashlib.sha256(f"{text}|{found.get('buffer_pos')}".encode()).hexdigest()[
        :LETTERS
    ]


# --- Public random masks: the coordinates released in a round, drawn from the seed without data. --


def mask_digest(coordinates: np.ndarray) -> str:
    """A hash of sorted coordinates."""
    content = np.ascontiguousarray(coordinates, dtype="<i8").tobytes()
    return hashlib.sha256(content).hexdigest()[:LETTERS]


def draw_mask(
    seed: int, round_: int, masks: Sequence[Mask], dimension: int
) -> np.ndarray:
    """The coordinates in all masks of a round, sorted."""
    released = np.arange(dimension)
    for mask in masks:
        generator = stream(seed, Purpose.SUPPORT, round_, mask.index)
        drawn = generator.choice(
            dimension, size=mask.size, replace=False, shuffle=False
        )
        released = np.intersect1d(released, drawn)
    return released
