"""Checks that plan, record and ledger are of one run, and that the ledger is complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from privplan.evidence import CLIENTS, clients_digest, read_clients
from privplan.plan import GroupPlan
from privplan.verification.checks.check import (
    Check,
    Run,
    evidence_fault,
    failed,
    first,
    lacking,
    passed,
    register,
    unreleased,
    without_evidence,
)


@register("plan", order=10)
def same_plan(run: Run) -> Check:
    """The record names the digest of the plan."""
    if run.record.plan_digest != run.plan.digest:
        return failed("plan", "the record is of another plan")
    return passed("plan", "the record names the plan's digest")


@register("ledger", order=20)
def unbroken(run: Run) -> Check:
    """The ledger's hash chain is valid from the plan's digest to the last line of the record."""
    fault = run.ledger.fault
    if fault is None and run.record.chain and run.record.chain != run.ledger.chain:
        fault = "the last line is not the one that the finished run wrote last"
    if fault is not None:
        return failed("ledger", fault)

    def missing() -> Iterator[str]:
        if not run.ledger.records:
            yield "releases"
        if run.record.status == "complete" and not run.record.chain:
            yield "the hash of the last line in the record"

    reason = f"{len(run.ledger.records)} releases, the chain of hashes holds"
    return first((), "ledger", reason, missing())


@register("groups", order=30)
def groups(run: Run) -> Check:
    """Every release is of groups of the plan, with the planned number of clients and unit.

    Where the run stores the assignment of clients to groups and records, each client is in one
    group, and no record is of two clients.
    """

    def problems() -> Iterator[str]:
        known = {group.name: group.clients for group in run.plan.groups}
        of_clients = run.plan.spec.unit == "client"
        for release in run.ledger.records:
            if of_clients and release.unit == "record":
                yield f"round {release.round}: protects records, planned are clients"
            for share in release.shares:
                if share.group not in known:
                    yield f"round {release.round}: {share.group} is not a group of the plan"
                elif share.clients != known[share.group]:
                    yield (
                        f"{share.group}: {share.clients} clients where {known[share.group]} "
                        "were planned"
                    )
        yield from evidence_fault(run)
        yield from _identities(run)

    reason = f"{len(run.plan.groups)} groups, as planned"
    return first(problems(), "groups", reason, [*unreleased(run), *_unstored(run)])


def _unstored(run: Run) -> Iterator[str]:
    """The assignment of clients or its digest, where the run wrote it and the file is gone."""
    yield from without_evidence(run, "the digest of the assignment of clients")
    if run.folder is None or (run.folder / CLIENTS).exists():
        return
    header, _ = run.evidence
    if header is not None:
        yield f"the assignment of clients ({CLIENTS}), whose digest the run wrote"


def _identities(run: Run) -> Iterator[str]:
    """Clients without a group, or with records of others, in the stored assignment."""
    header, _ = run.evidence
    if run.folder is None or header is None:
        return
    stored = read_clients(run.folder)
    if stored is None:
        return
    if clients_digest(stored) != header.clients:
        yield f"{CLIENTS} is not the assignment that the run wrote"
        return
    assigned = stored["group"]
    for index, group in enumerate(run.plan.groups):
        found = int((assigned == index).sum())
        if found != group.clients:
            yield (
                f"{group.name}: {found} different clients hold records, {group.clients} were "
                "planned, so that one holds the place of several"
            )
    records = stored["records"]
    ordered = np.sort(records)  # np.unique would load numpy.ma
    repeated = int((ordered[1:] == ordered[:-1]).sum())
    if repeated:
        yield f"{repeated} records are of more than one client"


@register("rounds", order=40)
def rounds(run: Run) -> Check:
    """Each group has one release per planned round; record-level clients no more than planned."""
    protects_records = run.plan.spec.unit == "record"

    def problems() -> Iterator[str]:
        for group in run.plan.groups:
            yield from _participations(run, group) if protects_records else _releases(run, group)

    def missing() -> Iterator[str]:
        done = max((release.round for release in run.ledger.records), default=0)
        if run.record.status == "running" and done < run.plan.spec.rounds:
            yield f"rounds {done + 1} to {run.plan.spec.rounds}, since the run is not finished"
        if protects_records:
            shares = (share for release in run.ledger.records for share in release.shares)
            yield from lacking(
                "the client of each release", (s.participants is None for s in shares)
            )

    planned = run.plan.spec.rounds
    reason = f"{planned} rounds, as planned"
    if run.record.status == "stopped":
        reason = f"{_due(run)} of {planned} planned rounds, then the run was stopped"
    return first(problems(), "rounds", reason, missing())


def _releases(run: Run, group: GroupPlan) -> Iterator[str]:
    planned = run.plan.spec.rounds
    seen = [release.round for release, _ in run.shares(group.name)]
    if len(seen) > planned:
        yield f"{group.name}: {len(seen)} releases where {planned} rounds were planned"
    elif sorted(seen) != list(range(1, _due(run) + 1)):
        done = len(set(seen))
        yield f"{group.name}: {done} of {planned} planned rounds are in the ledger"


def _due(run: Run) -> int:
    """Rounds that the ledger must have: all that are planned, or those begun by a running run."""
    if run.record.status == "complete":
        return run.plan.spec.rounds
    return max((release.round for release in run.ledger.records), default=0)


def _participations(run: Run, group: GroupPlan) -> Iterator[str]:
    """Rounds, steps and participations of clients who add noise locally to protect records."""
    most, counts, releases = group.participations or 0, Counter[int](), run.shares(group.name)
    for release, share in releases:
        where = f"round {release.round}, {group.name}"
        if release.round > run.plan.spec.rounds:
            yield f"{where}: only {run.plan.spec.rounds} rounds were planned"
        if release.steps != group.steps:
            yield f"{where}: {release.steps} noisy steps, planned {group.steps}"
        counts.update(share.participants or ())
    for client, count in counts.items():
        if count > most:
            yield f"{group.name}: client {client} took part in {count} rounds, planned {most}"
    if not releases:
        yield f"{group.name}: no release is in the ledger"
