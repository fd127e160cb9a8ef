"""LEAF's JSON files, in which records belong to people: FEMNIST and Shakespeare.

Source: S. Caldas et al., LEAF: A Benchmark for Federated Settings (2018). A file has
``users`` and, for each of them, ``user_data`` with lists ``x`` and ``y`` of equal
length. The folders ``train`` and ``test`` contain a finished split; ``all_data`` has
the records before a split. An alternative for Shakespeare is ``roles.json`` or
``roles.json.gz`` with the text of each role.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from privplan.errors import InputError, MissingDataError
from simulate.data.dataset import Dataset
from simulate.data.formats import images
from simulate.data.locations import Location, find, missing
from simulate.data.reading import (
    numbers,
    one_line_errors,
    read_unpacked,
    whole_numbers,
)
from simulate.data.registry import DATASETS

# Records that belong to people: split into training and test records, and assembly.


class Person(NamedTuple):
    """One person's records: a name, x [n, ...] and y [n]."""

    name: str
    x: np.ndarray
    y: np.ndarray


Encode = Callable[[list[Any], list[Any]], tuple[np.ndarray, np.ndarray]]
"""From lists of values x and y to arrays; raises any exception when they do not fit."""
Split = Callable[[int], tuple[np.ndarray, np.ndarray]]
"""From a person's number of records to indices for training, and for testing."""


def split_people(
    people: Iterable[Person], split: Split
) -> tuple[list[Person], list[Person]]:
    """Each person's training and test records.

    People without a training record are left out, with their test records.
    """
    train = []
    test = []
    for person in people:
        train_rows, test_rows = split(len(person.y))
        if len(train_rows):
            train.append(
                Person(person.name, person.x[train_rows], person.y[train_rows])
            )
        if len(train_rows) and len(test_rows):
            test.append(Person(person.name, person.x[test_rows], person.y[test_rows]))
    return train, test


def assemble(train: list[Person], test: list[Person]) -> dict[str, Any]:
    """Records, labels and people, numbered by name, as arguments of ``Dataset``."""
    names = sorted({person.name for person in train + test})
    numbers = {name: number for number, name in enumerate(names)}
    arguments: dict[str, Any] = {}
    for role, people in (("train", train), ("test", test)):
        people = [person for person in people if len(person.y)]
        if not people:
            raise InputError.one("data", f"must have records for {role}ing", 0)
        try:
            arguments[f"{role}_x"] = torch.from_numpy(
                np.concatenate([person.x for person in people])
            )
        except ValueError:
            raise InputError.one(
                "data", "must have records of one shape", role
            ) from None
        labels = np.concatenate([person.y for person in people]).astype(np.int64)
        arguments[f"{role}_y"] = torch.from_numpy(labels)
        owners = [numbers[person.name] for person in people]
        arguments[f"{role}_people"] = np.repeat(
            owners, [len(person.y) for person in people]
        )
    return arguments


# LEAF's JSON files.


@dataclass(frozen=True)
class LeafDataset:
    """A data set of LEAF."""

    name: str
    location: Location
    classes: tuple[str, ...]
    encode: Encode  # from the JSON values of records and labels to arrays
    split: Split  # of a person's records where there is no finished split
    kind: Literal["image", "tokens"] = "image"
    mean: float = 0.0
    std: float = 1.0
    roles: bool = False  # whether it may also be read from the texts of roles

    def __call__(self, data: Path, download: bool) -> Dataset:
        """Read the data set.

        ``download`` has no effect, since LEAF's own scripts make the files.
        """
        records = assemble(*self._people(data))
        return Dataset(
            self.name,
            **records,
            classes=self.classes,
            kind=self.kind,
            mean=self.mean,
            std=self.std,
        )

    def _people(self, data: Path) -> tuple[list[Person], list[Person]]:
        """Training and test records of all people."""
        names = ("train", "test", "all_data")
        train, test, unsplit = (find(self.location, data, name) for name in names)
        roles = None
        if self.roles:
            roles = find(self.location, data, "roles.json", "roles.json.gz")
        if roles is not None and train is None and unsplit is None:
            return split_people(read_roles(roles), self.split)
        if train is not None and test is not None:
            trained = list(read_people(train, self.encode))
            tested = list(read_people(test, self.encode))
            return trained, tested
        if unsplit is None:
            raise missing(self.location, data, "train and test, or all_data")
        return split_people(read_people(unsplit, self.encode), self.split)


