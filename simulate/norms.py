"""Norms and sums of updates in double precision, and clipping factors in single precision."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK_VALUES = (
    2**17
)  # values that a CPU converts to double at a time: 1 MB, which fits caches


def norms(updates: Tensor) -> Tensor:
    """The L2 norm of each update."""
    found = [
        torch.linalg.vector_norm(block, dim=1) for block in _double_blocks(updates)
    ]
    return found[0] if len(found) == 1 else torch.cat(found)


class Measured:
    """Norms of updates [K, k], known for this tensor until it is changed."""

    def __init__(self, updates: Tensor) -> None:
        self.norms = norms(updates)
        self._updates, self._version = updates, updates._version

    def norms_of(self, updates: Tensor) -> Tensor:
        """The norms of updates [K], float64: measured anew unless they are these, unchanged."""
        same = updates is self._updates and updates._version == self._version
        return self.norms if same else norms(updates)


def add_sum(total: Tensor, updates: Tensor) -> None:
    """Add the sum of the updates to a total."""
    if updates.device.type == "cpu" and updates.shape[1] > BLOCK_VALUES:
        for row in updates:  # a sum over one row would only copy it
            parts = (torch.split(whole, BLOCK_VALUES) for whole in (total, row))
            for part, values in zip(*parts, strict=True):
                part.add_(values)
        return
    for block in _double_blocks(updates):
        total.add_(block.sum(0))


def add_grid_sum(
    total: Tensor, updates: Tensor, lengths: Tensor, bound: float, grid: float
) -> None:
    """Add the sum of the updates to a total, each rounded towards zero to a grid (exact).

    Rounding towards zero lengthens no update, and sums of fewer than 2^53 steps are exact, so one
    client moves the total by a whole number of steps in each coordinate and by ``bound`` at most.
    """
    most = bound * (1 - 2.0**-30)
    factor, done = torch.where(lengths > most, most / lengths, 1.0), 0
    for block in _double_blocks(updates):
        block = block * factor[done : done + len(block), None]
        done += len(block)
        total.add_(block.div_(grid).trunc_().sum(0), alpha=grid)


def _double_blocks(updates: Tensor) -> Iterator[Tensor]:
    """The updates in double precision, in blocks of rows on a CPU."""
    on_cpu = updates.device.type == "cpu"
    rows = BLOCK_VALUES // max(1, updates.shape[1]) if on_cpu else len(updates)
    if len(updates) <= rows:
        yield updates.double()
        return
    for block in torch.split(updates, max(1, rows)):
        yield block.double()


ROUNDING = 2.0**-22
"""Relative margin on a factor in single precision, so that rounding cannot break a bound.

Multiplying a vector by a factor in single precision moves its norm by at most 2^-24 for the
factor and 2^-24 for the products, relatively; the margin is twice both together.
"""


def factors(norms: Tensor, bound: float) -> Tensor:
    """Clipping factors: 1 up to the bound, 0 for a norm that is not finite."""
    factor = torch.where(norms > bound, bound * (1 - ROUNDING) / norms, 1.0)
    return single(torch.where(norms.isfinite(), factor, 0.0))


def single(factor: Tensor) -> Tensor:
    """Factors in single precision, rounded down where they are subnormal and lose digits."""
    rounded = factor.float()
    subnormal = rounded < torch.finfo(torch.float32).tiny
    return torch.where(
        subnormal, torch.nextafter(rounded, torch.zeros_like(rounded)), rounded
    )
