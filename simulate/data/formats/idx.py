"""The IDX format: MNIST, Fashion-MNIST and EMNIST, grey images of 28x28.

Files lie as torchvision keeps them. Sources: Y. LeCun, C. Cortes, C. J. C. Burges, The MNIST
database; C. Yadav, L. Bottou, Cold Case: The Lost MNIST Digits (2019), for the writers of MNIST;
H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST (2017); G. Cohen, S. Afshar, J. Tapson, A. van Schaik,
EMNIST: an extension of MNIST to handwritten letters (2017), the split by class.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from simulate.data.dataset import Dataset
from simulate.data.disk import Archive, Location, fetch_archive, find, locate
from simulate.data.files import read_unpacked, reading, whole_numbers
from simulate.data.registry import DATASETS

_TYPES: Mapping[int, np.dtype[Any]] = MappingProxyType(
    {0x08: np.dtype(np.uint8), 0x0C: np.dtype(">i4")}
)
"""Bytes and 32-bit integers, by the code of the format."""
SIDE = 28
"""Height and width of the images that are read."""
CLASS, WRITER = 0, 2
"""Columns of the labels with writers."""
WRITERS_ADDRESS = "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"


@dataclass(frozen=True)
class IdxDataset:
    """A data set of four files in IDX format.

    Attributes:
        name: its registered name.
        location: its folders.
        sums: SHA-256 sums of the files compressed with gzip, by names without ``.gz``:
            training images and labels, test images and labels.
        classes: names of the classes.
        mean: pixel value that becomes 0.
        std: pixel values that become 1.
        address: URL of the files up to their names; empty when only published in an archive.
        archive: the archive, if any.
        transposed: whether rows and columns of the images are exchanged in the files.
        writers: sums of the files that name the writer of each training and each test image, as
            for ``sums``; they are optional unless ``download`` is set.
    """

    name: str
    location: Location
    sums: Mapping[str, str]
    classes: tuple[str, ...]
    mean: float
    std: float
    address: str = ""
    archive: Archive | None = None
    transposed: bool = False
    writers: Mapping[str, str] | None = None

    def __call__(self, data: Path, download: bool) -> Dataset:
        """Read the data set, with people when the files of the writers are present."""
        present = all(find(self.location, data, name, f"{name}.gz") for name in self.sums)
        if self.archive is not None and download and not present:
            fetch_archive(self.archive, data / self.location.folders[0])
        paths = locate(self.location, data, self.sums, self.address, download, ".gz")
        train_x, test_x = (self._images(path) for path in paths[::2])
        train_y, test_y = (read_labels(path) for path in paths[1::2])
        people = self._people(data, download, train_y, test_y)
        tensors = train_x, train_y, test_x, test_y
        return Dataset(self.name, *tensors, self.classes, self.mean, self.std, **people)

    def _images(self, path: Path) -> Tensor:
        images = read_images(path)
        return images.transpose(2, 3).contiguous() if self.transposed else images

    def _people(self, data: Path, download: bool, *labels: Tensor) -> dict[str, Any]:
        if not self.writers:
            return {}
        present = all(find(self.location, data, name, f"{name}.gz") for name in self.writers)
        if not (download or present):
            return {}
        paths = locate(self.location, data, self.writers, WRITERS_ADDRESS, download, ".gz")
        train, test = (read_writers(path, y) for path, y in zip(paths, labels, strict=True))
        return {"train_people": train, "test_people": test}


def read_writers(path: Path, labels: Tensor) -> np.ndarray:
    """Writer of each image [n]; rows of the file beyond MNIST's images are ignored.

    Raises:
        InputError: as ``read_idx``, and when the file's labels differ from those of the images.
    """
    table = read_idx(path)
    fits = table.ndim == 2 and table.shape[1] > WRITER and len(table) >= len(labels)
    if not fits or (table[: len(labels), CLASS] != labels.numpy()).any():
        raise InputError.one("data", "must have a row for each MNIST label", str(path))
    return table[: len(labels), WRITER].astype(np.int64)


def read_images(path: Path) -> Tensor:
    """Grey images [n, 1, 28, 28], uint8.

    Raises:
        InputError: as ``read_idx``, and for an array of another shape or type.
    """
    images = read_idx(path)
    if images.shape[1:] != (SIDE, SIDE) or images.dtype != np.uint8:
        rule = f"must hold images of {SIDE}x{SIDE} bytes in IDX format"
        raise InputError.one("data", rule, str(path))
    return torch.from_numpy(np.array(images))[:, None]


def read_labels(path: Path) -> Tensor:
    """Labels [n], int64.

    Raises:
        InputError: as ``read_idx``, and for an array of more dimensions.
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
        content = read_unpacked(path)
    with reading(path, "must be bytes or integers in IDX format"):
        start = 4 + 4 * content[3]
        if len(content) < start or content[:2] != b"\0\0":
            raise ValueError("its header is another one")
        kind = _TYPES[content[2]]
        shape = [int(side) for side in np.frombuffer(content[4:start], ">u4")]
        if len(content) - start != math.prod(shape) * kind.itemsize:
            raise InputError.one("data", "must be as long as its header says", str(path))
        return np.frombuffer(content, kind, offset=start).reshape(shape)


FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
DIGITS = tuple(string.digits)
CHARACTERS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
"""The 62 classes of EMNIST and FEMNIST."""
CLOTHES = (
    *("T-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
MNIST_MEAN, MNIST_STD = 0.1307 * 255, 0.3081 * 255
"""The customary constants of MNIST, also used for EMNIST."""

for _row in (
    IdxDataset(
        "mnist",
        Location("MNIST", ("MNIST/raw",), "fetch 12 MB with --download"),
        dict(
            zip(
                FILES,
                (
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                ),
                strict=True,
            )
        ),
        DIGITS,
        MNIST_MEAN,
        MNIST_STD,
        address="https://ossci-datasets.s3.amazonaws.com/mnist/",
        writers={
            "qmnist-train-labels-idx2-int": (
                "2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f"
            ),
            "qmnist-test-labels-idx2-int": (
                "9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030d06"
            ),
        },
    ),
    IdxDataset(
        "fashion-mnist",
        Location("Fashion-MNIST", ("FashionMNIST/raw",), "fetch 30 MB with --download"),
        dict(
            zip(
                FILES,
                (
                    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                ),
                strict=True,
            )
        ),
        CLOTHES,
        mean=0.2860 * 255,  # of the training pixels; docs/reproduction.md discusses other choices
        std=0.3530 * 255,
        address="https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ),
    IdxDataset(
        "emnist",
        Location("EMNIST", ("EMNIST/raw", "EMNIST/raw/gzip"), "fetch 560 MB with --download"),
        {
            f"emnist-byclass-{part}-{kind}-ubyte": ""
            for part in ("train", "test")
            for kind in ("images-idx3", "labels-idx1")
        },
        CHARACTERS,
        MNIST_MEAN,
        MNIST_STD,
        archive=Archive(
            "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
            "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
            inside="gzip",
            only="emnist-byclass",
        ),
        transposed=True,
    ),
):
    DATASETS.register(_row.name, _row)
