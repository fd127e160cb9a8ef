"""Checks that a release is its sum plus noise, on coordinates chosen without data."""

from __future__ import annotations

import math
from collections.abc import Iterator

from privplan import public_mask
from privplan.record import Executed, ReleaseRecord, Residual
from privplan.verification.checks.check import (
    NOTHING_LEFT,
    Check,
    Run,
    evidence_fault,
    first,
    lacking,
    not_shown,
    register,
    unreleased,
    without_evidence,
)
from privplan.verification.statistics import FALSE_ALARM, noise_p_value

ROUNDING = 1e-3
"""Relative tolerance on a client's local steps and their noise, for single precision."""
PUBLIC_TRANSFORM = "random_mask"
"""The transform whose masks can be drawn again from the seed."""
LARGEST = 2**30
"""Longest vector whose masks are drawn again, for memory: 8 GiB."""


@register("sums", order=110, false_alarm=FALSE_ALARM)
def sums(run: Run) -> Check:
    """Each release is its clipped sum plus Gaussian noise of the recorded standard deviation.

    The residual, measured outside the mechanism, is the release minus the sum that entered the
    mechanism. Its sum of squares and its component along the sum are tested, because a sum that
    was scaled, clipped or noised differently changes one of them. The component along the sum,
    divided by the standard deviation, is standard normal for any sum. For a client that adds
    noise locally, the residual is its update minus its noise, whose norm is at most that of the
    clipped gradients of the records in its batches.
    """
    measured = [
        (release, release.residual)
        for release in run.ledger.records
        if release.residual is not None and release.noise.noisy
    ]
    summed = [(release, residual) for release, residual in measured if release.unit == "client"]
    level = FALSE_ALARM / (2 * len(summed) + 2)

    def problems() -> Iterator[str]:
        for release, residual in measured:
            if release.unit == "record":
                yield from _too_long(release, residual, run.plan.spec.local.momentum)
        squares, along, drawn, components = 0.0, 0.0, 0, 0
        for release, residual in summed:
            std, where = release.noise_std, f"round {release.round}"
            if release.noise.p_value(residual.sum_squares, std, release.dimension) < level:
                rest = math.sqrt(residual.sum_squares / max(release.dimension, 1))
                yield f"{where}: released is the sum and a rest of {rest:.6g}, recorded {std:.6g}"
            if not release.noise.normal:  # its sum of squares and projection are not chi-square
                continue
            squares, drawn = squares + residual.sum_squares / std**2, drawn + release.dimension
            if residual.along_sum is not None:
                along, components = along + (residual.along_sum / std) ** 2, components + 1
                if noise_p_value(residual.along_sum**2, std, 1) < level:
                    yield f"{where}: released is not the sum and its noise but a multiple of it"
        if noise_p_value(squares, 1.0, drawn) < level:
            yield f"all rounds: a rest of {math.sqrt(squares / drawn):.6g} times the recorded noise"
        if noise_p_value(along, 1.0, components) < level:
            yield "all rounds: released are not the sums and their noise but multiples of them"

    def missing() -> Iterator[str]:
        sent = [release for release in run.ledger.records if not release.noise.silent]
        yield from unreleased(run)
        yield from lacking("residuals", map(_unmeasured, sent))
        along = (residual.along_sum is None for release, residual in summed if _has_sum(release))
        yield from lacking("parts of residuals along the sum", along)

    reason = f"each of {len(measured)} measured releases is its sum and its noise"
    return first(problems(), "sums", reason if measured else NOTHING_LEFT, missing())


def _unmeasured(release: ReleaseRecord) -> bool:
    """Whether a release lacks its residual.

    A client whose update was not finite sends zero instead, and is recorded as excluded.
    """
    zero = release.unit == "record" and all(share.excluded for share in release.shares)
    return release.residual is None and not zero


def _has_sum(release: ReleaseRecord) -> bool:
    """Whether a client added an update that is not zero."""
    return any(share.largest_norm is None or share.largest_norm > 0 for share in release.shares)


def _too_long(release: ReleaseRecord, residual: Residual, momentum: float) -> Iterator[str]:
    """Why a client's update without its noise is larger than its clipped records allow."""
    [share] = release.shares
    if share.cohort is None or release.noise_sum_squares is None:
        return
    reach = sum(momentum**step for step in range(release.steps))
    records, noise = share.cohort * (share.clip_bound or 0.0), math.sqrt(release.noise_sum_squares)
    allowed = reach * (records + ROUNDING * (records + noise))
    if (norm := math.sqrt(residual.sum_squares)) > allowed:
        yield (
            f"round {release.round}, {share.group}: a client sent {norm:.6g} beside its noise, "
            f"the {share.cohort} clipped records of its batches allow {allowed:.6g}"
        )


@register("coordinates", order=60)
def coordinates(run: Run) -> Check:
    """Only coordinates that the algorithm releases left the clients, by data-independent masks."""
    executed = run.record.executed
    if executed is None:
        return not_shown("coordinates", ["the released coordinates in the record"])
    header, _ = run.evidence

    def problems() -> Iterator[str]:
        yield from evidence_fault(run)
        total = executed.coordinates
        for name, part in (
            ("shared", executed.shared),
            *((m.name, m.size) for m in executed.masks),
        ):
            if part > total:
                yield f"record.executed.{name}: must be at most {total} coordinates, found {part}"
        # A paid quantile appends its count to the parameters, other transforms what they need.
        if header is not None and not header.parameters <= total <= 2 * header.parameters:
            yield f"record.executed.coordinates: must be {header.parameters}, found {total}"
        fixed: str | None = None
        for release in run.ledger.records:
            where = f"round {release.round}"
            failed = bool(release.failure) and run.record.seed is None  # only of deployments
            if release.noise.silent and executed.released and not failed:
                yield f"{where}: no release, where {executed.released} coordinates are shared"
            if not release.noise.noisy:
                continue
            dimension = release.dimension / release.steps
            if dimension > executed.released:
                left = f"{dimension:g} coordinates left the clients"
                yield f"{where}: {left}, {executed.released} may"
            if not executed.masks:
                if dimension < executed.released:
                    covered = f"{dimension:g} of {executed.released}"
                    yield f"{where}: noise on {covered} coordinates"
                fixed = release.support if fixed is None else fixed
                if release.support != fixed:
                    yield f"{where}: other coordinates than in the first round, without a mask"
            elif (why := _not_public(run.record.seed, release, executed)) is not None:
                yield f"{where}: {why}"

    masks = f", {len(executed.masks)} random masks drawn again" if executed.masks else ""
    reason = f"{executed.released} may leave a client{masks}"
    missing = [*unreleased(run), *without_evidence(run, "the number of parameters")]
    return first(problems(), "coordinates", reason, missing)


def _not_public(seed: int | None, release: ReleaseRecord, executed: Executed) -> str | None:
    """Why the mask cannot be the public one; None where it is, or where that is not known."""
    whole = executed.shared == executed.coordinates
    if seed is None or not whole or any(mask.name != PUBLIC_TRANSFORM for mask in executed.masks):
        return None
    length = executed.coordinates - executed.appended
    if length > LARGEST:
        return None
    expected = public_mask.draw_mask(seed, release.round, executed.masks, length)
    if release.dimension != len(expected) + executed.appended:
        return f"noise on {release.dimension} coordinates, the public mask has {len(expected)}"
    if release.support != public_mask.mask_digest(expected):
        return "the coordinates are not those of the public mask, so they depend on data"
    return None
