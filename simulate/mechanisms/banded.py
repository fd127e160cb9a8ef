"""Mixing of a round's sums with earlier ones, which makes the server's noise correlated.

See ``privplan.banded_noise``. The trusted aggregator keeps the last B - 1 sums of each group; what
it adds noise to is the mixture, and ``simulate.aggregators.unmixed`` solves for the sums again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from simulate.components import GroupSum, Mechanism, State

PAST = "past_sums"
"""Key of the last sums [groups, B - 1, d] in the mechanism's state, the latest first."""


def mixed_sums(inner: Mechanism, mixture: tuple[float, ...], groups: int) -> Mechanism:
    """The mechanism, applied to c_0 x_t + ... + c_{B-1} x_{t-B+1} for each group.

    Args:
        inner: releases sums; without state.
        mixture: c_0, ..., c_{B-1}, of norm 1 at most, so that a client who is in one of B
            consecutive sums moves the releases by no more than its bound in all.
        groups: number of groups.
    """

    def start(theta: Tensor) -> State:
        return {PAST: theta.new_zeros(groups, len(mixture) - 1, len(theta), dtype=torch.float64)}

    def mix(sums: Sequence[GroupSum], state: State) -> tuple[tuple[GroupSum, ...], State]:
        now = torch.stack([part.total for part in sums])
        past = state[PAST].to(now)
        weights = torch.tensor(mixture[1:], dtype=now.dtype, device=now.device)
        totals = mixture[0] * now + torch.einsum("b,gbd->gd", weights, past)
        kept = torch.cat([now[:, None], past[:, :-1]], dim=1)
        mixed = (replace(part, total=row) for part, row in zip(sums, totals, strict=True))
        return tuple(mixed), {PAST: kept}

    return replace(inner, name=f"{inner.name}, correlated over rounds", start=start, mix=mix)
