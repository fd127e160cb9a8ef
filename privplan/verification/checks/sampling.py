"""Checks that cohorts were drawn by the planned law, and who took part how often.

The law tests the sizes of its cohorts. Each client's number of participations is tested
against the law's distribution of that number, and their rounds against what the law
allows one client: ``attendance_faults`` of the law that the plan names, whatever the
ledger says of who drew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from privplan.laws.participation import spread_p_value, total_p_value
from privplan.plan import GroupPlan
from privplan.record import GroupShare
from privplan.verification.checks.check import (
    FALSE_ALARM,
    Check,
    at_round,
    first,
    lacking,
    passed,
    register,
    stretches,
    unreleased,
)
from privplan.verification.checks.cohort_p_values import oddest_client
from privplan.verification.checks.regenerated_cohorts import cohorts_are_of_seed
from privplan.verification.run import Run


@register("sampling law", order=120, false_alarm=FALSE_ALARM)
def sampling(run: Run) -> Check:
    """The law that was executed is the law that was planned.

    Ledger and plan name the same law and ratio, and the law itself judges whether it
    draws cohorts of such sizes.
    """

    def problems() -> Iterator[str]:
        """Other laws or ratios of any group, and sizes that its law hardly draws."""
        for group in run.plan.groups:
            yield from _other_law(run, group)

    def missing() -> Iterator[str]:
        """Groups without releases, and releases without the size of a cohort."""
        yield from unreleased(run)
        unmeasured = []
        for release in run.ledger.records:
            unmeasured += [share.drawn_size is None for share in release.shares]
        yield from lacking("cohort sizes", unmeasured)

    laws = ", ".join(dict.fromkeys(map(run.plan.law_of, run.plan.groups)))
    sizes = "batch" if run.plan.spec.unit == "record" else "cohort"
    reason = (
        f"{laws}: {sizes} sizes fit the planned ratios, "
        f"false alarms at most {FALSE_ALARM:g}"
    )
    return first(problems(), "sampling law", reason, missing())


def _other_law(run: Run, group: GroupPlan) -> Iterator[str]:
    """Releases of a group by another law or ratio, and unlikely sizes of cohorts.

    Sizes are tested by stretches of rounds with one planned ratio. Those that the seed
    draws are known, so how likely they are shows nothing.
    """
    law = run.plan.law_of(group)
    by_ratio = stretches(run, group)
    # A law tests sizes in up to three ways.
    tests = 3 * len(run.plan.groups) * max(1, len(by_ratio))
    for ratio, pairs in by_ratio.items():
        shares = [share for _, share in pairs]
        for share in shares:
            if share.sampling != law:
                yield f"{group.name}: sampled by {share.sampling}, planned {law}"
            if share.sampling_ratio != ratio:
                executed = f"{share.sampling_ratio:.6g}"
                planned = f"{ratio:.6g}"
                if executed == planned:
                    # All digits, where the first six are the same.
                    executed = f"{share.sampling_ratio}"
                    planned = f"{ratio}"
                yield f"{group.name}: sampling ratio {executed}, planned {planned}"
        if not run.once(cohorts_are_of_seed) and _in_turn(run, group):
            yield from _unlikely_sizes(run, group, shares, ratio, FALSE_ALARM / tests)


def _unlikely_sizes(
    run: Run, group: GroupPlan, shares: list[GroupShare], ratio: float, level: float
) -> Iterator[str]:
    """Cohort sizes that the law is unlikely to draw.

    Args:
        run: with the plan.
        group: that the shares are of.
        shares: in rounds of one planned ratio.
        ratio: that one.
        level: chance of an honest run to be accused.
    """
    sizes = [share.drawn_size for share in shares if share.drawn_size is not None]
    if not sizes:
        return
    if shares[0].records is not None:
        # Each local step draws each record of the client with the ratio.
        trials = sum((share.records or 0) * (group.steps or 0) for share in shares)
        if total_p_value([sum(sizes)], trials, ratio) < level:
            expected = f"about {ratio * trials:.0f} expected"
            yield f"{group.name}: {sum(sizes)} records in batches, {expected}"
        return
    law = run.plan.law_of(group).law
    for fault in law.cohort_faults(sizes, run.clients[group.name], ratio, level):
        yield f"{group.name}: {fault}"


def _in_turn(run: Run, group: GroupPlan) -> bool:
    """Whether recorded cohorts are of the first rounds, where a law's rounds differ."""
    if run.plan.law_of(group).law.rounds_for(1) == 1:
        return True
    recorded = [
        release.round
        for release, share in run.shares(group.name)
        if share.drawn_size is not None
    ]
    return recorded == [*range(1, len(recorded) + 1)]


@register("cohorts", order=130)
def cohorts(run: Run) -> Check:
    """Participants are different clients of their group whom the law allows there.

    A client twice in one sum moves it by twice its clipping bound. A client who takes
    part more often than its law allows is protected less than the plan says.
    """

    def problems() -> Iterator[str]:
        """Participants whom the law does not allow in a cohort, of any group."""
        for group in run.plan.groups:
            yield from _strange_participants(run, group)

    reason = "participants are clients of their group, each once"
    return first(problems(), "cohorts", reason, _unnamed(run))


