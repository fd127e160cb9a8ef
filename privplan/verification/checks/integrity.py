"""Checks that plan, record and ledger are of one run, and that the ledger is complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from privplan.plan import GroupPlan
from privplan.verification.checks.check import Check, Run, first, register


@register("plan", order=10)
def same_plan(run: Run) -> Check:
    """The record names the digest of the plan."""
    same = run.record.plan_digest == run.plan.digest
    reason = "the record names the plan's digest" if same else "the record is of another plan"
    return Check(name="plan", passed=same, reason=reason)


@register("ledger", order=20)
def unbroken(run: Run) -> Check:
    """The ledger's hash chain is valid from the plan's digest to the last line of the record."""
    fault = run.ledger.fault
    if fault is None and run.record.chain and run.record.chain != run.ledger.chain:
        fault = "the last line is not the one that the finished run wrote last"
    passed = f"{len(run.ledger.records)} releases, the chain of hashes holds"
    return Check(name="ledger", passed=fault is None, reason=fault or passed)


@register("groups", order=30)
def groups(run: Run) -> Check:
    """Every release is of groups of the plan, with the planned number of clients."""

    def problems() -> Iterator[str]:
        known = {group.name: group.clients for group in run.plan.groups}
        for release in run.ledger.records:
            for share in release.shares:
                if share.group not in known:
                    yield f"round {release.round}: {share.group} is not a group of the plan"
                elif share.clients != known[share.group]:
                    yield (
                        f"{share.group}: {share.clients} clients where {known[share.group]} "
                        "were planned"
                    )

    return first(problems(), "groups", f"{len(run.plan.groups)} groups, as planned")


@register("rounds", order=40)
def rounds(run: Run) -> Check:
    """Each group has one release per planned round; record-level clients no more than planned."""
    protects_records = run.plan.spec.unit == "record"

    def problems() -> Iterator[str]:
        for group in run.plan.groups:
            yield from _participations(run, group) if protects_records else _releases(run, group)

    return first(problems(), "rounds", f"{run.plan.spec.rounds} rounds, as planned")


def _releases(run: Run, group: GroupPlan) -> Iterator[str]:
    planned = run.plan.spec.rounds
    seen = [release.round for release, _ in run.shares(group.name)]
    if len(seen) > planned:
        yield f"{group.name}: {len(seen)} releases where {planned} rounds were planned"
    elif sorted(seen) != list(range(1, planned + 1)):
        done = len(set(seen))
        yield f"{group.name}: {done} of {planned} planned rounds are in the ledger"


def _participations(run: Run, group: GroupPlan) -> Iterator[str]:
    """Rounds, steps and participations of clients who add noise locally to protect records."""
    most, counts = group.participations or 0, Counter[int]()
    for release, share in run.shares(group.name):
        where = f"round {release.round}, {group.name}"
        if release.round > run.plan.spec.rounds:
            yield f"{where}: only {run.plan.spec.rounds} rounds were planned"
        if release.steps != group.steps:
            yield f"{where}: {release.steps} noisy steps, planned {group.steps}"
        counts.update(share.participants or ())
    for client, count in counts.items():
        if count > most:
            yield f"{group.name}: client {client} took part in {count} rounds, planned {most}"
    if not counts:
        yield f"{group.name}: no release is in the ledger"
