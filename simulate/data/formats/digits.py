"""scikit-learn's 1,797 handwritten digits, 8x8; nothing to download.

Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits (UCI, 1998,
CC BY 4.0), the part that scikit-learn contains (BSD 3-Clause); its file is beside this
one, byte for byte.
"""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

import numpy as np
import torch

from simulate.data.dataset import Dataset
from simulate.data.formats.images import DIGITS
from simulate.data.registry import DATASETS

_FILE = Path(__file__).with_name("digits.csv.gz")
_COLUMNS = 8 * 8 + 1  # pixels and label
_LARGEST_VALUE = 16.0  # of a pixel
_FOLDS = 5  # of the records of a class, the last of which is for testing


def digits(data: Path, download: bool) -> Dataset:
    """The digits; of each class every fifth record, as published, is for testing."""
    table = torch.from_numpy(_table())
    pixels = table[:, :-1].contiguous().view(-1, 1, 8, 8)
    classes = table[:, -1].long()
    position = torch.zeros_like(classes)
    for label in range(len(DIGITS)):
        member = classes == label
        position[member] = torch.arange(int(member.sum()))
    test = position % _FOLDS == _FOLDS - 1
    return Dataset(
        "digits",
        pixels[~test],
        classes[~test],
        pixels[test],
        classes[test],
        DIGITS,
        mean=0.0,
        std=_LARGEST_VALUE,
    )


@cache
def _table() -> np.ndarray:
    """The file as bytes [1797, 65]: 64 pixels and the class of each image."""
    text = gzip.decompress(_FILE.read_bytes()).replace(b"\n", b",").rstrip(b",")
    return np.array(text.split(b","), dtype=np.uint8).reshape(-1, _COLUMNS)


DATASETS.register("digits", digits)