def _strange_participants(run: Run, group: GroupPlan) -> Iterator[str]:
    """Participants of a group in the wrong cohort, or in too many.

    Args:
        run: with plan and ledger.
        group: whose clients the participants must be.

    Yields:
        The first fault of each cohort, then what the law says of all rounds together.
    """
    clients = run.clients[group.name]
    law = run.plan.law_of(group).law
    attendance: dict[int, list[int]] = {}
    for release, share in run.shares(group.name):
        fault = _inconsistent(share, group.clients)
        places = law.places(release.round, clients)
        out_of_turn = [
            client for client in share.participants or () if client not in places
        ]
        if fault is None and out_of_turn:
            fault = f"client {out_of_turn[0]} is in the sum, and it was not its turn"
        if fault is not None:
            yield f"round {release.round}, {group.name}: {fault}"
        # Participants are those drawn, whoever reported, so that the law holds of them.
        if share.participants is not None:
            attendance.setdefault(release.round, []).extend(share.participants)
    for fault in law.attendance_faults(attendance, clients):
        yield f"{group.name}: {fault}"


def _inconsistent(share: GroupShare, clients: int) -> str | None:
    """What contradicts itself in a cohort of a group with so many clients."""
    if share.drawn is not None and (share.cohort or 0) > share.drawn:
        return f"{share.cohort} clients reported where {share.drawn} were drawn"
    participants = share.participants
    if participants is None:
        return None
    if len(set(participants)) != len(participants):
        [(client, times)] = Counter(participants).most_common(1)
        return f"client {client} is in the sum {times} times"
    if participants and max(participants) >= clients:
        return f"client {max(participants)} is none of the group's {clients}"
    if share.records is None and share.drawn_size not in (None, len(participants)):
        return f"a cohort of {share.drawn_size} with {len(participants)} participants"
    return None


def _unnamed(run: Run) -> Iterator[str]:
    """Missing evidence: releases of a group, and participants of releases."""
    yield from unreleased(run)
    unnamed = []
    for release in run.ledger.records:
        unnamed += [share.participants is None for share in release.shares]
    yield from lacking("participants", unnamed)


@register("participation", order=140, false_alarm=FALSE_ALARM)
def participation(run: Run) -> Check:
    """Each client's number of participations fits the law, and so does their spread.

    Exact tails of each client with a union bound over the clients; under a law that
    draws clients independently, also how much their numbers vary, by a Chernoff bound.
    """
    name = "participation"
    if run.plan.spec.unit == "record":
        return passed(name, "does not apply, clients take turns; see rounds")

    def problems() -> Iterator[str]:
        """Numbers of participations that the law hardly gives, unless it is known."""
        if run.once(cohorts_are_of_seed):
            return
        for group in run.plan.groups:
            if _in_turn(run, group):
                yield from _unlikely_participations(run, group)

    reason = f"no client stands out, false alarms at most {FALSE_ALARM:g}"
    return first(problems(), name, reason, _unnamed(run))


class _Participations(NamedTuple):
    """How often clients of a group took part, and how often the law lets them."""

    clients: np.ndarray  # those who took part, and the first who did not
    counts: np.ndarray  # number of rounds of each of them
    law: np.ndarray  # probability of each number of rounds, from 0


def _participations(run: Run, group: GroupPlan) -> _Participations:
    """The participations of the clients of a group."""
    planned = run.plan.law_of(group).law
    count_of_client: Counter[int] = Counter()
    rounds_of_chance: Counter[float] = Counter()
    for release, share in run.shares(group.name):
        if share.participants is None:
            continue
        ratio, _ = at_round(run, group, release)
        rounds_of_chance[planned.chance(group.clients, ratio)] += 1
        count_of_client.update(
            client for client in share.participants if client < group.clients
        )
    pairs = sorted(count_of_client.items())
    # All who did not take part are alike, so one of them is enough.
    absent = (
        client for client in range(group.clients) if client not in count_of_client
    )
    first_absent = next(absent, None)
    if first_absent is not None:
        pairs.append((first_absent, 0))
    clients, counts = np.array(pairs, dtype=np.int64).T
    return _Participations(clients, counts, planned.participations(rounds_of_chance))


def _unlikely_participations(run: Run, group: GroupPlan) -> Iterator[str]:
    """The client who stands out, and numbers that vary unlike the law's.

    Under independent draws clients vary as the law says. Cohorts that favour some
    clients a little, none of them enough to stand out, vary more.
    """
    # Two tests of each group.
    level = FALSE_ALARM / (2 * len(run.plan.groups))
    clients, counts, law = _participations(run, group)
    if counts.sum() == 0 and len(law) == 1:
        return
    index, chance = oddest_client(counts, law, group.clients)
    if chance < level:
        expected = float(law @ np.arange(len(law)))
        yield (
            f"{group.name}: client {clients[index]} took part in {counts[index]} of "
            f"{len(law) - 1} rounds, about {expected:.3g} expected"
        )

    planned = run.plan.law_of(group).law
    if not planned.independent_clients:
        return
    with np.errstate(divide="ignore"):
        log_law = np.log(law)
    absent = group.clients - len(counts)
    numbers = np.arange(len(law))
    if spread_p_value((counts.tolist(), numbers, log_law, absent)) < level:
        yield (
            f"{group.name}: participations vary between clients unlike {planned.title}"
        )
