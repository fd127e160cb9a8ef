"""A folder of images with one folder a class, as torchvision's ImageFolder reads it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from privplan.errors import InputError
from simulate.data.files import reading

SIDE = 32
"""Height and width of the images that are read."""


def read_folder(folder: Path, classes: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """All images below a folder, class by class, each in the order of its file names.

    Args:
        folder: holds a folder for each class.
        classes: names of those folders, in the order of the labels.

    Returns:
        Images [n, 3, 32, 32], uint8, and labels [n], int64.

    Raises:
        InputError: when a class has no image, or a file is not a PNG image of that size.
    """
    files = [sorted((folder / name).glob("*.png")) for name in classes]
    empty = [name for name, found in zip(classes, files, strict=True) if not found]
    if empty:
        raise InputError.one("data", "must hold .png images", str(folder / empty[0]))
    counts = [len(found) for found in files]
    images = np.empty((sum(counts), 3, SIDE, SIDE), np.uint8)
    for row, path in enumerate(path for found in files for path in found):
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
