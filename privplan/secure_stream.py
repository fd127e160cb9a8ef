"""Cryptographic random streams, whose key is the operating system's and in no record.

A stream is SHAKE-256 (FIPS 202), a sponge with a capacity of 512 bits, keyed by a
prefix as in KMAC (NIST SP 800-185): without the 256-bit key its output is
computationally indistinguishable from random bits, and no stream can be computed from
another. The standard library has it, so that no package is needed. Of the key a record
holds a commitment, and of each stream a fingerprint: both are hashes, from which the
key cannot be found.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privplan.errors import InputError, UnsupportedError
from privplan.record import LETTERS
from privplan.secret_files import read_secret, write_secret

KEY_BYTES = 32
# Logarithms to base 2 of the sizes of the first and of the largest block, in bytes.
_FIRST_BLOCK = 10
_LARGEST_BLOCK = 20
_WORD_BYTES = 8


@dataclass(frozen=True, repr=False)
class NoiseKey:
    """The secret of all streams of one run."""

    content: bytes

    @property
    def commitment(self) -> str:
        """SHA-256 of the key with its context, which a record may hold."""
        context = b"privplan noise key commitment v1\n"
        return hashlib.sha256(context + self.content).hexdigest()

    def stream(self, purpose: int, *indices: int) -> SecureStream:
        """The stream of a purpose, from its start; equal arguments give equal ones."""
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
        """Read a key.

        Raises:
            InputError: when the file cannot be read, is open to others, or holds none.
        """
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
        cls, folder: Path, commitment: object, path: Path | None
    ) -> NoiseKey | None:
        """The key of a run; None where it has none, or none is there.

        Args:
            folder: of the run.
            commitment: to the key, in the run's record; None without secure noise.
            path: file with the key; the one beside the folder when None.

        Raises:
            InputError: for a key of a run without one, or of another run.
        """
        what = "noise-key"
        if commitment is None:
            if path is not None:
                rule = "is only for runs with secure noise"
                raise InputError.one(what, rule, str(path))
            return None
        path_beside = key_beside(folder)
        if path is None and not path_beside.is_file():
            return None
        key = cls.load(path or path_beside, what)
        if key.commitment != commitment:
            rule = f"must be the key of the run, with commitment {commitment}"
            raise InputError.one(what, rule, key.commitment)
        return key


def key_beside(folder: Path) -> Path:
    """Where the key of a run on own data is kept.

    It stands beside the run's folder, which may be handed on.
    """
    # The folder itself, where a link leads to it.
    real_folder = Path(os.path.realpath(folder))
    return real_folder.with_name(f"{real_folder.name}.key")


class SecureStream:
    """A cryptographic stream with the methods of NumPy's generators that laws use.

    Args:
        key: the 32 secret bytes of the stream.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        # Words that were handed out.
        self._read = 0
        # Words that were computed and not handed out.
        self._words: np.ndarray = np.empty(0, np.uint64)
        # The block that is read next, and how many of its bytes were computed.
        self._block = 0
        self._used = 0

    def fingerprint(self) -> str:
        """A hash of key and position: equal ones would draw equal values."""
        text = f"privplan stream state v1\n{self._read}".encode()
        return hmac.digest(self._key, text, "sha256").hex()[:LETTERS]

    def words(self, count: int) -> np.ndarray:
        """The next words [count], uint64, independent and uniform."""
        batches = [self._words]
        available = len(self._words)
        while available < count:
            batch = self._next_words(count - available)
            batches.append(batch)
            available += len(batch)
        words = np.concatenate(batches) if len(batches) > 1 else batches[0]
        self._words = words[count:]
        self._read += count
        return words[:count]

    def _next_words(self, count: int) -> np.ndarray:
        """Further words of the block that is read next, at most as many as it has."""
        # Blocks double in size: short streams are quick, and long ones have few blocks.
        size = 1 << min(_FIRST_BLOCK + self._block, _LARGEST_BLOCK)
        end = self._used + _WORD_BYTES * count
        # The hash is read as far as needed the first time, which is often the only one.
        if self._used or end > size:
            end = size
        number = self._block.to_bytes(8, "little")
        block = hashlib.shake_256(self._key + number).digest(end)
        words = np.frombuffer(block, "<u8")[self._used // _WORD_BYTES :]
        self._used = end
        if end == size:
            self._block += 1
            self._used = 0
        return words

    def random(self, size: int) -> np.ndarray:
        """Uniform multiples of 2^-53 in [0, 1), shape [size]."""
        return (self.words(size) >> np.uint64(11)) * 2.0**-53

    def standard_normal(self, size: int) -> np.ndarray:
        """Standard normals [size] by the method of Box and Muller, as floats."""
        pairs = (size + 1) // 2
        words = self.words(2 * pairs)
        # sqrt(-2 ln U) with U in (0, 1], and an angle in [0, 2 pi).
        uniform = (words[:pairs].astype(np.float64) + 1.0) * 2.0**-64
        radius = np.sqrt(-2.0 * np.log(uniform))
        angle = (words[pairs:] >> np.uint64(11)) * (2.0**-52 * np.pi)
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]

    def binomial(self, n: int, p: float) -> int:
        """The number of successes in ``n`` trials of probability ``p``.

        The probability is rounded to a multiple of 2^-53.
        """
        return int((self.random(int(n)) < p).sum())

    def integers(self, high: int, size: int) -> np.ndarray:
        """Uniform whole numbers [size] below ``high``."""
        words = np.array(self.words(size))
        # Words above the last whole multiple of ``high`` would favour small numbers.
        largest = np.uint64(2**64 - 2**64 % high - 1)
        beyond = words > largest
        while beyond.any():
            words[beyond] = self.words(int(beyond.sum()))
            beyond = words > largest
        return (words % np.uint64(high)).astype(np.int64)

    def permutation(self, x: int | Sequence[int] | np.ndarray) -> np.ndarray:
        """A uniform permutation of an array, or of the numbers below ``x``."""
        if isinstance(x, int | np.integer):
            items = np.arange(x)
        else:
            items = np.asarray(x)
        while True:
            words = self.words(len(items))
            order = np.argsort(words)
            # Equal words would leave their order to the sorting.
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
