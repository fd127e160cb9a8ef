"""Clipping: shorten each update to a bound on its L2 norm.

A clipping norm that follows a private quantile of the updates' norms.

G. Andrew, O. Thakkar, H. B. McMahan, S. Ramaswamy, Differentially Private Learning with Adaptive
Clipping, NeurIPS 2021.

A random mask, drawn anew in each round without looking at data.

Scaling: each group's updates by the group's own factor.

The shift of DP-FedPGN: take what everybody knows off an update before it is clipped.

Sparsification of each update by its own largest coordinates.

Steps on each client's update before it is summed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from privplan.plan import Clipping, GroupPlan
from simulate.components import Transform, TransformContext
from simulate.norms import ROUNDING, norms, single
from simulate.server import carried


def clip(norm: float) -> Transform:
    """Scale each update by min(1, norm / its own norm).

    An update that is short enough is left as it is, bit for bit. One that is shortened lands
    within 5e-7 of the bound, relatively, and never above it.

    Args:
        norm: the bound C, in the units of an update, above 0.
    """
    return _to("clip", lambda group: norm)


def own_clip(norm: float) -> Transform:
    """Clip each group's updates to the group's own bound, as in individualised privacy.

    Args:
        norm: the bound of groups that have no ``clipping_norm`` of their own, above 0.
    """
    return _to("own_clip", lambda group: group.clipping_norm or norm)


def _to(name: str, norm_of: Callable[[GroupPlan], float]) -> Transform:
    """Clipping to a bound that depends on the group."""

    def apply(updates: Tensor, context: TransformContext) -> tuple[Tensor, Tensor | None]:
        return shortened(updates, norm_of(context.group))

    def bound(before: float | None, group: GroupPlan) -> float:
        return norm_of(group) if before is None else min(before, norm_of(group))

    return Transform(name, apply, bound)


def shortened(updates: Tensor, norm: float) -> tuple[Tensor, Tensor]:
    """Updates [K, k] whose norms are at most a bound, and which were shortened [K]."""
    found = norms(updates)
    long = found > norm
    factor = torch.where(long, norm * (1 - ROUNDING) / found, 1.0)
    return updates * single(factor)[:, None], long


NORM = "clipping_norm"
"""Name of the current clipping norm in the server's state, a single number."""


def price(clipping: Clipping) -> float:
    """What the count's coordinate is multiplied by, in units of the clipping norm.

    One Gaussian of equal noise on update / C and on the count times this is the plan's pair.
    """
    return clipping.update_noise_multiplier / clipping.count_noise_multiplier


def adaptive_clip(clipping: Clipping) -> Transform:
    """Clip to the norm of the round, in units of that norm, and count who was short enough.

    The update becomes one of d + 1 coordinates: clip_C(update) / C, and the price times the
    indicator of |update| <= C less a half. C is the server's: it comes from earlier releases.

    Args:
        clipping: how the plan pays for the count.
    """
    worth = price(clipping)

    def apply(updates: Tensor, context: TransformContext) -> tuple[Tensor, Tensor | None]:
        norm = context.server[NORM].to(updates.device)
        norms = torch.linalg.vector_norm(updates, dim=1, dtype=torch.float64)
        long = norms > norm
        factor = (1 - ROUNDING) / torch.where(long, norms, norm)
        counted = torch.where(long, -0.5, 0.5) * worth * (1 - ROUNDING)
        unit = updates * factor.to(updates.dtype)[:, None]
        return torch.cat([unit, counted.to(updates.dtype)[:, None]], 1), long

    def bound(before: float | None, group: GroupPlan) -> float:
        return clipping.bound

    return Transform("following_clip", apply, bound, extra=1)


def random_mask(kept: float) -> Transform:
    """Release only a uniformly drawn part of the coordinates; noise goes only there.

    Args:
        kept: fraction of the coordinates that are released, in (0, 1].
    """

    def support(generator: np.random.Generator, dimension: int) -> Tensor:
        size = max(1, round(kept * dimension))
        chosen = generator.choice(dimension, size=size, replace=False, shuffle=False)
        return torch.from_numpy(np.sort(chosen))

    def apply(updates: Tensor, context: TransformContext) -> tuple[Tensor, Tensor | None]:
        return updates, None

    def bound(before: float | None, group: GroupPlan) -> float | None:
        return before

    return Transform("random_mask", apply, bound, support)


def scale() -> Transform:
    """Multiply by the group's ``scale``, as in individualised privacy in one joint sum.

    A bound on the update scales with it.
    """

    def apply(updates: Tensor, context: TransformContext) -> tuple[Tensor, Tensor | None]:
        factor = context.group.scale
        return (updates if factor == 1 else updates * (factor * (1 - ROUNDING))), None

    def bound(before: float | None, group: GroupPlan) -> float | None:
        return None if before is None else before * group.scale

    return Transform("scale", apply, bound)


def shift(share: float, decay: float) -> Transform:
    """Subtract ``share`` of where the pseudo-gradient carries in this round (line 11).

    The vector is made of earlier releases and is the same for all clients, so it reveals nothing
    and needs no budget. It may lengthen an update: the bound is left to clipping.

    Args:
        share: share of the pseudo-gradient in local steps, 1 - beta.
        decay: factor on the local learning rate from a round to the next.
    """

    def apply(updates: Tensor, context: TransformContext) -> tuple[Tensor, Tensor | None]:
        return updates - share * carried(context.server, decay), None

    def bound(before: float | None, group: GroupPlan) -> float | None:
        return None

    return Transform("shift", apply, bound)


def sparsify(kept: float) -> Transform:
    """Set all but the largest coordinates of each update to zero.

    Which coordinates stay depends on the client's data, so every coordinate is released and
    noised all the same.

    Args:
        kept: fraction of the coordinates that stay, in (0, 1].
    """

    def apply(updates: Tensor, context: TransformContext) -> tuple[Tensor, Tensor | None]:
        return keep_largest(updates, kept), None

    def bound(before: float | None, group: GroupPlan) -> float | None:
        return before

    return Transform("sparsify", apply, bound)


def keep_largest(vector: Tensor, kept: float) -> Tensor:
    """The vector with all but its largest coordinates in absolute value set to zero.

    Args:
        vector: [k], or several of them [K, k].
        kept: fraction of the coordinates that stay, in (0, 1]; at least one does.
    """
    size = vector.shape[-1]
    dropped = size - max(1, round(kept * size))
    if dropped <= 0:
        return vector
    smallest = torch.topk(vector.abs(), dropped, largest=False, sorted=False).indices
    return vector.scatter(-1, smallest, 0.0)
