"""The check that each release is its sum plus noise."""

from __future__ import annotations

import math
from collections.abc import Iterator

from privplan.accounting.families import noise_p_value
from privplan.record import ReleaseRecord, Residual
from privplan.verification.checks import check
from privplan.verification.run import Run

# Relative tolerance on a client's local steps and noise, for single precision.
ROUNDING = 1e-3

Measured = list[tuple[ReleaseRecord, Residual]]


@check.register("sums", order=110, false_alarm=check.FALSE_ALARM)
def sums(run: Run) -> check.Check:
    """Each release is its clipped sum plus noise of the recorded standard deviation.

    The residual, measured outside the mechanism, is the release minus the sum that
    entered the mechanism. Its sum of squares and its component along the sum are
    tested, because a sum that was scaled, clipped or noised differently changes one of
    them. The component along the sum, divided by the standard deviation, is standard
    normal for any sum. For a client that adds noise locally, the residual is its update
    minus its noise, whose norm is at most that of the clipped gradients of the records
    in its batches.
    """
    measured: Measured = [
        (release, release.residual)
        for release in run.ledger.records
        if release.residual is not None and release.noise.noisy
    ]

    def problems() -> Iterator[str]:
        """Residuals too long for records, and no noise for clients."""
        for release, residual in measured:
            if release.unit == "record":
                yield from _too_long(release, residual, run.plan.spec.local.momentum)
        yield from _other_sums(_of_clients(measured))

    reason = check.NOTHING_LEFT
    if measured:
        reason = f"each of {len(measured)} measured releases is its sum and its noise"
    missing = _missing(run, _of_clients(measured))
    return check.first(problems(), "sums", reason, missing)


def _of_clients(measured: Measured) -> Measured:
    """The releases whose noise is on a sum of updates."""
    return [
        (release, residual)
        for release, residual in measured
        if release.unit == "client"
    ]


def _missing(run: Run, summed: Measured) -> Iterator[str]:
    """Residuals that a release lacks, and their parts along the sum.

    Args:
        run: with the ledger.
        summed: releases of sums that were measured.
    """
    yield from check.unreleased(run)
    unmeasured = []
    for release in run.ledger.records:
        if not release.noise.silent:
            # A client whose update was not finite sends zero instead, and is recorded
            # as excluded.
            sent_zero = release.unit == "record" and all(
                share.excluded for share in release.shares
            )
            unmeasured.append(release.residual is None and not sent_zero)
    yield from check.lacking("residuals", unmeasured)

    without_part = []
    for release, residual in summed:
        # A sum of zeros has no direction.
        may_be_long = any(
            share.largest_norm is None or share.largest_norm > 0
            for share in release.shares
        )
        if may_be_long:
            without_part.append(residual.along_sum is None)
    yield from check.lacking("parts of residuals along the sum", without_part)


def _other_sums(summed: Measured) -> Iterator[str]:
    """Residuals that are not noise of the recorded deviation, alone and together.

    A residual that is a multiple of the sum, or longer than noise, was not noise; one
    that is shorter leaves a part of the sum in the clear.
    """
    # Two tests of each release, and two of all.
    level = check.FALSE_ALARM / (2 * len(summed) + 2)
    # In units of the variance of each release.
    squares = 0.0
    coordinates = 0
    squares_along = 0.0
    components = 0

    for release, residual in summed:
        std = release.noise_std
        where = f"round {release.round}"
        count = release.dimension
        if release.noise.p_value(residual.sum_squares, std, count) < level:
            measured_std = math.sqrt(residual.sum_squares / max(count, 1))
            what = f"released is the sum and a rest of {measured_std:.6g}"
            yield f"{where}: {what}, recorded {std:.6g}"
        # The sum of squares and the projection of other noise are not chi-square.
        if not release.noise.normal:
            continue
        squares += residual.sum_squares / std**2
        coordinates += count
        if residual.along_sum is not None:
            squares_along += (residual.along_sum / std) ** 2
            components += 1
            if noise_p_value(residual.along_sum**2, std, 1) < level:
                what = "released is not the sum and its noise but a multiple of it"
                yield f"{where}: {what}"

    if noise_p_value(squares, 1.0, coordinates) < level:
        ratio = math.sqrt(squares / coordinates)
        yield f"all rounds: a rest of {ratio:.6g} times the recorded noise"
    if noise_p_value(squares_along, 1.0, components) < level:
        what = "released are not the sums and their noise but multiples of them"
        yield f"all rounds: {what}"


def _too_long(
    release: ReleaseRecord, residual: Residual, momentum: float
) -> Iterator[str]:
    """Why an update without its noise is larger than its clipped records allow.

    Args:
        release: of one client, who adds noise to protect records.
        residual: its update without the noise.
        momentum: of the client's optimiser, in [0, 1).
    """
    [share] = release.shares
    if share.cohort is None or release.noise_sum_squares is None:
        return
    # With momentum a gradient enters all later steps, so each step adds to the update
    # at most this many times its gradient.
    reach = sum(momentum**step for step in range(release.steps))
    records = share.cohort * (share.clip_bound or 0.0)
    noise = math.sqrt(release.noise_sum_squares)
    allowed = reach * (records + ROUNDING * (records + noise))
    norm = math.sqrt(residual.sum_squares)
    if norm > allowed:
        yield (
            f"round {release.round}, {share.group}: a client sent {norm:.6g} beside its "
            f"noise, the {share.cohort} clipped records of its batches allow "
            f"{allowed:.6g}"
        )
