"""scikit-learn's 1,797 handwritten digits, 8x8; nothing to download.

Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits (UCI, 1998), the part
that scikit-learn contains.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from simulate.data.dataset import Dataset
from simulate.data.registry import DATASETS

TEST_SHARE = 5
"""One record in five, in each class, is for testing."""


def digits(data: Path, download: bool) -> Dataset:
    """The digits; in each class every fifth record, in the published order, is for testing."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    pixels = torch.from_numpy(np.asarray(images, dtype=np.uint8)).view(-1, 1, 8, 8)
    classes = torch.from_numpy(np.asarray(labels, dtype=np.int64))
    position = torch.zeros_like(classes)
    for label in range(10):
        member = classes == label
        position[member] = torch.arange(int(member.sum()))
    test = position % TEST_SHARE == TEST_SHARE - 1
    names = tuple(str(label) for label in range(10))
    parts = pixels[~test], classes[~test], pixels[test], classes[test]
    return Dataset("digits", *parts, names, mean=0.0, std=16.0)


DATASETS.register("digits", digits)
