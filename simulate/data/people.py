"""Records that belong to people: their split into training and test records, and assembly."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from privplan.errors import InputError
from simulate.data import hub
from simulate.data.files import reading


class Person(NamedTuple):
    """One person's records: a name, x [n, ...] and y [n]."""

    name: str
    x: np.ndarray
    y: np.ndarray


Encode = Callable[[list[Any], list[Any]], tuple[np.ndarray, np.ndarray]]
"""From lists of values x and y to arrays; raises any exception when they do not fit."""
Split = Callable[[int], tuple[np.ndarray, np.ndarray]]
"""From a person's number of records to the indices for training and those for testing."""


def split_people(people: Iterable[Person], split: Split) -> tuple[list[Person], list[Person]]:
    """Each person's training and test records; people without a training record are left out."""
    train, test = [], []
    for person in people:
        first, second = split(len(person.y))
        if len(first):
            train.append(Person(person.name, person.x[first], person.y[first]))
        if len(first) and len(second):
            test.append(Person(person.name, person.x[second], person.y[second]))
    return train, test


def assemble(train: list[Person], test: list[Person]) -> dict[str, Any]:
    """Records, labels and people as arguments of ``Dataset``.

    People are numbered in the order of their names.

    Raises:
        InputError: when there are no training or no test records, or records differ in shape.
    """
    numbers = {name: row for row, name in enumerate(sorted({one.name for one in train + test}))}
    arguments: dict[str, Any] = {}
    for part, people in (("train", train), ("test", test)):
        people = [person for person in people if len(person.y)]
        if not people:
            raise InputError.one("data", f"must have records for {part}ing", 0)
        try:
            arguments[f"{part}_x"] = torch.from_numpy(np.concatenate([one.x for one in people]))
        except ValueError:
            raise InputError.one("data", "must have records of one shape", part) from None
        labels = np.concatenate([person.y for person in people]).astype(np.int64)
        arguments[f"{part}_y"] = torch.from_numpy(labels)
        owners = [numbers[person.name] for person in people]
        arguments[f"{part}_people"] = np.repeat(owners, [len(person.y) for person in people])
    return arguments


def people_of_copy(
    name: str, folder: Path, columns: tuple[str, str, str], encode: Encode
) -> list[Person]:
    """The people of a local copy for the library ``datasets``, whose rows name their person.

    Args:
        name: the data set's name.
        folder: the copy.
        columns: columns of the person, of the record and of the label.
        encode: from values of records and labels to arrays.

    Raises:
        MissingDataError: when the library is not installed.
        InputError: when the copy does not have these columns, or their values do not fit.
    """
    people, (person, x, y) = [], columns
    for split in hub.splits(name, folder).values():
        [owners] = hub.columns(split, (person,), folder)
        names, number = np.unique(np.array(owners, dtype=str), return_inverse=True)
        order = np.argsort(number, kind="stable")
        ends = np.cumsum(np.bincount(number))
        for owner, rows in zip(names, np.split(order, ends[:-1]), strict=True):
            with reading(folder, f"must hold {name}"):
                values = hub.columns(split.select(rows), (x, y), folder)
                people.append(Person(str(owner), *encode(*values)))
    return people
