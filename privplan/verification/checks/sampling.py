"""Checks that cohorts were drawn by the planned sampling law, and who took part how often.

The law tests the sizes of its cohorts. Each client's number of participations is tested against
the law's distribution of that number, so that no client takes part more often than it allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from privplan.laws.participation import spread_p_value, total_p_value
from privplan.plan import GroupPlan
from privplan.record import GroupShare
from privplan.verification.checks.check import (
    Check,
    Run,
    at_round,
    first,
    lacking,
    passed,
    register,
    stretches,
    unreleased,
)
from privplan.verification.statistics import FALSE_ALARM, oddest_client


@register("sampling law", order=120, false_alarm=FALSE_ALARM)
def sampling(run: Run) -> Check:
    """The law that was executed is the law that was planned."""

    def problems() -> Iterator[str]:
        for group in run.plan.groups:
            found = stretches(run, group)
            tests = 3 * len(run.plan.groups) * max(1, len(found))
            for ratio, pairs in found.items():
                shares = [share for _, share in pairs]
                yield from _law_recorded(run, group, shares, ratio)
                yield from _law_executed(group, shares, ratio, tests)

    law, unit = run.plan.spec.sampling, run.plan.spec.unit
    sizes = "batch" if unit == "record" else "cohort"
    well = f"{law}: {sizes} sizes fit the planned ratios, false alarms at most {FALSE_ALARM:g}"

    def missing() -> Iterator[str]:
        yield from unreleased(run)
        shares = (share for release in run.ledger.records for share in release.shares)
        yield from lacking("cohort sizes", (share.drawn_size is None for share in shares))

    return first(problems(), "sampling law", well, missing())


def _law_recorded(
    run: Run, group: GroupPlan, shares: list[GroupShare], ratio: float
) -> Iterator[str]:
    law = run.plan.spec.sampling
    for share in shares:
        if share.sampling != law:
            yield f"{group.name}: sampled by {share.sampling}, planned {law}"
        if share.sampling_ratio != ratio:
            yield f"{group.name}: sampling ratio {share.sampling_ratio:.6g}, planned {ratio:.6g}"


def _law_executed(
    group: GroupPlan, shares: list[GroupShare], ratio: float, tests: int
) -> Iterator[str]:
    """Cohort sizes against the law; the false-alarm rate is shared by all the tests."""
    counts = [share.drawn_size for share in shares if share.drawn_size is not None]
    level = FALSE_ALARM / tests
    if not counts:
        return
    if shares[0].records is not None:
        trials = sum((share.records or 0) * (group.steps or 0) for share in shares)
        if total_p_value([sum(counts)], trials, ratio) < level:
            expected = ratio * trials
            yield f"{group.name}: {sum(counts)} records in batches, about {expected:.0f} expected"
        return
    for fault in shares[0].sampling.law.cohort_faults(counts, group.clients, ratio, level):
        yield f"{group.name}: {fault}"


@register("cohorts", order=130)
def cohorts(run: Run) -> Check:
    """Participants are different clients of their group, as many as the cohort says."""

    def problems() -> Iterator[str]:
        for group in run.plan.groups:
            for release, share in run.shares(group.name):
                fault = _inconsistent(share, group.clients) or _not_its_turn(share, release.round)
                if fault is not None:
                    yield f"round {release.round}, {group.name}: {fault}"

    reason = "participants are clients of their group, each once"
    return first(problems(), "cohorts", reason, _unnamed(run))


def _unnamed(run: Run) -> Iterator[str]:
    """Missing evidence: releases of a group, and participants of releases."""
    yield from unreleased(run)
    shares = (share for release in run.ledger.records for share in release.shares)
    yield from lacking("participants", (share.participants is None for share in shares))


def _inconsistent(share: GroupShare, clients: int) -> str | None:
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
    if share.drawn is not None and (share.cohort or 0) > share.drawn:
        return f"{share.cohort} clients reported where {share.drawn} were drawn"
    return None


def _not_its_turn(share: GroupShare, round_: int) -> str | None:
    law = share.sampling.law
    turn, who = law.turn(round_), share.participants or ()
    others = [] if turn is None else [client for client in who if client % law.turns != turn]
    return f"client {others[0]} is in the sum, and it was not its turn" if others else None


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
            counts, law = _participations(run, group)
            if counts.sum() == 0 and len(law) == 1:
                continue
            client, chance = oddest_client(counts, law)
            if chance < level:
                expected = float(law @ np.arange(len(law)))
                yield (
                    f"{group.name}: client {client} took part in {counts[client]} of "
                    f"{len(law) - 1} rounds, about {expected:.3g} expected"
                )
            planned = run.plan.spec.sampling.law
            if planned.independent_clients:
                sizes = np.arange(len(law))
                with np.errstate(divide="ignore"):
                    chance = spread_p_value(counts.tolist(), sizes, np.log(law))
                if chance < level:
                    yield (
                        f"{group.name}: participations vary between clients unlike {planned.title}"
                    )

    well = f"no client stands out, false alarms at most {FALSE_ALARM:g}"
    return first(problems(), name, well, _unnamed(run))


def _participations(run: Run, group: GroupPlan) -> tuple[np.ndarray, np.ndarray]:
    """How often each client of the group took part, and the law of that number."""
    counts = np.zeros(group.clients, dtype=np.int64)
    rounds: Counter[float] = Counter()
    for release, share in run.shares(group.name):
        if share.participants is not None:
            ratio = at_round(run, group, release)[0]
            rounds[share.sampling.law.executed_ratio(share.clients, ratio)] += 1
            inside = [client for client in share.participants if client < group.clients]
            np.add.at(counts, inside, 1)
    return counts, run.plan.spec.sampling.law.participations(rounds)
