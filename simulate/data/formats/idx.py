"""The IDX format: MNIST, Fashion-MNIST and EMNIST, grey images of 28x28.

Files lie as torchvision keeps them. Sources: Y. LeCun, C. Cortes, C. J. C. Burges, The
MNIST database; C. Yadav, L. Bottou, Cold Case: The Lost MNIST Digits (2019), for the
writers of MNIST; H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST (2017); G. Cohen, S.
Afshar, J. Tapson, A. van Schaik, EMNIST: an extension of MNIST to handwritten letters
(2017), the split by class.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from privplan.errors import InputError, MissingDataError
from simulate.data.dataset import Dataset
from simulate.data.formats.images import (
    CHARACTERS,
    DIGITS,
    LARGEST_PIXEL,
    ImageDataset,
    Part,
)
from simulate.data.locations import Archive, Location, find, locate
from simulate.data.reading import one_line_errors, read_unpacked, whole_numbers
from simulate.data.registry import DATASETS
from simulate.data.subsets import with_held_out

GREY_SIDE = 28  # height and width of the images
# Codes of the types of numbers in the third byte of a file.
_TYPES = {0x08: "u1", 0x0C: ">i4"}


def grey_images(paths: list[Path]) -> tuple[Part, Part]:
    """The records of training images and labels, test images and labels."""
    record_sets = []
    for images, labels in (paths[:2], paths[2:]):
        x = read_idx(images)
        if x.shape[1:] != (GREY_SIDE, GREY_SIDE) or x.dtype != np.uint8:
            rule = "must hold images of 28x28 bytes in IDX format"
            raise InputError.one("data", rule, str(images))
        with one_line_errors(labels, "must hold labels in IDX format"):
            record_sets.append((np.array(x[:, None]), whole_numbers(read_idx(labels))))
    return record_sets[0], record_sets[1]


def upright(paths: list[Path]) -> tuple[Part, Part]:
    """Images whose rows and columns are exchanged in the files."""
    (train_x, train_y), (test_x, test_y) = grey_images(paths)
    train_x = np.ascontiguousarray(train_x.swapaxes(2, 3))
    test_x = np.ascontiguousarray(test_x.swapaxes(2, 3))
    return (train_x, train_y), (test_x, test_y)


def read_idx(path: Path) -> np.ndarray:
    """An array of bytes or of 32-bit integers, of any number of dimensions."""
    with one_line_errors(path, "must be readable"):
        content = read_unpacked(path)
    with one_line_errors(path, "must be bytes or integers in IDX format"):
        # Two zeros, the type and the number of dimensions, then each side in four
        # bytes.
        start = 4 + 4 * content[3]
        if len(content) < start or content[:2] != b"\0\0":
            raise ValueError("its header is another one")
        dtype = np.dtype(_TYPES[content[2]])
        shape = [int(length) for length in np.frombuffer(content[4:start], ">u4")]
        if len(content) - start != math.prod(shape) * dtype.itemsize:
            rule = "must be as long as its header says"
            raise InputError.one("data", rule, str(path))
        return np.frombuffer(content, dtype, offset=start).reshape(shape)


CLOTHES = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
"""The ten classes of Fashion-MNIST."""
# The customary ones, for EMNIST, too.
MNIST_MEAN = 0.1307 * LARGEST_PIXEL
MNIST_STD = 0.3081 * LARGEST_PIXEL


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
_WRITER = 2  # column of their tables that has the writer; column 0 has the label


class Mnist(ImageDataset):
    """MNIST, with its writers where their files are present."""

    def __call__(self, data: Path, download: bool) -> Dataset:
        """Read the data set; rows of writers beyond MNIST's images are ignored."""
        mnist = super().__call__(data, download)
        present = all(find(self.location, data, name, f"{name}.gz") for name in WRITERS)
        if not (download or present):
            return mnist
        paths = locate(self.location, data, WRITERS, WRITERS_ADDRESS, download, ".gz")
        return replace(
            mnist,
            train_people=_writers(paths[0], mnist.train_y.numpy()),
            test_people=_writers(paths[1], mnist.test_y.numpy()),
        )


def _writers(path: Path, labels: np.ndarray) -> np.ndarray:
    """The writers of the images with some labels [n]."""
    table = read_idx(path)
    has_rows = table.ndim == 2 and table.shape[1] > _WRITER
    if not has_rows or not np.array_equal(table[: len(labels), 0], labels):
        raise InputError.one("data", "must have a row for each MNIST label", str(path))
    return table[: len(labels), _WRITER].astype(np.int64)


def by_writer(data: Path, download: bool) -> Dataset:
    """MNIST's training writers: each tenth record of one is for testing, as in LEAF."""
    mnist = DATASETS.get("mnist")(data, download)
    if mnist.train_people is None:
        names = " and ".join(WRITERS)
        raise MissingDataError(
            f"dataset: mnist-writers needs {names} beside mnist's files"
        )
    is_test = np.zeros(len(mnist.train_people), dtype=bool)
    for person in np.unique(mnist.train_people):
        is_test[np.flatnonzero(mnist.train_people == person)[9::10]] = True
    return with_held_out(mnist, "mnist-writers", is_test)


def _idx_files(*sums: str) -> dict[str, str]:
    """Sums of the files compressed with gzip, by their names without the suffix."""
    names = (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    )
    return dict(zip(names, sums, strict=True))


DATASETS.register(
    "mnist",
    Mnist(
        "mnist",
        Location("MNIST", ("MNIST/raw",), "fetch 12 MB with --download"),
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
DATASETS.register("mnist-writers", by_writer)
DATASETS.register(
    "fashion-mnist",
    ImageDataset(
        "fashion-mnist",
        Location("Fashion-MNIST", ("FashionMNIST/raw",), "fetch 30 MB with --download"),
        grey_images,
        _idx_files(
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
        CLOTHES,
        # Of the training pixels; others stand in docs/evidence/gdpfed-readings.md.
        mean=0.2860 * LARGEST_PIXEL,
        std=0.3530 * LARGEST_PIXEL,
        address=(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/"
            "data/fashion/"
        ),
        suffix=".gz",
    ),
)
DATASETS.register(
    "emnist",
    ImageDataset(
        "emnist",
        Location(
            "EMNIST", ("EMNIST/raw", "EMNIST/raw/gzip"), "fetch 560 MB with --download"
        ),
        upright,
        dict.fromkeys(
            (
                "emnist-byclass-train-images-idx3-ubyte",
                "emnist-byclass-train-labels-idx1-ubyte",
                "emnist-byclass-test-images-idx3-ubyte",
                "emnist-byclass-test-labels-idx1-ubyte",
            ),
            "",
        ),
        CHARACTERS,
        MNIST_MEAN,
        MNIST_STD,
        archive=Archive(
            "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
            "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
            inside="gzip",
            only="emnist-byclass",
        ),
        suffix=".gz",
    ),
)
