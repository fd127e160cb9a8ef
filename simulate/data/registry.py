"""Data sets by name, whole or with a part of their training records.

A data set of the project is a row in a module of ``simulate.data.formats``; other packages
register theirs in the entry-point group ``privplan.datasets``.
"""

from __future__ import annotations

import logging
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from privplan.errors import InputError, did_you_mean
from privplan.registry import Registry
from simulate.data.dataset import Dataset
from simulate.data.disk import data_folder
from simulate.data.part import part_of


class Loader(Protocol):
    """A function that reads a data set."""

    def __call__(self, data: Path, download: bool, /) -> Dataset:
        """The data set.

        Args:
            data: the data folder.
            download: whether missing files may be downloaded.

        Raises:
            MissingDataError: when files are missing; the message says what to do.
            InputError: when a file is damaged.
        """


def _checked(component: object) -> Loader:
    if not callable(component):
        raise TypeError("must be a function of the data folder and of download")
    return component


DATASETS: Registry[Loader] = Registry(
    "dataset", "privplan.datasets", "simulate.data.formats", _checked
)
_log = logging.getLogger(__name__)
ALIASES = MappingProxyType(
    {
        "fmnist": "fashion-mnist",
        "fashionmnist": "fashion-mnist",
        "cifar10": "cifar-10",
        "cifar100": "cifar-100",
        "cinic10": "cinic-10",
    }
)


def whole(name: str) -> str:
    """The registered name of a data set of which a name takes all or some records."""
    base = name.partition(":")[0].lower()
    return ALIASES.get(base, base)


def load(name: str, data_dir: Path | None = None, download: bool = False) -> Dataset:
    """The data set of a name.

    Args:
        name: a registered name or an alias, in any case; ``NAME:RECORDS`` for so many of its
            training records, always the same ones.
        data_dir: the data folder; PRIVPLAN_DATA when None, then the user's cache.
        download: whether missing files may be downloaded; their published sums are checked.

    Raises:
        InputError: for an unknown name, more records than there are, or when a file is damaged.
        MissingDataError: when files are missing.
    """
    base, colon, count = name.partition(":")
    if colon and base not in DATASETS and base.lower() not in ALIASES:
        base, colon = name, ""
    known = ALIASES.get(base.lower(), base)
    if known not in DATASETS:  # sorted: the registry's order depends on what was imported first
        names = sorted(DATASETS)
        rule = f"must be one of {', '.join(names)}{did_you_mean(base, names)}"
        raise InputError.one("dataset", rule, name)
    if colon and not (count.isdecimal() and count.isascii() and 0 < len(count) < 10):
        raise InputError.one(
            "dataset", f"must be {known} or {known}:RECORDS, RECORDS from 1 to 999999999", name
        )
    folder = data_folder(data_dir)
    _log.info("reading %s from %s", known, folder)
    data = DATASETS.get(known)(folder, download)
    return part_of(data, int(count)) if colon else data
