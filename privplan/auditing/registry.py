"""Auditors: methods that bound or estimate epsilon from the scores of canaries.

A module of this package registers its methods with ``register``; other distributions declare an
entry point of the group ``privplan.auditors``, whose value is an ``Auditor``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from privplan.registry import Registry

Kind = Literal["bound", "bound if Gaussian", "estimate"]
Answer = Callable[[np.ndarray, np.ndarray, float, float], float]
"""Epsilon of (scores [m], inclusion of canaries [m], delta, confidence)."""
LAST = 1_000
"""Order of an auditor that declares none: after all auditors of this project."""


@dataclass(frozen=True)
class Auditor:
    """A method that computes an empirical epsilon.

    More confidence must never raise a bound.

    Attributes:
        answer: the method.
        kind: whether the result is a lower bound for any mechanism, a lower bound if the
            mechanism's trade-off curve is that of a Gaussian, or an estimate.
        order: verdicts list auditors by increasing order.
    """

    answer: Answer
    kind: Kind
    order: int = LAST


def _as_auditor(component: object) -> Auditor:
    """The auditor that an entry point names.

    Raises:
        TypeError: when it is not an auditor.
    """
    if not isinstance(component, Auditor):
        raise TypeError(f"must be an Auditor, found {type(component).__name__}")
    return component


AUDITORS: Registry[Auditor] = Registry(
    "auditor", "privplan.auditors", "privplan.auditing", _as_auditor
)


def register(name: str, kind: Kind, order: int) -> Callable[[Answer], Answer]:
    """A decorator that registers a method under a name."""

    def decorate(answer: Answer) -> Answer:
        AUDITORS.register(name, Auditor(answer, kind, order))
        return answer

    return decorate


def auditors() -> dict[str, Auditor]:
    """All auditors by name, in their order."""
    return dict(sorted(AUDITORS.items(), key=lambda item: item[1].order))
