"""MATLAB files with images X [32, 32, 3, n] and labels y [n, 1], one for each part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from simulate.data.dataset import Dataset
from simulate.data.disk import Location, locate
from simulate.data.files import reading, whole_numbers
from simulate.data.registry import DATASETS


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
    """Images [n, 3, 32, 32], uint8, and labels [n], int64.

    Raises:
        InputError: when the file cannot be read, or X or y is absent or of another shape or type.
    """
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
