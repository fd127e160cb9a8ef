"""CIFAR-10 and CIFAR-100, 32x32 in colour, as pickled batches or as batches of plain bytes.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009).
"""

from __future__ import annotations

import gzip
import math
import string
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError, MissingDataError
from privplan.files import read_text
from simulate.data.dataset import Dataset
from simulate.data.registry import (
    DATASETS,
    Archive,
    Location,
    fetch_archive,
    find,
    locate,
    missing,
    read_pickle,
    read_unpacked,
    reading,
    whole_numbers,
)

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


# --- The IDX format: MNIST, Fashion-MNIST and EMNIST, grey images of 28x28. ----------------------
#
# Files lie as torchvision keeps them. Sources: Y. LeCun, C. Cortes, C. J. C. Burges, The MNIST
# database; C. Yadav, L. Bottou, Cold Case: The Lost MNIST Digits (2019), for the writers of
# MNIST; H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST (2017); G. Cohen, S. Afshar, J. Tapson, A.
# van Schaik, EMNIST: an extension of MNIST to handwritten letters (2017), the split by class.

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
    """Writer of each image [n]; rows of the file beyond MNIST's images are ignored."""
    table = read_idx(path)
    fits = table.ndim == 2 and table.shape[1] > WRITER and len(table) >= len(labels)
    if not fits or (table[: len(labels), CLASS] != labels.numpy()).any():
        raise InputError.one("data", "must have a row for each MNIST label", str(path))
    return table[: len(labels), WRITER].astype(np.int64)


def read_images(path: Path) -> Tensor:
    """Grey images [n, 1, 28, 28], uint8."""
    images = read_idx(path)
    if images.shape[1:] != (SIDE, SIDE) or images.dtype != np.uint8:
        rule = f"must hold images of {SIDE}x{SIDE} bytes in IDX format"
        raise InputError.one("data", rule, str(path))
    return torch.from_numpy(np.array(images))[:, None]


def read_labels(path: Path) -> Tensor:
    """Labels [n], int64."""
    with reading(path, "must hold labels in IDX format"):
        return torch.from_numpy(whole_numbers(read_idx(path)))


def read_idx(path: Path) -> np.ndarray:
    """An array of bytes or of 32-bit integers, of any number of dimensions."""
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

