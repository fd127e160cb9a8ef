"""Checks of what clients send: bounded updates, their sums plus noise, coordinates and weights."""

from __future__ import annotations

import math
from collections.abc import Iterator

from privplan import streams as public_mask
from privplan.accounting.families import noise_p_value
from privplan.evidence.noise import read_noise_evidence
from privplan.planning.factors import rule_of
from privplan.record import Executed, GroupShare, ReleaseRecord, Residual
from privplan.verification.checks import check

CLIP_TOLERANCE = (
    1e-5  # relative tolerance on a clipped norm, for rounding in single precision
)


@check.register("clipping", order=50)
def clipping(run: check.Run) -> check.Check:
    """No update in a sum exceeds its clipping bound, and the bound is the planned one.

    A clipped update has the norm of the bound. If updates were clipped and none has that norm,
    the threshold was different, such as a quantile of the norms of the same round.
    """

    def problems() -> Iterator[str]:
        for group in run.plan.groups:
            bound = run.plan.clip_bound(group)
            for release, share in run.shares(group.name):
                if not release.noise.silent:
                    where = f"round {release.round}, {group.name}"
                    yield from (
                        f"{where}: {fault}"
                        for fault in _contribution_faults(release, share, bound)
                    )

    norm = run.plan.spec.clipping_norm
    reason = f"no update above its bound (C = {norm:g})"

    def missing() -> Iterator[str]:
        yield from check.unreleased(run)
        sent = (release for release in run.ledger.records if not release.noise.silent)
        shares = (share for release in sent for share in release.shares)
        yield from check.lacking(
            "norms of the updates", (one.largest_norm is None for one in shares)
        )

    return check.first(problems(), "clipping", reason, missing())


@check.register("sums bounded", order=51)
def sums_bounded(run: check.Run) -> check.Check:
    """No measured sum is longer than its updates would be if all had the largest norm."""
    name = "sums bounded"
    releases = [
        (index, release)
        for index, release in run.numbered
        if release.unit == "client"
        and release.residual is not None
        and release.noise.noisy
    ]
    measured, fault = (
        ({}, None) if run.folder is None else read_noise_evidence(run.folder)
    )
    absent = sum((release.round, index) not in measured for index, release in releases)

    def problems() -> Iterator[str]:
        if fault is not None:
            yield fault
        before = dict[int, list[float | None]]()
        for index, release in releases:
            one = measured.get((release.round, index))
            past = before.setdefault(index, [])
            past.insert(0, longest_sum(release))
            factors = run.plan.spec.mixture_of(min(release.round, run.plan.spec.rounds))
            lengths = past[: len(factors)]
            if one is None or None in lengths:
                continue
            pairs = zip(factors, lengths, strict=False)
            largest = math.fsum(factor * (length or 0.0) for factor, length in pairs)
            if one.sum_norm > largest * (1 + CLIP_TOLERANCE):
                yield (
                    f"round {release.round}, {release.shares[0].group}: a sum of norm "
                    f"{one.sum_norm:.6g}, its updates have {largest:.6g} in total"
                )

    missing = [f"norms of the sums ({absent} of {len(releases)})"] if absent else []
    reason = "no sum is longer than its updates in total"
    return check.first(problems(), name, reason, missing, required=False)


def longest_sum(release: ReleaseRecord) -> float | None:
    """Norm of the sum if all updates had the largest norm; None where that is not recorded."""
    total = 0.0
    for share in release.shares:
        if share.cohort is None or share.largest_norm is None:
            return None
        total += (share.cohort + (share.canaries or 0)) * share.largest_norm
    return total


def _contribution_faults(
    release: ReleaseRecord, share: GroupShare, bound: float
) -> Iterator[str]:
    if share.clip_bound is None:
        yield "updates were not clipped"
    elif not math.isclose(share.clip_bound, bound, rel_tol=1e-9):
        yield f"clip bound {share.clip_bound:g}, planned {bound:g}"
    elif share.largest_norm is None or share.clipped is None:
        return
    elif share.largest_norm > share.clip_bound * (1 + CLIP_TOLERANCE):
        yield f"an update of norm {share.largest_norm:.6g} exceeds its bound {share.clip_bound:g}"
    elif (
        release.unit == "client"
        and share.clipped > 0
        and share.largest_norm < share.clip_bound * (1 - CLIP_TOLERANCE)
    ):
        yield (
            f"{share.clipped} updates were shortened, and the largest has norm "
            f"{share.largest_norm:.6g} where the bound is {share.clip_bound:g}: the threshold was "
            "another one"
        )


