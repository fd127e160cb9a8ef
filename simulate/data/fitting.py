"""Public images of another size than a model takes, fitted to it."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import torch
from torch import Tensor
from torch.nn import functional

from simulate.data.dataset import Dataset

BLOCK = 4096  # images that are interpolated at a time, which bounds the memory
_LARGEST_PIXEL = 255


def fitted(data: Dataset, shape: tuple[int, ...]) -> Dataset:
    """The data set with images of a shape: channels averaged or repeated, interpolated.

    Data that cannot be fitted, such as tokens or two kinds of colour, stay as they are.
    """
    if data.kind != "image" or data.shape == shape:
        return data
    if len(data.shape) != 3 or len(shape) != 3:
        return data
    channels = data.shape[0]
    mean = data.mean
    std = data.std
    if channels != shape[0]:
        if 1 not in (channels, shape[0]):
            return data
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
    """Images [n, channels, height, width] as [n, *shape], uint8."""
    blocks = []
    for start in range(0, len(images), BLOCK):
        pixels = images[start : start + BLOCK].float()
        if shape[0] == 1:
            pixels = pixels.mean(1, keepdim=True)
        if pixels.shape[2:] != shape[1:]:
            size = (shape[1], shape[2])
            pixels = functional.interpolate(
                pixels, size, mode="bilinear", antialias=True
            )
        pixels = pixels.round().clamp(0, _LARGEST_PIXEL).to(torch.uint8)
        blocks.append(pixels.expand(-1, shape[0], -1, -1))
    return torch.cat(blocks)
