"""The server's side of correlated noise: solves mixtures of sums for the sums of each round."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from simulate.components import Aggregator, Released, State

STEPS = "last_steps"
"""Key of the last steps [B - 1, d] in the server's state, the latest first."""


def unmixed(inner: Aggregator, mixture: tuple[float, ...]) -> Aggregator:
    """Combine the releases into y_t, then solve y_t = c_0 u_t + ... + c_{B-1} u_{t-B+1} for u_t.

    Args:
        inner: linear in the releases, with the same factors in every round, and without state.
        mixture: c_0, ..., c_{B-1}.
    """

    def start(theta: Tensor) -> State:
        past = theta.new_zeros(len(mixture) - 1, len(theta), dtype=torch.float64)
        return {**inner.start(theta), STEPS: past}

    def combine(releases: Sequence[Released], theta: Tensor, state: State) -> tuple[Tensor, State]:
        step, after = inner.combine(releases, theta, state)
        past = state[STEPS]
        weights = torch.tensor(mixture[1:], dtype=past.dtype, device=past.device)
        solved = (step.to(past) - weights @ past) / mixture[0]
        return solved.to(step), {**after, STEPS: torch.cat([solved[None], past[:-1]])}

    return Aggregator(f"unmixed, {inner.name}", inner.weight, combine, start)
