"""The registry of auditors: bounds on epsilon from below by scores of canaries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from privplan.auditing.error_rates import gaussian
from privplan.auditing.f_dp import f_dp, f_dp_gaussian
from privplan.auditing.one_run import one_run
from privplan.registry import Registry, instance_of

Kind = Literal["bound", "bound if Gaussian"]
Answer = Callable[[np.ndarray, np.ndarray, float, float], float]
"""Epsilon of (scores [m], inclusion of canaries [m], delta, confidence)."""
# Order of an auditor that declares none: after all auditors of this project.
LAST = 1_000


@dataclass(frozen=True)
class Auditor:
    """A lower bound on epsilon by scores of canaries; more confidence never raises it.

    Attributes:
        answer: the method.
        kind: whether the result is a lower bound for any mechanism, or only if the
            mechanism's trade-off curve is that of a Gaussian.
        order: verdicts list auditors by increasing order.
    """

    answer: Answer
    kind: Kind
    order: int = LAST


AUDITORS: Registry[Auditor] = Registry(
    "auditor", "privplan.auditors", check=instance_of(Auditor)
)

AUDITORS.register("one run", Auditor(one_run, "bound", order=10))
AUDITORS.register("f-DP", Auditor(f_dp, "bound", order=20))
AUDITORS.register(
    "f-DP, Gaussian", Auditor(f_dp_gaussian, "bound if Gaussian", order=30)
)
AUDITORS.register("Gaussian", Auditor(gaussian, "bound if Gaussian", order=40))


def auditors() -> dict[str, Auditor]:
    """All auditors by name, in their order."""
    return dict(sorted(AUDITORS.items(), key=lambda item: item[1].order))
