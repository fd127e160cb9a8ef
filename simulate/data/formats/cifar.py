"""CIFAR-10 and CIFAR-100 as pickled batches.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009),
    with
the customary means and deviations.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from privplan.errors import InputError
from simulate.data.formats.images import SIDE, ImageDataset, Part, of_pixels
from simulate.data.locations import Archive, Location
from simulate.data.pickles import read_pickle
from simulate.data.reading import one_line_errors, whole_numbers
from simulate.data.registry import DATASETS

BYTES = 3 * SIDE**2  # of an image
FINE_CLASSES = 100


def cifar_10(paths: list[Path]) -> tuple[Part, Part]:
    """The records of five training files and of a test file."""
    *training, test = (read_batch(path, b"labels") for path in paths)
    images, labels = zip(*training, strict=True)
    return (np.concatenate(images), np.concatenate(labels)), test


def cifar_100(paths: list[Path]) -> tuple[Part, Part]:
    """The records of a training and a test file; the third file has the classes."""
    return read_batch(paths[0], b"fine_labels"), read_batch(paths[1], b"fine_labels")


def fine_labels(paths: list[Path]) -> tuple[str, ...]:
    """Names of the 100 classes."""
    path = paths[-1]
    rule = f"must name {FINE_CLASSES} fine labels"
    content = read_pickle(path).get(b"fine_label_names", [])
    with one_line_errors(path, rule):
        names = [
            name.decode() if isinstance(name, bytes) else str(name) for name in content
        ]
    if len(names) != FINE_CLASSES:
        raise InputError.one("data", rule, str(path))
    return tuple(names)


def read_batch(path: Path, key: bytes) -> Part:
    """The records of a pickled batch."""
    batch = read_pickle(path)
    images = batch.get(b"data")
    labels = batch.get(key)
    rule = f"must hold data of {BYTES} bytes per record and as many {key.decode()}"
    if not isinstance(images, np.ndarray) or not isinstance(labels, list):
        raise InputError.one("data", rule, str(path))
    if images.dtype != np.uint8 or images.shape != (len(labels), BYTES):
        raise InputError.one("data", rule, str(path))
    with one_line_errors(path, f"must hold whole numbers as {key.decode()}"):
        return images.reshape(-1, 3, SIDE, SIDE), whole_numbers(labels)


CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
"""The ten classes of CIFAR-10."""

DATASETS.register(
    "cifar-10",
    ImageDataset(
        "cifar-10",
        Location("CIFAR-10", ("cifar-10-batches-py",), "fetch 170 MB with --download"),
        cifar_10,
        dict.fromkeys(
            (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"), ""
        ),
        CLASSES,
        mean=of_pixels(0.4914, 0.4822, 0.4465),
        std=of_pixels(0.2470, 0.2435, 0.2616),
        archive=Archive(
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            inside="cifar-10-batches-py",
        ),
    ),
)
DATASETS.register(
    "cifar-100",
    ImageDataset(
        "cifar-100",
        Location("CIFAR-100", ("cifar-100-python",), "fetch 169 MB with --download"),
        cifar_100,
        dict.fromkeys(("train", "test", "meta"), ""),
        fine_labels,
        mean=of_pixels(0.5071, 0.4865, 0.4409),
        std=of_pixels(0.2673, 0.2564, 0.2762),
        archive=Archive(
            "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            inside="cifar-100-python",
        ),
    ),
)
