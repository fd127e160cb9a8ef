"""Checks that plan, record and ledger are of one run, and the ledger is complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from privplan.accounting.release import SHORT
from privplan.evidence.clients import CLIENTS, Arrays, clients_digest, read_clients
from privplan.plan import GroupPlan, Plan
from privplan.verification.checks import check
from privplan.verification.run import Run

_ROUNDING = 1e-9
"""Slack on a whole number of updates, for the rounding of a ratio."""


@check.register("plan", order=10)
def same_plan(run: Run) -> check.Check:
    """The record names the digest of the plan, which is the approved one if any is.

    Without an approved plan the folder's own plan is what the run is measured by, and a
    plan with looser budgets would pass; so a reader who knows the plan should name it.
    """
    digest = run.plan.digest
    if run.record.plan_digest != digest:
        return check.failed("plan", "the record is of another plan")
    approved = next((plan for plan in run.trusted if isinstance(plan, Plan)), None)
    if approved is None:
        return check.passed("plan", "the record names the plan's digest")
    short_digest = digest[:SHORT]
    if approved.digest != digest:
        difference = f"approved was {approved.digest[:SHORT]}"
        advice = "simulate --plan-only writes the plan that a method will execute"
        if run.plan.spec.recipe != approved.spec.recipe:
            difference += (
                ", with another recipe (compare gives methods of your own none)"
            )
        return check.failed(
            "plan", f"the run has plan {short_digest}, {difference}; {advice}"
        )
    return check.passed("plan", f"plan {short_digest} is the approved one")


@check.register("ledger", order=20)
def unbroken(run: Run) -> check.Check:
    """The ledger's chain of hashes holds from the plan to the record's last line.

    Each line holds the hash of the line before, the first one the digest of the plan. A
    line that was changed, taken out or put in breaks the chain; releases that were cut
    off at the end are missed by the last hash, which a finished run has in its record.
    """
    fault = run.ledger.fault
    if fault is None and run.record.chain and run.record.chain != run.ledger.chain:
        fault = "the last line is not the one that the finished run wrote last"
    if fault is not None:
        return check.failed("ledger", fault)

    missing = []
    if not run.ledger.records:
        missing.append("releases")
    if run.record.status == "complete" and not run.record.chain:
        missing.append("the hash of the last line in the record")
    reason = f"{len(run.ledger.records)} releases, the chain of hashes holds"
    return check.first((), "ledger", reason, missing)


@check.register("groups", order=30)
def groups(run: Run) -> check.Check:
    """Every release is of groups of the plan, with the planned clients and unit.

    Where the run stores the assignment of clients to groups and records, each client is
    in one group, and no record is of two clients. A plan that protects records needs an
    assignment that names them.
    """

    def problems() -> Iterator[str]:
        """Faults of the releases, of the evidence, and of who holds which records."""
        yield from _other_groups(run)
        yield from check.evidence_fault(run)
        yield from _identities(run)

    reason = f"{len(run.plan.groups)} groups, as planned"
    missing = [*check.unreleased(run), *_unstored(run)]
    return check.first(problems(), "groups", reason, missing)


def _other_groups(run: Run) -> Iterator[str]:
    """Releases of other units, groups or numbers of clients than planned.

    A release that claims to protect records counts for one client alone, so under a
    plan that protects clients it would look cheaper than it is.
    """
    clients_of_group = {group.name: group.clients for group in run.plan.groups}
    protects_clients = run.plan.spec.unit == "client"
    for release in run.ledger.records:
        if protects_clients and release.unit == "record":
            yield f"round {release.round}: protects records, planned are clients"
        for share in release.shares:
            planned = clients_of_group.get(share.group)
            if planned is None:
                name = share.group
                yield f"round {release.round}: {name} is not a group of the plan"
            elif share.clients != planned:
                yield (
                    f"{share.group}: {share.clients} clients where {planned} were "
                    "planned"
                )


def _unstored(run: Run) -> Iterator[str]:
    """The assignment of clients or its digest, where a written file is gone."""
    yield from check.without_evidence(run, "the digest of the assignment of clients")
    header, _ = run.evidence
    if run.folder is None or header is None:
        return
    stored = run.once(_assignment)
    if stored is None:
        yield f"the assignment of clients ({CLIENTS}), whose digest the run wrote"
    # Clients that draw their records afresh may share them.
    elif run.plan.spec.unit == "record" and not len(stored["starts"]):
        yield f"the records of each client ({CLIENTS}), none of which may be of two"


def _assignment(run: Run) -> Arrays | None:
    """The stored assignment of clients; None without the file."""
    return None if run.folder is None else read_clients(run.folder)


def _identities(run: Run) -> Iterator[str]:
    """Clients without a group, or with records of others, in the stored assignment.

    A person whose records lie with two clients takes part twice as often as the plan
    says.
    """
    header, _ = run.evidence
    stored = run.once(_assignment)
    if header is None or stored is None:
        return
    if clients_digest(stored) != header.clients:
        yield f"{CLIENTS} is not the assignment that the run wrote"
        return

    if not _is_assignment(stored, run.plan.spec.population):
        yield f"{CLIENTS} has other numbers than places of clients and records"
        return
    group_of_client = stored["group"]
    for index, group in enumerate(run.plan.groups):
        clients = int((group_of_client == index).sum())
        if clients != group.clients:
            yield (
                f"{group.name}: {clients} different clients hold records, "
                f"{group.clients} were planned, so that one holds the place of several"
            )

    # By sorting, as np.unique would load numpy.ma.
    ordered = np.sort(stored["records"])
    repeated = int((ordered[1:] == ordered[:-1]).sum())
    if repeated:
        yield f"{repeated} records are of more than one client"


def _is_assignment(stored: Arrays, population: int) -> bool:
    """Whether the records of all clients lie one after another, without a gap."""
    records = stored["records"]
    starts = stored["starts"]
    if len(stored["group"]) != population:
        return False
    # Where each client draws its records afresh, none are stored.
    if not len(starts):
        return not len(records)
    ends = [int(starts[0]), int(starts[-1])]
    rises = bool((np.diff(starts) >= 0).all())
    return len(starts) == population + 1 and ends == [0, len(records)] and rises


@check.register("rounds", order=40)
def rounds(run: Run) -> check.Check:
    """Each group has one release per planned round.

    A release more is one that the plan did not pay for; one less hides a round whose
    cost counts all the same. Clients who add noise to protect their records take part
    no more often than planned.
    """
    protects_records = run.plan.spec.unit == "record"
    planned = run.plan.spec.rounds

    def problems() -> Iterator[str]:
        """Rounds out of order, and releases of a group that are not as planned."""
        for earlier, later in pairwise(record.round for record in run.ledger.records):
            if later < earlier:
                yield f"round {later} stands after round {earlier}"
        of_group = _participations if protects_records else _releases
        for group in run.plan.groups:
            yield from of_group(run, group)

    def missing() -> Iterator[str]:
        """Rounds that a run has still to do, and releases that name no client."""
        done = _last_round(run)
        if run.record.status == "running" and done < planned:
            state = f"{done} of {planned} are booked, the run is not finished"
            yield f"rounds {done + 1} to {planned}; {state}"
        if protects_records:
            unnamed = []
            for release in run.ledger.records:
                unnamed += [share.participants is None for share in release.shares]
            yield from check.lacking("the client of each release", unnamed)

    reason = f"{planned} rounds, as planned"
    if run.record.status == "stopped":
        reason = f"{_due(run)} of {planned} planned rounds, then the run was stopped"
    return check.first(problems(), "rounds", reason, missing())


def _releases(run: Run, group: GroupPlan) -> Iterator[str]:
    """Why a group's releases are not one per round."""
    planned = run.plan.spec.rounds
    released = [release.round for release, _ in run.shares(group.name)]
    if len(released) > planned:
        where = f"where {planned} rounds were planned"
        yield f"{group.name}: {len(released)} releases {where}"
        return
    in_turn = sorted(released) == list(range(1, len(released) + 1))
    if len(released) != _due(run) or not in_turn:
        done = len(set(released))
        yield f"{group.name}: {done} of {planned} planned rounds are in the ledger"