for _idx_row in (
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
    DATASETS.register(_idx_row.name, _idx_row)


# --- MATLAB files with images X [32, 32, 3, n] and labels y [n, 1], one for each part. -----------


@dataclass(frozen=True)
class MatlabDataset:
    """A data set of ten classes, whose label 10 is class 0.

    Attributes:
        name: its registered name.
        location: its folders.
        address: URL of the files up to their names.
        sums: published SHA-256 sums of the training and of the test file, by their names.
        mean: pixel value of each channel that becomes 0.
        std: pixel values of each channel that become 1.
    """

    name: str
    location: Location
    address: str
    sums: Mapping[str, str]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __call__(self, data: Path, download: bool) -> Dataset:
        """Read the data set."""
        paths = locate(self.location, data, self.sums, self.address, download)
        train, test = map(read_mat, paths)
        classes = tuple(str(label) for label in range(10))
        return Dataset(self.name, *train, *test, classes, self.mean, self.std)


def read_mat(path: Path) -> tuple[Tensor, Tensor]:
    """Images [n, 3, 32, 32], uint8, and labels [n], int64."""
    from scipy.io import loadmat

    with reading(path, "must be a MATLAB file"):
        content = loadmat(path, variable_names=("X", "y"))
    rule = "must hold X of 32 x 32 x 3 x n bytes, and n labels y"
    with reading(path, rule):
        images, y = np.asarray(content["X"]), whole_numbers(np.asarray(content["y"]).reshape(-1))
        if images.dtype != np.uint8 or images.shape != (32, 32, 3, len(y)):
            raise InputError.one("data", rule, str(path))
        x = np.ascontiguousarray(images.transpose(3, 2, 0, 1))
        return torch.from_numpy(x), torch.from_numpy(np.where(y == 10, 0, y))


# Y. Netzer, T. Wang, A. Coates, A. Bissacco, B. Wu, A. Y. Ng, Reading Digits in Natural Images with
# Unsupervised Feature Learning (2011), with the customary means and deviations.
DATASETS.register(
    "svhn",
    MatlabDataset(
        "svhn",
        Location("SVHN", ("SVHN", "svhn"), "fetch 246 MB with --download"),
        "https://ufldl.stanford.edu/housenumbers/",
        {
            "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        },
        mean=(0.4377 * 255, 0.4438 * 255, 0.4728 * 255),
        std=(0.1980 * 255, 0.2010 * 255, 0.1970 * 255),
    ),
)


# --- Folders of PNG images with one folder per class, as torchvision's ImageFolder reads them. ---

FOLDER_SIDE = 32
"""Height and width of the images that are read."""
PARTS = ("train", "test")


@dataclass(frozen=True)
class ImageFolderDataset:
    """A data set with the folders ``train`` and ``test``; other folders are not read.

    Attributes:
        name: its registered name.
        location: its folders.
        archive: where it is published.
        classes: names of the classes, which are those of their folders.
        mean: pixel value of each channel that becomes 0.
        std: pixel values of each channel that become 1.
    """

    name: str
    location: Location
    archive: Archive
    classes: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def __call__(self, data: Path, download: bool) -> Dataset:
        """Read the data set."""
        if download and not all(find(self.location, data, part) for part in PARTS):
            fetch_archive(self.archive, data / self.location.folders[0])
        train, test = (self._read_part(data, part) for part in PARTS)
        return Dataset(self.name, *train, *test, self.classes, self.mean, self.std)

    def _read_part(self, data: Path, part: str) -> tuple[Tensor, Tensor]:
        folder = find(self.location, data, part)
        if folder is None:
            raise missing(self.location, data, part)
        return read_folder(folder, self.classes)


def read_folder(folder: Path, classes: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """All images below a folder, class by class, each in the order of its file names."""
    files = [sorted((folder / name).glob("*.png")) for name in classes]
    empty = [name for name, paths in zip(classes, files, strict=True) if not paths]
    if empty:
        raise InputError.one("data", "must hold .png images", str(folder / empty[0]))
    counts = [len(paths) for paths in files]
    images = np.empty((sum(counts), 3, FOLDER_SIDE, FOLDER_SIDE), np.uint8)
    for row, path in enumerate(path for paths in files for path in paths):
        images[row] = _read(path)
    labels = np.repeat(np.arange(len(classes)), counts)
    return torch.from_numpy(images), torch.from_numpy(labels)


def _read(path: Path) -> np.ndarray:
    from PIL import Image

    with reading(path, "must be an image"), Image.open(path, formats=("PNG",)) as image:
        if image.size != (FOLDER_SIDE, FOLDER_SIDE):
            found = f"{path}, {image.width}x{image.height}"
            raise InputError.one("data", f"must be {FOLDER_SIDE}x{FOLDER_SIDE} pixels", found)
        return np.asarray(image.convert("RGB")).transpose(2, 0, 1)


# L. N. Darlow, E. J. Crowley, A. Antoniou, A. J. Storkey, CINIC-10 is not ImageNet or CIFAR-10
# (2018), with the published means and deviations. The third folder, ``valid``, is for tuning.
DATASETS.register(
    "cinic-10",
    ImageFolderDataset(
        "cinic-10",
        Location("CINIC-10", ("CINIC-10", "CINIC10"), "fetch 690 MB with --download"),
        Archive(
            "https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",
            "6ee4d0c996905fe93221de577967a372",  # MD5: no other sum is published
        ),
        CLASSES,
        mean=(0.47889522 * 255, 0.47227842 * 255, 0.43047404 * 255),
        std=(0.24205776 * 255, 0.23828046 * 255, 0.25874835 * 255),
    ),
)


# --- scikit-learn's 1,797 handwritten digits, 8x8; nothing to download. --------------------------
#
# Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits (UCI, 1998), the part
# that scikit-learn contains.

TEST_SHARE = 5
"""One record in five, in each class, is for testing."""


def digits(data: Path, download: bool) -> Dataset:
    """The digits; in each class every fifth record, in the published order, is for testing."""
    table = torch.from_numpy(_table())
    pixels, classes = table[:, :-1].contiguous().view(-1, 1, 8, 8), table[:, -1].long()
    position = torch.zeros_like(classes)
    for label in range(10):
        member = classes == label
        position[member] = torch.arange(int(member.sum()))
    test = position % TEST_SHARE == TEST_SHARE - 1
    names = tuple(str(label) for label in range(10))
    parts = pixels[~test], classes[~test], pixels[test], classes[test]
    return Dataset("digits", *parts, names, mean=0.0, std=16.0)


def _table() -> np.ndarray:
    """scikit-learn's file as bytes [1797, 65]: 64 pixels and the label.

    The file is read without importing scikit-learn, which takes longer than a short run.
    """
    package = find_spec("sklearn")
    folders = [] if package is None else package.submodule_search_locations or []
    for folder in folders:
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            values = gzip.decompress(file.read_bytes()).replace(b"\n", b",").rstrip(b",")
            return np.array(values.split(b","), dtype=np.uint8).reshape(-1, 65)
    raise MissingDataError("dataset: digits needs scikit-learn with its data; pip install it")


DATASETS.register("digits", digits)
