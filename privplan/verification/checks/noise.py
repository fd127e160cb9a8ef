"""That the planned noise was drawn, all of it, and every time anew."""

from __future__ import annotations

import math
from collections.abc import Iterator

from privplan.record import GroupShare, ReleaseRecord
from privplan.verification.checks.check import Check, Run, at_round, first
from privplan.verification.statistics import FALSE_ALARM, noise_p_value


def noise_planned(run: Run) -> Check:
    """Each release says the noise that was planned for it; more only to provide for dropouts."""
    spare = 1 / math.sqrt(1 - run.plan.spec.planning.dropout_tolerance)

    def problems() -> Iterator[str]:
        for release, share, found, planned in _multipliers(run):
            least, most = planned * (1 - 1e-9), planned * spare * (1 + 1e-9)
            if not least <= found <= most:
                yield (
                    f"round {release.round}, {share.group}: noise multiplier {found:.6g}, "
                    f"planned {planned:.6g}"
                )

    well = "every release has its planned noise multiplier"
    return first(problems(), "noise planned", well)


def noise_shares(run: Run) -> Check:
    """No cohort was too short to add up to the planned noise.

    Noise that the clients add in equal shares, a part 1/r of the variance each, falls short
    whenever fewer than r of them report; a release's noise must not depend on its cohort.
    """

    def problems() -> Iterator[str]:
        expected = {group.name: group.expected_cohort for group in run.plan.groups}
        for release, share, found, planned in _multipliers(run):
            shares = expected[share.group] * (found / planned) ** 2
            if found < planned * (1 - 1e-9) and share.cohort < expected[share.group]:
                yield (
                    f"round {release.round}, {share.group}: a cohort of {share.cohort} drew "
                    f"{shares:.3g} of {expected[share.group]:.3g} shares of the planned variance"
                )

    return first(problems(), "noise shares", "no short cohort fell short of the planned noise")


def _multipliers(run: Run) -> Iterator[tuple[ReleaseRecord, GroupShare, float, float]]:
    """Each release of clients' sums, with the multiplier found in it and the planned one."""
    for group in run.plan.groups:
        for release, share in run.shares(group.name):
            if release.family != "silent":
                found = release.release_for(share).noise_multiplier
                yield release, share, found, at_round(run, group, release)[1]


def noise_drawn(run: Run) -> Check:
    """The noise that was drawn has the standard deviation that was recorded."""
    name, releases = "noise drawn", [r for r in run.ledger.records if r.family == "gaussian"]
    if run.ledger.records and all(r.family == "silent" for r in run.ledger.records):
        return Check(name=name, passed=True, reason="nothing left the clients: epsilon is 0")
    if not releases:
        return Check(name=name, passed=False, reason="no noise was drawn: epsilon is infinite")
    level = FALSE_ALARM / (len(releases) + 1)

    def problems() -> Iterator[str]:
        squares, drawn = 0.0, 0
        for release in releases:
            found, std, count = release.noise_sum_squares, release.noise_std, release.dimension
            if std == 0 or count == 0 or noise_p_value(found, std, count) < level:
                measured = math.sqrt(found / max(count, 1))
                yield f"round {release.round}: drawn with {measured:.6g}, recorded {std:.6g}"
            squares, drawn = squares + found / std**2, drawn + count
        if noise_p_value(squares, 1.0, drawn) < level:
            yield f"all rounds: {math.sqrt(squares / drawn):.6g} times the recorded deviation"

    coordinates = sum(release.dimension for release in releases)
    well = f"chi-square over {coordinates} coordinates, false alarms at most {FALSE_ALARM:g}"
    return first(problems(), name, well)


def noise_fresh(run: Run) -> Check:
    """No generator state was used twice, and no noise came twice, not even with other signs.

    Two draws whose squares add up to the very same double are one draw: by chance it happens to
    a pair with a probability below 1e-13 for up to a million coordinates.
    """

    def problems() -> Iterator[str]:
        states: dict[str, int] = {}
        draws: dict[tuple[float, float], int] = {}
        for release in run.ledger.records:
            if release.family != "gaussian":
                continue
            here, state = f"round {release.round}", release.noise_state
            if state and state in states:
                yield f"{here}: the generator stood where it did in round {states[state]}"
            states[state] = release.round
            drawn = (release.noise_std, release.noise_sum_squares)
            if drawn in draws:
                yield f"{here}: the noise is that of round {draws[drawn]} again"
            draws[drawn] = release.round

    named = sum(1 for release in run.ledger.records if release.noise_state)
    well = f"{named} states of the generator, none used twice"
    return first(problems(), "noise fresh", well)
