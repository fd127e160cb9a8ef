"""Checks that every release has fresh noise with the planned standard deviation.

Each p-value is an upper bound on the chance that an honest run looks at least as odd;
it is exact or follows from a Chernoff bound, never from a limit theorem. The same holds
for cohorts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import chain

from privplan.accounting.families import NOISE_FAMILIES
from privplan.plan import GroupPlan
from privplan.record import ReleaseRecord
from privplan.verification.checks import check
from privplan.verification.checks.regenerated_noise import noise_is_of_seed
from privplan.verification.run import Run

# Relative rounding between a planned and a recorded noise multiplier.
_ROUNDING = 1e-9


@check.register("noise planned", order=70)
def noise_planned(run: Run) -> check.Check:
    """Each release records its planned noise multiplier, or more for dropouts.

    Less would cost more than planned. Much more is no breach of privacy, but another
    run than the plan's, whose forecast and certificate do not describe it.
    """
    groups = run.plan.groups
    problems = chain.from_iterable(_unplanned(run, group) for group in groups)
    reason = "every release has its planned noise multiplier"
    return check.first(problems, "noise planned", reason, check.unreleased(run))


def _unplanned(run: Run, group: GroupPlan) -> Iterator[str]:
    """Releases of a group whose noise multiplier is outside the planned range.

    Args:
        run: with plan and ledger.
        group: whose multiplier it is.

    Yields:
        One line for each release, with its multiplier and the planned one.
    """
    # Clients add shares of the noise. So that the sum has enough of it when the
    # tolerated fraction drops out, each share is larger by this factor.
    provision = 1 / math.sqrt(1 - run.plan.spec.planning.dropout_tolerance)
    for release, share in run.shares(group.name):
        if release.noise.silent:
            continue
        _, planned = check.at_round(run, group, release)
        recorded = release.release_for(share).noise_multiplier
        lowest = planned * (1 - _ROUNDING)
        highest = planned * provision * (1 + _ROUNDING)
        if not lowest <= recorded <= highest:
            yield (
                f"round {release.round}, {share.group}: noise multiplier "
                f"{recorded:.6g}, planned {planned:.6g}"
            )


@check.register("noise drawn", order=90, false_alarm=check.FALSE_ALARM)
def noise_drawn(run: Run) -> check.Check:
    """The drawn noise has the recorded standard deviation, by chi-square tests.

    Epsilon follows from the recorded deviation, so drawing with a smaller one would be
    paid by the clients. The sum of squares of Gaussian noise over its variance is chi-
    square; the tests are of each release and of all together, which finds a factor of
    0.99 in long runs.
    """
    name = "noise drawn"
    releases = [release for release in run.ledger.records if release.noise.noisy]
    if run.ledger.records and all(r.noise.silent for r in run.ledger.records):
        return check.passed(name, check.NOTHING_LEFT)
    if not releases:
        return check.failed(name, "no noise was drawn: epsilon is infinite")

    problems = _unlikely_squares(releases)
    # The draw is known then, so how likely it was is no evidence.
    if run.once(noise_is_of_seed):
        problems = iter(())
    coordinates = sum(release.dimension for release in releases)
    reason = (
        f"chi-square over {coordinates} coordinates, "
        f"false alarms at most {check.FALSE_ALARM:g}"
    )
    unmeasured = check.lacking(
        "sums of squares", (release.noise_sum_squares is None for release in releases)
    )
    missing = chain(check.unreleased(run), unmeasured)
    return check.first(problems, name, reason, missing)


def _unlikely_squares(releases: list[ReleaseRecord]) -> Iterator[str]:
    """Sums of squares of drawn noise that are too small or too large for its law.

    Each release is tested alone, and all releases of a family of noise together: a
    deviation that is a little too small shows only over many rounds.
    """
    families = {release.family for release in releases}
    # One test of each release, and one of all releases of a family together.
    level = check.FALSE_ALARM / (len(releases) + len(families))
    squares_by_family: dict[str, float] = {}
    coordinates_by_family: Counter[str] = Counter()

    for release in releases:
        squares = release.noise_sum_squares
        std = release.noise_std
        count = release.dimension
        if squares is None:
            continue
        empty = std == 0 or count == 0
        if empty or release.noise.p_value(squares, std, count) < level:
            measured_std = math.sqrt(squares / max(count, 1))
            yield (
                f"round {release.round}: drawn with {measured_std:.6g}, "
                f"recorded {std:.6g}"
            )
        # In units of the variance, releases with different noise can be added.
        earlier = squares_by_family.get(release.family, 0.0)
        squares_by_family[release.family] = earlier + squares / std**2
        coordinates_by_family[release.family] += count

    for family, squares in squares_by_family.items():
        count = coordinates_by_family[family]
        if NOISE_FAMILIES.get(family).p_value(squares, 1.0, count) < level:
            ratio = math.sqrt(squares / count)
            yield f"all rounds: {ratio:.6g} times the recorded deviation"


@check.register("noise fresh", order=100)
def noise_fresh(run: Run) -> check.Check:
    """No generator state was used twice, and no noise vector, with any signs.

    The difference of two releases with the same noise has none.
    """
    sent = [release for release in run.ledger.records if not release.noise.silent]
    reason = check.NOTHING_LEFT
    if sent:
        reason = f"{len(sent)} states of the generator, none used twice"
    stateless = check.lacking(
        "states of the generator", (not release.noise_state for release in sent)
    )
    missing = chain(check.unreleased(run), stateless)
    return check.first(_reused(run), "noise fresh", reason, missing)


def _reused(run: Run) -> Iterator[str]:
    """States and draws that a release has in common with an earlier one.

    Two draws with equal sums of squares (as doubles) are the same draw: two independent
    draws have equal sums with a probability below 1e-13 for up to a million
    coordinates.
    """
    round_of_state: dict[str, int] = {}
    round_of_draw: dict[tuple[float, float], int] = {}
    for release in run.ledger.records:
        if not release.noise.noisy:
            continue
        where = f"round {release.round}"
        state = release.noise_state
        if state and state in round_of_state:
            yield (
                f"{where}: the generator stood where it did in round "
                f"{round_of_state[state]}"
            )
        round_of_state[state] = release.round

        if release.noise_sum_squares is None:
            continue
        draw = (release.noise_std, release.noise_sum_squares)
        if draw in round_of_draw:
            yield f"{where}: the noise is that of round {round_of_draw[draw]} again"
        round_of_draw[draw] = release.round
