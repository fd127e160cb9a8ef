"""SVHN: 73,257 training and 26,032 test images of house numbers' digits, 32x32 in colour.

Source: Y. Netzer, T. Wang, A. Coates, A. Bissacco, B. Wu, A. Y. Ng, Reading Digits in Natural
Images with Unsupervised Feature Learning (2011); read from the published files in ``SVHN``.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from simulate.data.dataset import Dataset
from simulate.data.disk import Place, fetch, find, missing, root
from simulate.data.files import reading, whole_numbers

CENTRE = (0.4377 * 255, 0.4438 * 255, 0.4728 * 255)
SPREAD = (0.1980 * 255, 0.2010 * 255, 0.1970 * 255)
"""The customary means and deviations of the channels."""
PLACE = Place("SVHN", ("SVHN", "svhn"), "fetch 246 MB with --download")
ADDRESS = "http://ufldl.stanford.edu/housenumbers/"
MD5 = MappingProxyType(
    {
        "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
        "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    }
)


def svhn(data_dir: Path | None = None, download: bool = False) -> Dataset:
    """The data set from disk; the published label 10 is the digit 0.

    Args:
        data_dir: folder that holds ``SVHN``; the environment variable PRIVPLAN_DATA when None,
            then the user's cache.
        download: fetch missing files into that folder, checking sums.

    Raises:
        MissingDataError: when the files are not there; it says what to do.
        InputError: when a file is damaged.
    """
    data, parts = root(data_dir), []
    for name, md5 in MD5.items():
        path = find(PLACE, data, name)
        if path is None and not download:
            raise missing(PLACE, data, name)
        path = path or fetch(f"{ADDRESS}{name}", data / PLACE.folders[0] / name, md5)
        parts.append(_read(path))
    (train_x, train_y), (test_x, test_y) = parts
    digits = tuple(str(digit) for digit in range(10))
    return Dataset("svhn", train_x, train_y, test_x, test_y, digits, CENTRE, SPREAD)


def _read(path: Path) -> tuple[Tensor, Tensor]:
    """Images [n, 3, 32, 32] and labels [n] of a file with X [32, 32, 3, n] and y [n, 1]."""
    from scipy.io import loadmat

    with reading(path, "must be a MATLAB file"):
        found = loadmat(path, variable_names=("X", "y"))
    rule = "must hold X of 32 x 32 x 3 x n bytes, and n labels y"
    with reading(path, rule):
        images, y = np.asarray(found["X"]), whole_numbers(np.asarray(found["y"]).reshape(-1))
        if images.dtype != np.uint8 or images.shape != (32, 32, 3, len(y)):
            raise InputError.one("data", rule, str(path))
        x = np.ascontiguousarray(images.transpose(3, 2, 0, 1))
        return torch.from_numpy(x), torch.from_numpy(np.where(y == 10, 0, y))
