"""Data sets of images in files of one format."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from simulate.data.dataset import Dataset
from simulate.data.locations import Archive, Location, fetch_archive, find, locate

Part = tuple[np.ndarray, np.ndarray]
"""Images [n, channels, height, width], uint8, and labels [n]."""
SIDE = 32  # height and width of colour images
LARGEST_PIXEL = 255
DIGITS = tuple(string.digits)
CHARACTERS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
"""The 62 classes of EMNIST and FEMNIST."""


@dataclass(frozen=True)
class ImageDataset:
    """A data set of images in files of one format.

    Attributes:
        name: its registered name.
        location: where its files are.
        read: training and test records of the files.
        sums: names of the files, with the SHA-256 sums of those that are published as
            they are.
        classes: their names, or a function of the files.
        mean: pixel value that becomes 0, one number or one per channel.
        std: pixel values that become 1, likewise.
        address: URL of the files up to their names; empty when only in an archive.
        archive: in which they are published.
        suffix: of compressed files.
    """

    name: str
    location: Location
    read: Callable[[list[Path]], tuple[Part, Part]]
    sums: Mapping[str, str]
    classes: tuple[str, ...] | Callable[[list[Path]], tuple[str, ...]]
    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]
    address: str = ""
    archive: Archive | None = None
    suffix: str = ""

    def __call__(self, data: Path, download: bool) -> Dataset:
        """Read the data set, after a download of what is missing if allowed."""
        if self.archive is not None and download:
            present = [
                find(self.location, data, name, name + self.suffix)
                for name in self.sums
            ]
            if None in present:
                fetch_archive(self.archive, data / self.location.folders[0])
        paths = locate(
            self.location, data, self.sums, self.address, download, self.suffix
        )
        (train_x, train_y), (test_x, test_y) = self.read(paths)
        return Dataset(
            self.name,
            torch.from_numpy(train_x),
            torch.from_numpy(train_y),
            torch.from_numpy(test_x),
            torch.from_numpy(test_y),
            self.classes(paths) if callable(self.classes) else self.classes,
            self.mean,
            self.std,
        )


def of_pixels(*shares: float) -> tuple[float, ...]:
    """Means or deviations in pixel values, which are published as shares."""
    return tuple(share * LARGEST_PIXEL for share in shares)
