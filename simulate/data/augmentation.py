"""Random shifts and flips of images in training, drawn from each client's stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from privplan.errors import Fault
from privplan.spec.training import Augmentation
from simulate.data.dataset import Dataset


def augmentation_faults(rule: Augmentation, data: Dataset) -> Iterator[Fault]:
    """What keeps records from being moved or mirrored."""
    if data.kind != "image" or len(data.shape) != 3:
        shape = "x".join(map(str, data.shape))
        text = (
            "must be left out for records that are no images of channels, height and "
            "width"
        )
        yield Fault("local.augmentation", text, f"{data.name} with {shape}")
        return
    _, height, width = data.shape
    shift, _ = rule.numbers
    if shift >= min(height, width):
        text = f"must be below the sides of the images, {height} and {width}"
        yield Fault("local.augmentation.shift", text, rule.shift)


def augmented(
    x: Tensor, rule: Augmentation | None, sources: Iterable[np.random.Generator]
) -> Tensor:
    """Mini-batches with every image moved by whole pixels and mirrored at random.

    A row of a batch draws three numbers, so what happens to it does not depend on the
    number of rows after it. Pixels at the border are repeated where an image is moved
    away from it.

    Args:
        x: images [clients, steps, rows, channels, height, width].
        rule: largest shift in pixels, and probability of a flip; None for neither.
        sources: a stream for each client.

    Returns:
        Images of the same shape.
    """
    clients, steps, rows = x.shape[:3]
    if rule is None or clients == 0:
        return x
    drawn = np.stack([source.random((rows, steps, 3)) for source in sources])
    # [images, 3]: the numbers of shifts down and right, and of the flip.
    chances = torch.from_numpy(drawn).transpose(1, 2).flatten(0, 2)
    images = x.flatten(0, 2)
    height, width = images.shape[-2:]
    pixels = _origins(chances, rule, height, width).to(x.device)
    every_channel = pixels.unsqueeze(1).expand(-1, images.shape[1], -1)
    return images.flatten(2).gather(2, every_channel).view(x.shape)


def _origins(chances: Tensor, rule: Augmentation, height: int, width: int) -> Tensor:
    """Where each pixel of the images comes from [images, height * width]."""
    shift, flip = rule.numbers
    moves = (chances[:, :2] * (2 * shift + 1)).long() - shift
    lines = (torch.arange(height) + moves[:, :1]).clamp(0, height - 1)
    columns = (torch.arange(width) + moves[:, 1:]).clamp(0, width - 1)
    is_flipped = (chances[:, 2] < flip).unsqueeze(1)
    columns = torch.where(is_flipped, columns.flip(1), columns)
    return (lines.unsqueeze(2) * width + columns.unsqueeze(1)).flatten(1)
