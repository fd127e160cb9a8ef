"""A data set: images of stripes, horizontal or vertical, drawn from a fixed seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from simulate.data.dataset import Dataset


def stripes(folder: Path, download: bool) -> Dataset:
    """The data set.

    Args:
        folder: the data folder (``--data-dir``); a real data set reads its files there and raises
            ``privplan.errors.MissingDataError`` when they are missing.
        download: whether missing files may be downloaded.
    """
    draw = np.random.default_rng(0)
    labels = np.arange(500) % 2
    images = draw.integers(0, 100, (500, 1, 8, 8))
    images[labels == 0, :, ::2, :] += 150
    images[labels == 1, :, :, ::2] += 150
    x, y = torch.from_numpy(images.astype(np.uint8)), torch.from_numpy(labels)
    # mean and std are public constants, never computed from clients' data
    return Dataset(
        "stripes", x[:400], y[:400], x[400:], y[400:], ("rows", "columns"), 125.0, 80.0
    )
