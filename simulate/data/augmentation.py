"""Random shifts and flips of images in training, drawn from each client's own stream."""

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
        text = "must be left out for records that are no images of channels, height and width"
        yield Fault("local.augmentation", text, f"{data.name} with {shape}")
    elif rule.numbers[0] >= min(data.shape[1:]):
        text = f"must be below the sides of the images, {data.shape[1]} and {data.shape[2]}"
        yield Fault("local.augmentation.shift", text, rule.shift)


def augmented(
    x: Tensor, rule: Augmentation | None, sources: Iterable[np.random.Generator]
) -> Tensor:
    """Mini-batches with every image moved by whole pixels and mirrored at random.

    A row of a batch draws three numbers, so what happens to it does not depend on the number of
    rows after it. Pixels at the border are repeated where an image is moved away from it.
    """
    clients, steps, rows = x.shape[:3]
    if rule is None or clients == 0:
        return x
    drawn = np.stack([source.random((rows, steps, 3)) for source in sources])
    chances = torch.from_numpy(drawn).transpose(1, 2).flatten(0, 2)
    shift, flip = rule.numbers
    moves = (chances[:, :2] * (2 * shift + 1)).long() - shift
    images = x.flatten(0, 2)
    height, width = images.shape[-2:]
    lines = (torch.arange(height) + moves[:, :1]).clamp(0, height - 1)
    columns = (torch.arange(width) + moves[:, 1:]).clamp(0, width - 1)
    mirrored = (chances[:, 2] < flip).unsqueeze(1)
    columns = torch.where(mirrored, columns.flip(1), columns)
    pixels = (lines.unsqueeze(2) * width + columns.unsqueeze(1)).flatten(1).to(x.device)
    taken = images.flatten(2).gather(2, pixels.unsqueeze(1).expand(-1, images.shape[1], -1))
    return taken.view(x.shape)
