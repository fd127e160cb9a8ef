"""The two layouts of CIFAR-10 and CIFAR-100: pickled batches, and batches of plain bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from simulate.data.disk import Place, fetch, find, missing, unpack
from simulate.data.files import read_pickle, reading, whole_numbers

SHAPE = (3, 32, 32)
BYTES = 3 * 32 * 32


@dataclass(frozen=True)
class Layout:
    """The files of one of the data sets.

    Attributes:
        python: where the pickled files lie.
        binary: where the files of bytes lie.
        train: names of the training files, in order; ``.bin`` is appended for the bytes.
        test: name of the test file.
        key: the labels' key in a pickled file.
        label_bytes: bytes before each image in a file of bytes; the last is the label.
        address: where the archive of the pickled files is published.
        md5: its sum.
    """

    python: Place
    binary: Place
    train: tuple[str, ...]
    test: str
    key: bytes
    label_bytes: int
    address: str
    md5: str


def read(layout: Layout, data: Path, download: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images and labels, test images and labels, from whichever layout is there.

    Args:
        layout: the data set's files.
        data: the data folder.
        download: fetch the pickled files when there are none.

    Returns:
        Images [n, 3, 32, 32], uint8, and labels [n], int64.

    Raises:
        MissingDataError: when files are missing.
        InputError: when one is damaged.
    """
    names = (*layout.train, layout.test)
    python = [find(layout.python, data, name) for name in names]
    binary = [find(layout.binary, data, f"{name}.bin") for name in names]
    if None in python and None not in binary:
        parts = [_bytes(path, layout.label_bytes) for path in binary if path]
    else:
        if None in python and download:
            folder = layout.python.folders[0]
            archive = fetch(layout.address, data / Path(layout.address).name, layout.md5)
            unpack(archive, data / folder, folder)
            python = [find(layout.python, data, name) for name in names]
        if None in python:
            raise missing(layout.python, data, names[python.index(None)])
        parts = [_pickled(path, layout.key) for path in python if path]
    train_x, train_y = (np.concatenate(part) for part in zip(*parts[:-1], strict=True))
    test_x, test_y = parts[-1]
    return (
        torch.from_numpy(train_x),
        torch.from_numpy(train_y),
        torch.from_numpy(test_x),
        torch.from_numpy(test_y),
    )


def _pickled(path: Path, key: bytes) -> tuple[np.ndarray, np.ndarray]:
    batch = read_pickle(path)
    images, labels = batch.get(b"data"), batch.get(key)
    rule = f"must hold data of {BYTES} bytes a record and as many {key.decode()}"
    if not isinstance(images, np.ndarray) or not isinstance(labels, list):
        raise InputError.one("data", rule, str(path))
    if images.dtype != np.uint8 or images.shape != (len(labels), BYTES):
        raise InputError.one("data", rule, str(path))
    with reading(path, f"must hold whole numbers as {key.decode()}"):
        return images.reshape(-1, *SHAPE), whole_numbers(labels)


def _bytes(path: Path, label_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    with reading(path, "must be readable"):
        content = np.fromfile(path, np.uint8)
    row = label_bytes + BYTES
    if not len(content) or len(content) % row:
        raise InputError.one("data", f"must be rows of {row} bytes", str(path))
    table = content.reshape(-1, row)
    images = np.ascontiguousarray(table[:, label_bytes:]).reshape(-1, *SHAPE)
    return images, table[:, label_bytes - 1].astype(np.int64)
