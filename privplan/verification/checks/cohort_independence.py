"""The check that cohorts are uniform given their sizes, and independent over rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from privplan.laws.law import Law
from privplan.laws.participation import total_p_value
from privplan.plan import GroupPlan
from privplan.verification.checks.check import (
    EVIDENCE_FALSE_ALARM,
    Check,
    first,
    passed,
    register,
    stretches,
)
from privplan.verification.checks.cohort_p_values import (
    hypergeometric_p_value,
    neighbours_p_value,
    overlaps_p_value,
)
from privplan.verification.checks.regenerated_cohorts import (
    cohorts_are_of_seed,
    unnamed_participants,
)
from privplan.verification.run import Run

# Distances of rounds at which the overlap of cohorts is tested over the whole run.
LAGS = 5
# Distances of positions at which common participation is tested.
DISTANCES = (1, 2, 3)
# Most rounds of which every pair is tested for an overlap: the first ones.
PAIRED_ROUNDS = 300
# Kinds of tests, which share the false-alarm rate equally: ratio, lags, pairs of
# rounds, halves and neighbours.
KINDS = 5

Cohorts = list[tuple[int, tuple[int, ...]]]
"""Rounds with their participants, as positions among whom the law draws."""


@register("cohort independence", order=132, false_alarm=EVIDENCE_FALSE_ALARM)
def cohort_independence(run: Run) -> Check:
    """Cohorts are uniform given their sizes, and those of different rounds independent.

    Amplification by sampling counts on both: who can be told from earlier cohorts to
    take part in this one is not hidden by the draw. Tested are overlaps at several
    distances of rounds, every pair of rounds, halves of the clients, neighbours, and
    the ratio. A cohort that is a function of the data without one of these patterns
    stays unseen; executing the run again finds it.
    """
    name = "cohort independence"
    drawing = _drawing_groups(run)
    if run.plan.spec.unit == "record" or not drawing:
        return passed(name, "does not apply, cohorts are not drawn")

    def problems() -> Iterator[str]:
        """What speaks against the cohorts of any group, unless their draw is known."""
        # The draw is known then, so how likely it was is no evidence.
        if run.once(cohorts_are_of_seed):
            return
        level = EVIDENCE_FALSE_ALARM / len(run.plan.groups) / KINDS
        for group, law in drawing:
            if law.uniform_cohorts:
                yield from _unlikely_cohorts(run, group, law, level)

    missing: list[str] = []
    # Cohorts that are those of the seed are not in want of a test.
    if not run.once(cohorts_are_of_seed):
        untested = [
            f"tests of the law {law.title}"
            for _, law in drawing
            if not law.uniform_cohorts
        ]
        missing = [*dict.fromkeys(untested), *unnamed_participants(run)]
    rate = f"false alarms at most {EVIDENCE_FALSE_ALARM:g}"
    reason = f"lags, pairs, halves and ratio fit the law, {rate}"
    return first(problems(), name, reason, missing, required=False)


def _drawing_groups(run: Run) -> list[tuple[GroupPlan, Law]]:
    """Groups whose law leaves clients out of rounds, each with the law."""
    groups = []
    for group in run.plan.groups:
        law = run.plan.law_of(group).law
        if not law.everyone or law.drawable(1) < 1:
            groups.append((group, law))
    return groups


def _unlikely_cohorts(
    run: Run, group: GroupPlan, law: Law, level: float
) -> Iterator[str]:
    """What speaks against a group's cohorts.

    Args:
        run: with the ledger.
        group: whose cohorts are tested.
        law: that the plan names for it.
        level: chance of each kind of test to accuse an honest group.
    """
    for fault in _wrong_ratio(run, group, level):
        yield f"{group.name}: {fault}"

    cohorts = dict(_cohorts(run, group))
    # Rounds that draw from the same clients, by these.
    rounds_by_places: dict[Sequence[int], list[int]] = {}
    for round_ in cohorts:
        places = law.places(round_, run.clients[group.name])
        rounds_by_places.setdefault(places, []).append(round_)

    level /= len(rounds_by_places) or 1
    for places, rounds in rounds_by_places.items():
        if not len(places):
            continue
        where = ""
        numbers: Sequence[int] = rounds
        if len(rounds_by_places) > 1:
            # A test of distances needs rounds that follow each other.
            where = f", rounds {', '.join(map(str, rounds[:2]))}, ... counted from 1"
            numbers = range(1, len(rounds) + 1)
        positions: Cohorts = []
        for number, round_ in zip(numbers, rounds, strict=True):
            drawn = [
                places.index(client) for client in cohorts[round_] if client in places
            ]
            positions.append((number, tuple(drawn)))
        for test in (_dependent_rounds, _one_half, _neighbours):
            for fault in test(positions, len(places), level):
                yield f"{group.name}{where}: {fault}"


def _cohorts(run: Run, group: GroupPlan) -> Cohorts:
    """Rounds with the group's participants, one cohort per round.

    A cohort that names a client twice is left to the check of cohorts.
    """
    by_round: dict[int, tuple[int, ...]] = {}
    for release, share in run.shares(group.name):
        participants = share.participants
        if participants is None or len(set(participants)) != len(participants):
            continue
        of_group = [client for client in participants if client < group.clients]
        by_round[release.round] = tuple(of_group)
    return sorted(by_round.items())


def _dependent_rounds(cohorts: Cohorts, n: int, level: float) -> Iterator[str]:
    """Overlaps at each distance of rounds, and of single pairs of rounds.

    Args:
        cohorts: positions of the participants, by round.
        n: number of positions.
        level: chance of an honest group to be accused, for both tests each.
    """
    by_round = dict(cohorts)
    for lag in range(1, LAGS + 1):
        pairs = [
            (cohort, by_round[round_ + lag])
            for round_, cohort in cohorts
            if round_ + lag in by_round
        ]
        if not pairs:
            continue
        overlaps = [len({*earlier}.intersection(later)) for earlier, later in pairs]
        sizes = [(len(earlier), len(later)) for earlier, later in pairs]
        if overlaps_p_value(overlaps, sizes, n) < level / LAGS:
            expected = (
                sum(earlier_size * later_size for earlier_size, later_size in sizes) / n
            )
            yield (
                f"{sum(overlaps)} clients in common with the cohort {lag} rounds "
                f"before, about {expected:.3g} expected"
            )
    yield from same_cohort(cohorts[:PAIRED_ROUNDS], n, level)


def same_cohort(cohorts: Cohorts, n: int, level: float) -> Iterator[str]:
    """Two rounds whose cohorts have too many or too few clients in common."""
    common = _clients_in_common(cohorts)
    tests = max(1, len(cohorts) * (len(cohorts) - 1) // 2)
    # Many pairs have the same sizes and the same overlap.
    chance_of_case: dict[tuple[int, int, int], float] = {}
    for first_index, second_index in combinations(range(len(cohorts)), 2):
        first_round, first_cohort = cohorts[first_index]
        second_round, second_cohort = cohorts[second_index]
        overlapping = int(common[first_index, second_index])
        case = (overlapping, len(first_cohort), len(second_cohort))
        if case not in chance_of_case:
            chance_of_case[case] = hypergeometric_p_value(
                overlapping, n, len(first_cohort), len(second_cohort)
            )
        if chance_of_case[case] < level / tests:
            expected = len(first_cohort) * len(second_cohort) / n
            yield (
                f"rounds {first_round} and {second_round} have {overlapping} clients "
                f"in common, about {expected:.3g} expected"
            )


def _clients_in_common(cohorts: Cohorts) -> np.ndarray:
    """Number of clients that each two cohorts have in common [cohorts, cohorts]."""
    # Not at the top: where cohorts are those of the seed nothing is counted.
    from scipy.sparse import csr_array

    sizes = [len(cohort) for _, cohort in cohorts]
    clients: list[int] = []
    for _, cohort in cohorts:
        clients += cohort
    _, columns = np.unique(clients, return_inverse=True)
    rows = np.repeat(np.arange(len(cohorts)), sizes)
    present = csr_array(
        (np.ones(len(rows), dtype=np.int64), (rows, columns)),
        shape=(len(cohorts), len(rows) + 1),
    )
    common: np.ndarray = (present @ present.T).toarray()
    return common


def _one_half(cohorts: Cohorts, n: int, level: float) -> Iterator[str]:
    """Rounds that prefer the first half of the positions, or the even ones."""
    halves = {"the first half": range(n // 2), "even positions": range(0, n, 2)}
    tests = max(1, len(halves) * len(cohorts))
    for name, half in halves.items():
        for round_, cohort in cohorts:
            count = sum(position in half for position in cohort)
            chance = hypergeometric_p_value(count, n, len(half), len(cohort))
            if chance < level / tests:
                participants = f"{count} of {len(cohort)} participants"
                yield f"round {round_}: {participants} are of {name}"


def _neighbours(cohorts: Cohorts, n: int, level: float) -> Iterator[str]:
    """Clients near each other who take part together."""
    positions = [cohort for _, cohort in cohorts]
    for distance in DISTANCES:
        chance = neighbours_p_value(positions, n, distance)
        if chance < level / len(DISTANCES):
            yield f"clients {distance} apart took part in the same rounds too often"


def _wrong_ratio(run: Run, group: GroupPlan, level: float) -> Iterator[str]:
    """The total of the cohorts, by planned ratio, where their size is random."""
    law = run.plan.law_of(group).law
    if law.whole_cohorts:
        return
    clients = run.clients[group.name]
    by_ratio = stretches(run, group)
    for ratio, pairs in by_ratio.items():
        sizes = []
        trials = 0
        for release, share in pairs:
            if share.drawn_size is not None:
                sizes.append(share.drawn_size)
                trials += len(law.places(release.round, clients))
        if not sizes:
            continue
        total = sum(sizes)
        chance = law.chance(clients, ratio)
        if total_p_value([total], trials, chance) < level / len(by_ratio):
            expected = f"about {chance * trials:.0f} are expected"
            yield f"{total} participations where {expected}"
