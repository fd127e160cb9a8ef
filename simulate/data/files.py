"""Checked reading of files: one-line errors, numbers, and pickles that cannot run code."""

from __future__ import annotations

import gzip
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from privplan.errors import InputError, PrivplanError

MOST_UNPACKED = 4 * 2**30
"""Most bytes of a file after it is unpacked: the largest known data set has half of it."""


@contextmanager
def reading(path: Path, rule: str) -> Iterator[None]:
    """Turn any exception inside the context into one error that names the file; mute warnings.

    Args:
        path: the file that is read.
        rule: what it must be or contain.

    Raises:
        InputError: instead of any exception that is not a ``PrivplanError``.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except PrivplanError:
        raise
    except Exception as error:  # a damaged file can fail in any way
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError.one("data", f"{rule} ({reason})", str(path)) from None


def numbers(content: Any) -> np.ndarray:
    """Real numbers as an array in their own type; numeric text is refused.

    Raises:
        ValueError: for other types, or rows of different length.
    """
    values = np.asarray(content)
    if values.dtype.kind not in "biuf":
        raise ValueError("holds other than numbers of at most 64 bits")
    return values


def whole_numbers(content: Any) -> np.ndarray:
    """Labels [n], int64; floating-point whole numbers are accepted, as MATLAB writes them.

    Raises:
        ValueError: for other numbers, or an array that is not one-dimensional.
    """
    values = numbers(content)
    with np.errstate(invalid="ignore"):
        labels = values.astype(np.int64)
    if values.ndim != 1 or (labels != values).any():
        raise ValueError("labels must be a list of whole numbers")
    return labels


def _reconstruct(subtype: type, shape: Any, kind: Any) -> np.ndarray:
    """The empty array that a pickle then fills; refuses subclasses of ``ndarray``."""
    if subtype is not np.ndarray:
        raise pickle.UnpicklingError("only numpy's own arrays are read")
    return np.ndarray.__new__(np.ndarray, shape, kind)


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Bytes as Python 3 writes them for Python 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError("only bytes written as latin1 are read")
    return text.encode("latin1")


_ALLOWED = MappingProxyType(
    {
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): _encode,
    }
)
"""The only names that a file may call; none of them runs its arguments."""


class _Reader(pickle.Unpickler):
    """An unpickler restricted to ``_ALLOWED``."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not data")
        return _ALLOWED[module, name]


def read_pickle(path: Path) -> dict[bytes, Any]:
    """The dictionary in a pickle file, with strings of Python 2 as bytes; runs no code.

    Raises:
        InputError: when it cannot be read, is damaged, or calls for anything but numpy arrays,
            bytes, texts, numbers, lists and dictionaries.
    """
    with reading(path, "must be a pickle of plain data"), path.open("rb") as file:
        content = _Reader(file, encoding="bytes").load()
        if not isinstance(content, dict):
            raise InputError.one("data", "must be a pickled dictionary", str(path))
        return {
            key.encode() if isinstance(key, str) else key: value for key, value in content.items()
        }


def read_unpacked(path: Path, most: int | None = None) -> bytes:
    """The content of a file, unpacked when its name ends in ``.gz``.

    Args:
        path: the file.
        most: most bytes that are unpacked; ``MOST_UNPACKED`` when None.

    Raises:
        ValueError: when more would be unpacked.
    """
    if path.suffix != ".gz":
        return path.read_bytes()
    limit = MOST_UNPACKED if most is None else most
    with gzip.open(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"must unpack to {limit} bytes or less")
    return content
