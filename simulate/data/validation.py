"""A validation split: training records that stand in for the test records while methods are tuned.

The test records of the data set are not used, so that what is chosen has not seen them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from privplan.errors import InputError
from simulate.data.dataset import Dataset


def validation_split(data: Dataset, share: float, seed: int) -> Dataset:
    """Returns the data set with a part of its training records in the place of its test records.

    The part has the same share of each class. Records of people stay with theirs.

    Args:
        data: the data set.
        share: share of the training records that are held out, in (0, 1).
        seed: seed of the draw.

    Raises:
        InputError: when the share is out of range, or no record is left on one side.
    """
    if not 0 < share < 1:
        raise InputError.one("validation_share", "must be in (0, 1)", share)
    labels, source = data.train_labels.numpy(), np.random.default_rng(seed)
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        held[source.permutation(rows)[: round(share * len(rows))]] = True
    if not held.any() or held.all():
        rule = "must leave records on both sides of the validation split"
        raise InputError.one("validation_share", rule, share)
    inside, outside = torch.from_numpy(~held), torch.from_numpy(held)
    people = data.train_people
    return replace(
        data,
        name=f"{data.name}, validation",
        train_x=data.train_x[inside],
        train_y=data.train_y[inside],
        test_x=data.train_x[outside],
        test_y=data.train_y[outside],
        train_people=None if people is None else people[~held],
        test_people=None if people is None else people[held],
        test_groups=None,
    )
