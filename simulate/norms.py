"""Norms and sums of updates in double precision, clipping factors in single."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

# Values that a CPU converts to double at a time: 1 MB, which fits caches. Larger blocks
# are new memory each time, so that a round's norms take 1.4 times as long.
BLOCK_VALUES = 2**17
# A norm is shortened to this share of a bound before it is rounded to a grid, so that
# rounding cannot break the bound.
BELOW_BOUND = 1 - 2.0**-30


def norms(updates: Tensor) -> Tensor:
    """The L2 norm of each update [K, k]: [K], float64."""
    of_blocks = [
        torch.linalg.vector_norm(block, dim=1) for block in _double_blocks(updates)
    ]
    return of_blocks[0] if len(of_blocks) == 1 else torch.cat(of_blocks)


class Measured:
    """Norms of updates [K, k], known for this tensor until it is changed."""

    def __init__(self, updates: Tensor) -> None:
        self.norms = norms(updates)
        self._updates = updates
        self._version = updates._version  # PyTorch counts changes in place

    def norms_of(self, updates: Tensor) -> Tensor:
        """The norms of updates [K], float64: those measured, if nothing changed."""
        same = updates is self._updates and updates._version == self._version
        if same:
            return self.norms
        return norms(updates)


def add_sum(total: Tensor, updates: Tensor) -> None:
    """Add the sum of the updates [K, k] to a total [k], float64."""
    if updates.device.type == "cpu" and updates.shape[1] > BLOCK_VALUES:
        for row in updates:  # a sum over one row would only copy it
            blocks = (torch.split(vector, BLOCK_VALUES) for vector in (total, row))
            for total_block, values in zip(*blocks, strict=True):
                total_block.add_(values)
        return
    for block in _double_blocks(updates):
        total.add_(block.sum(0))


def add_grid_sum(
    total: Tensor, updates: Tensor, lengths: Tensor, bound: float, grid: float
) -> None:
    """Add the sum of updates to a total, each rounded towards zero to a grid.

    Rounding towards zero lengthens no update, and sums of fewer than 2^53 steps are
    exact, so one client moves the total by a whole number of steps in each coordinate
    and by ``bound`` at most.

    Args:
        total: of all updates so far [k], float64.
        updates: to add [K, k].
        lengths: their norms [K].
        bound: on the norm of what is added for one update.
        grid: the step.
    """
    longest = bound * BELOW_BOUND
    factor = torch.where(lengths > longest, longest / lengths, 1.0)
    done = 0  # updates that were added
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
"""Relative margin on a factor in single precision: rounding cannot break a bound.

Multiplying a vector by a factor in single precision moves its norm by at most 2^-24 for
the factor and 2^-24 for the products, relatively; the margin is twice both together.
"""


def factors(norms: Tensor, bound: float) -> Tensor:
    """Clipping factors: 1 up to the bound, 0 for a norm that is not finite."""
    factor = torch.where(norms > bound, bound * (1 - ROUNDING) / norms, 1.0)
    return single(torch.where(norms.isfinite(), factor, 0.0))


def single(factor: Tensor) -> Tensor:
    """Factors in single precision, rounded down where they are subnormal.

    A subnormal number has fewer digits than the margin is made for.
    """
    rounded = factor.float()
    subnormal = rounded < torch.finfo(torch.float32).tiny
    below = torch.nextafter(rounded, torch.zeros_like(rounded))
    return torch.where(subnormal, below, rounded)
