"""What an observer of the releases, or of the final model, sees of each canary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from privplan.auditing.findings import AuditEvidence, GroupTraces
from privplan.plan import Plan
from simulate.audit.canaries import Canaries
from simulate.components import GroupSum, Released

SHARPEST = 20.0
"""How many times less noise than planned an observer believes in, where the ledger books less."""


def canary_scores(canaries: Canaries) -> np.ndarray:
    """Nothing was seen yet [M, each]."""
    return np.zeros(canaries.included.shape)


def observed(
    canaries: Canaries | None,
    plan: Plan,
    sums: Sequence[GroupSum],
    releases: Sequence[Released],
    kept: Tensor | None,
) -> np.ndarray | float:
    """What the releases of one round tell of each canary: the logarithm of a likelihood ratio.

    The observer is the one whom the guarantee is made against: it knows the plan, every
    direction and what all other clients sent, and takes that away. Along a canary's direction
    the rest is normal with the planned deviation, or a smaller one that the ledger books, around
    the bound, with the planned chance, or around zero.

    Args:
        canaries: the canaries; None in a run without any.
        plan: the plan.
        sums: what the clients handed in, a sum a group.
        releases: what the mechanism made of it.
        kept: the coordinates that were released; None for all.

    Returns:
        What is to be added to their scores [M, each]; 0 without canaries.
    """
    if canaries is None:
        return 0.0
    told = np.zeros(canaries.included.shape)
    coordinates = None if kept is None else kept.cpu().numpy()
    for release in releases:
        within = {group.name for group in release.groups}
        rest = release.vector.double()
        for part in sums:
            if part.group.name in within and part.others is not None:
                rest = rest - part.others
        seen = canaries.unit.products(rest.cpu().numpy(), coordinates).reshape(told.shape)
        for index, part in enumerate(sums):
            if part.group.name in within:
                bound, group = plan.clip_bound(part.group), part.group
                booked = max(release.record.noise_std / bound, group.noise_multiplier / SHARPEST)
                sigma = min(group.noise_multiplier, booked)
                told[index] += _log_ratio(seen[index] / bound, group.sampling_ratio, sigma)
    return told


def _log_ratio(seen: np.ndarray, ratio: float, sigma: float) -> np.ndarray:
    shifted = (2 * seen - 1) / (2 * sigma**2)
    if ratio >= 1:
        return shifted
    found: np.ndarray = np.logaddexp(np.log1p(-ratio), np.log(ratio) + shifted)
    return found


def final_scores(canaries: Canaries, start: Tensor, end: Tensor) -> np.ndarray:
    """What the way from the first to the last model tells of each canary [M, each]."""
    way = (end.double() - start.to(end.device).double()).cpu().numpy()
    return canaries.unit.products(way, None).reshape(canaries.included.shape)


def written(
    canaries: Canaries, plan: Plan, chain: str, rounds: np.ndarray, final: np.ndarray
) -> AuditEvidence:
    """The evidence as it is kept in the run folder."""
    groups = tuple(
        GroupTraces(
            group=group.name,
            included="".join("1" if one else "0" for one in canaries.included[index]),
            rounds=tuple(rounds[index].tolist()),
            final=tuple(final[index].tolist()),
        )
        for index, group in enumerate(plan.groups)
    )
    return AuditEvidence(
        plan_digest=plan.digest,
        chain=chain,
        orthogonal=canaries.unit.orthogonal,
        groups=groups,
    )
