"""LEAF's JSON files, in which every record belongs to a person.

Source: S. Caldas et al., LEAF: A Benchmark for Federated Settings (2018). A file has ``users``
and, for each of them, ``user_data`` with lists ``x`` and ``y`` of equal length. The folders
``train`` and ``test`` hold a finished split; ``all_data`` holds the records before one.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from privplan.errors import InputError, MissingDataError
from simulate.data.disk import Place, find, missing
from simulate.data.files import reading

TRAIN, TEST, ALL = "train", "test", "all_data"


class Person(NamedTuple):
    """One person's records: a name, x [n, ...] and y [n]."""

    name: str
    x: np.ndarray
    y: np.ndarray


Encode = Callable[[list[Any], list[Any]], tuple[np.ndarray, np.ndarray]]
"""From lists of JSON values to arrays; raises any exception when they do not fit."""
Divide = Callable[[int], tuple[np.ndarray, np.ndarray]]
"""From a person's number of records to the indices for training and those for testing."""


def read(place: Place, data: Path, encode: Encode, divide: Divide) -> dict[str, Any]:
    """A data set in LEAF's layout.

    Args:
        place: where it lies.
        data: the data folder.
        encode: what a record becomes.
        divide: how ``all_data`` is split when there is no finished split.

    Returns:
        As ``assembled``.

    Raises:
        MissingDataError: when there is neither a finished split nor ``all_data``.
        InputError: when a file is damaged.
    """
    train, test = (find(place, data, part) for part in (TRAIN, TEST))
    if train is not None and test is not None:
        return assembled(list(people(train, encode)), list(people(test, encode)))
    whole = find(place, data, ALL)
    if whole is None:
        raise missing(place, data, f"{TRAIN} and {TEST}, or {ALL}")
    return assembled(*divided(people(whole, encode), divide))


def people(folder: Path, encode: Encode) -> Iterator[Person]:
    """The people of all files of a folder, a file at a time.

    Raises:
        MissingDataError: when there is no file.
        InputError: when one is damaged.
    """
    paths = sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")])
    if not paths:
        raise MissingDataError(f"dataset: {folder} holds no .json or .json.gz file")
    for path in paths:
        content = read_json(path)
        with reading(path, "must be in LEAF's format"):
            found = [_person(name, content["user_data"][name], encode) for name in content["users"]]
        yield from found


def _person(name: str, own: dict[str, Any], encode: Encode) -> Person:
    if not isinstance(own["x"], list) or not isinstance(own["y"], list):
        raise ValueError(f"x and y of {name} must be lists")
    x, y = encode(own["x"], own["y"])
    if len(x) != len(y):
        raise ValueError(f"{len(x)} records and {len(y)} labels of {name}")
    return Person(str(name), x, y)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, compressed when its name ends in ``.gz``.

    Raises:
        InputError: when it cannot be read or is none.
    """
    with reading(path, "must be readable JSON"):
        content = path.read_bytes()
        found = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    if not isinstance(found, dict):
        raise InputError.one("data", "must be a JSON object", str(path))
    return found


def divided(held: Iterable[Person], divide: Divide) -> tuple[list[Person], list[Person]]:
    """Each person's records for training and for testing; nobody is without a training record."""
    train, test = [], []
    for person in held:
        first, second = divide(len(person.y))
        if len(first):
            train.append(Person(person.name, person.x[first], person.y[first]))
        if len(first) and len(second):
            test.append(Person(person.name, person.x[second], person.y[second]))
    return train, test


def assembled(train: list[Person], test: list[Person]) -> dict[str, Any]:
    """The parts of a ``Dataset`` that people's records make up.

    People are numbered in the order of their names.

    Raises:
        InputError: when there are no records for training or none for testing.
    """
    numbers = {name: row for row, name in enumerate(sorted({one.name for one in train + test}))}
    parts: dict[str, Any] = {}
    for part, held in ((TRAIN, train), (TEST, test)):
        held = [person for person in held if len(person.y)]
        if not held:
            raise InputError.one("data", f"must have records for {part}ing", 0)
        try:
            parts[f"{part}_x"] = torch.from_numpy(np.concatenate([one.x for one in held]))
        except ValueError:
            raise InputError.one("data", "must have records of one shape", part) from None
        labels = np.concatenate([person.y for person in held]).astype(np.int64)
        parts[f"{part}_y"] = torch.from_numpy(labels)
        own = [numbers[person.name] for person in held]
        parts[f"{part}_people"] = np.repeat(own, [len(person.y) for person in held])
    return parts
