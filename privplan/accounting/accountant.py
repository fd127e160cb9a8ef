"""The interface of accountants, their bounds on epsilon, and the registry of accountants.

A module is imported when its accountant is asked for, so a command that needs one accountant does
not wait for the libraries of the others.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, cast

from privplan.accounting.release import History, Relation
from privplan.errors import InputError, UnsupportedError
from privplan.registry import Registry
from privplan.values import LEAST


@dataclass(frozen=True)
class Interval:
    """Bounds on the smallest epsilon at a given delta; ``lower <= upper``.

    An accountant without a lower bound returns 0 there, which is always a bound.
    """

    lower: float
    upper: float


class Accountant(Protocol):
    """Bounds the epsilon of a history.

    Attributes:
        name: as specs and tables write it, for example ``pld``.
        version: library and version that compute the answer.
        kind: ``two-sided bound``, ``upper bound``, ``second opinion``,
            ``approximation`` or ``published formula`` (a bound only under its conditions).
        guarantee: whether the guarantee of a plan may rest on ``upper``.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def version(self) -> str: ...  # noqa: D102

    @property
    def kind(self) -> str: ...  # noqa: D102

    @property
    def guarantee(self) -> bool: ...  # noqa: D102

    def why_not(self, history: History, relation: Relation) -> str | None:
        """One line on why the law, the relation or the noise is not supported; None when it is."""
        ...

    def epsilon(self, history: History, delta: float, relation: Relation) -> Interval:
        """Bounds on epsilon at ``delta`` under ``relation``.

        Raises:
            UnsupportedError: when ``why_not`` gives a reason.
            InputError: when delta is not in [1e-30, 1), or the relation is none.
        """
        ...


def checked_delta(delta: float) -> float:
    """``delta`` itself when it is in [1e-30, 1)."""
    if not LEAST <= delta < 1:
        least = "[1e-30, 1)" if 0 < delta < LEAST else "(0, 1)"
        raise InputError.one("delta", f"must be in {least}", delta)
    return delta


def checked_relation(relation: object) -> Relation:
    """A neighbouring relation from its name."""
    if relation not in tuple(Relation):
        raise InputError.one(
            "relation", f"must be one of {', '.join(Relation)}", relation
        )
    return Relation(str(relation))


def check_supported(
    one: Accountant, history: History, delta: float, relation: Relation
) -> None:
    """Raise where an accountant does not answer."""
    checked_delta(delta)
    reason = one.why_not(history, relation)
    if reason is not None:
        raise UnsupportedError(f"{one.name}: {reason}")


KINDS = (
    "two-sided bound",
    "upper bound",
    "published formula",
    "approximation",
    "second opinion",
)
"""What the bounds of an accountant are, in the order of tables."""


def _accountant(component: object) -> Accountant:
    """An accountant from an entry point, which names an accountant or its class."""
    found = component() if isinstance(component, type) else component
    missing = [
        name for name in ("name", "version", "guarantee") if not hasattr(found, name)
    ]
    if missing:
        raise TypeError(
            f"must have the attributes of an accountant, lacks {', '.join(missing)}"
        )
    if getattr(found, "kind", None) not in KINDS:
        raise TypeError(f"must have a kind, one of {', '.join(KINDS)}")
    return cast(Accountant, found)


ACCOUNTANTS: Registry[Accountant] = Registry(
    "accountant",
    "privplan.accountants",
    "privplan.accounting",
    _accountant,
    order=lambda one: (KINDS.index(one.kind), one.name),
)
"""Accountants by name; each registers itself in its own module, with its default settings."""


def accountant(name: str) -> Accountant:
    """The accountant of that name, with its default settings.

    Raises:
        InputError: when no accountant has that name; the message lists those that do.
    """
    return ACCOUNTANTS.get(name)


def loadable_accountants() -> list[str]:
    """Names of all accountants, without entry points that cannot be loaded, in table order."""
    for name in ACCOUNTANTS.names():
        with suppress(InputError):
            ACCOUNTANTS.get(name)
    return [name for name in ACCOUNTANTS.names() if ACCOUNTANTS.is_loaded(name)]


def fast_accountants() -> list[str]:
    """Names of the accountants that need no other library; the rest are second opinions."""
    return [
        name for name in loadable_accountants() if accountant(name).kind != KINDS[-1]
    ]


def second_opinions() -> list[str]:
    """Names of the accountants of other libraries."""
    return [
        name for name in loadable_accountants() if accountant(name).kind == KINDS[-1]
    ]


def outwards(value: float, up: bool, digits: int = 0) -> float:
    """A bound rounded outwards: to so many digits, or to four decimals and five digits at least."""
    if not 0 < value < math.inf:
        return value
    first = math.floor(math.log10(value))
    scale = 10.0 ** (digits - 1 - first if digits else max(4, 4 - first))
    return (math.ceil if up else math.floor)(value * scale) / scale


def at_most(value: float, digits: int = 0) -> str:
    """An upper bound on epsilon, rounded up as ``outwards`` does."""
    return (
        f"{outwards(value, True, digits):.12g}"
        if digits or value < math.inf
        else "no bound"
    )
