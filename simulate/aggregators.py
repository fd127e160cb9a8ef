"""Aggregators of sums: from the releases of a round to one step of the global model.

Means divide by a constant, the expected cohort, never by the realised cohort size. The
weights are the plain mean over the expected cohort, those of GDPFed+'s Algorithm 1 (as
its Appendix B.2 prints them), the weighted mean of the groups' mean updates, or
proportional to epsilon. Top-k (Algorithm 3 of GDPFed+), the shift of DP-FedPGN, the
update of an adaptive clipping norm and the solution of correlated noise are
post-processing, so they have no privacy cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from privplan.plan import Clipping, GroupPlan, Plan
from privplan.planning import factors
from simulate.components import Aggregator, Received, State, Step
from simulate.server import pseudo_gradient_step
from simulate.transforms import NORM, count_scale, keep_largest

# With a group's name, keys of the sums of its weights over the rounds, where weights
# follow from the updates.
WEIGHT = "weight of "
# Key of the last steps [B - 1, d] in the server's state, the latest first.
STEPS = "last_steps"


def weighted_sum(releases: Sequence[Received], theta: Tensor, state: State) -> Step:
    """The sum of the releases [k], each times its planned factor."""
    weighted = [received.factor * received.vector for received in releases]
    return torch.stack(weighted).sum(0), state


def mean() -> Aggregator:
    """Every sum times 1 / sum_m s_m r_m, one factor for all groups of scales s_m."""
    return Aggregator("mean", factors.mean, weighted_sum)


def literal() -> Aggregator:
    """Each group's sum times w_m / (q n), with w_m adding up to 1.

    With q n the expected cohort, the factors on a client's mean update add up to
    sum_m w_m r_m / (q n), which is below 1 (1/3 for three equal groups): the server's
    step is that much shorter than a mean.
    """
    return Aggregator("literal", factors.literal, weighted_sum)


def normalised() -> Aggregator:
    """Each group's sum times w_m / r_m: the weights on mean updates add up to 1."""
    return Aggregator("normalised", factors.normalised, weighted_sum)


def by_epsilon() -> Aggregator:
    """Each sum times epsilon_m / sum_j epsilon_j r_j, with r the expected cohorts."""

    def weight(group: GroupPlan, plan: Plan) -> float:
        return group.epsilon / sum(
            member.epsilon * member.expected_cohort for member in plan.groups
        )

    return Aggregator("by epsilon", weight, weighted_sum)


def top_k(inner: Aggregator) -> Aggregator:
    """Sparsify each group's sum by the group's ``kept_fraction``, then combine."""

    def combine(releases: Sequence[Received], theta: Tensor, state: State) -> Step:
        sparse = []
        for release in releases:
            fraction = release.groups[0].kept_fraction
            vector = keep_largest(release.vector, fraction)
            sparse.append(replace(release, vector=vector))
        return inner.combine(sparse, theta, state)

    return Aggregator(f"top-k, {inner.name}", inner.weight, combine, inner.start)


def add_shift(inner: Aggregator, share: float, decay: float) -> Aggregator:
    """Combine, then add what ``shift`` subtracted (DP-FedPGN, line 14)."""

    def combine(releases: Sequence[Received], theta: Tensor, state: State) -> Step:
        step, after = inner.combine(releases, theta, state)
        return step + share * pseudo_gradient_step(state, decay), after

    return Aggregator(f"unshifted {inner.name}", inner.weight, combine, inner.start)


def at_plan_norm(inner: Aggregator, plan: Plan) -> Aggregator:
    """The aggregator of sums that ``plan_clip`` bounded."""
    if plan.clipping is None:
        return inner
    return adaptive_clipping(inner, plan, plan.clipping)


def adaptive_clipping(inner: Aggregator, plan: Plan, clipping: Clipping) -> Aggregator:
    """Multiply the inner step by the clipping norm C, and update C by the noisy counts.

    C becomes C exp(-learning_rate (b - quantile)), with b the noisy share of the
    expected cohort, weighted as its updates are, whose updates have norm at most C
    (Andrew et al., Section 2.1). The counts, the last coordinate of each release, do
    not enter ``inner``.
    """
    scale_of_count = count_scale(clipping)

    def start(theta: Tensor) -> State:
        initial_norm = torch.tensor(
            plan.spec.clipping_norm, dtype=torch.float64, device=theta.device
        )
        return {NORM: initial_norm, **inner.start(theta)}

    def combine(releases: Sequence[Received], theta: Tensor, state: State) -> Step:
        counting = [
            replace(release, vector=release.vector[-1:]) for release in releases
        ]
        counts, _ = weighted_sum(counting, theta, state)
        sums = [replace(release, vector=release.vector[:-1]) for release in releases]
        step, state = inner.combine(sums, theta, state)

        # A client counts 1/2 up to C and -1/2 above: the share is 1/2 plus the mean.
        weight = _expected_weight(plan, releases)
        share = 0.5 + counts[0].double() / scale_of_count / weight
        change = torch.exp(-clipping.learning_rate * (share - clipping.quantile))
        norm = state[NORM]
        return step * norm.to(step.dtype), {**state, NORM: norm * change}

    return Aggregator(f"following clip, {inner.name}", inner.weight, combine, start)


def _expected_weight(plan: Plan, releases: Sequence[Received]) -> float:
    """Sum of the factors on clipped updates over the expected cohorts.

    It is 1 where the aggregator is a mean.
    """
    total: float = 0
    for release in releases:
        total += release.factor * sum(
            group.scale * plan.clip_factor(group) * group.expected_cohort
            for group in release.groups
        )
    return total


def unmixed(
    inner: Aggregator, mixture: Callable[[int], tuple[float, ...]]
) -> Aggregator:
    """The server's side of correlated noise: the sum of a round, out of a mixture.

    The releases combine to y_t = c_0 u_t + ... + c_{B-1} u_{t-B+1}, which is solved for
    u_t.

    Args:
        inner: combines the releases into y_t.
        mixture: a round, from 1, to the factors c_0, ..., c_{B-1}.
    """

    def start(theta: Tensor) -> State:
        past = theta.new_zeros(len(mixture(1)) - 1, len(theta), dtype=torch.float64)
        return {**inner.start(theta), STEPS: past}

    def combine(releases: Sequence[Received], theta: Tensor, state: State) -> Step:
        step, after = inner.combine(releases, theta, state)
        past = state[STEPS]
        factors = mixture(releases[0].round)
        past_factors = torch.tensor(factors[1:], dtype=past.dtype, device=past.device)
        solved = (step.to(past) - past_factors @ past) / factors[0]
        return solved.to(step), {**after, STEPS: torch.cat([solved[None], past[:-1]])}

    return Aggregator(f"unmixed, {inner.name}", inner.weight, combine, start)
