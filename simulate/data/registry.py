"""Data sets by name, and how they are spread over clients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import MappingProxyType

from privplan.errors import InputError
from simulate.data.dataset import Dataset
from simulate.data.digits import digits
from simulate.data.glue import COLUMNS, glue
from simulate.data.sets.cifar_10 import cifar_10
from simulate.data.sets.cifar_100 import cifar_100
from simulate.data.sets.cinic_10 import cinic_10
from simulate.data.sets.emnist import emnist
from simulate.data.sets.fashion_mnist import fashion_mnist
from simulate.data.sets.femnist import femnist
from simulate.data.sets.mnist import mnist
from simulate.data.sets.shakespeare import shakespeare
from simulate.data.svhn import svhn

DATASETS: MappingProxyType[str, Callable[[Path | None, bool], Dataset]] = MappingProxyType(
    {
        "digits": digits,
        "mnist": mnist,
        "fashion-mnist": fashion_mnist,
        "cifar-10": cifar_10,
        "cifar-100": cifar_100,
        "svhn": svhn,
        "emnist": emnist,
        "femnist": femnist,
        "cinic-10": cinic_10,
        "shakespeare": shakespeare,
        **{task: partial(glue, task) for task in COLUMNS},
    }
)
ALIASES = MappingProxyType(
    {
        "fmnist": "fashion-mnist",
        "fashionmnist": "fashion-mnist",
        "cifar10": "cifar-10",
        "cifar100": "cifar-100",
        "cinic10": "cinic-10",
    }
)


def load(name: str, data_dir: Path | None = None, download: bool = False) -> Dataset:
    """The data set of a name.

    Args:
        name: a name of the table or an alias, in any case.
        data_dir: where data are kept on disk.
        download: whether missing data may be fetched.

    Raises:
        InputError: for a name that is not in the table.
        MissingDataError: when the data are not on disk.
    """
    known = ALIASES.get(name.lower(), name.lower())
    if known not in DATASETS:
        raise InputError.one("dataset", f"must be one of {', '.join(DATASETS)}", name)
    return DATASETS[known](data_dir, download)
