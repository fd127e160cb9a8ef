"""CIFAR-10 and CIFAR-100, 32x32 in colour, as pickled batches or as batches of plain bytes.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from privplan.errors import InputError
from privplan.io.files import read_text
from simulate.data.dataset import Dataset
from simulate.data.disk import Archive, Location, fetch_archive, find, missing
from simulate.data.files import read_pickle, reading, whole_numbers
from simulate.data.registry import DATASETS

SHAPE = (3, 32, 32)
BYTES = 3 * 32 * 32
NAMES, NAMES_TEXT = "meta", "fine_label_names.txt"
"""Files with the names of the 100 classes, in the two layouts."""


@dataclass(frozen=True)
class CifarDataset:
    """A data set in the layouts of CIFAR.

    Attributes:
        name: its registered name.
        python: location of the pickled files.
        binary: location of the files of bytes.
        train: names of the training files, in order; ``.bin`` is appended for the bytes.
        test: name of the test file.
        key: key of the labels in a pickled file.
        label_bytes: bytes before each image in a file of bytes; the last is the label.
        archive: the archive of the pickled files.
        mean: pixel value of each channel that becomes 0.
        std: pixel values of each channel that become 1.
        classes: names of the classes; None when they are read from a file.
    """

    name: str
    python: Location
    binary: Location
    train: tuple[str, ...]
    test: str
    key: bytes
    label_bytes: int
    archive: Archive
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    classes: tuple[str, ...] | None = None

    def __call__(self, data: Path, download: bool) -> Dataset:
        """Read the data set from whichever layout is present."""
        names = (*self.train, self.test)
        python = [find(self.python, data, name) for name in names]
        binary = [find(self.binary, data, f"{name}.bin") for name in names]
        if None in python and None not in binary:
            parts = [_read_bytes(path, self.label_bytes) for path in binary if path]
        else:
            if None in python and download:
                fetch_archive(self.archive, data / self.python.folders[0])
                python = [find(self.python, data, name) for name in names]
            if None in python:
                raise missing(self.python, data, names[python.index(None)])
            parts = [_read_pickled(path, self.key) for path in python if path]
        x, y = (np.concatenate(part) for part in zip(*parts[:-1], strict=True))
        train = torch.from_numpy(x), torch.from_numpy(y)
        test = torch.from_numpy(parts[-1][0]), torch.from_numpy(parts[-1][1])
        classes = self.classes or self._class_names(data)
        return Dataset(self.name, *train, *test, classes, self.mean, self.std)

    def _class_names(self, data: Path) -> tuple[str, ...]:
        path = find(self.python, data, NAMES)
        if path is not None:
            content = read_pickle(path).get(b"fine_label_names", [])
            with reading(path, "must name 100 fine labels"):
                names = [one.decode() if isinstance(one, bytes) else str(one) for one in content]
        else:
            path = find(self.binary, data, NAMES_TEXT)
            if path is None:
                raise missing(self.python, data, NAMES)
            names = read_text(path, "data").split()
        if len(names) != 100:
            raise InputError.one("data", "must name 100 fine labels", str(path))
        return tuple(names)


def _read_pickled(path: Path, key: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 3, 32, 32], uint8, and labels [n], int64, of a pickled batch."""
    batch = read_pickle(path)
    images, labels = batch.get(b"data"), batch.get(key)
    rule = f"must hold data of {BYTES} bytes per record and as many {key.decode()}"
    if not isinstance(images, np.ndarray) or not isinstance(labels, list):
        raise InputError.one("data", rule, str(path))
    if images.dtype != np.uint8 or images.shape != (len(labels), BYTES):
        raise InputError.one("data", rule, str(path))
    with reading(path, f"must hold whole numbers as {key.decode()}"):
        return images.reshape(-1, *SHAPE), whole_numbers(labels)


def _read_bytes(path: Path, label_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 3, 32, 32], uint8, and labels [n], int64, of a batch of bytes."""
    with reading(path, "must be readable"):
        content = np.fromfile(path, np.uint8)
    row = label_bytes + BYTES
    if not len(content) or len(content) % row:
        raise InputError.one("data", f"must be rows of {row} bytes", str(path))
    table = content.reshape(-1, row)
    images = np.ascontiguousarray(table[:, label_bytes:]).reshape(-1, *SHAPE)
    return images, table[:, label_bytes - 1].astype(np.int64)


CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
"""The ten classes of CIFAR-10 and CINIC-10."""

# The means and deviations are the customary ones.
for _row in (
    CifarDataset(
        "cifar-10",
        Location("CIFAR-10", ("cifar-10-batches-py",), "fetch 170 MB with --download"),
        Location("CIFAR-10", ("cifar-10-batches-bin",), "fetch 170 MB with --download"),
        train=tuple(f"data_batch_{number}" for number in range(1, 6)),
        test="test_batch",
        key=b"labels",
        label_bytes=1,
        archive=Archive(
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            inside="cifar-10-batches-py",
        ),
        mean=(0.4914 * 255, 0.4822 * 255, 0.4465 * 255),
        std=(0.2470 * 255, 0.2435 * 255, 0.2616 * 255),
        classes=CLASSES,
    ),
    CifarDataset(
        "cifar-100",
        Location("CIFAR-100", ("cifar-100-python",), "fetch 169 MB with --download"),
        Location("CIFAR-100", ("cifar-100-binary",), "fetch 169 MB with --download"),
        train=("train",),
        test="test",
        key=b"fine_labels",
        label_bytes=2,
        archive=Archive(
            "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            inside="cifar-100-python",
        ),
        mean=(0.5071 * 255, 0.4865 * 255, 0.4409 * 255),
        std=(0.2673 * 255, 0.2564 * 255, 0.2762 * 255),
    ),
):
    DATASETS.register(_row.name, _row)
