"""The interface of accountants, their bounds on epsilon, and their registry.

A module is imported when its accountant is asked for, so a command that needs one
accountant does not wait for the libraries of the others.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from typing import Any, NoReturn, Protocol, cast

from privplan.accounting.release import History, Relation
from privplan.errors import InputError, UnsupportedError
from privplan.guidance import Guided, explained_call
from privplan.registry import Registry
from privplan.values import SMALLEST


class Bounded(Guided):
    """A number that is known by bounds; ``float`` is the upper one.

    It is below what its upper bound is below. Whether it is above a number the bounds
    may leave open, so that this is refused: False would read as a proof.
    """

    def __float__(self) -> float:
        raise NotImplementedError

    def __le__(self, other: Any) -> Any:
        if isinstance(other, Real):
            return float(self) <= cast("float", other)
        return NotImplemented

    def __lt__(self, other: Any) -> Any:
        if isinstance(other, Real):
            return float(self) < cast("float", other)
        return NotImplemented

    def __gt__(self, other: Any) -> Any:
        if isinstance(other, Real):
            self._refuse(">", other)
        return NotImplemented

    def __ge__(self, other: Any) -> Any:
        if isinstance(other, Real):
            self._refuse(">=", other)
        return NotImplemented

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Real):
            self._refuse("==", other)
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        if isinstance(other, Real):
            self._refuse("!=", other)
        return super().__ne__(other)

    def __hash__(self) -> int:
        return super().__hash__()

    def _refuse(self, sign: str, number: object) -> NoReturn:
        bound = "upper" if isinstance(self, Interval) else "epsilon"
        kind = type(self).__name__
        raise TypeError(
            f"{kind} has a lower and an upper bound; write .{bound} {sign} {number}, or "
            f"<= {number}"
        )


@dataclass(frozen=True, eq=False)
class Interval(Bounded):
    """Bounds on the smallest epsilon at a given delta; ``lower <= upper``.

    An accountant without a lower bound returns 0 there, which is always a bound.
    """

    lower: float
    upper: float

    def __float__(self) -> float:
        return self.upper

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Interval):
            return (self.lower, self.upper) == (other.lower, other.upper)
        return super().__eq__(other)

    def __hash__(self) -> int:
        return hash((self.lower, self.upper))

    def __add__(self, other: object) -> NoReturn:
        rule = "epsilons are not added; write privplan.account(history + other_history"
        raise TypeError(f"{rule}, delta=1e-5), which composes what both are of")

    __radd__ = __add__


class Accountant(Protocol):
    """Bounds the epsilon of a history.

    Attributes:
        name: as specs and tables write it, for example ``pld``.
        version: library and version that compute the answer.
        kind: ``two-sided bound``, ``upper bound``, ``second opinion``,
            ``approximation`` or ``published formula`` (a bound only under its
            conditions).
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
        """One line on why a law, relation or noise is not supported; None if it is."""
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
    if not SMALLEST <= delta < 1:
        # The smallest delta is named only to whom it matters.
        bounds = "[1e-30, 1)" if 0 < delta < SMALLEST else "(0, 1)"
        raise InputError.one("delta", f"must be in {bounds}", delta)
    return delta


# Above it a delta is at least 1/n for every population of a hundred or more.
_LARGE_DELTA = 0.01


def delta_warnings(
    delta: float, population: int | None, unit: str = "client"
) -> list[str]:
    """A line for a delta that publishing the data of one unit would keep."""
    if population is not None and delta >= 1 / population:
        return [
            f"delta {delta:g} is not below 1/{unit}s = {1 / population:.4g}: a "
            f"mechanism that publishes one {unit} at random would pass; "
            f"{unit}s^-1.1 is {population**-1.1:.4g}"
        ]
    if population is None and delta >= _LARGE_DELTA:
        return [
            f"delta {delta:g} is large: for {math.ceil(1 / delta)} {unit}s or more a "
            "mechanism that publishes one of them at random would pass"
        ]
    return []


def checked_relation(relation: object) -> Relation:
    """A neighbouring relation from its name."""
    if relation not in tuple(Relation):
        raise InputError.one(
            "relation", f"must be one of {', '.join(Relation)}", relation
        )
    return Relation(str(relation))


def check_supported(
    accountant: Accountant, history: History, delta: float, relation: Relation
) -> None:
    """Raise where an accountant does not answer."""
    checked_delta(delta)
    reason = accountant.why_not(history, relation)
    if reason is not None:
        raise UnsupportedError(f"{accountant.name}: {reason}")


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
    instance = component() if isinstance(component, type) else component
    attributes = ("name", "version", "guarantee")
    missing = [name for name in attributes if not hasattr(instance, name)]
    if missing:
        raise TypeError(
            f"must have the attributes of an accountant, lacks {', '.join(missing)}"
        )
    if getattr(instance, "kind", None) not in KINDS:
        raise TypeError(f"must have a kind, one of {', '.join(KINDS)}")
    return cast(Accountant, instance)


ACCOUNTANTS: Registry[Accountant] = Registry(
    "accountant",
    "privplan.accountants",
    "privplan.accounting",
    _accountant,
    order=lambda accountant: (KINDS.index(accountant.kind), accountant.name),
)
"""Accountants by name; each registers itself in its own module, with its default settings."""


@explained_call
def accountant(name: str) -> Accountant:
    """The accountant of that name, with its default settings.

    Raises:
        InputError: when no accountant has that name; the message lists those that do.
    """
    return ACCOUNTANTS.get(name)


def loadable_accountants() -> list[str]:
    """Names of all accountants that can be loaded, in the order of tables."""
    for name in ACCOUNTANTS.names():
        with suppress(InputError):
            ACCOUNTANTS.get(name)
    return [name for name in ACCOUNTANTS.names() if ACCOUNTANTS.is_loaded(name)]


def fast_accountants() -> list[str]:
    """Names of the accountants that need no other library, unlike second opinions."""
    return [
        name for name in loadable_accountants() if accountant(name).kind != KINDS[-1]
    ]


def second_opinions() -> list[str]:
    """Names of the accountants of other libraries."""
    return [
        name for name in loadable_accountants() if accountant(name).kind == KINDS[-1]
    ]


def outwards(value: float, up: bool, digits: int = 0) -> float:
    """A bound rounded outwards; 0 and infinity stay as they are.

    Args:
        value: a bound.
        up: whether it is an upper bound, rounded up; rounded down otherwise.
        digits: how many are left; four decimals and five digits at least, if 0.
    """
    if not 0 < value < math.inf:
        return value
    exponent = math.floor(math.log10(value))
    decimals = digits - 1 - exponent if digits else max(4, 4 - exponent)
    scale = 10.0**decimals
    if up:
        rounded = math.ceil(value * scale)
    else:
        rounded = math.floor(value * scale)
    return rounded / scale


def at_most(value: float, digits: int = 0) -> str:
    """An upper bound on epsilon, rounded up as ``outwards`` does."""
    if not digits and not value < math.inf:
        return "no bound"
    return f"{outwards(value, True, digits):.12g}"
