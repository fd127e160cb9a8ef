"""Checks that every release has fresh noise with the planned standard deviation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain

from privplan.accounting.noise_families import NOISE_FAMILIES
from privplan.record import GroupShare, ReleaseRecord
from privplan.verification.checks.check import (
    NOTHING_LEFT,
    Check,
    Run,
    at_round,
    failed,
    first,
    lacking,
    passed,
    register,
    unreleased,
)
from privplan.verification.statistics import FALSE_ALARM


@register("noise planned", order=70)
def noise_planned(run: Run) -> Check:
    """Each release records its planned noise multiplier, or more to provide for dropouts."""
    provision = 1 / math.sqrt(1 - run.plan.spec.planning.dropout_tolerance)

    def problems() -> Iterator[str]:
        for release, share, recorded, planned in _multipliers(run):
            least, most = planned * (1 - 1e-9), planned * provision * (1 + 1e-9)
            if not least <= recorded <= most:
                yield (
                    f"round {release.round}, {share.group}: noise multiplier {recorded:.6g}, "
                    f"planned {planned:.6g}"
                )

    reason = "every release has its planned noise multiplier"
    return first(problems(), "noise planned", reason, unreleased(run))


@register("noise shares", order=80)
def noise_shares(run: Run) -> Check:
    """No cohort was too small to reach the planned noise.

    Noise that clients add in equal shares, 1/r of the variance each, is below the planned noise
    whenever fewer than r clients report; the noise of a release must not depend on its cohort.
    """

    def problems() -> Iterator[str]:
        expected = {group.name: group.expected_cohort for group in run.plan.groups}
        for release, share, recorded, planned in _multipliers(run):
            shares = expected[share.group] * (recorded / planned) ** 2
            short = share.cohort is None or share.cohort < expected[share.group]
            if recorded < planned * (1 - 1e-9) and short:
                yield (
                    f"round {release.round}, {share.group}: a cohort of {share.cohort} drew "
                    f"{shares:.3g} of {expected[share.group]:.3g} shares of the planned variance"
                )

    reason = "no short cohort fell short of the planned noise"
    return first(problems(), "noise shares", reason, unreleased(run))


def _multipliers(run: Run) -> Iterator[tuple[ReleaseRecord, GroupShare, float, float]]:
    """Each release that is not silent, with its recorded and its planned noise multiplier."""
    for group in run.plan.groups:
        for release, share in run.shares(group.name):
            if not release.noise.silent:
                recorded = release.release_for(share).noise_multiplier
                yield release, share, recorded, at_round(run, group, release)[1]


@register("noise drawn", order=90, false_alarm=FALSE_ALARM)
def noise_drawn(run: Run) -> Check:
    """The drawn noise has the recorded standard deviation, by chi-square tests."""
    name, releases = "noise drawn", [r for r in run.ledger.records if r.noise.noisy]
    if run.ledger.records and all(r.noise.silent for r in run.ledger.records):
        return passed(name, NOTHING_LEFT)
    if not releases:
        return failed(name, "no noise was drawn: epsilon is infinite")
    level = FALSE_ALARM / (len(releases) + len({r.family for r in releases}))

    def problems() -> Iterator[str]:
        of_family: dict[str, tuple[float, int]] = {}
        for release in releases:
            drawn_squares, std, count = (
                release.noise_sum_squares,
                release.noise_std,
                release.dimension,
            )
            if drawn_squares is None:
                continue
            if std == 0 or count == 0 or release.noise.p_value(drawn_squares, std, count) < level:
                measured = math.sqrt(drawn_squares / max(count, 1))
                yield f"round {release.round}: drawn with {measured:.6g}, recorded {std:.6g}"
            squares, drawn = of_family.get(release.family, (0.0, 0))
            of_family[release.family] = squares + drawn_squares / std**2, drawn + count
        for family, (squares, drawn) in of_family.items():
            if NOISE_FAMILIES.get(family).p_value(squares, 1.0, drawn) < level:
                yield f"all rounds: {math.sqrt(squares / drawn):.6g} times the recorded deviation"

    coordinates = sum(release.dimension for release in releases)
    reason = f"chi-square over {coordinates} coordinates, false alarms at most {FALSE_ALARM:g}"
    squares = lacking("sums of squares", (one.noise_sum_squares is None for one in releases))
    return first(problems(), name, reason, chain(unreleased(run), squares))


@register("noise fresh", order=100)
def noise_fresh(run: Run) -> Check:
    """No generator state was used twice, and no noise vector was reused, with any signs.

    Two draws with equal sums of squares (as doubles) are the same draw: two independent draws have
    equal sums with a probability below 1e-13 for up to a million coordinates.
    """

    def problems() -> Iterator[str]:
        states: dict[str, int] = {}
        draws: dict[tuple[float, float], int] = {}
        for release in run.ledger.records:
            if not release.noise.noisy:
                continue
            here, state = f"round {release.round}", release.noise_state
            if state and state in states:
                yield f"{here}: the generator stood where it did in round {states[state]}"
            states[state] = release.round
            if release.noise_sum_squares is None:
                continue
            drawn = (release.noise_std, release.noise_sum_squares)
            if drawn in draws:
                yield f"{here}: the noise is that of round {draws[drawn]} again"
            draws[drawn] = release.round

    sent = [release for release in run.ledger.records if not release.noise.silent]
    reason = f"{len(sent)} states of the generator, none used twice" if sent else NOTHING_LEFT
    states = lacking("states of the generator", (not release.noise_state for release in sent))
    return first(problems(), "noise fresh", reason, chain(unreleased(run), states))
