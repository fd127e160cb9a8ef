"""Local copies in the format of the library ``datasets``, which is imported on first use."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privplan.errors import InputError, MissingDataError
from simulate.data.disk import Location, folders
from simulate.data.files import reading

SAVED = ("dataset_dict.json", "state.json")
"""Files that ``save_to_disk`` writes for several splits, and for one."""


def library(name: str) -> Any:
    """The imported library, without its progress bars.

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


def find_copy(location: Location, data: Path) -> Path | None:
    """The folder of a local copy, saved by the library or as parquet files; None if none."""
    for folder in folders(location, data):
        if any((folder / name).is_file() for name in SAVED):
            return folder
        if folder.is_dir() and next(folder.rglob("*.parquet"), None) is not None:
            return folder
    return None


def splits(name: str, folder: Path) -> dict[str, Any]:
    """The splits of a local copy, by name; downloads nothing.

    Raises:
        MissingDataError: when the library is not installed.
        InputError: when the folder cannot be read.
    """
    datasets = library(name)
    with reading(folder, "must be readable by the library datasets"):
        if any((folder / saved).is_file() for saved in SAVED):
            copy = datasets.load_from_disk(str(folder))
        else:
            copy = datasets.load_dataset(str(folder))
    return dict(copy) if isinstance(copy, dict) else {"train": copy}


def columns(split: Any, names: Sequence[str], folder: Path) -> list[list[Any]]:
    """Columns of a split as lists.

    Raises:
        InputError: when a column is absent or cannot be read.
    """
    absent = [name for name in names if name not in split.column_names]
    if absent:
        rule = f"must have the columns {', '.join(names)}"
        raise InputError.one("data", rule, f"{folder}, without {absent[0]}")
    with reading(folder, "must be readable by the library datasets"):
        return [list(split[name]) for name in names]


def fetch(name: str, repository: str, configuration: str, folder: Path) -> None:
    """Download a data set from the hub; the local copy appears only when it is complete.

    Raises:
        MissingDataError: when the library is not installed or the hub cannot be reached.
    """
    datasets = library(name)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        copy = datasets.load_dataset(repository, configuration)
        with tempfile.TemporaryDirectory(dir=folder.parent, suffix=".tmp") as temporary:
            copy.save_to_disk(f"{temporary}/copy")
            Path(temporary, "copy").rename(folder)
    except Exception as error:  # the library raises exceptions of many types
        reason = " ".join(str(error).split())
        raise MissingDataError(f"dataset: could not fetch {repository} ({reason})") from None
