"""Data sets that are public: a run on any other is on somebody's own data.

A run says itself whether its data are its user's own. That word decides whether noise
of a recorded seed protects anybody, so it is not believed where it denies: a name that
is not known here as public counts as own data. Own records in the files of a public
data set are told by its digest, where that is known.
"""

from __future__ import annotations

from collections.abc import Mapping
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

DIGESTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "cifar-10": frozenset(
            ("9048fcbac9c08a64d57a7c5a5a66750a974ad4eab380914df129f7e223d823df",)
        ),
        "digits": frozenset(
            ("86e31c2ecbd8915e92a6bd3c14e776ede04d2f795c560ebb07daa656096f9670",)
        ),
        "fashion-mnist": frozenset(
            ("ece172613115fb18b120bec8f6c02271af90b8b8f0a5af5c51cbd5ceed68e619",)
        ),
        # Without writers, and with them.
        "mnist": frozenset(
            (
                "1e35582d42a90940c55b956deb61875c020b567ed20e3c5b174f52bf7809ed9b",
                "8a93ed38ffeb9798a8d71608abd31493595d425e2d0e4ebc0a38b2fa881e9c35",
            )
        ),
        "mnist-writers": frozenset(
            ("c1b6fd84e7388b6e4da6730d48affab6cd2e99cdd1371a2ca1d1528cbbb13687",)
        ),
    }
)
"""SHA-256 sums of all records, labels and people of data sets that are published once
and for all, as ``simulate.data.dataset.Dataset.digest`` computes them."""

GROUP = "privplan.datasets"
"""Entry points with which a package that the reader installed adds a data set."""


def whole_name(dataset: str) -> str:
    """The registered name of a data set of which a name takes all or some records."""
    name = dataset.partition(":")[0].lower()
    return ALIASES.get(name, name)


def is_public(dataset: str) -> bool:
    """Whether a name, such as ``digits`` or ``mnist:500``, is of a public data set.

    Data sets of packages that the reader installed count as public, too.
    """
    if whole_name(dataset) in BUILT_IN:
        return True
    return any(point.name == dataset for point in entry_points(group=GROUP))


def has_known_records(dataset: str) -> bool:
    """Whether nobody can pass own records off as those of the data set of a name."""
    return whole_name(dataset) in DIGESTS
