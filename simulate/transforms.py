"""Transforms of each client's update before it is summed.

Clipping to a fixed or an adaptive norm (G. Andrew, O. Thakkar, H. B. McMahan, S.
Ramaswamy, Differentially Private Learning with Adaptive Clipping, NeurIPS 2021),
scaling per group, the shift of DP-FedPGN, random masks drawn without data, and
sparsification by magnitude.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from privplan.plan import Clipping, GroupPlan, Plan
from simulate.components import Transform, TransformContext, Transformed
from simulate.norms import ROUNDING, Measured, norms, single
from simulate.server import pseudo_gradient_step


def _unchanged(before: float | None, group: GroupPlan) -> float | None:
    return before


def plan_clip(plan: Plan) -> Transform:
    """Clip to the plan's norm: fixed, each group's own, or by a private quantile."""
    norm = plan.spec.clipping_norm
    if plan.clipping is not None:
        return adaptive_clip(plan.clipping, norm)
    if any(group.clipping_norm is not None for group in plan.groups):
        return own_clip(norm)
    return clip(norm)


def clip(norm: float) -> Transform:
    """Scale each update by min(1, norm / its own norm).

    An update within the bound is not changed, bit for bit. The norm of a clipped update
    is within a relative distance of 5e-7 of the bound, never above it.
    """
    return _clip_to("clip", lambda group: norm)


def own_clip(norm: float) -> Transform:
    """Clip each group's updates to its own norm, as in individualised privacy.

    Args:
        norm: of the groups that have none.
    """
    return _clip_to("own_clip", lambda group: group.clipping_norm or norm)


def _clip_to(name: str, norm_of: Callable[[GroupPlan], float]) -> Transform:
    """A transform that clips to a bound that depends on the group."""

    def apply(updates: Tensor, context: TransformContext) -> Transformed:
        return shortened(updates, norm_of(context.group), context.measured)

    def bound(before: float | None, group: GroupPlan) -> float:
        if before is None:
            return norm_of(group)
        return min(before, norm_of(group))

    return Transform(name, apply, bound)


def shortened(
    updates: Tensor, norm: float, measured: Measured | None = None
) -> tuple[Tensor, Tensor]:
    """Updates [K, k] clipped to a norm, and whether each was clipped [K]."""
    if measured is None:
        lengths = norms(updates)
    else:
        lengths = measured.norms_of(updates)
    is_clipped = lengths > norm
    factors = single(torch.where(is_clipped, norm * (1 - ROUNDING) / lengths, 1.0))
    return updates * factors[:, None], is_clipped


# Key of the current clipping norm, a scalar, in the server's state.
NORM = "clipping_norm"


def count_scale(clipping: Clipping) -> float:
    """Factor on the count's coordinate, in clipping norms.

    With it, noise of one size serves the update and the count.
    """
    return clipping.update_noise_multiplier / clipping.count_noise_multiplier


def adaptive_clip(clipping: Clipping, first: float | None = None) -> Transform:
    """Clip to the norm C of the round, divide by C, and append the scaled count.

    The result has d + 1 coordinates: clip_C(update) / C, and ``count_scale`` times (the
    indicator of |update| <= C minus 1/2). C is part of the server's state and depends
    only on earlier releases. The clients of a group with its own clipping norm C_m have
    C C_m / C_1 for C, and the result is multiplied by C_m / C_1.

    Args:
        clipping: how C follows the quantile.
        first: C_1, the plan's clipping norm.
    """
    scale_of_count = count_scale(clipping)

    def share(group: GroupPlan) -> float:
        if group.clipping_norm is None or first is None:
            return 1.0
        return group.clipping_norm / first

    def apply(updates: Tensor, context: TransformContext) -> Transformed:
        group_share = share(context.group)
        norm = context.server[NORM].to(updates.device) * group_share
        norms = torch.linalg.vector_norm(updates, dim=1, dtype=torch.float64)
        is_clipped = norms > norm

        # Factors and products are rounded down, so that rounding breaks no bound.
        factor = (1 - ROUNDING) / torch.where(is_clipped, norms, norm)
        indicator = torch.where(is_clipped, -0.5, 0.5) * scale_of_count * (1 - ROUNDING)
        unit = updates * factor.to(updates.dtype)[:, None]
        sent = torch.cat([unit, indicator.to(updates.dtype)[:, None]], 1)
        if group_share != 1:
            sent = sent * (group_share * (1 - ROUNDING))
        return sent, is_clipped

    return Transform(
        "following_clip",
        apply,
        lambda before, group: clipping.bound * share(group),
        extra=1,
    )


def random_mask(fraction: float) -> Transform:
    """Release only uniformly drawn coordinates; only these receive noise."""

    def support(generator: np.random.Generator, dimension: int) -> Tensor:
        size = max(1, round(fraction * dimension))
        chosen = generator.choice(dimension, size=size, replace=False, shuffle=False)
        return torch.from_numpy(np.sort(chosen))

    def apply(updates: Tensor, context: TransformContext) -> Transformed:
        return updates, None

    return Transform("random_mask", apply, _unchanged, support)


def scale() -> Transform:
    """Multiply by the group's ``scale``, and with it the bound on the update."""

    def apply(updates: Tensor, context: TransformContext) -> Transformed:
        factor = context.group.scale
        if factor != 1:
            updates = updates * (factor * (1 - ROUNDING))
        return updates, None

    def bound(before: float | None, group: GroupPlan) -> float | None:
        if before is None:
            return None
        return before * group.scale

    return Transform("scale", apply, bound)


def shift(share: float, decay: float) -> Transform:
    """Subtract ``share`` times the round's pseudo-gradient step (DP-FedPGN, line 11).

    The vector depends only on earlier releases and is equal for all clients, so it has
    no privacy cost. It may increase an update's norm, so clipping must follow.
    """

    def apply(updates: Tensor, context: TransformContext) -> Transformed:
        return updates - share * pseudo_gradient_step(context.server, decay), None

    return Transform("shift", apply, lambda before, group: None)


def sparsify(fraction: float) -> Transform:
    """Keep each update's largest coordinates.

    Data choose them, so all coordinates are released, and all have noise.
    """

    def apply(updates: Tensor, context: TransformContext) -> Transformed:
        return keep_largest(updates, fraction), None

    return Transform("sparsify", apply, _unchanged)


def keep_largest(vector: Tensor, fraction: float) -> Tensor:
    """A vector with all but its largest coordinates in absolute value set to zero."""
    size = vector.shape[-1]
    zeroed = size - max(1, round(fraction * size))
    if zeroed <= 0:
        return vector
    smallest = torch.topk(vector.abs(), zeroed, largest=False, sorted=False).indices
    return vector.scatter(-1, smallest, 0.0)
