"""Pickles of plain data and NumPy arrays, read without running any code of theirs."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from privplan.errors import InputError
from simulate.data.reading import one_line_errors, opened


class _Array:
    """An array of a pickle: filled by its state, checked before NumPy sees it."""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, columns_first, content = state
        has_numbers = isinstance(kind, _Kind) and isinstance(content, bytes)
        if columns_first or not has_numbers:
            raise pickle.UnpicklingError("only plain arrays of numbers are read")
        self.values = np.frombuffer(content, kind.dtype).reshape(shape).copy()


class _Kind:
    """The type of an array's numbers."""

    def __init__(self, name: Any) -> None:
        text = name.decode() if isinstance(name, bytes) else name
        self.dtype = np.dtype(text if isinstance(text, str) else "O")
        if self.dtype.kind not in "biuf":
            raise pickle.UnpicklingError("only arrays of numbers are read")

    def __setstate__(self, state: Any) -> None:
        if state[1] in (">", b">"):
            self.dtype = self.dtype.newbyteorder(">")


_NDARRAY = object()  # stands for ``numpy.ndarray``, which a file may name and not call


def _reconstruct(subtype: object, shape: object, kind: object) -> _Array:
    """The array that the file then fills; refuses subclasses of ``ndarray``."""
    if subtype is not _NDARRAY:
        raise pickle.UnpicklingError("only numpy's own arrays are read")
    return _Array()


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """Bytes as Python 3 writes them for Python 2."""
    if encoding != "latin1" or not isinstance(text, str):
        raise pickle.UnpicklingError("only bytes written as latin1 are read")
    return text.encode("latin1")


_ALLOWED: Mapping[tuple[str, str], Any] = MappingProxyType(
    {
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy", "ndarray"): _NDARRAY,
        ("numpy", "dtype"): lambda name, *flags: _Kind(name),
        ("_codecs", "encode"): _encode,
    }
)
"""The only names that a file may use: functions of this file, none of which runs its
arguments."""

# The unpickler in Python, whose memo is no larger than the file.
_Unpickler: Any = pickle._Unpickler


def _build(reader: Any) -> None:
    """Give a state to an array or its type; functions and other values have none."""
    if not isinstance(reader.stack[-2], _Array | _Kind):
        raise pickle.UnpicklingError("only arrays have a state")
    _Unpickler.load_build(reader)


class _Reader(_Unpickler):  # type: ignore[misc]
    """An unpickler restricted to ``_ALLOWED``."""

    dispatch: ClassVar = {**_Unpickler.dispatch, pickle.BUILD[0]: _build}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not data")
        return _ALLOWED[module, name]


def read_pickle(path: Path) -> dict[bytes, Any]:
    """The dictionary in a pickle file, strings of Python 2 as bytes; runs no code."""
    arrays = {}
    with one_line_errors(path, "must be a pickle of plain data"), opened(path) as file:
        content = _Reader(file, encoding="bytes").load()
        if not isinstance(content, dict):
            raise InputError.one("data", "must be a pickled dictionary", str(path))
        for key, value in content.items():
            name = key.encode() if isinstance(key, str) else key
            if isinstance(value, _Array):
                arrays[name] = value.values
            else:
                arrays[name] = value
    return arrays
