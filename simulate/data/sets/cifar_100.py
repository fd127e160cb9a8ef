"""CIFAR-100: 50,000 training and 10,000 test images of 100 kinds of things, 32x32 in colour.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009); read from
``cifar-100-python``, in which torchvision keeps it, or from ``cifar-100-binary``.
"""

from __future__ import annotations

from pathlib import Path

from privplan.errors import InputError
from privplan.io.files import read_text
from simulate.data.cifar import Layout, read
from simulate.data.dataset import Dataset
from simulate.data.disk import Place, find, missing, root
from simulate.data.files import read_pickle, reading

CENTRE = (0.5071 * 255, 0.4865 * 255, 0.4409 * 255)
SPREAD = (0.2673 * 255, 0.2564 * 255, 0.2762 * 255)
"""The customary means and deviations of the channels."""
REMEDY = "fetch 169 MB with --download"
LAYOUT = Layout(
    python=Place("CIFAR-100", ("cifar-100-python",), REMEDY),
    binary=Place("CIFAR-100", ("cifar-100-binary",), REMEDY),
    train=("train",),
    test="test",
    key=b"fine_labels",
    label_bytes=2,
    address="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
)
NAMES, TEXT = "meta", "fine_label_names.txt"
"""Files with the names of the classes, in the two layouts."""


def cifar_100(data_dir: Path | None = None, download: bool = False) -> Dataset:
    """The data set from disk, with its 100 fine labels.

    Args:
        data_dir: folder that holds ``cifar-100-python`` or ``cifar-100-binary``; the environment
            variable PRIVPLAN_DATA when None, then the user's cache.
        download: fetch the archive into that folder when files are missing, checking its sum.

    Raises:
        MissingDataError: when the files are not there; it says what to do.
        InputError: when a file is damaged.
    """
    data = root(data_dir)
    parts = read(LAYOUT, data, download)
    return Dataset("cifar-100", *parts, _names(data), CENTRE, SPREAD)


def _names(data: Path) -> tuple[str, ...]:
    path = find(LAYOUT.python, data, NAMES)
    if path is not None:
        names = read_pickle(path).get(b"fine_label_names", [])
        with reading(path, "must name 100 fine labels"):
            found = [name.decode() if isinstance(name, bytes) else str(name) for name in names]
    else:
        path = find(LAYOUT.binary, data, TEXT)
        if path is None:
            raise missing(LAYOUT.python, data, NAMES)
        found = read_text(path, "data").split()
    if len(found) != 100:
        raise InputError.one("data", "must name 100 fine labels", str(path))
    return tuple(found)
