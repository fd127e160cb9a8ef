"""MATLAB files with images X [32, 32, 3, n] and labels y [n, 1], one for each part.

Y. Netzer, T. Wang, A. Coates, A. Bissacco, B. Wu, A. Y. Ng, Reading Digits in Natural
Images with Unsupervised Feature Learning (2011), with the customary means and
deviations.
"""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from privplan.errors import InputError
from privplan.limits import most_unpacked
from simulate.data.formats.images import (
    DIGITS,
    SIDE,
    ImageDataset,
    Part,
    of_pixels,
)
from simulate.data.locations import Location
from simulate.data.reading import one_line_errors, read_unpacked, whole_numbers
from simulate.data.registry import DATASETS

# Of the format (MATLAB, MAT-File Format, level 5): bytes of the header, whose last two
# tell the byte order; bytes before a variable, its type and size; type of a packed one.
_HEADER_BYTES = 128
_TAG_BYTES = 8
PACKED_VARIABLE = 15


def unpacked_matlab(path: Path) -> bytes:
    """A MATLAB file whose packed variables are unpacked, which are not too large."""
    content = read_unpacked(path)
    place = _HEADER_BYTES
    if content[place - 2 : place] != b"IM":
        raise ValueError("its byte order is another one")
    limit = most_unpacked(len(content))
    bytes_left = limit
    variables = [content[:place]]
    while place < len(content):
        kind, size = struct.unpack_from("<II", content, place)
        variable = content[place : place + _TAG_BYTES + size]
        if kind == PACKED_VARIABLE:
            # One byte more than allowed tells that there are more.
            packed = variable[_TAG_BYTES:]
            variable = zlib.decompressobj().decompress(packed, bytes_left + 1)
        variables.append(variable)
        bytes_left -= len(variable)
        if bytes_left < 0:
            raise ValueError(f"must unpack to {limit} bytes or less")
        place += _TAG_BYTES + size
    return b"".join(variables)


def matlab(paths: list[Path]) -> tuple[Part, Part]:
    """The records of a training and a test file, in which label 10 is class 0."""
    train, test = map(_part, paths)
    return train, test


def _part(path: Path) -> Part:
    """The records of a file."""
    from scipy.io import loadmat

    with one_line_errors(path, "must be a MATLAB file"):
        file: Any = BytesIO(unpacked_matlab(path))
        content = loadmat(file, variable_names=("X", "y"))
    rule = "must hold X of 32 x 32 x 3 x n bytes, and n labels y"
    with one_line_errors(path, rule):
        x = np.asarray(content["X"])
        y = whole_numbers(np.asarray(content["y"]).reshape(-1))
        if x.dtype != np.uint8 or x.shape != (SIDE, SIDE, 3, len(y)):
            raise InputError.one("data", rule, str(path))
        images = np.ascontiguousarray(x.transpose(3, 2, 0, 1))
        return images, np.where(y == len(DIGITS), 0, y)


DATASETS.register(
    "svhn",
    ImageDataset(
        "svhn",
        Location("SVHN", ("SVHN", "svhn"), "fetch 246 MB with --download"),
        matlab,
        {
            "train_32x32.mat": (
                "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"
            ),
            "test_32x32.mat": (
                "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"
            ),
        },
        DIGITS,
        mean=of_pixels(0.4377, 0.4438, 0.4728),
        std=of_pixels(0.1980, 0.2010, 0.1970),
        address="https://ufldl.stanford.edu/housenumbers/",
    ),
)