def _due(run: Run) -> int:
    """Rounds that the ledger must have: all planned, or those begun by a run so far.

    A deployment may stop early, and owes what it released until then.
    """
    if run.record.status == "complete":
        return run.plan.spec.rounds
    return _last_round(run)


def _last_round(run: Run) -> int:
    """The last round of the ledger; 0 without any."""
    return max((release.round for release in run.ledger.records), default=0)


def _participations(run: Run, group: GroupPlan) -> Iterator[str]:
    """Rounds, steps and participations of clients who add noise to protect records."""
    releases = run.shares(group.name)
    rounds_of_client: Counter[int] = Counter()
    for release, share in releases:
        where = f"round {release.round}, {group.name}"
        if release.round > run.plan.spec.rounds:
            yield f"{where}: only {run.plan.spec.rounds} rounds were planned"
        if release.steps != group.steps:
            yield f"{where}: {release.steps} noisy steps, planned {group.steps}"
        rounds_of_client.update(share.participants or ())

    planned = group.participations or 0
    for client, number in rounds_of_client.items():
        if number > planned:
            took_part = f"client {client} took part in {number} rounds"
            yield f"{group.name}: {took_part}, planned {planned}"
    # In a few rounds nobody of a small group need have been drawn.
    expected_updates = group.expected_cohort * run.plan.spec.rounds
    if not releases and expected_updates + _ROUNDING >= 1:
        yield f"{group.name}: no release is in the ledger"
