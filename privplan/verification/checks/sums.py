"""That what was released is the sum and its noise, on the coordinates that may leave a client."""

from __future__ import annotations

import math
from collections.abc import Iterator

from privplan.record import Executed, ReleaseRecord, Residual
from privplan.verification import public_mask
from privplan.verification.checks.check import Check, Run, first
from privplan.verification.statistics import FALSE_ALARM, noise_p_value

ROUNDING = 1e-3
"""Slack on a client's own steps, relative to them and to their noise, for single precision."""
DRAWN_AGAIN = "random_mask"
"""The transform whose masks are drawn again here, from the seed alone."""


def sums(run: Run) -> Check:
    """What left the clients is a clipped sum and Gaussian noise of the recorded size.

    Measured outside the mechanism is what left less the sum that entered: its sum of squares
    over all coordinates, and its part along the sum. A sum that was scaled, clipped or noised
    otherwise shows in one of the two. The part along the sum is one standard normal a release,
    whatever the sum is. Of a client who sends for itself it is what it sent less its noise: no
    longer than the clipped gradients of the records in its batches, whatever they are.
    """
    measured = [
        (release, release.residual)
        for release in run.ledger.records
        if release.residual is not None and release.family == "gaussian"
    ]
    summed = [(release, residual) for release, residual in measured if release.unit == "client"]
    level = FALSE_ALARM / (2 * len(summed) + 2)

    def problems() -> Iterator[str]:
        for release, residual in measured:
            if release.unit == "record":
                yield from _too_long(release, residual, run.plan.spec.local.momentum)
        squares, along, drawn, leaning = 0.0, 0.0, 0, 0
        for release, residual in summed:
            std, where = release.noise_std, f"round {release.round}"
            if noise_p_value(residual.sum_squares, std, release.dimension) < level:
                found = math.sqrt(residual.sum_squares / max(release.dimension, 1))
                yield f"{where}: released is the sum and a rest of {found:.6g}, recorded {std:.6g}"
            squares, drawn = squares + residual.sum_squares / std**2, drawn + release.dimension
            if residual.along_sum is not None:
                along, leaning = along + (residual.along_sum / std) ** 2, leaning + 1
                if noise_p_value(residual.along_sum**2, std, 1) < level:
                    yield f"{where}: released is not the sum and its noise but a multiple of it"
        if noise_p_value(squares, 1.0, drawn) < level:
            yield f"all rounds: a rest of {math.sqrt(squares / drawn):.6g} times the recorded noise"
        if noise_p_value(along, 1.0, leaning) < level:
            yield "all rounds: released are not the sums and their noise but multiples of them"

    well = f"each of {len(measured)} measured releases is its sum and its noise"
    return first(problems(), "sums", well)


def _too_long(release: ReleaseRecord, residual: Residual, momentum: float) -> Iterator[str]:
    """Where a client sent more beside its noise than its clipped records allow."""
    [share] = release.shares
    reach = sum(momentum**step for step in range(release.steps))
    records, noise = share.cohort * (share.clip_bound or 0.0), math.sqrt(release.noise_sum_squares)
    allowed = reach * (records + ROUNDING * (records + noise))
    if (found := math.sqrt(residual.sum_squares)) > allowed:
        yield (
            f"round {release.round}, {share.group}: a client sent {found:.6g} beside its noise, "
            f"the {share.cohort} clipped records of its batches allow {allowed:.6g}"
        )


def coordinates(run: Run) -> Check:
    """Only coordinates that the algorithm shares left the clients, by masks that see no data."""
    executed = run.record.executed
    if executed is None or run.plan.spec.unit == "record":
        return Check(name="coordinates", passed=True, reason="the record names none")

    def problems() -> Iterator[str]:
        fixed: str | None = None
        for release in run.ledger.records:
            if release.family != "gaussian":
                continue
            where = f"round {release.round}"
            if release.dimension > executed.released:
                yield (
                    f"{where}: {release.dimension} coordinates left the clients, "
                    f"{executed.released} may"
                )
            if not executed.masks:
                if release.dimension < executed.released:
                    found = f"{release.dimension} of {executed.released}"
                    yield f"{where}: noise on {found} coordinates"
                fixed = release.support if fixed is None else fixed
                if release.support != fixed:
                    yield f"{where}: other coordinates than in the first round, without a mask"
            elif (why := _not_public(run.record.seed, release, executed)) is not None:
                yield f"{where}: {why}"

    masks = f", {len(executed.masks)} random masks drawn again" if executed.masks else ""
    return first(problems(), "coordinates", f"{executed.released} may leave a client{masks}")


def _not_public(seed: int, release: ReleaseRecord, executed: Executed) -> str | None:
    """Why the support cannot have been drawn without data; None where it can, or is not known."""
    whole = executed.shared == executed.coordinates
    if not whole or any(mask.name != DRAWN_AGAIN for mask in executed.masks):
        return None
    expected = public_mask.draw_mask(seed, release.round, executed.masks, executed.coordinates)
    if release.dimension != len(expected):
        return f"noise on {release.dimension} coordinates, the public mask has {len(expected)}"
    if release.support != public_mask.mask_digest(expected):
        return "the coordinates are not those of the public mask, so they depend on data"
    return None
