"""Scores of each canary for an observer of the releases or of the final model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from privplan.auditing.findings import AuditEvidence, GroupTraces
from privplan.plan import Plan
from simulate.audit.canaries import Canaries
from simulate.components import GroupSum, Released

LARGEST_NOISE_RATIO = 20.0
"""Largest ratio of planned to booked noise that enters the observer's likelihood ratio."""


def initial_scores(canaries: Canaries) -> np.ndarray:
    """Scores before the first round [M, canaries per group]."""
    return np.zeros(canaries.included.shape)


def score_changes(
    canaries: Canaries | None,
    plan: Plan,
    sums: Sequence[GroupSum],
    releases: Sequence[Released],
    released: Tensor | None,
) -> np.ndarray | float:
    """Log-likelihood ratios of each canary's participation, from the releases of one round.

    The observer is the adversary of the guarantee: it knows the plan, every direction and the
    updates of all other clients, which it subtracts. Along a canary's direction the difference is
    normal with the planned standard deviation (or a smaller one if the ledger books it); its mean
    is the clipping bound, with probability equal to the sampling ratio, or zero.

    Args:
        canaries: the canaries; None in a run without canaries.
        plan: the plan.
        sums: input of the mechanism, one sum per group.
        releases: output of the mechanism.
        released: released coordinates; None for all.

    Returns:
        Increments of the scores [M, canaries per group]; 0 without canaries.
    """
    if canaries is None:
        return 0.0
    changes = np.zeros(canaries.included.shape)
    coordinates = None if released is None else released.cpu().numpy()
    for release in releases:
        within = {group.name for group in release.groups}
        difference = release.vector.double()
        for part in sums:
            if part.group.name in within and part.others is not None:
                difference = difference - part.others
        own = [index for index, part in enumerate(sums) if part.group.name in within]
        wanted = slice(own[0] * canaries.each, (own[-1] + 1) * canaries.each)
        projections = canaries.unit.products(difference.cpu().numpy(), coordinates, wanted).reshape(
            changes.shape
        )
        for index, part in enumerate(sums):
            if part.group.name in within:
                bound, group = plan.clip_bound(part.group), part.group
                booked = max(
                    release.record.noise_std / bound, group.noise_multiplier / LARGEST_NOISE_RATIO
                )
                sigma = min(group.noise_multiplier, booked)
                changes[index] += _log_ratio(
                    projections[index] / bound, group.sampling_ratio, sigma
                )
    return changes


def _log_ratio(projections: np.ndarray, ratio: float, sigma: float) -> np.ndarray:
    log_density_ratio = (2 * projections - 1) / (2 * sigma**2)
    if ratio >= 1:
        return log_density_ratio
    mixture: np.ndarray = np.logaddexp(np.log1p(-ratio), np.log(ratio) + log_density_ratio)
    return mixture


def final_scores(canaries: Canaries, start: Tensor, end: Tensor) -> np.ndarray:
    """Projections of the final minus the initial model on each canary [M, canaries per group]."""
    movement = (end.double() - start.to(end.device).double()).cpu().numpy()
    return canaries.unit.products(movement, None).reshape(canaries.included.shape)


def audit_evidence(
    canaries: Canaries, plan: Plan, chain: str, rounds: np.ndarray, final: np.ndarray
) -> AuditEvidence:
    """The evidence as it is stored in the run folder."""
    groups = tuple(
        GroupTraces(
            group=group.name,
            included="".join("1" if included else "0" for included in canaries.included[index]),
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
