"""Checks that what a client adds to a sum is bounded as planned."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from privplan.evidence.noise import Measurements, read_noise_evidence
from privplan.plan import GroupPlan
from privplan.record import GroupShare, ReleaseRecord
from privplan.verification.checks import check
from privplan.verification.run import Run

# Relative tolerance on a clipped norm, for rounding in single precision.
CLIP_TOLERANCE = 1e-5


@check.register("clipping", order=50)
def clipping(run: Run) -> check.Check:
    """No update in a sum exceeds its clipping bound, and the bound is the planned one.

    The noise multiplier counts in units of that bound, so a longer update is protected
    less than the plan says. A clipped update has the norm of the bound. If updates were
    clipped and none has that norm, the threshold was different, such as a quantile of
    the norms of the same round, which depends on the clients and cost nothing.
    """

    def problems() -> Iterator[str]:
        """Updates above their bound, and bounds that are not the planned ones."""
        for group in run.plan.groups:
            yield from _faults_of_group(run, group)

    def missing() -> Iterator[str]:
        """Groups without releases, and releases whose norms nobody measured."""
        yield from check.unreleased(run)
        unmeasured = []
        for release in run.ledger.records:
            if not release.noise.silent:
                unmeasured += [share.largest_norm is None for share in release.shares]
        yield from check.lacking("norms of the updates", unmeasured)

    reason = f"no update above its bound (C = {run.plan.spec.clipping_norm:g})"
    return check.first(problems(), "clipping", reason, missing())


def _faults_of_group(run: Run, group: GroupPlan) -> Iterator[str]:
    """What is wrong with the updates of a group, by round.

    A silent release sent nothing, so it has no update to bound.
    """
    bound = run.plan.clip_bound(group)
    for release, share in run.shares(group.name):
        if release.noise.silent:
            continue
        fault = _contribution_fault(release, share, bound)
        if fault is not None:
            yield f"round {release.round}, {group.name}: {fault}"


def _contribution_fault(
    release: ReleaseRecord, share: GroupShare, bound: float
) -> str | None:
    """What is wrong with the updates of a group in a release; None if nothing is.

    Args:
        release: whose sum has the updates.
        share: the part of the group in it.
        bound: planned bound on the norm of an update.
    """
    if share.clip_bound is None:
        return "updates were not clipped"
    if not math.isclose(share.clip_bound, bound, rel_tol=1e-9):
        return f"clip bound {share.clip_bound:g}, planned {bound:g}"
    if share.largest_norm is None or share.clipped is None:
        return None
    if share.largest_norm > share.clip_bound * (1 + CLIP_TOLERANCE):
        norm = f"{share.largest_norm:.6g}"
        return f"an update of norm {norm} exceeds its bound {share.clip_bound:g}"
    shortened = release.unit == "client" and share.clipped > 0
    if shortened and share.largest_norm < share.clip_bound * (1 - CLIP_TOLERANCE):
        return (
            f"{share.clipped} updates were shortened, and the largest has norm "
            f"{share.largest_norm:.6g} where the bound is {share.clip_bound:g}: the "
            "threshold was another one"
        )
    return None


@check.register("sums bounded", order=51)
def sums_bounded(run: Run) -> check.Check:
    """No measured sum is longer than its updates would be with the largest norm.

    By the triangle inequality the norm of a sum is at most the number of its updates
    times their largest norm. A longer one has a part that no client sent. The ledger's
    norms and the measured sum come from different places of the training loop, so that
    a fault in one contradicts the other.
    """
    measurements: Measurements = {}
    fault: str | None = None
    if run.folder is not None:
        measurements, fault = read_noise_evidence(run.folder)
    releases = _summed(run)
    absent = sum(
        (release.round, index) not in measurements for index, release in releases
    )
    missing = []
    if absent:
        missing.append(f"norms of the sums ({absent} of {len(releases)})")
    problems = _too_long(run, measurements)
    if fault is not None:
        problems = iter([fault])
    reason = "no sum is longer than its updates in total"
    return check.first(problems, "sums bounded", reason, missing, required=False)


def _summed(run: Run) -> list[tuple[int, ReleaseRecord]]:
    """Noisy sums of clients that were measured, with their position in the round.

    Only these have a sum that the training loop saw before it was noised.
    """
    releases = []
    for index, release in run.numbered:
        is_sum = release.unit == "client" and release.residual is not None
        if is_sum and release.noise.noisy:
            releases.append((index, release))
    return releases


def _too_long(run: Run, measurements: Measurements) -> Iterator[str]:
    """Sums that are longer than their updates together."""
    # A mechanism with correlated noise releases a mixture of the sums of this round and
    # of rounds before: their longest lengths by position in the round, latest first.
    lengths_by_index: dict[int, list[float | None]] = defaultdict(list)
    for index, release in _summed(run):
        lengths = lengths_by_index[index]
        lengths.insert(0, longest_sum(release))
        factors = run.plan.spec.mixture_of(min(release.round, run.plan.spec.rounds))
        recent = lengths[: len(factors)]
        measured = measurements.get((release.round, index))
        if measured is None or None in recent:
            continue
        pairs = zip(factors, recent, strict=False)
        longest = math.fsum(factor * (length or 0.0) for factor, length in pairs)
        if measured.sum_norm > longest * (1 + CLIP_TOLERANCE):
            yield (
                f"round {release.round}, {release.shares[0].group}: a sum of norm "
                f"{measured.sum_norm:.6g}, its updates have {longest:.6g} in total"
            )


def longest_sum(release: ReleaseRecord) -> float | None:
    """Norm of the sum if all updates had the largest norm; None if not recorded."""
    total = 0.0
    for share in release.shares:
        if share.cohort is None or share.largest_norm is None:
            return None
        total += (share.cohort + (share.canaries or 0)) * share.largest_norm
    return total
