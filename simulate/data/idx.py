"""The IDX format of MNIST and its relatives, and the four files that each of them has."""

from __future__ import annotations

import gzip
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from simulate.data.disk import Place, fetch, find, missing
from simulate.data.files import reading, whole_numbers

_TYPES: Mapping[int, np.dtype[Any]] = MappingProxyType(
    {0x08: np.dtype(np.uint8), 0x0C: np.dtype(">i4")}
)
"""Bytes and 32-bit integers, by the code of the format."""
SIDE = 28
"""Height and width of the images that are read."""


@dataclass(frozen=True)
class IdxFiles:
    """The files of a data set in IDX format.

    Attributes:
        place: where they lie.
        address: where they are published, up to the file's name; empty when only in an archive.
        md5: published sums of the files compressed with gzip, by their names without ``.gz``.
    """

    place: Place
    address: str
    md5: Mapping[str, str]


def locate(files: IdxFiles, data: Path, download: bool) -> dict[str, Path]:
    """Where each file is, unpacked or compressed; missing ones are fetched when that is wished.

    Raises:
        MissingDataError: when one is not there.
        InputError: when one that was fetched is damaged.
    """
    found = {}
    for name, md5 in files.md5.items():
        path = find(files.place, data, name, f"{name}.gz")
        if path is None and not (download and files.address):
            raise missing(files.place, data, f"{name}.gz")
        if path is None:
            target = data / files.place.folders[0] / f"{name}.gz"
            path = fetch(f"{files.address}{name}.gz", target, md5)
        found[name] = path
    return found


def read_images(path: Path) -> Tensor:
    """Grey images [n, 1, 28, 28], uint8.

    Raises:
        InputError: as ``read_idx``, and for other than a list of such images.
    """
    found = read_idx(path)
    if found.shape[1:] != (SIDE, SIDE) or found.dtype != np.uint8:
        rule = f"must hold images of {SIDE}x{SIDE} bytes in IDX format"
        raise InputError.one("data", rule, str(path))
    return torch.from_numpy(np.array(found))[:, None]


def read_labels(path: Path) -> Tensor:
    """Labels [n], int64.

    Raises:
        InputError: as ``read_idx``, and for other than a list.
    """
    with reading(path, "must hold labels in IDX format"):
        return torch.from_numpy(whole_numbers(read_idx(path)))


def read_idx(path: Path) -> np.ndarray:
    """An array of bytes or of 32-bit integers, of any number of dimensions.

    Args:
        path: a file in IDX format; compressed when its name ends in ``.gz``.

    Raises:
        InputError: when the file cannot be read, is damaged, or holds other numbers.
    """
    with reading(path, "must be readable"):
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    with reading(path, "must be bytes or integers in IDX format"):
        start = 4 + 4 * content[3]
        if len(content) < start or content[:2] != b"\0\0":
            raise ValueError("its header is another one")
        kind = _TYPES[content[2]]
        shape = [int(side) for side in np.frombuffer(content[4:start], ">u4")]
        if len(content) - start != math.prod(shape) * kind.itemsize:
            raise InputError.one("data", "must be as long as its header says", str(path))
        return np.frombuffer(content, kind, offset=start).reshape(shape)