@check.register("weights", order=150)
def weights(run: check.Run) -> check.Check:
    """A group's weight is constant while its planned parameters are, whoever takes part.

    It is that of the rule that the record names, where privplan knows the rule. What an own rule
    makes of noisy sums reveals no more of them, as long as it does not follow who takes part.
    """
    executed = run.record.executed
    rule = None if executed is None else rule_of(executed.aggregator, run.plan)
    mixed = len(run.plan.spec.mixture) > 1

    def problems() -> Iterator[str]:
        if executed is not None and mixed != executed.aggregator.startswith(
            "unmixed, "
        ):
            yield f"aggregator {executed.aggregator} under {run.plan.spec.laws} sampling"
        for group in run.plan.groups:
            seen: dict[tuple[float, float], float] = {}
            for release, share in run.shares(group.name):
                where = (
                    f"round {release.round}, {group.name}: weight {share.factor:.6g}"
                )
                before = seen.setdefault(
                    check.at_round(run, group, release), share.factor
                )
                if not math.isclose(share.factor, before, rel_tol=1e-9):
                    yield f"{where}, {before:.6g} in an earlier round of the same plan"
                expected = share.factor
                if rule is not None:
                    ratio, _ = run.plan.at_round(
                        group, min(release.round, run.plan.spec.rounds)
                    )
                    cohort = ratio * run.plan.law_of(group).law.drawable(group.clients)
                    then = group.model_copy(update={"expected_cohort": cohort})
                    expected = rule(then, run.plan)
                if not math.isclose(share.factor, expected, rel_tol=1e-9):
                    yield f"{where}, planned {expected:.6g}"

    def missing() -> Iterator[str]:
        yield from check.unreleased(run)
        if executed is None or not executed.aggregator:
            yield "the aggregation rule in the record"

    reason = "the plan's, in every round"
    if executed is not None and rule is None:
        named = executed.aggregator
        reason = (
            f"constant over the rounds; the aggregator {named} is no rule of the plan's"
        )
    return check.first(problems(), "weights", reason, missing())


# --- A release is its sum plus noise, on coordinates chosen without data. ------------------------

ROUNDING = (
    1e-3  # relative tolerance on a client's local steps and noise (single precision)
)
PUBLIC_TRANSFORM = (
    "random_mask"  # the transform whose masks can be drawn again from the seed
)
LARGEST = 2**30  # longest vector whose masks are drawn again, for memory: 8 GiB


@check.register("sums", order=110, false_alarm=check.FALSE_ALARM)
def sums(run: check.Run) -> check.Check:
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
    summed = [
        (release, residual)
        for release, residual in measured
        if release.unit == "client"
    ]
    level = check.FALSE_ALARM / (2 * len(summed) + 2)

    def problems() -> Iterator[str]:
        for release, residual in measured:
            if release.unit == "record":
                yield from _too_long(release, residual, run.plan.spec.local.momentum)
        squares, along, drawn, components = 0.0, 0.0, 0, 0
        for release, residual in summed:
            std, where = release.noise_std, f"round {release.round}"
            if (
                release.noise.p_value(residual.sum_squares, std, release.dimension)
                < level
            ):
                rest = math.sqrt(residual.sum_squares / max(release.dimension, 1))
                yield f"{where}: released is the sum and a rest of {rest:.6g}, recorded {std:.6g}"
            if (
                not release.noise.normal
            ):  # its sum of squares and projection are not chi-square
                continue
            squares, drawn = (
                squares + residual.sum_squares / std**2,
                drawn + release.dimension,
            )
            if residual.along_sum is not None:
                along, components = (
                    along + (residual.along_sum / std) ** 2,
                    components + 1,
                )
                if noise_p_value(residual.along_sum**2, std, 1) < level:
                    yield f"{where}: released is not the sum and its noise but a multiple of it"
        if noise_p_value(squares, 1.0, drawn) < level:
            yield f"all rounds: a rest of {math.sqrt(squares / drawn):.6g} times the recorded noise"
        if noise_p_value(along, 1.0, components) < level:
            yield "all rounds: released are not the sums and their noise but multiples of them"

    def missing() -> Iterator[str]:
        sent = [release for release in run.ledger.records if not release.noise.silent]
        yield from check.unreleased(run)
        # A client whose update was not finite sends zero instead, and is recorded as excluded.
        zero = (
            r.unit == "record" and all(one.excluded for one in r.shares) for r in sent
        )
        absent = (
            r.residual is None and not none for r, none in zip(sent, zero, strict=True)
        )
        yield from check.lacking("residuals", absent)
        along = (
            residual.along_sum is None
            for release, residual in summed
            if any(
                share.largest_norm is None or share.largest_norm > 0
                for share in release.shares
            )
        )
        yield from check.lacking("parts of residuals along the sum", along)

    reason = f"each of {len(measured)} measured releases is its sum and its noise"
    return check.first(
        problems(), "sums", reason if measured else check.NOTHING_LEFT, missing()
    )


