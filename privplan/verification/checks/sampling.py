"""Checks that cohorts were drawn by the planned sampling law, and who took part how often.

The law tests the sizes of its cohorts. Each client's number of participations is tested against
the law's distribution of that number, and their rounds against what the law allows one client:
``attendance_faults`` of the law that the plan names, whatever the ledger says of who drew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cache, lru_cache

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln

from privplan.laws.participation import spread_p_value, total_p_value
from privplan.plan import GroupPlan
from privplan.record import GroupShare
from privplan.streams import Purpose
from privplan.verification.checks.check import (
    EVIDENCE_FALSE_ALARM,
    FALSE_ALARM,
    Check,
    Run,
    at_round,
    first,
    lacking,
    not_shown,
    passed,
    register,
    stretches,
    unreleased,
)


@register("sampling law", order=120, false_alarm=FALSE_ALARM)
def sampling(run: Run) -> Check:
    """The law that was executed is the law that was planned."""

    def problems() -> Iterator[str]:
        for group in run.plan.groups:
            found, law = stretches(run, group), run.plan.law_of(group)
            tests = 3 * len(run.plan.groups) * max(1, len(found))
            for ratio, pairs in found.items():
                shares = [share for _, share in pairs]
                for share in shares:
                    if share.sampling != law:
                        yield f"{group.name}: sampled by {share.sampling}, planned {law}"
                    if share.sampling_ratio != ratio:
                        used = f"{share.sampling_ratio:.6g}, planned {ratio:.6g}"
                        yield f"{group.name}: sampling ratio {used}"
                if not run.once(_is_of_seed) and _in_turn(run, group):
                    yield from _unlikely_sizes(
                        run, group, shares, ratio, FALSE_ALARM / tests
                    )

    laws = ", ".join(dict.fromkeys(map(run.plan.law_of, run.plan.groups)))
    sizes = "batch" if run.plan.spec.unit == "record" else "cohort"
    well = f"{laws}: {sizes} sizes fit the planned ratios, false alarms at most {FALSE_ALARM:g}"

    def missing() -> Iterator[str]:
        yield from unreleased(run)
        shares = (share for release in run.ledger.records for share in release.shares)
        yield from lacking(
            "cohort sizes", (share.drawn_size is None for share in shares)
        )

    return first(problems(), "sampling law", well, missing())


def _unlikely_sizes(
    run: Run, group: GroupPlan, shares: list[GroupShare], ratio: float, level: float
) -> Iterator[str]:
    """Cohort sizes against the law."""
    counts = [share.drawn_size for share in shares if share.drawn_size is not None]
    if not counts:
        return
    if shares[0].records is not None:
        trials = sum((share.records or 0) * (group.steps or 0) for share in shares)
        if total_p_value([sum(counts)], trials, ratio) < level:
            expected = ratio * trials
            yield f"{group.name}: {sum(counts)} records in batches, about {expected:.0f} expected"
        return
    law, clients = run.plan.law_of(group).law, run.clients[group.name]
    for fault in law.cohort_faults(counts, clients, ratio, level):
        yield f"{group.name}: {fault}"


def _in_turn(run: Run, group: GroupPlan) -> bool:
    """Whether the cohorts that are known are of the first rounds, where a law's rounds differ."""
    known = [
        one.round
        for one, share in run.shares(group.name)
        if share.drawn_size is not None
    ]
    return run.plan.law_of(group).law.rounds_for(1) == 1 or known == [
        *range(1, len(known) + 1)
    ]


def _is_of_seed(run: Run) -> bool:
    """Whether all cohorts are those of the seed: how likely they were then shows nothing."""
    seeded = (
        run.plan.spec.unit == "client" and not run.keyed
    )  # a key may have been chosen
    return seeded and run.once(cohorts_regenerated).passed


@register("cohorts", order=130)
def cohorts(run: Run) -> Check:
    """Participants are different clients of their group whom the planned law allows there."""

    def problems() -> Iterator[str]:
        for group in run.plan.groups:
            clients, law = run.clients[group.name], run.plan.law_of(group).law
            attendance: dict[int, list[int]] = {}
            for release, share in run.shares(group.name):
                fault = _inconsistent(share, group.clients)
                places = law.places(release.round, clients)
                others = [one for one in share.participants or () if one not in places]
                if fault is None and others:
                    fault = f"client {others[0]} is in the sum, and it was not its turn"
                if fault is not None:
                    yield f"round {release.round}, {group.name}: {fault}"
                # Participants are those drawn, whoever reported, so that the law holds of them.
                if share.participants is not None:
                    attendance.setdefault(release.round, []).extend(share.participants)
            for fault in law.attendance_faults(attendance, clients):
                yield f"{group.name}: {fault}"

    reason = "participants are clients of their group, each once"
    return first(problems(), "cohorts", reason, _unnamed(run))


