"""Checked reading of files: errors of one line, numbers, bounds on unpacked bytes."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from privplan.errors import InputError, PrivplanError
from privplan.limits import most_unpacked, regular

# Bytes of an unpacked file; the largest set of the project has half of it.
MAX_UNPACKED = 4 * 2**30


@contextmanager
def one_line_errors(path: Path, rule: str) -> Iterator[None]:
    """Turn any exception inside into one error that names the file; mute warnings."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except PrivplanError:
        raise
    except Exception as error:  # a damaged file can fail in any way
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError.one("data", f"{rule} ({reason})", str(path)) from None


def opened(path: Path) -> BinaryIO:
    """A file of a data set, which may be a stranger's."""
    return open(path, "rb", opener=regular(MAX_UNPACKED))


def read_unpacked(path: Path) -> bytes:
    """The content of a file, unpacked when its name ends in ``.gz``.

    Raises:
        ValueError: for more bytes than ``MAX_UNPACKED``, or of a packed file than its
            size allows.
    """
    limit = MAX_UNPACKED
    with opened(path) as packed:
        # One byte more than allowed tells that there are more.
        if path.suffix == ".gz":
            limit = min(limit, most_unpacked(path.stat().st_size))
            content = gzip.GzipFile(fileobj=packed).read(limit + 1)
        else:
            content = packed.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"must unpack to {limit} bytes or less")
    return content


def numbers(content: Any) -> np.ndarray:
    """Real numbers as an array in their own type; numeric text is refused."""
    values = np.asarray(content)
    if values.dtype.kind not in "biuf":
        raise ValueError("holds other than numbers of at most 64 bits")
    return values


def whole_numbers(content: Any) -> np.ndarray:
    """Labels [n], int64; whole floating-point numbers pass, as MATLAB writes them."""
    values = numbers(content)
    with np.errstate(invalid="ignore"):
        labels = values.astype(np.int64)
    if values.ndim != 1 or (labels != values).any():
        raise ValueError("labels must be a list of whole numbers")
    return labels