def _too_long(
    release: ReleaseRecord, residual: Residual, momentum: float
) -> Iterator[str]:
    """Why a client's update without its noise is larger than its clipped records allow."""
    [share] = release.shares
    if share.cohort is None or release.noise_sum_squares is None:
        return
    reach = sum(momentum**step for step in range(release.steps))
    records, noise = (
        share.cohort * (share.clip_bound or 0.0),
        math.sqrt(release.noise_sum_squares),
    )
    allowed = reach * (records + ROUNDING * (records + noise))
    if (norm := math.sqrt(residual.sum_squares)) > allowed:
        yield (
            f"round {release.round}, {share.group}: a client sent {norm:.6g} beside its noise, "
            f"the {share.cohort} clipped records of its batches allow {allowed:.6g}"
        )


@check.register("coordinates", order=60)
def coordinates(run: check.Run) -> check.Check:
    """Only coordinates that the algorithm releases left the clients, by data-independent masks."""
    executed = run.record.executed
    if executed is None:
        return check.not_shown(
            "coordinates", ["the released coordinates in the record"]
        )
    header, _ = run.evidence

    def problems() -> Iterator[str]:
        yield from check.evidence_fault(run)
        total = executed.coordinates
        for name, part in (
            ("shared", executed.shared),
            *((m.name, m.size) for m in executed.masks),
        ):
            if part > total:
                yield f"record.executed.{name}: must be at most {total} coordinates, found {part}"
        # A paid quantile appends its count to the parameters, other transforms what they need.
        if (
            header is not None
            and not header.parameters <= total <= 2 * header.parameters
        ):
            yield f"record.executed.coordinates: must be {header.parameters}, found {total}"
        fixed: str | None = None
        for release in run.ledger.records:
            where = f"round {release.round}"
            failed = (
                bool(release.failure) and run.record.seed is None
            )  # only of deployments
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

    masks = (
        f", {len(executed.masks)} random masks drawn again" if executed.masks else ""
    )
    reason = f"{executed.released} may leave a client{masks}"
    missing = [
        *check.unreleased(run),
        *check.without_evidence(run, "the number of parameters"),
    ]
    return check.first(problems(), "coordinates", reason, missing)


def _not_public(
    seed: int | None, release: ReleaseRecord, executed: Executed
) -> str | None:
    """Why the mask cannot be the public one; None where it is, or where that is not known."""
    whole = executed.shared == executed.coordinates
    if (
        seed is None
        or not whole
        or any(mask.name != PUBLIC_TRANSFORM for mask in executed.masks)
    ):
        return None
    length = executed.coordinates - executed.appended
    if length > LARGEST:
        return None
    expected = public_mask.draw_mask(seed, release.round, executed.masks, length)
    if release.dimension != len(expected) + executed.appended:
        return f"noise on {release.dimension} coordinates, the public mask has {len(expected)}"
    if release.support != public_mask.mask_digest(expected):
        return (
            "the coordinates are not those of the public mask, so they depend on data"
        )
    return None
