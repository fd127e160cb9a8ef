"""scikit-learn's 1,797 handwritten digits, 8x8; nothing to download.

Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits (UCI, 1998),
    the
part that scikit-learn contains.
"""

from __future__ import annotations

import gzip
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from privplan.errors import MissingDataError
from simulate.data.dataset import Dataset
from simulate.data.formats.images import DIGITS
from simulate.data.registry import DATASETS

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
    """scikit-learn's file as bytes [1797, 65], without its slow import."""
    package = find_spec("sklearn")
    folders = [] if package is None else package.submodule_search_locations or []
    for folder in folders:
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            text = gzip.decompress(file.read_bytes()).replace(b"\n", b",").rstrip(b",")
            return np.array(text.split(b","), dtype=np.uint8).reshape(-1, _COLUMNS)
    raise MissingDataError(
        "dataset: digits needs scikit-learn with its data; pip install it"
    )


DATASETS.register("digits", digits)
