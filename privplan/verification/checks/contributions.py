"""Checks of what clients add to a sum: updates within the clipping bound, constant weights."""

from __future__ import annotations

import math
from collections.abc import Iterator

from privplan.plan import GroupPlan
from privplan.planning.weights import rule_of
from privplan.record import GroupShare, ReleaseRecord
from privplan.spec.turns import mixture
from privplan.verification.checks.check import (
    Check,
    Run,
    at_round,
    first,
    lacking,
    not_shown,
    register,
    unreleased,
)
from privplan.verification.checks.noise_law import positions
from privplan.verification.noise_evidence import read_noise_evidence

CLIP_TOLERANCE = 1e-5
"""Relative tolerance on a clipped norm, for rounding in single precision."""


@register("clipping", order=50)
def clipping(run: Run) -> Check:
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
                    yield from (f"{where}: {fault}" for fault in _faults(release, share, bound))

    norm = run.plan.spec.clipping_norm
    reason = f"no update above its bound (C = {norm:g})"

    def missing() -> Iterator[str]:
        yield from unreleased(run)
        sent = (release for release in run.ledger.records if not release.noise.silent)
        shares = (share for release in sent for share in release.shares)
        yield from lacking("norms of the updates", (one.largest_norm is None for one in shares))

    return first(problems(), "clipping", reason, missing())


@register("sums bounded", order=51)
def sums_bounded(run: Run) -> Check:
    """No measured sum is longer than its updates would be if all had the largest norm."""
    name = "sums bounded"
    releases = [
        (index, release)
        for index, release in positions(run)
        if release.unit == "client" and release.residual is not None and release.noise.noisy
    ]
    measured, fault = ({}, None) if run.folder is None else read_noise_evidence(run.folder)
    absent = sum((release.round, index) not in measured for index, release in releases)

    def problems() -> Iterator[str]:
        if fault is not None:
            yield fault
        factors, before = mixture(run.plan.spec), dict[int, list[float | None]]()
        for index, release in releases:
            one = measured.get((release.round, index))
            past = before.setdefault(index, [])
            past.insert(0, longest_sum(release))
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

    check = first(problems(), name, "no sum is longer than its updates in total")
    if check.passed and absent:
        missing = [f"norms of the sums ({absent} of {len(releases)})"]
        return not_shown(name, missing, required=False)
    return check


def longest_sum(release: ReleaseRecord) -> float | None:
    """Norm of the sum if all updates had the largest norm; None where that is not recorded."""
    total = 0.0
    for share in release.shares:
        if share.cohort is None or share.largest_norm is None:
            return None
        total += (share.cohort + (share.canaries or 0)) * share.largest_norm
    return total


def _faults(release: ReleaseRecord, share: GroupShare, bound: float) -> Iterator[str]:
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


@register("weights", order=150)
def weights(run: Run) -> Check:
    """A group's weight is constant while its planned parameters are, whoever takes part.

    It is that of the rule that the record names, where privplan knows the rule. What an own rule
    makes of noisy sums reveals no more of them, as long as it does not follow who takes part.
    """
    executed = run.record.executed
    rule = None if executed is None else rule_of(executed.aggregator, run.plan)
    turns = run.plan.spec.sampling.law.turns

    def problems() -> Iterator[str]:
        if executed is not None and (turns > 1) != executed.aggregator.startswith("unmixed, "):
            yield f"aggregator {executed.aggregator} under {run.plan.spec.sampling} sampling"
        for group in run.plan.groups:
            seen: dict[tuple[float, float], float] = {}
            for release, share in run.shares(group.name):
                where = f"round {release.round}, {group.name}: weight {share.weight:.6g}"
                before = seen.setdefault(at_round(run, group, release), share.weight)
                if not math.isclose(share.weight, before, rel_tol=1e-9):
                    yield f"{where}, {before:.6g} in an earlier round of the same plan"
                expected = share.weight
                if rule is not None:
                    expected = rule(_group_in_round(run, group, release), run.plan)
                if not math.isclose(share.weight, expected, rel_tol=1e-9):
                    yield f"{where}, planned {expected:.6g}"

    def missing() -> Iterator[str]:
        yield from unreleased(run)
        if executed is None or not executed.aggregator:
            yield "the aggregation rule in the record"

    reason = "the plan's, in every round"
    if executed is not None and rule is None:
        named = executed.aggregator
        reason = f"constant over the rounds; the aggregator {named} is no rule of the plan's"
    return first(problems(), "weights", reason, missing())


def _group_in_round(run: Run, group: GroupPlan, release: ReleaseRecord) -> GroupPlan:
    ratio, _ = run.plan.at_round(group, min(release.round, run.plan.spec.rounds))
    turns = run.plan.spec.sampling.law.turns
    return group.model_copy(update={"expected_cohort": ratio * group.clients / turns})
