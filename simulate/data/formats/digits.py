"""scikit-learn's 1,797 handwritten digits, 8x8; nothing to download.

Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits (UCI, 1998), the part
that scikit-learn contains.
"""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from privplan.errors import MissingDataError
from simulate.data.dataset import Dataset
from simulate.data.registry import DATASETS

TEST_SHARE = 5
"""One record in five, in each class, is for testing."""


def digits(data: Path, download: bool) -> Dataset:
    """The digits; in each class every fifth record, in the published order, is for testing."""
    table = torch.from_numpy(_table())
    pixels, classes = table[:, :-1].contiguous().view(-1, 1, 8, 8), table[:, -1].long()
    position = torch.zeros_like(classes)
    for label in range(10):
        member = classes == label
        position[member] = torch.arange(int(member.sum()))
    test = position % TEST_SHARE == TEST_SHARE - 1
    names = tuple(str(label) for label in range(10))
    parts = pixels[~test], classes[~test], pixels[test], classes[test]
    return Dataset("digits", *parts, names, mean=0.0, std=16.0)


def _table() -> np.ndarray:
    """scikit-learn's file as bytes [1797, 65]: 64 pixels and the label.

    The file is read without importing scikit-learn, which takes longer than a short run.

    Raises:
        MissingDataError: when scikit-learn or its file is not installed.
    """
    package = find_spec("sklearn")
    folders = [] if package is None else package.submodule_search_locations or []
    for folder in folders:
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            values = gzip.decompress(file.read_bytes()).replace(b"\n", b",").rstrip(b",")
            return np.array(values.split(b","), dtype=np.uint8).reshape(-1, 65)
    raise MissingDataError("dataset: digits needs scikit-learn with its data; pip install it")


DATASETS.register("digits", digits)
