"""What is read from disk: numbers that are checked, and one line for all that goes wrong.

Pickle files that may hold arrays and plain values, and can run nothing.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from privplan.errors import InputError, PrivplanError


@contextmanager
def reading(path: Path, rule: str) -> Iterator[None]:
    """Whatever goes wrong inside is one error that names the file; nothing is warned of.

    Args:
        path: what is read.
        rule: what it must be or hold.

    Raises:
        InputError: in place of any exception that is not the project's own.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except PrivplanError:
        raise
    except Exception as error:  # a damaged file can fail in any way
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError.one("data", f"{rule} ({said})", str(path)) from None


def numbers(found: Any) -> np.ndarray:
    """Real numbers of a file, in their own type; a text that looks like one is none.

    Raises:
        ValueError: when they are others, or rows of different length.
    """
    values = np.asarray(found)
    if values.dtype.kind not in "biuf":
        raise ValueError("holds other than numbers of at most 64 bits")
    return values


def whole_numbers(found: Any) -> np.ndarray:
    """Labels of a file [n], int64; a whole number may be written as a real one, as in MATLAB.

    Raises:
        ValueError: when they are others, or no list.
    """
    values = numbers(found)
    with np.errstate(invalid="ignore"):
        labels = values.astype(np.int64)
    if values.ndim != 1 or (labels != values).any():
        raise ValueError("labels must be a list of whole numbers")
    return labels


def _reconstruct(subtype: type, shape: Any, kind: Any) -> np.ndarray:
    """The empty array that a pickle then fills; numpy's own arrays only."""
    if subtype is not np.ndarray:
        raise pickle.UnpicklingError("only numpy's own arrays are read")
    return np.ndarray.__new__(np.ndarray, shape, kind)


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """How newer versions of Python write bytes for older ones."""
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
"""The only names that a file may call; none of them runs what it is given."""


class _Reader(pickle.Unpickler):
    """An unpickler that knows the names above and no others."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not data")
        return _ALLOWED[module, name]


def read_pickle(path: Path) -> dict[bytes, Any]:
    """The dictionary in a pickle file, with texts of Python 2 as bytes.

    Args:
        path: the file; nothing in it is run.

    Raises:
        InputError: when it cannot be read, is damaged, or calls for anything but numpy arrays,
            bytes, texts, numbers, lists and dictionaries.
    """
    with reading(path, "must be a pickle of plain data"), path.open("rb") as file:
        found = _Reader(file, encoding="bytes").load()
        if not isinstance(found, dict):
            raise InputError.one("data", "must be a pickled dictionary", str(path))
        return {key.encode() if isinstance(key, str) else key: found[key] for key in found}
