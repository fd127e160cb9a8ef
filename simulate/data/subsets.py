"""Data sets of some training records: a part, or with a part split off for tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from privplan.errors import InputError
from simulate.data.dataset import Dataset

SEED = 0  # seed of the draw: a part is a data set like another, the same in all runs


def part_of(data: Dataset, count: int) -> Dataset:
    """The data set with ``count`` training records, for runs on a small machine.

    Classes keep their shares to one record.
    """
    labels = data.train_labels.numpy()
    if not 1 <= count <= len(labels):
        rule = f"must have from 1 to {len(labels)} training records"
        raise InputError.one("dataset", rule, f"{data.name}:{count}")
    names, sizes = np.unique(labels, return_counts=True)
    # Rounding the cumulated sizes makes the rounded ones add up to the count.
    ends = np.cumsum(sizes) * count // len(labels)
    source = np.random.default_rng(SEED)
    chosen = []
    for label, size in zip(names, np.diff(ends, prepend=0), strict=True):
        chosen.append(source.permutation(np.flatnonzero(labels == label))[:size])
    rows = np.sort(np.concatenate(chosen))
    return replace(
        data,
        name=f"{data.name}:{count}",
        train_x=data.train_x[torch.from_numpy(rows)],
        train_y=data.train_y[torch.from_numpy(rows)],
        train_people=None if data.train_people is None else data.train_people[rows],
    )


def validation_split(data: Dataset, share: float, seed: int) -> Dataset:
    """The data set with a share of its training records, of each class, for tests.

    What is chosen by scores on it has not seen the test records.
    """
    if not 0 < share < 1:
        raise InputError.one("validation_share", "must be in (0, 1)", share)
    labels = data.train_labels.numpy()
    source = np.random.default_rng(seed)
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        is_test[source.permutation(rows)[: round(share * len(rows))]] = True
    if not is_test.any() or is_test.all():
        rule = "must leave records on both sides of the validation split"
        raise InputError.one("validation_share", rule, share)
    return with_held_out(data, f"{data.name}, validation", is_test)


def with_held_out(data: Dataset, name: str, is_test: np.ndarray) -> Dataset:
    """The data set with some of its training records [n, bool] for its test records."""
    rows = torch.from_numpy(is_test)
    people = data.train_people
    return replace(
        data,
        name=name,
        train_x=data.train_x[~rows],
        train_y=data.train_y[~rows],
        test_x=data.train_x[rows],
        test_y=data.train_y[rows],
        train_people=None if people is None else people[~is_test],
        test_people=None if people is None else people[is_test],
        test_groups=None,
    )
