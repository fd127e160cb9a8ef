"""Data sets that are public, by name: a run on any other is on somebody's own data.

A run says itself whether its data are its user's own. That word decides whether noise
of a recorded seed protects anybody, so it is not believed where it denies: a name that
is not known here as public counts as own data.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from types import MappingProxyType

BUILT_IN = frozenset(
    {
        "cifar-10",
        "cifar-100",
        "digits",
        "emnist",
        "fashion-mnist",
        "femnist",
        "mnist",
        "mnist-writers",
        "shakespeare",
        "svhn",
    }
)
"""The data sets that the simulator reads; a test holds them against its registry."""

ALIASES = MappingProxyType(
    {
        "fmnist": "fashion-mnist",
        "fashionmnist": "fashion-mnist",
        "cifar10": "cifar-10",
        "cifar100": "cifar-100",
    }
)
"""Other spellings of registered names."""

GROUP = "privplan.datasets"
"""Entry points with which a package that the reader installed adds a data set."""


def is_public(dataset: str) -> bool:
    """Whether a name, such as ``digits`` or ``mnist:500``, is of a public data set.

    Data sets of packages that the reader installed count as public, too.
    """
    whole_name = dataset.partition(":")[0].lower()
    registered = ALIASES.get(whole_name, whole_name)
    if registered in BUILT_IN:
        return True
    return any(point.name == dataset for point in entry_points(group=GROUP))
