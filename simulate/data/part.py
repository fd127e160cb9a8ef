"""A part of the training records of a data set, for runs that a small machine can do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from privplan.errors import InputError
from simulate.data.dataset import Dataset

SEED = 0
"""Seed of the draw: a part is a data set like another, the same in all runs."""


def part_of(data: Dataset, count: int) -> Dataset:
    """Returns the data set with so many of its training records, and all of its test records.

    Classes keep their shares up to one record; people keep those of their records that are left.

    Args:
        data: the data set.
        count: number of training records that are left.

    Raises:
        InputError: when it is not from 1 to the number of training records.
    """
    labels = data.train_labels.numpy()
    if not 1 <= count <= len(labels):
        rule = f"must have from 1 to {len(labels)} training records"
        raise InputError.one("dataset", rule, f"{data.name}:{count}")
    names, sizes = np.unique(labels, return_counts=True)
    ends = np.cumsum(sizes) * count // len(labels)
    source, chosen = np.random.default_rng(SEED), []
    for label, many in zip(names, np.diff(ends, prepend=0), strict=True):
        chosen.append(source.permutation(np.flatnonzero(labels == label))[:many])
    rows = np.sort(np.concatenate(chosen))
    taken, people = torch.from_numpy(rows), data.train_people
    return replace(
        data,
        name=f"{data.name}:{count}",
        train_x=data.train_x[taken],
        train_y=data.train_y[taken],
        train_people=None if people is None else people[rows],
    )