def _unnamed(run: Run) -> Iterator[str]:
    """Missing evidence: releases of a group, and participants of releases."""
    yield from unreleased(run)
    shares = (share for release in run.ledger.records for share in release.shares)
    yield from lacking("participants", (share.participants is None for share in shares))


def _inconsistent(share: GroupShare, clients: int) -> str | None:
    if share.drawn is not None and (share.cohort or 0) > share.drawn:
        return f"{share.cohort} clients reported where {share.drawn} were drawn"
    who = share.participants
    if who is None:
        return None
    if len(set(who)) != len(who):
        [(client, times)] = Counter(who).most_common(1)
        return f"client {client} is in the sum {times} times"
    if who and max(who) >= clients:
        return f"client {max(who)} is none of the group's {clients}"
    if share.records is None and share.drawn_size not in (None, len(who)):
        return f"a cohort of {share.drawn_size} with {len(who)} participants"
    return None


@register("participation", order=140, false_alarm=FALSE_ALARM)
def participation(run: Run) -> Check:
    """Each client's number of participations fits the law, and so does their spread.

    Exact tails of each client with a union bound over the clients; under a law that draws
    clients independently, also how much their numbers vary, by a Chernoff bound.
    """
    name, level = "participation", FALSE_ALARM / (2 * len(run.plan.groups))
    if run.plan.spec.unit == "record":
        return passed(name, "does not apply, clients take turns; see rounds")

    def problems() -> Iterator[str]:
        for group in run.plan.groups:
            if not _in_turn(run, group):
                continue
            who, counts, law = _participations(run, group)
            if counts.sum() == 0 and len(law) == 1:
                continue
            at, chance = oddest_client(counts, law, group.clients)
            if chance < level:
                expected = float(law @ np.arange(len(law)))
                yield (
                    f"{group.name}: client {who[at]} took part in {counts[at]} of "
                    f"{len(law) - 1} rounds, about {expected:.3g} expected"
                )
            planned = run.plan.law_of(group).law
            if planned.independent_clients:
                sizes = np.arange(len(law))
                with np.errstate(divide="ignore"):
                    absent = group.clients - len(counts)
                    chance = spread_p_value(
                        (counts.tolist(), sizes, np.log(law), absent)
                    )
                if chance < level:
                    yield (
                        f"{group.name}: participations vary between clients unlike {planned.title}"
                    )

    well = f"no client stands out, false alarms at most {FALSE_ALARM:g}"
    found = iter(()) if run.once(_is_of_seed) else problems()
    return first(found, name, well, _unnamed(run))


