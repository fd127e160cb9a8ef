"""Sums of clipped vectors, with the evidence of clipping that a ledger line holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

NEAR = 1e-5
"""Relative distance of a norm from the bound within which rounding may decide whether an update
counts as clipped: some ten times the error of a float32 sum of squares."""

Finish = Callable[[Tensor, bool], Tensor]
"""(clipped update, whether it exceeded the norm) to what enters the sum."""


def unchanged(sent: Tensor, exceeds: bool) -> Tensor:
    """The update itself."""
    return sent


class ClippedSum:
    """The sum [d] of clipped vectors, and the evidence of clipping for a ledger share.

    Args:
        bound: the largest norm; infinite without clipping.
        finish: changes a clipped vector, given whether it exceeded the bound.
    """

    def __init__(self, bound: float, finish: Finish = unchanged) -> None:
        self.bound = bound
        self.finish = finish
        self.total = torch.zeros((), dtype=torch.float64)
        self.near = 0  # vectors of which rounding decides whether they are clipped
        self.clipped = 0
        self.excluded = 0  # vectors that are not finite, which add nothing
        self.largest_norm = 0.0
        self.summed_norms = 0.0  # of what entered the sum
        # Of each vector without what is appended to it, and only where it is sent.
        self.norms_sent: list[float] = []
        self.is_sent: Tensor | None = None  # which coordinates are; all of them if None

    def add(self, vector: Tensor) -> None:
        """Add a vector [d]."""
        length = float(torch.linalg.vector_norm(vector, dtype=torch.float64))
        if not math.isfinite(length):
            self.excluded += 1
            return
        exceeds = length > self.bound
        shortened = vector.double() * min(1.0, self.bound / max(length, 1e-300))
        sent = self.finish(shortened, exceeds)
        self.clipped += exceeds
        self.near += abs(length / self.bound - 1) < NEAR
        norm = float(sent.norm())
        self.largest_norm = max(self.largest_norm, norm)
        self.summed_norms += norm
        update = sent[: len(vector)]
        if self.is_sent is not None:
            update = update * self.is_sent
        self.norms_sent.append(float(update.norm()))
        self.total = self.total + sent

    def is_within(self, rounding: float) -> bool:
        """Whether rounding hides the median of the vectors that are not zero."""
        added = [norm for norm in self.norms_sent if norm > 0]
        return bool(added) and median(added) <= rounding

    @property
    def evidence(self) -> dict[str, float]:
        """Its fields of a ledger share."""
        return {
            "clipped": self.clipped,
            "excluded": self.excluded,
            "largest_norm": self.largest_norm,
        }
