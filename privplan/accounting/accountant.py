"""The one interface of every accountant, and what an accountant answers.

The table of accountants: a name, and where its accountant is made.

Modules are imported when their accountant is asked for, so that a command which needs
one accountant does not wait for the libraries of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Protocol, cast

from privplan.accounting.release import History, Relation
from privplan.errors import InputError


@dataclass(frozen=True)
class Interval:
    """Bounds on the smallest epsilon at a given delta; ``lower <= upper``.

    An accountant without a lower bound answers 0 there, which is always sound.
    """

    lower: float
    upper: float


class Accountant(Protocol):
    """Answers how much epsilon a history costs.

    Attributes:
        name: the word that specs and tables use, for example ``pld``.
        version: library and version that compute the answer.
        kind: ``two-sided bound``, ``upper bound``, ``second opinion``,
            ``approximation`` or ``published formula`` (a bound only under its conditions).
        guarantee: whether plans may rest their promise on ``upper``.
    """

    name: str
    version: str
    kind: str
    guarantee: bool

    def why_not(self, history: History, relation: Relation) -> str | None:
        """One line saying why the cell is not supported; None when it is."""
        ...

    def epsilon(self, history: History, delta: float, relation: Relation) -> Interval:
        """Bounds on epsilon at ``delta`` under ``relation``.

        Raises:
            UnsupportedError: when ``why_not`` gives a reason.
            InputError: when delta is not in (0, 1).
        """
        ...


def checked_delta(delta: float) -> float:
    """``delta`` itself when it is in (0, 1).

    Raises:
        InputError: when it is not.
    """
    if not 0 < delta < 1:
        raise InputError.one("delta", "must be in (0, 1)", delta)
    return delta


ACCOUNTANTS: dict[str, str] = {
    "pld": "privplan.accounting.pld.accountant:PldAccountant",
    "rdp": "privplan.accounting.rdp:RdpAccountant",
    "closed_form": "privplan.accounting.closed_form:ClosedFormAccountant",
    "gdp": "privplan.accounting.gdp:GdpAccountant",
    "prv": "privplan.accounting.external_prv:PrvAccountant",
    "dp_accounting": "privplan.accounting.external:DpAccountingAccountant",
    "opacus": "privplan.accounting.external:OpacusAccountant",
}
"""Name -> ``module:class``; the class is made without arguments."""


@cache
def accountant(name: str) -> Accountant:
    """The accountant of that name, with its default settings.

    Raises:
        InputError: when no accountant has that name; the message lists those that do.
    """
    if name not in ACCOUNTANTS:
        raise InputError.one("accountant", f"must be one of {', '.join(ACCOUNTANTS)}", name)
    module, _, attribute = ACCOUNTANTS[name].partition(":")
    return cast(Accountant, getattr(import_module(module), attribute)())
