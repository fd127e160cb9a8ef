"""Folders of PNG images with one folder per class, as torchvision's ImageFolder reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from simulate.data.dataset import Dataset
from simulate.data.disk import Archive, Location, fetch_archive, find, missing
from simulate.data.files import reading
from simulate.data.formats.cifar import CLASSES
from simulate.data.registry import DATASETS

SIDE = 32
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
    """All images below a folder, class by class, each in the order of its file names.

    Args:
        folder: contains a folder for each class.
        classes: names of those folders, in the order of the labels.

    Returns:
        Images [n, 3, 32, 32], uint8, and labels [n], int64.

    Raises:
        InputError: when a class has no image, or a file is not a PNG image of that size.
    """
    files = [sorted((folder / name).glob("*.png")) for name in classes]
    empty = [name for name, paths in zip(classes, files, strict=True) if not paths]
    if empty:
        raise InputError.one("data", "must hold .png images", str(folder / empty[0]))
    counts = [len(paths) for paths in files]
    images = np.empty((sum(counts), 3, SIDE, SIDE), np.uint8)
    for row, path in enumerate(path for paths in files for path in paths):
        images[row] = _read(path)
    labels = np.repeat(np.arange(len(classes)), counts)
    return torch.from_numpy(images), torch.from_numpy(labels)


def _read(path: Path) -> np.ndarray:
    from PIL import Image

    with reading(path, "must be an image"), Image.open(path, formats=("PNG",)) as image:
        if image.size != (SIDE, SIDE):
            found = f"{path}, {image.width}x{image.height}"
            raise InputError.one("data", f"must be {SIDE}x{SIDE} pixels", found)
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
