"""FEMNIST: handwritten characters by writer, 28x28, 62 classes; LEAF's natural split.

Source: S. Caldas et al., LEAF: A Benchmark for Federated Settings (2018), from EMNIST's own
source; read from LEAF's JSON files in ``femnist/data``, or from a local copy in the format of
the library ``datasets`` with the columns ``image``, ``writer_id`` and ``character``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from simulate.data import hub, leaf
from simulate.data.dataset import Dataset
from simulate.data.disk import Place, root
from simulate.data.files import numbers, whole_numbers
from simulate.data.sets.emnist import CLASSES

SIDE = 28
PLACE = Place(
    "FEMNIST",
    ("femnist/data", "femnist", "FEMNIST"),
    "make it with LEAF's preprocess.sh",
)
CENTRE, SPREAD = 255.0, -255.0
"""Paper is white here, 255: it becomes 0, and ink 1."""
TEST_SHARE = 10
"""One record in ten of each writer is for testing where there is no finished split, as in LEAF."""


def femnist(data_dir: Path | None = None, download: bool = False) -> Dataset:
    """The data set from disk.

    Args:
        data_dir: folder that holds ``femnist/data``, with ``train`` and ``test`` or with
            ``all_data``; PRIVPLAN_DATA when None, then the user's cache.
        download: makes no difference; the data are not published in this form.

    Raises:
        MissingDataError: when the files are not there; it says what to do.
        InputError: when a file is damaged.
    """
    data = root(data_dir)
    copy = hub.copy_of(PLACE, data)
    if copy is None:
        parts = leaf.read(PLACE, data, pixels, divide)
    else:
        held = hub.people("femnist", copy, "writer_id", "image", "character", drawn)
        parts = leaf.assembled(*leaf.divided(held, divide))
    return Dataset("femnist", **parts, classes=CLASSES, centre=CENTRE, spread=SPREAD)


def pixels(x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """LEAF's 784 grey values from 0 to 1 a record, as bytes."""
    grey = numbers(x).reshape(len(x), 1, SIDE, SIDE)
    if len(grey) and not (grey.min() >= 0 and grey.max() <= 1):
        raise ValueError("grey values must be from 0 to 1")
    return np.round(255.0 * grey).astype(np.uint8), whole_numbers(y)


def drawn(x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Images of the library ``datasets``."""
    grey = np.array([np.asarray(image.convert("L")) for image in x])
    return grey.reshape(len(x), 1, SIDE, SIDE), whole_numbers(y)


def divide(records: int) -> tuple[np.ndarray, np.ndarray]:
    """Every tenth record of a writer is for testing."""
    rows = np.arange(records)
    test = rows % TEST_SHARE == TEST_SHARE - 1
    return rows[~test], rows[test]
