"""Data sets of images: pickled batches, IDX files, MATLAB files, digits."""

from __future__ import annotations

import gzip
import math
import string
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from privplan.errors import InputError, MissingDataError
from privplan.limits import most_unpacked
from simulate.data import registry
from simulate.data.dataset import Dataset, with_held_out

Part = tuple[
    np.ndarray, np.ndarray
]  # images [n, channels, height, width], uint8; labels [n]
SIDE = 32  # height and width of colour images
BYTES = 3 * SIDE**2


@dataclass(frozen=True)
class ImageDataset:
    """A data set of images in files of one format."""

    name: str
    location: registry.Location
    read: Callable[
        [list[Path]], tuple[Part, Part]
    ]  # training and test records of the files
    sums: Mapping[
        str, str
    ]  # files; SHA-256 sums of those that are published as they are
    classes: tuple[str, ...] | Callable[[list[Path]], tuple[str, ...]]
    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]
    address: str = (
        ""  # URL of the files up to their names; empty when only in an archive
    )
    archive: registry.Archive | None = None
    suffix: str = ""  # of compressed files

    def __call__(self, data: Path, download: bool) -> Dataset:
        """Read the data set, after a download of what is missing if allowed."""
        present = [
            registry.find(self.location, data, name, name + self.suffix)
            for name in self.sums
        ]
        if self.archive is not None and download and None in present:
            registry.fetch_archive(self.archive, data / self.location.folders[0])
        paths = registry.locate(
            self.location, data, self.sums, self.address, download, self.suffix
        )
        train, test = (
            (torch.from_numpy(x), torch.from_numpy(y)) for x, y in self.read(paths)
        )
        classes = self.classes(paths) if callable(self.classes) else self.classes
        return Dataset(self.name, *train, *test, classes, self.mean, self.std)


# --- CIFAR-10 and CIFAR-100 as pickled batches. --------------------------------------------------
# Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009), with the
# customary means and deviations.


def cifar_10(paths: list[Path]) -> tuple[Part, Part]:
    """The records of five training files and of a test file."""
    parts = [read_batch(path, b"labels") for path in paths]
    x, y = (np.concatenate(part) for part in zip(*parts[:-1], strict=True))
    return (x, y), parts[-1]


def cifar_100(paths: list[Path]) -> tuple[Part, Part]:
    """The records of a training file and of a test file; the third file has the classes."""
    return read_batch(paths[0], b"fine_labels"), read_batch(paths[1], b"fine_labels")


def fine_labels(paths: list[Path]) -> tuple[str, ...]:
    """Names of the 100 classes."""
    content = registry.read_pickle(paths[-1]).get(b"fine_label_names", [])
    with registry.reading(paths[-1], "must name 100 fine labels"):
        names = [
            one.decode() if isinstance(one, bytes) else str(one) for one in content
        ]
    if len(names) != 100:
        raise InputError.one("data", "must name 100 fine labels", str(paths[-1]))
    return tuple(names)


def read_batch(path: Path, key: bytes) -> Part:
    """The records of a pickled batch."""
    batch = registry.read_pickle(path)
    images, labels = batch.get(b"data"), batch.get(key)
    rule = f"must hold data of {BYTES} bytes per record and as many {key.decode()}"
    if not isinstance(images, np.ndarray) or not isinstance(labels, list):
        raise InputError.one("data", rule, str(path))
    if images.dtype != np.uint8 or images.shape != (len(labels), BYTES):
        raise InputError.one("data", rule, str(path))
    with registry.reading(path, f"must hold whole numbers as {key.decode()}"):
        return images.reshape(-1, 3, SIDE, SIDE), registry.whole_numbers(labels)


CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
"""The ten classes of CIFAR-10."""

