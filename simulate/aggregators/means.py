"""Aggregators of sums: weighted sums of the releases, and post-processing of them.

The weights are the plain mean over the expected cohort, those of GDPFed+'s Algorithm 1 (as its
Appendix B.2 prints them), the weighted mean of the groups' mean updates, or proportional to
epsilon. Top-k (Algorithm 3 of GDPFed+), the shift of DP-FedPGN and the update of an adaptive
clipping norm are post-processing, so they have no privacy cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from privplan.plan import Clipping, GroupPlan, Plan
from privplan.planning import weights
from simulate.components import Aggregator, Released, State
from simulate.server import pseudo_gradient_step
from simulate.transforms import NORM, count_scale, keep_largest


def weighted_sum(releases: Sequence[Released], theta: Tensor, state: State) -> tuple[Tensor, State]:
    """Returns the sum of the releases [k], each times the weight in its ledger line.

    Args:
        releases: all releases of a round; the groups within one release share one weight.
        theta: global vector [d]; not used.
        state: the server's state; not changed.
    """
    parts = [part.record.shares[0].weight * part.vector for part in releases]
    return torch.stack(parts).sum(0), state


def mean() -> Aggregator:
    """Every sum times 1 / sum_m s_m r_m, with s_m the group's scale (1 unless planned).

    One factor for all groups, so it also serves a joint sum, where a client of group m counts
    s_m times.
    """
    return Aggregator("mean", weights.mean, weighted_sum)


def literal() -> Aggregator:
    """Each group's sum times w_m / (q n), with w_m summing to 1 and q n the expected cohort.

    The factors on a client's mean update add up to sum_m w_m r_m / (q n), which is below 1
    (1/3 for three equal groups): the server's step is that much shorter than a mean.
    """
    return Aggregator("literal", weights.literal, weighted_sum)


def normalised() -> Aggregator:
    """Each group's sum times w_m / r_m: the weights on mean updates add up to 1."""
    return Aggregator("normalised", weights.normalised, weighted_sum)


def by_epsilon() -> Aggregator:
    """Each group's sum times epsilon_m / sum_j epsilon_j r_j, with r the expected cohorts.

    The weight of a group's mean update is epsilon_m r_m / sum_j epsilon_j r_j; these add up to 1.
    """

    def weight(group: GroupPlan, plan: Plan) -> float:
        return group.epsilon / sum(other.epsilon * other.expected_cohort for other in plan.groups)

    return Aggregator("by epsilon", weight, weighted_sum)


def top_k(inner: Aggregator) -> Aggregator:
    """Sparsify each group's released sum by the group's ``kept_fraction``, then combine.

    Args:
        inner: aggregator of the sparse sums.
    """

    def combine(releases: Sequence[Released], theta: Tensor, state: State) -> tuple[Tensor, State]:
        sparse = [
            replace(part, vector=keep_largest(part.vector, part.groups[0].kept_fraction))
            for part in releases
        ]
        return inner.combine(sparse, theta, state)

    return Aggregator(f"top-k, {inner.name}", inner.weight, combine, inner.start)


def add_shift(inner: Aggregator, share: float, decay: float) -> Aggregator:
    """Combine the releases, then add the vector that ``shift`` subtracted (DP-FedPGN, line 14).

    Args:
        inner: aggregator of the releases; its weights on updates add up to 1.
        share: share of the pseudo-gradient in local steps, 1 - beta.
        decay: factor on the local learning rate per round.
    """

    def combine(releases: Sequence[Released], theta: Tensor, state: State) -> tuple[Tensor, State]:
        step, after = inner.combine(releases, theta, state)
        return step + share * pseudo_gradient_step(state, decay), after

    return Aggregator(f"unshifted {inner.name}", inner.weight, combine, inner.start)


def at_plan_norm(inner: Aggregator, plan: Plan) -> Aggregator:
    """The aggregator of sums that ``plan_clip`` bounded.

    Args:
        inner: aggregator of the sums of clipped updates.
        plan: the plan; without adaptive clipping the result is ``inner``.
    """
    return inner if plan.clipping is None else adaptive_clipping(inner, plan, plan.clipping)


def adaptive_clipping(inner: Aggregator, plan: Plan, clipping: Clipping) -> Aggregator:
    """Multiply the inner step by the clipping norm C, and update C by the noisy counts.

    C becomes C exp(-learning_rate (b - quantile)), with b the noisy share of the expected cohort,
    weighted as its updates are, whose updates have norm at most C (Andrew et al., Section 2.1).
    The counts, the last coordinate of each release, do not enter ``inner``.

    Args:
        inner: aggregator of the sums without their counts, in units of C; its step is multiplied
            by a positive factor if the sums are.
        plan: the plan.
        clipping: the plan's adaptive clipping.
    """
    scale_of_count = count_scale(clipping)

    def start(theta: Tensor) -> State:
        first = torch.tensor(plan.spec.clipping_norm, dtype=torch.float64, device=theta.device)
        return {NORM: first, **inner.start(theta)}

    def combine(releases: Sequence[Released], theta: Tensor, state: State) -> tuple[Tensor, State]:
        counts, _ = weighted_sum(
            [replace(one, vector=one.vector[-1:]) for one in releases], theta, state
        )
        sums = [replace(one, vector=one.vector[:-1]) for one in releases]
        step, state = inner.combine(sums, theta, state)
        share = 0.5 + counts[0].double() / scale_of_count / _expected_weight(plan, releases)
        moved = torch.exp(-clipping.learning_rate * (share - clipping.quantile))
        norm = state[NORM]
        return step * norm.to(step.dtype), {**state, NORM: norm * moved}

    return Aggregator(f"following clip, {inner.name}", inner.weight, combine, start)


def _expected_weight(plan: Plan, releases: Sequence[Released]) -> float:
    """Sum over the expected cohorts of the factors on the clients' clipped updates.

    1 up to rounding where the weights make a mean; GDPFed+ prints smaller ones.
    """
    return sum(
        part.record.shares[0].weight
        * sum(one.scale * plan.clip_factor(one) * one.expected_cohort for one in part.groups)
        for part in releases
    )