def _participations(
    run: Run, group: GroupPlan
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Clients who took part and the first who did not, how often they did, and the law of that."""
    found: Counter[int] = Counter()
    rounds: Counter[float] = Counter()
    planned = run.plan.law_of(group).law
    for release, share in run.shares(group.name):
        if share.participants is not None:
            ratio = at_round(run, group, release)[0]
            rounds[planned.chance(group.clients, ratio)] += 1
            found.update(
                client for client in share.participants if client < group.clients
            )
    absent = next((one for one in range(group.clients) if one not in found), None)
    known = sorted(found.items()) + [(absent, 0)] * (absent is not None)
    who, counts = np.array(known, dtype=np.int64).T
    return who, counts, planned.participations(rounds)


# --- A check that cohorts of different rounds are independent and uniform given their sizes. -----

LAGS = 5  # distances of rounds at which the overlap of cohorts is tested over the whole run
DISTANCES = (1, 2, 3)  # distances of positions at which common participation is tested
PAIRED_ROUNDS = (
    300  # most rounds of which every pair is tested for an overlap: the first
)
KINDS = 5  # number of kinds of tests, which share the false-alarm rate equally

Cohorts = list[tuple[int, tuple[int, ...]]]


@register("cohort independence", order=132, false_alarm=EVIDENCE_FALSE_ALARM)
def cohort_independence(run: Run) -> Check:
    """Overlaps at all lags, single pairs of rounds, halves, neighbours, and the sampling ratio."""
    name, laws = (
        "cohort independence",
        [(one, run.plan.law_of(one).law) for one in run.plan.groups],
    )
    laws = [one for one in laws if not one[1].everyone or one[1].drawable(1) < 1]
    if run.plan.spec.unit == "record" or not laws:
        return passed(name, "does not apply, cohorts are not drawn")
    others = (
        f"tests of the law {law.title}" for _, law in laws if not law.uniform_cohorts
    )
    missing = [*dict.fromkeys(others)]
    shares = [share for release in run.ledger.records for share in release.shares]
    unnamed = sum(share.participants is None for share in shares)

    def problems() -> Iterator[str]:
        level = EVIDENCE_FALSE_ALARM / len(run.plan.groups) / KINDS
        for group, law in laws:
            if not law.uniform_cohorts:
                continue
            for fault in _wrong_ratio(run, group, level):
                yield f"{group.name}: {fault}"
            cohorts = dict(_cohorts(run, group))
            parts: dict[
                Sequence[int], list[int]
            ] = {}  # rounds that draw from the same clients
            for round_ in cohorts:
                parts.setdefault(
                    law.places(round_, run.clients[group.name]), []
                ).append(round_)
            for places, rounds in [one for one in parts.items() if len(one[0])]:
                where = (
                    f", rounds {', '.join(map(str, rounds[:2]))}, ... counted from 1"
                )
                numbers = range(1, len(rounds) + 1) if len(parts) > 1 else rounds
                own = [
                    (
                        at,
                        tuple(
                            places.index(one)
                            for one in cohorts[round_]
                            if one in places
                        ),
                    )
                    for at, round_ in zip(numbers, rounds, strict=True)
                ]
                for fault in (
                    *_dependent_rounds(own, len(places), level / len(parts)),
                    *_one_half(own, len(places), level / len(parts)),
                    *_neighbours(own, len(places), level / len(parts)),
                ):
                    yield f"{group.name}{where if len(parts) > 1 else ''}: {fault}"

    rate = f"false alarms at most {EVIDENCE_FALSE_ALARM:g}"
    missing += (
        [f"participants ({unnamed} of {len(shares)})"] if unnamed or not shares else []
    )
    reason = f"lags, pairs, halves and ratio fit the law, {rate}"
    found = iter(()) if run.once(_is_of_seed) else problems()
    return first(found, name, reason, missing, required=False)


def _cohorts(run: Run, group: GroupPlan) -> Cohorts:
    """Rounds with the group's participants, one cohort per round."""
    found = {
        release.round: tuple(
            client for client in share.participants if client < group.clients
        )
        for release, share in run.shares(group.name)
        if share.participants is not None
        and len(set(share.participants)) == len(share.participants)
    }
    return sorted(found.items())


def _dependent_rounds(cohorts: Cohorts, n: int, level: float) -> Iterator[str]:
    by_round = dict(cohorts)
    for lag in range(1, LAGS + 1):
        pairs = [
            (by_round[t], by_round[t + lag]) for t in by_round if t + lag in by_round
        ]
        if not pairs:
            continue
        overlaps = [overlap(left, frozenset(right)) for left, right in pairs]
        sizes = [(len(left), len(right)) for left, right in pairs]
        if overlaps_p_value(overlaps, sizes, n) < level / LAGS:
            expected = sum(left * right for left, right in sizes) / n
            yield (
                f"{sum(overlaps)} clients in common with the cohort {lag} rounds before, "
                f"about {expected:.3g} expected"
            )
    yield from _same_cohort(cohorts[:PAIRED_ROUNDS], n, level)


def _same_cohort(cohorts: Cohorts, n: int, level: float) -> Iterator[str]:
    """Two rounds whose cohorts have too many or too few clients in common."""
    columns = np.unique(
        [one for _, cohort in cohorts for one in cohort], return_inverse=True
    )[1]
    rows = np.repeat(np.arange(len(cohorts)), [len(cohort) for _, cohort in cohorts])
    ones, shape = np.ones(len(rows), dtype=np.int64), (len(cohorts), len(rows) + 1)
    present = csr_array((ones, (rows, columns)), shape=shape)
    common = (present @ present.T).toarray()
    number = max(1, len(cohorts) * (len(cohorts) - 1) // 2)
    known: dict[tuple[int, int, int], float] = {}
    for left, (first_, one) in enumerate(cohorts):
        for right in range(left + 1, len(cohorts)):
            second, other = cohorts[right]
            case = (len(one), len(other), int(common[left, right]))
            if case not in known:
                known[case] = hypergeometric_p_value(case[2], n, case[0], case[1])
            if known[case] < level / number:
                expected = case[0] * case[1] / n
                yield (
                    f"rounds {first_} and {second} have {case[2]} clients in common, "
                    f"about {expected:.3g} expected"
                )


def _one_half(cohorts: Cohorts, n: int, level: float) -> Iterator[str]:
    """Rounds that prefer the first half of the positions, or the even ones."""
    halves = (("the first half", range(n // 2)), ("even positions", range(0, n, 2)))
    tests = max(1, len(halves) * len(cohorts))
    for name, half in halves:
        for round_, cohort in cohorts:
            found = sum(one in half for one in cohort)
            chance = hypergeometric_p_value(found, n, len(half), len(cohort))
            if chance < level / tests:
                yield f"round {round_}: {found} of {len(cohort)} participants are of {name}"


def _neighbours(cohorts: Cohorts, n: int, level: float) -> Iterator[str]:
    rows = [cohort for _, cohort in cohorts]
    for distance in DISTANCES:
        if neighbours_p_value(rows, n, distance) < level / len(DISTANCES):
            yield f"clients {distance} apart took part in the same rounds too often"


def _wrong_ratio(run: Run, group: GroupPlan, level: float) -> Iterator[str]:
    """The total of the cohorts, by planned ratio, where their size is random."""
    law = run.plan.law_of(group).law
    if law.whole_cohorts:
        return
    found = stretches(run, group)
    for ratio, pairs in found.items():
        known = [
            (r.round, size)
            for r, share in pairs
            if (size := share.drawn_size) is not None
        ]
        total = sum(size for _, size in known)
        trials = sum(
            len(law.places(round_, run.clients[group.name])) for round_, _ in known
        )
        chance = law.chance(run.clients[group.name], ratio)
        if known and total_p_value([total], trials, chance) < level / len(found):
            yield f"{total} participations where about {chance * trials:.0f} are expected"


@register("cohorts regenerated", order=131)
def cohorts_regenerated(run: Run) -> Check:
    """The participants of each round are those that the law draws from the seed or the key."""
    name = "cohorts regenerated"
    if run.plan.spec.unit == "record":
        return passed(name, "does not apply, clients take turns; see rounds")
    why = "the key of the cohorts" if run.keyed and not run.key else run.other_streams
    if why is not None:
        return not_shown(name, [why], required=False)
    shares = [share for release in run.ledger.records for share in release.shares]
    unnamed = sum(share.participants is None for share in shares)
    whose = "key" if run.key else "seed"

    def problems() -> Iterator[str]:
        for index, group in enumerate(run.plan.groups):
            law = run.plan.law_of(group).law
            for release, share in run.shares(group.name):
                if share.participants is None:
                    continue
                ratio, _ = at_round(run, group, release)
                first = law.stream_round(release.round)
                source = run.source(Purpose.SAMPLING, first, index, group=group.name)
                drawn = law.draw(source, run.clients[group.name], ratio, release.round)
                if not np.array_equal(share.participants, drawn):
                    others = len(np.setxor1d(drawn, share.participants))
                    yield (
                        f"round {release.round}, {group.name}: the {whose} draws another cohort "
                        f"({others} clients differ)"
                    )

    missing = (
        [f"participants ({unnamed} of {len(shares)})"] if unnamed or not shares else []
    )
    reason = f"{len(shares)} cohorts are those of the {whose}"
    return first(problems(), name, reason, missing, required=False)


# --- P-values of participations and of cohorts. --------------------------------------------------
# Given its size, each cohort is a uniform subset of its group under every law of this project, and
# those of different rounds are independent.

_EXPONENTS = np.geomspace(
    1e-3, 20, 120
)  # exponents among which a Chernoff bound takes the best


def oddest_client(
    counts: np.ndarray, law: np.ndarray, clients: int
) -> tuple[int, float]:
    """The index of the oddest number of participations, and how odd it is among all clients."""
    below, above = np.cumsum(law), np.cumsum(law[::-1])[::-1]
    inside = np.minimum(counts, len(law) - 1)
    chances = np.where(counts < len(law), np.minimum(below[inside], above[inside]), 0.0)
    oddest = int(np.argmin(chances))
    return oddest, float(min(1.0, 2 * clients * chances[oddest]))


def hypergeometric(
    population: int, marked: int, draws: int
) -> tuple[np.ndarray, np.ndarray]:
    """Values and log-probabilities of the number of marked clients in a uniform draw."""
    values = np.arange(max(0, draws + marked - population), min(draws, marked) + 1)
    log_mass = (
        _log_choose(marked, values)
        + _log_choose(population - marked, draws - values)
        - _log_choose(population, np.array(draws))
    )
    return values, log_mass


def hypergeometric_p_value(
    found: int, population: int, marked: int, draws: int
) -> float:
    """Exact two-sided p-value of the number of marked clients in a uniform draw."""
    least, chances = _hypergeometric_p_values(
        population, min(marked, draws), max(marked, draws)
    )
    index = found - least
    return float(chances[index]) if 0 <= index < len(chances) else 0.0


@lru_cache(maxsize=512)
def _hypergeometric_p_values(
    population: int, marked: int, draws: int
) -> tuple[int, np.ndarray]:
    """Least number of marked clients in a uniform draw, and p-values of it and of each above.

    The law is symmetric in its last two arguments.
    """
    values, log_mass = hypergeometric(population, marked, draws)
    mass = np.exp(log_mass)
    below, above = np.cumsum(mass), np.cumsum(mass[::-1])[::-1]
    return int(values[0]), np.minimum(1.0, 2 * np.minimum(below, above))


def overlaps_p_value(
    overlaps: Sequence[int], sizes: Sequence[tuple[int, int]], n: int
) -> float:
    """Chernoff bound on the two-sided tail of the sum of overlaps of pairs of cohorts.

    The overlap of two independent uniform subsets is hypergeometric given one of them. Overlaps of
    rounds t and t + lag for all t are a martingale with these conditional laws, so that the
    moment generating functions multiply.
    """
    laws = Counter(
        (min(pair), max(pair)) for pair in sizes
    )  # the law is symmetric in the sizes
    terms = [hypergeometric(n, *pair) for pair in laws]
    lengths, counts = (
        [len(values) for values, _ in terms],
        np.array(list(laws.values())),
    )
    starts = np.cumsum([0, *lengths[:-1]])
    values, log_mass = map(np.concatenate, zip(*terms, strict=True))
    found, mean = sum(overlaps), sum(one * other for one, other in sizes) / n
    side = 1.0 if found >= mean else -1.0  # the bound of the other side is 1

    @cache
    def exponent(index: int) -> float:
        slope = side * float(_EXPONENTS[index])
        powers = log_mass + slope * values
        largest = np.maximum.reduceat(powers, starts)
        sums = np.add.reduceat(np.exp(powers - np.repeat(largest, lengths)), starts)
        return float(counts @ (largest + np.log(sums))) - slope * found

    low, high = 0, len(_EXPONENTS) - 1  # a sum of convex functions has one minimum
    while high - low > 2:
        left, right = low + (high - low) // 3, high - (high - low) // 3
        low, high = (low, right) if exponent(left) <= exponent(right) else (left, high)
    least = min(exponent(index) for index in range(low, high + 1))
    return min(1.0, 2 * float(np.exp(min(0.0, least))))


def overlap(left: Collection[int], right: frozenset[int]) -> int:
    """Number of clients in both cohorts."""
    return len(right.intersection(left))


def neighbours_p_value(
    cohorts: Sequence[Sequence[int]], n: int, distance: int
) -> float:
    """Bound on the upper tail of how many clients took part with a client ``distance`` apart.

    Counts, over all rounds, disjoint pairs of positions (i, i + distance) both of whose clients
    took part. Indicators of clients in a uniform subset are negatively associated, and so are
    indicators of disjoint pairs; a multiplicative Chernoff bound applies.
    """
    whole, rest = divmod(max(0, n - distance), 2 * distance)
    mean, found, pairs = 0.0, 0, whole * distance + min(rest, distance)
    for cohort in cohorts:
        size, drawn = len(cohort), np.asarray(cohort, dtype=np.int64)
        first_ = drawn[drawn // distance % 2 == 0]
        found += int(np.isin(first_ + distance, drawn).sum())
        mean += pairs * size * (size - 1) / (n * (n - 1)) if n > 1 else 0.0
    if found <= mean or mean == 0:
        return 1.0
    return float(np.exp(min(0.0, found - mean - found * np.log(found / mean))))


def _log_choose(total: int, chosen: np.ndarray) -> np.ndarray:
    found: np.ndarray = (
        gammaln(total + 1) - gammaln(chosen + 1) - gammaln(total - chosen + 1)
    )
    return found
