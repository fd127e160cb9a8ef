"""Data sets by name, whole or with a part of their training records.

A data set of the project is a row in a module of ``simulate.data.formats``; other
packages register theirs in the entry-point group ``privplan.datasets``.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Protocol

from privplan.errors import InputError, one_of
from privplan.public_data import ALIASES, DIGESTS, GROUP
from privplan.registry import Registry, function_of
from simulate.data.dataset import Dataset
from simulate.data.locations import data_folder
from simulate.data.subsets import part_of


class Loader(Protocol):
    """A function that reads a data set."""

    def __call__(self, data: Path, download: bool, /) -> Dataset:
        """The data set."""


DATASETS: Registry[Loader] = Registry(
    "dataset",
    GROUP,
    "simulate.data.formats",
    function_of("the data folder and of download"),
)
_log = logging.getLogger(__name__)
_COUNT_DIGITS = 9  # of a number of records


def load(name: str, data_dir: Path | None = None, download: bool = False) -> Dataset:
    """The data set of a name.

    Args:
        name: registered, or an alias; ``NAME:RECORDS`` takes so many training records.
        data_dir: the data folder; the default one when None.
        download: whether missing data may be downloaded.

    Raises:
        InputError: for an unknown name or number of records, or for files that hold
            other records than those that are published.
        MissingDataError: for data that are not there.
    """
    base, colon, count = name.partition(":")
    # A registered name may itself have a colon.
    if colon and base not in DATASETS and base.lower() not in ALIASES:
        base = name
        colon = ""
    registered = ALIASES.get(base.lower(), base)
    if registered not in DATASETS:
        # Sorted, since the registry's order depends on what was imported first.
        names = sorted(DATASETS)
        raise InputError.one("dataset", one_of(names, base), name)
    # The published records are known by the registered spelling, not by the user's.
    registered = DATASETS.name_of(registered)
    if colon and not _is_count(count):
        rule = (
            f"must be {registered} or {registered}:RECORDS, RECORDS from 1 to 999999999"
        )
        raise InputError.one("dataset", rule, name)
    folder = data_folder(data_dir)
    _log.info("reading %s from %s", registered, folder)
    data = DATASETS.get(registered)(folder, download)
    published = DIGESTS.get(registered)
    if published is not None and data.digest not in published:
        rule = (
            f"must be the published records of {registered}; name your own data with "
            "--data"
        )
        raise InputError.one("dataset", rule, f"others in {folder}")
    if colon:
        return part_of(data, int(count))
    return data


def _is_count(text: str) -> bool:
    """Whether a text is a whole number of at most nine digits."""
    return text.isdecimal() and text.isascii() and len(text) <= _COUNT_DIGITS