registry.DATASETS.register(
    "cifar-10",
    ImageDataset(
        "cifar-10",
        registry.Location(
            "CIFAR-10", ("cifar-10-batches-py",), "fetch 170 MB with --download"
        ),
        cifar_10,
        dict.fromkeys(
            (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"), ""
        ),
        CLASSES,
        mean=(0.4914 * 255, 0.4822 * 255, 0.4465 * 255),
        std=(0.2470 * 255, 0.2435 * 255, 0.2616 * 255),
        archive=registry.Archive(
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            inside="cifar-10-batches-py",
        ),
    ),
)
registry.DATASETS.register(
    "cifar-100",
    ImageDataset(
        "cifar-100",
        registry.Location(
            "CIFAR-100", ("cifar-100-python",), "fetch 169 MB with --download"
        ),
        cifar_100,
        dict.fromkeys(("train", "test", "meta"), ""),
        fine_labels,
        mean=(0.5071 * 255, 0.4865 * 255, 0.4409 * 255),
        std=(0.2673 * 255, 0.2564 * 255, 0.2762 * 255),
        archive=registry.Archive(
            "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            inside="cifar-100-python",
        ),
    ),
)


# --- The IDX format: MNIST, Fashion-MNIST and EMNIST, grey images of 28x28. ----------------------
# Files lie as torchvision keeps them. Sources: Y. LeCun, C. Cortes, C. J. C. Burges, The MNIST
# database; C. Yadav, L. Bottou, Cold Case: The Lost MNIST Digits (2019), for the writers of
# MNIST; H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST (2017); G. Cohen, S. Afshar, J. Tapson, A.
# van Schaik, EMNIST: an extension of MNIST to handwritten letters (2017), the split by class.


def grey_images(paths: list[Path]) -> tuple[Part, Part]:
    """The records of training images and labels, test images and labels."""
    parts = []
    for images, labels in (paths[:2], paths[2:]):
        x = read_idx(images)
        if x.shape[1:] != (28, 28) or x.dtype != np.uint8:
            rule = "must hold images of 28x28 bytes in IDX format"
            raise InputError.one("data", rule, str(images))
        with registry.reading(labels, "must hold labels in IDX format"):
            parts.append(
                (np.array(x[:, None]), registry.whole_numbers(read_idx(labels)))
            )
    return parts[0], parts[1]


def upright(paths: list[Path]) -> tuple[Part, Part]:
    """Images whose rows and columns are exchanged in the files."""
    train, test = (
        (np.ascontiguousarray(x.swapaxes(2, 3)), y) for x, y in grey_images(paths)
    )
    return train, test


def read_idx(path: Path) -> np.ndarray:
    """An array of bytes or of 32-bit integers, of any number of dimensions."""
    with registry.reading(path, "must be readable"):
        content = registry.read_unpacked(path)
    with registry.reading(path, "must be bytes or integers in IDX format"):
        start = 4 + 4 * content[3]
        if len(content) < start or content[:2] != b"\0\0":
            raise ValueError("its header is another one")
        kind = np.dtype({0x08: "u1", 0x0C: ">i4"}[content[2]])
        shape = [int(side) for side in np.frombuffer(content[4:start], ">u4")]
        if len(content) - start != math.prod(shape) * kind.itemsize:
            raise InputError.one(
                "data", "must be as long as its header says", str(path)
            )
        return np.frombuffer(content, kind, offset=start).reshape(shape)


DIGITS = tuple(string.digits)
CHARACTERS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
"""The 62 classes of EMNIST and FEMNIST."""
CLOTHES = (
    *("T-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
MNIST_MEAN, MNIST_STD = (
    0.1307 * 255,
    0.3081 * 255,
)  # the customary ones, for EMNIST, too


WRITERS_ADDRESS = "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"
WRITERS = {
    "qmnist-train-labels-idx2-int": (
        "2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f"
    ),
    "qmnist-test-labels-idx2-int": (
        "9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030d06"
    ),
}
"""Files that name the writer of each image of MNIST, optional unless downloaded."""


class Mnist(ImageDataset):
    """MNIST, with its writers where their files are present."""

    def __call__(self, data: Path, download: bool) -> Dataset:
        """Read the data set; rows of the writers' files beyond MNIST's images are ignored."""
        found = super().__call__(data, download)
        present = all(
            registry.find(self.location, data, name, f"{name}.gz") for name in WRITERS
        )
        if not (download or present):
            return found
        paths = registry.locate(
            self.location, data, WRITERS, WRITERS_ADDRESS, download, ".gz"
        )
        people = []
        for path, y in zip(paths, (found.train_y, found.test_y), strict=True):
            table = read_idx(path)
            fits = table.ndim == 2 and table.shape[1] > 2 and len(table) >= len(y)
            if not fits or (table[: len(y), 0] != y.numpy()).any():
                raise InputError.one(
                    "data", "must have a row for each MNIST label", str(path)
                )
            people.append(table[: len(y), 2].astype(np.int64))
        return replace(found, train_people=people[0], test_people=people[1])


def _idx_files(*sums: str) -> dict[str, str]:
    """Sums of the files compressed with gzip, by their names without the suffix."""
    names = (
        "train-images-idx3",
        "train-labels-idx1",
        "t10k-images-idx3",
        "t10k-labels-idx1",
    )
    return {f"{name}-ubyte": one for name, one in zip(names, sums, strict=True)}


registry.DATASETS.register(
    "mnist",
    Mnist(
        "mnist",
        registry.Location("MNIST", ("MNIST/raw",), "fetch 12 MB with --download"),
        grey_images,
        _idx_files(
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
        DIGITS,
        MNIST_MEAN,
        MNIST_STD,
        address="https://ossci-datasets.s3.amazonaws.com/mnist/",
        suffix=".gz",
    ),
)


def by_writer(data: Path, download: bool) -> Dataset:
    """MNIST's training writers: every tenth record of a writer is for testing, as in LEAF."""
    found = registry.DATASETS.get("mnist")(data, download)
    if found.train_people is None:
        names = " and ".join(WRITERS)
        raise MissingDataError(
            f"dataset: mnist-writers needs {names} beside mnist's files"
        )
    held = np.zeros(len(found.train_people), dtype=bool)
    for person in np.unique(found.train_people):
        held[np.flatnonzero(found.train_people == person)[9::10]] = True
    return with_held_out(found, "mnist-writers", held)


registry.DATASETS.register("mnist-writers", by_writer)
registry.DATASETS.register(
    "fashion-mnist",
    ImageDataset(
        "fashion-mnist",
        registry.Location(
            "Fashion-MNIST", ("FashionMNIST/raw",), "fetch 30 MB with --download"
        ),
        grey_images,
        _idx_files(
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
        CLOTHES,
        mean=0.2860
        * 255,  # of the training pixels; others: docs/evidence/gdpfed-readings.md
        std=0.3530 * 255,
        address="https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        suffix=".gz",
    ),
)
registry.DATASETS.register(
    "emnist",
    ImageDataset(
        "emnist",
        registry.Location(
            "EMNIST", ("EMNIST/raw", "EMNIST/raw/gzip"), "fetch 560 MB with --download"
        ),
        upright,
        {
            f"emnist-byclass-{part}-{kind}-ubyte": ""
            for part in ("train", "test")
            for kind in ("images-idx3", "labels-idx1")
        },
        CHARACTERS,
        MNIST_MEAN,
        MNIST_STD,
        archive=registry.Archive(
            "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
            "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
            inside="gzip",
            only="emnist-byclass",
        ),
        suffix=".gz",
    ),
)


# --- MATLAB files with images X [32, 32, 3, n] and labels y [n, 1], one for each part. -----------


def unpacked_matlab(path: Path) -> bytes:
    """A MATLAB file whose packed variables are unpacked, which are not too large."""
    content, place = registry.read_unpacked(path), 128
    if content[place - 2 : place] != b"IM":
        raise ValueError("its byte order is another one")
    found, most = [content[:place]], most_unpacked(len(content))
    while place < len(content):
        kind, size = struct.unpack_from("<II", content, place)
        part = content[place : place + 8 + size]
        if kind == PACKED_VARIABLE:
            part = zlib.decompressobj().decompress(part[8:], most + 1)
        found.append(part)
        most -= len(part)
        if most < 0:
            raise ValueError(
                f"must unpack to {most_unpacked(len(content))} bytes or less"
            )
        place += 8 + size
    return b"".join(found)


PACKED_VARIABLE = 15  # type of a packed variable (MATLAB, MAT-File Format, level 5)


def matlab(paths: list[Path]) -> tuple[Part, Part]:
    """The records of a training file and of a test file, in which label 10 is class 0."""
    from scipy.io import loadmat

    parts, rule = [], "must hold X of 32 x 32 x 3 x n bytes, and n labels y"
    for path in paths:
        with registry.reading(path, "must be a MATLAB file"):
            file: Any = BytesIO(unpacked_matlab(path))
            content = loadmat(file, variable_names=("X", "y"))
        with registry.reading(path, rule):
            x, y = (
                np.asarray(content["X"]),
                registry.whole_numbers(np.asarray(content["y"]).reshape(-1)),
            )
            if x.dtype != np.uint8 or x.shape != (SIDE, SIDE, 3, len(y)):
                raise InputError.one("data", rule, str(path))
            parts.append(
                (np.ascontiguousarray(x.transpose(3, 2, 0, 1)), np.where(y == 10, 0, y))
            )
    return parts[0], parts[1]


# Y. Netzer, T. Wang, A. Coates, A. Bissacco, B. Wu, A. Y. Ng, Reading Digits in Natural Images with
# Unsupervised Feature Learning (2011), with the customary means and deviations.
registry.DATASETS.register(
    "svhn",
    ImageDataset(
        "svhn",
        registry.Location("SVHN", ("SVHN", "svhn"), "fetch 246 MB with --download"),
        matlab,
        {
            "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        },
        DIGITS,
        mean=(0.4377 * 255, 0.4438 * 255, 0.4728 * 255),
        std=(0.1980 * 255, 0.2010 * 255, 0.1970 * 255),
        address="https://ufldl.stanford.edu/housenumbers/",
    ),
)


# --- scikit-learn's 1,797 handwritten digits, 8x8; nothing to download. --------------------------
# Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits (UCI, 1998), the part
# that scikit-learn contains.


def digits(data: Path, download: bool) -> Dataset:
    """The digits; in each class every fifth record, in the published order, is for testing."""
    table = torch.from_numpy(_table())
    pixels, classes = table[:, :-1].contiguous().view(-1, 1, 8, 8), table[:, -1].long()
    position = torch.zeros_like(classes)
    for label in range(10):
        member = classes == label
        position[member] = torch.arange(int(member.sum()))
    test = position % 5 == 4
    parts = pixels[~test], classes[~test], pixels[test], classes[test]
    return Dataset("digits", *parts, DIGITS, mean=0.0, std=16.0)


@cache
def _table() -> np.ndarray:
    """scikit-learn's file as bytes [1797, 65], pixels and label, without its slow import."""
    package = find_spec("sklearn")
    folders = [] if package is None else package.submodule_search_locations or []
    for folder in folders:
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            values = (
                gzip.decompress(file.read_bytes()).replace(b"\n", b",").rstrip(b",")
            )
            return np.array(values.split(b","), dtype=np.uint8).reshape(-1, 65)
    raise MissingDataError(
        "dataset: digits needs scikit-learn with its data; pip install it"
    )


registry.DATASETS.register("digits", digits)
