"""That every release is accounted for, and no round was released more often than planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from privplan.plan import GroupPlan
from privplan.verification.checks.check import Check, Run, first


def rounds(run: Run) -> Check:
    """Each group was released in each planned round, once; each client in its turns at most."""
    protects_records = run.plan.spec.unit == "record"

    def problems() -> Iterator[str]:
        for group in run.plan.groups:
            yield from _turns(run, group) if protects_records else _rounds(run, group)

    return first(problems(), "rounds", f"{run.plan.spec.rounds} rounds, as planned")


def _rounds(run: Run, group: GroupPlan) -> Iterator[str]:
    planned = run.plan.spec.rounds
    seen = [release.round for release, _ in run.shares(group.name)]
    if len(seen) > planned:
        yield f"{group.name}: {len(seen)} releases where {planned} rounds were planned"
    elif sorted(seen) != list(range(1, planned + 1)):
        done = len(set(seen))
        yield f"{group.name}: {done} of {planned} planned rounds are in the ledger"


def _turns(run: Run, group: GroupPlan) -> Iterator[str]:
    """Clients who send for themselves: rounds, steps and turns, where records are protected."""
    most, turns = group.participations or 0, Counter[int]()
    for release, share in run.shares(group.name):
        where = f"round {release.round}, {group.name}"
        if release.round > run.plan.spec.rounds:
            yield f"{where}: only {run.plan.spec.rounds} rounds were planned"
        if release.steps != group.steps:
            yield f"{where}: {release.steps} noisy steps, planned {group.steps}"
        turns.update(share.participants or ())
    for client, count in turns.items():
        if count > most:
            yield f"{group.name}: client {client} took part in {count} rounds, planned {most}"
    if not turns:
        yield f"{group.name}: no release is in the ledger"
