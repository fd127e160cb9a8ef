"""Local copies in the format of the library ``datasets``, which is imported only when used."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privplan.errors import InputError, MissingDataError
from simulate.data.disk import Place, folders
from simulate.data.files import reading
from simulate.data.leaf import Encode, Person

SAVED = ("dataset_dict.json", "state.json")
"""What ``save_to_disk`` leaves in the folder of several splits, and of one."""


def library(name: str) -> Any:
    """The library, without its progress bars.

    Raises:
        MissingDataError: when it is not installed.
    """
    try:
        import datasets
    except ImportError:
        needed = "the extra hub, pip install 'privplan[hub]'"
        raise MissingDataError(f"dataset: {name} needs {needed}") from None
    datasets.disable_progress_bars()
    return datasets


def copy_of(place: Place, data: Path) -> Path | None:
    """The folder with a local copy: saved by the library, or with parquet files."""
    for folder in folders(place, data):
        if any((folder / name).is_file() for name in SAVED):
            return folder
        if folder.is_dir() and next(folder.rglob("*.parquet"), None) is not None:
            return folder
    return None


def splits(name: str, folder: Path) -> dict[str, Any]:
    """The splits of a local copy, by name; nothing is fetched.

    Raises:
        MissingDataError: when the library is not installed.
        InputError: when the folder cannot be read.
    """
    datasets = library(name)
    with reading(folder, "must be readable by the library datasets"):
        if any((folder / saved).is_file() for saved in SAVED):
            found = datasets.load_from_disk(str(folder))
        else:
            found = datasets.load_dataset(str(folder))
    return dict(found) if isinstance(found, dict) else {"train": found}


def columns(split: Any, names: Sequence[str], folder: Path) -> list[list[Any]]:
    """Some columns of a split as lists.

    Raises:
        InputError: when one is not there or cannot be read.
    """
    absent = [name for name in names if name not in split.column_names]
    if absent:
        rule = f"must have the columns {', '.join(names)}"
        raise InputError.one("data", rule, f"{folder}, without {absent[0]}")
    with reading(folder, "must be readable by the library datasets"):
        return [list(split[name]) for name in names]


def people(name: str, folder: Path, person: str, x: str, y: str, encode: Encode) -> list[Person]:
    """The people of a local copy in which each row names whom it is from.

    Args:
        name: the data set's name.
        folder: the copy.
        person: column with the person.
        x: column with the record.
        y: column with the label.
        encode: what records become.

    Raises:
        MissingDataError: when the library is not installed.
        InputError: when the copy does not have these columns, or their values do not fit.
    """
    found = []
    for split in splits(name, folder).values():
        [owners] = columns(split, (person,), folder)
        names, number = np.unique(np.array(owners, dtype=str), return_inverse=True)
        order = np.argsort(number, kind="stable")
        ends = np.cumsum(np.bincount(number))
        for owner, rows in zip(names, np.split(order, ends[:-1]), strict=True):
            with reading(folder, f"must hold {name}"):
                own = columns(split.select(rows), (x, y), folder)
                found.append(Person(str(owner), *encode(*own)))
    return found


def fetch(name: str, repository: str, configuration: str, folder: Path) -> None:
    """Fetch a data set from the hub and save a local copy, which appears when it is whole.

    Raises:
        MissingDataError: when the library is not installed or the hub cannot be reached.
    """
    datasets = library(name)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        found = datasets.load_dataset(repository, configuration)
        with tempfile.TemporaryDirectory(dir=folder.parent, suffix=".tmp") as temporary:
            found.save_to_disk(f"{temporary}/copy")
            Path(temporary, "copy").rename(folder)
    except Exception as error:  # the library wraps whatever went wrong in its own ways
        said = " ".join(str(error).split())
        raise MissingDataError(f"dataset: could not fetch {repository} ({said})") from None
