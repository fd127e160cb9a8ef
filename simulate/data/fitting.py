"""Public images of another size than a model takes: grey or repeated channels, interpolated."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import torch
from torch import Tensor
from torch.nn import functional

from simulate.data.dataset import Dataset

BLOCK = 4096
"""Images that are interpolated at a time."""


def fitted(data: Dataset, shape: tuple[int, ...]) -> Dataset:
    """The data set with images of a shape; as it is where no image can have it.

    Several channels become their mean where one is wanted, and one channel is repeated. Height and
    width are interpolated bilinearly, with antialiasing.

    Args:
        data: the data set.
        shape: (channels, height, width).
    """
    own = data.shape
    if data.kind != "image" or own == shape or len(own) != 3 or len(shape) != 3:
        return data
    if 1 not in (own[0], shape[0]) and own[0] != shape[0]:
        return data
    mean, std = data.mean, data.std
    if own[0] != shape[0]:
        mean = fmean(mean) if isinstance(mean, tuple) else mean
        std = fmean(std) if isinstance(std, tuple) else std
    return replace(
        data,
        train_x=_images(data.train_x, shape),
        test_x=_images(data.test_x, shape),
        mean=mean,
        std=std,
    )


def _images(images: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Images [n, *own] as [n, *shape], uint8."""
    blocks = []
    for at in range(0, len(images), BLOCK):
        pixels = images[at : at + BLOCK].float()
        if shape[0] == 1:
            pixels = pixels.mean(1, keepdim=True)
        if pixels.shape[2:] != shape[1:]:
            size = (shape[1], shape[2])
            pixels = functional.interpolate(pixels, size, mode="bilinear", antialias=True)
        blocks.append(pixels.round().clamp(0, 255).to(torch.uint8).expand(-1, shape[0], -1, -1))
    return torch.cat(blocks)
