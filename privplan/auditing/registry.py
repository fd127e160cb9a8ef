"""Empirical lower bounds on epsilon, from canaries in a run: one file a method, one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from privplan.auditing import f_dp, gaussian, one_run

Kind = Literal["bound", "bound if Gaussian", "estimate"]
Answer = Callable[[np.ndarray, np.ndarray, float, float], float]
"""(scores [m], which canaries were in [m], delta, confidence) to epsilon."""


@dataclass(frozen=True)
class Auditor:
    """A way to hear from canaries what was spent.

    Attributes:
        answer: the method.
        kind: what its answer is: a lower bound whatever the mechanism is, one that holds where
            its trade-off curve is a Gaussian's, or no bound at all.
    """

    answer: Answer
    kind: Kind


AUDITORS: MappingProxyType[str, Auditor] = MappingProxyType(
    {
        "one run": Auditor(one_run.lower_bound, "bound"),
        "f-DP": Auditor(f_dp.lower_bound, "bound"),
        "f-DP, Gaussian": Auditor(f_dp.lower_bound_if_gaussian, "bound if Gaussian"),
        "Gaussian": Auditor(gaussian.lower_bound, "bound if Gaussian"),
        "one-shot": Auditor(gaussian.estimate, "estimate"),
    }
)
