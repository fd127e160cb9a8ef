"""What is read from disk: numbers that are checked, and one line for all that goes wrong."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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