def read_people(folder: Path, encode: Encode) -> Iterator[Person]:
    """The people of all files of a folder, one file at a time."""
    paths = sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")])
    if not paths:
        raise MissingDataError(f"dataset: {folder} holds no .json or .json.gz file")
    for path in paths:
        content = read_json(path)
        people = []
        with one_line_errors(path, "must be in LEAF's format"):
            for name in content["users"]:
                user = content["user_data"][name]
                x = user["x"]
                y = user["y"]
                are_lists = isinstance(x, list) and isinstance(y, list)
                if not are_lists or len(x) != len(y):
                    raise ValueError(f"x and y of {name} must be lists of one length")
                people.append(Person(str(name), *encode(x, y)))
        yield from people


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, compressed when its name ends in ``.gz``."""
    with one_line_errors(path, "must be readable JSON"):
        value = json.loads(read_unpacked(path))
    if not isinstance(value, dict):
        raise InputError.one("data", "must be a JSON object", str(path))
    return value


SIDE = 28  # height and width of FEMNIST's images


def grey_from_json(x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of FEMNIST.

    Args:
        x: 784 grey values in [0, 1] of each record.
        y: class of each record.

    Returns:
        Images [n, 1, 28, 28], uint8, and labels [n].
    """
    grey = numbers(x).reshape(len(x), 1, SIDE, SIDE)
    if len(grey) and not (grey.min() >= 0 and grey.max() <= 1):
        raise ValueError("grey values must be from 0 to 1")
    return np.round(255.0 * grey).astype(np.uint8), whole_numbers(y)


def split_tenths(records: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices for training, and every tenth for testing, as in LEAF."""
    test = np.arange(records) % 10 == 9
    return np.flatnonzero(~test), np.flatnonzero(test)


CHARACTERS = (
    "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
)
"""LEAF's 80 characters; the position of a character is its token and its label."""
WINDOW = 80  # characters of a record of Shakespeare
REMEDY = "make it with LEAF's preprocess.sh"


def tokens(text: str) -> np.ndarray:
    """Token of each character, uint8; unknown ones have the last, as in LEAF."""
    table = np.full(256, len(CHARACTERS) - 1, np.uint8)
    table[list(CHARACTERS.encode("ascii"))] = np.arange(len(CHARACTERS))
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    encoded: np.ndarray = table[np.minimum(codes, 255)]
    return encoded


def encode_windows(x: list[Any], y: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [n, 80] and labels [n]: texts of 80 characters, and what follows each."""
    if any(len(text) != WINDOW for text in x) or any(len(text) != 1 for text in y):
        raise ValueError(f"x must have {WINDOW} characters and y one")
    return tokens("".join(x)).reshape(-1, WINDOW), tokens("".join(y))


def sliding_windows(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [n, 80] of a text's windows, and as labels [n] the character after each.

    The last window has no next character and is left out.
    """
    encoded = tokens(text)
    if len(encoded) <= WINDOW:
        return np.empty((0, WINDOW), np.uint8), np.empty(0, np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(encoded, WINDOW)
    return windows[:-1], encoded[WINDOW:]


def split_windows(records: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the first nine tenths, and of later windows without their characters.

    The next window that shares no character with the last one for training begins
    ``WINDOW`` characters after it.
    """
    train_records = max(1, int(0.9 * records)) if records else 0
    return np.arange(train_records), np.arange(train_records + WINDOW - 1, records)


def read_roles(path: Path) -> Iterator[Person]:
    """The people of a file with the text of each role."""
    texts = read_json(path).get("text")
    if not isinstance(texts, dict) or not all(
        isinstance(text, str) for text in texts.values()
    ):
        raise InputError.one("data", "must have the text of each role", str(path))
    return (Person(name, *sliding_windows(text)) for name, text in texts.items())


for _row in (
    LeafDataset(
        "femnist",
        Location("FEMNIST", ("femnist/data", "femnist", "FEMNIST"), REMEDY),
        images.CHARACTERS,
        grey_from_json,
        split_tenths,
        mean=255.0,  # paper is white here: it becomes 0, and ink 1
        std=-255.0,
    ),
    LeafDataset(
        "shakespeare",
        Location(
            "Shakespeare", ("shakespeare/data", "shakespeare", "Shakespeare"), REMEDY
        ),
        tuple(CHARACTERS),
        encode_windows,
        split_windows,
        kind="tokens",
        roles=True,
    ),
):
    DATASETS.register(_row.name, _row)
