"""Checks that plan, record and ledger are of one run, and that the ledger is complete."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain, pairwise
from typing import Any

import numpy as np

from privplan.accounting.deviation import carried
from privplan.accounting.release import SHORT
from privplan.errors import Fault
from privplan.evidence.clients import CLIENTS, clients_digest, read_clients
from privplan.evidence.replay import ReplayReport
from privplan.evidence.rounds import EvidenceHeader
from privplan.plan import GroupPlan, Plan
from privplan.record import METRIC, REPLAY, RunRecord
from privplan.verification.checks import check


@check.register("plan", order=10)
def same_plan(run: check.Run) -> check.Check:
    """The record names the digest of the plan."""
    digest = run.plan.digest
    if run.record.plan_digest != digest:
        return check.failed("plan", "the record is of another plan")
    for approved in (one for one in run.trusted if isinstance(one, Plan)):
        if approved.digest != digest:
            found = f"the run has plan {digest[:SHORT]}, approved was {approved.digest[:SHORT]}"
            return check.failed("plan", found)
        return check.passed("plan", f"plan {digest[:SHORT]} is the approved one")
    return check.passed("plan", "the record names the plan's digest")


@check.register("ledger", order=20)
def unbroken(run: check.Run) -> check.Check:
    """The ledger's hash chain is valid from the plan's digest to the last line of the record."""
    fault = run.ledger.fault
    if fault is None and run.record.chain and run.record.chain != run.ledger.chain:
        fault = "the last line is not the one that the finished run wrote last"
    if fault is not None:
        return check.failed("ledger", fault)

    def missing() -> Iterator[str]:
        if not run.ledger.records:
            yield "releases"
        if run.record.status == "complete" and not run.record.chain:
            yield "the hash of the last line in the record"

    reason = f"{len(run.ledger.records)} releases, the chain of hashes holds"
    return check.first((), "ledger", reason, missing())


@check.register("groups", order=30)
def groups(run: check.Run) -> check.Check:
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
        yield from check.evidence_fault(run)
        yield from _identities(run)

    reason = f"{len(run.plan.groups)} groups, as planned"
    return check.first(
        problems(), "groups", reason, [*check.unreleased(run), *_unstored(run)]
    )


def _unstored(run: check.Run) -> Iterator[str]:
    """The assignment of clients or its digest, where the run wrote it and the file is gone."""
    yield from check.without_evidence(run, "the digest of the assignment of clients")
    if run.folder is None or (run.folder / CLIENTS).exists():
        return
    header, _ = run.evidence
    if header is not None:
        yield f"the assignment of clients ({CLIENTS}), whose digest the run wrote"


def _identities(run: check.Run) -> Iterator[str]:
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


@check.register("rounds", order=40)
def rounds(run: check.Run) -> check.Check:
    """Each group has one release per planned round; record-level clients no more than planned."""
    protects_records, planned = run.plan.spec.unit == "record", run.plan.spec.rounds

    def problems() -> Iterator[str]:
        for before, after in pairwise(record.round for record in run.ledger.records):
            if after < before:
                yield f"round {after} stands after round {before}"
        for group in run.plan.groups:
            yield from (
                _participations(run, group)
                if protects_records
                else _releases(run, group)
            )

    def missing() -> Iterator[str]:
        done = max((release.round for release in run.ledger.records), default=0)
        if run.record.status == "running" and done < planned:
            state = f"{done} of {planned} are booked, the run is not finished"
            yield f"rounds {done + 1} to {planned}; {state}"
        if protects_records:
            unnamed = (
                s.participants is None for r in run.ledger.records for s in r.shares
            )
            yield from check.lacking("the client of each release", unnamed)

    reason = f"{planned} rounds, as planned"
    if run.record.status == "stopped":
        reason = f"{_due(run)} of {planned} planned rounds, then the run was stopped"
    return check.first(problems(), "rounds", reason, missing())


def _releases(run: check.Run, group: GroupPlan) -> Iterator[str]:
    planned = run.plan.spec.rounds
    seen = [release.round for release, _ in run.shares(group.name)]
    if len(seen) > planned:
        yield f"{group.name}: {len(seen)} releases where {planned} rounds were planned"
    elif len(seen) != _due(run) or sorted(seen) != list(range(1, len(seen) + 1)):
        done = len(set(seen))
        yield f"{group.name}: {done} of {planned} planned rounds are in the ledger"


def _due(run: check.Run) -> int:
    """Rounds that the ledger must have: all that are planned, or those begun by a running run."""
    if run.record.status == "complete":
        return run.plan.spec.rounds
    return max((release.round for release in run.ledger.records), default=0)


def _participations(run: check.Run, group: GroupPlan) -> Iterator[str]:
    """Rounds, steps and participations of clients who add noise locally to protect records."""
    most, counts, releases = (
        group.participations or 0,
        Counter[int](),
        run.shares(group.name),
    )
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


# --- The check that the record of a run agrees with itself, with the plan and with the ledger. ---
# What nothing else in the folder contradicts stays a declaration of the run: the names of
# algorithm, data set and partition, versions, times, and accuracies that a replay has not
# measured again.

EVALUATED_CLIENTS = 100  # most clients of whom all are evaluated after each round
SCORE = 1e-3  # largest difference between two evaluations of one model
_OF_SIMULATIONS = (
    "dataset", "partition", "model", "device", "metrics", "accuracy", "accuracy_by_class",
    "accuracy_by_group", "weights",
)  # fmt: skip
_OF_THE_END = (
    "chain",
    "audit",
    "accuracy",
    "accuracy_by_class",
    "accuracy_by_group",
    "weights",
)


@check.register("record", order=15, false_alarm=check.FALSE_ALARM)
def record_agrees(run: check.Run) -> check.Check:
    """No field of the record contradicts another one, the plan, the ledger or the evidence."""
    problems = chain(check.evidence_fault(run), map(str, _faults(run)))
    missing = check.without_evidence(run, "the digest of the data")
    return check.first(
        problems, "record", "agrees with the plan and the ledger", missing
    )


def _faults(run: check.Run) -> Iterator[Fault]:
    yield from _progress(run)
    yield from _end(run)
    if run.record.seed is None:
        for name in _OF_SIMULATIONS:
            if value := getattr(run.record, name):
                yield _fault(name, "is only for a simulation, which has a seed", value)
        return
    yield from _inputs(run)
    yield from _scores(run)


def _fault(field: str, rule: str, found: object) -> Fault:
    return Fault(f"record.{field}", rule, found)


def _progress(run: check.Run) -> Iterator[Fault]:
    """The rounds that are done, by the status. Clients who take turns may leave a round empty."""
    record, planned = run.record, run.plan.spec.rounds
    done, status, last = record.rounds_done, record.status, planned
    if run.plan.spec.unit == "client" and run.ledger.fault is None:
        last = max((release.round for release in run.ledger.records), default=0)
    if status == "complete" and done != planned:
        yield _fault(
            "rounds_done", f"must be the {planned} planned rounds, as complete", done
        )
    elif status == "stopped" and (done != last or record.seed is not None):
        yield _fault("status", f"stopped is of a deployment after {last} rounds", done)
    elif status == "running" and done > last:
        yield _fault(
            "rounds_done", f"must be at most {last}, the last round in the ledger", done
        )


def _end(run: check.Run) -> Iterator[Fault]:
    """What is known only when a run has ended."""
    record = run.record
    for name in _OF_THE_END if record.status == "running" else ():
        if value := getattr(record, name):
            yield _fault(
                "status", f"must not be running beside {name} of a finished run", value
            )


def _inputs(run: check.Run) -> Iterator[Fault]:
    """What a simulation was given: model, rounds, clients, data, canaries, source of the noise."""
    record, spec, given = run.record, run.plan.spec, run.record.configuration
    for name in ("algorithm", "dataset"):
        if not getattr(record, name):
            yield _fault(name, "must be named in the record of a simulation", "nothing")
    expected: dict[str, tuple[Any, Any]] = {
        "model": (record.model, spec.model.name),
        "configuration.rounds": (given.get("rounds"), spec.rounds),
        "configuration.clients": (given.get("clients"), spec.population),
    }
    for field, (found, planned) in expected.items():
        if found != planned:
            yield _fault(field, f"must be {planned}, as planned", found)
    header, _ = run.evidence
    data = given.get("data")
    if not isinstance(data, str) or (header is not None and data != header.data):
        rule = "must be the digest of the data" + (" in the evidence" if header else "")
        yield _fault("configuration.data", rule, data)
    if isinstance(header, EvidenceHeader) and header.settings != record.settings_digest:
        rule = "must be the hyperparameters of the evidence"
        yield _fault("configuration.numbers", rule, given.get("numbers"))
    kinds = {"aggregation": str, "numbers": dict, "processes": int, "canaries": int}
    for name, kind in kinds.items():
        if not isinstance(value := given.get(name), kind):
            words = {str: "text", dict: "a mapping of numbers", int: "a whole number"}[
                kind
            ]
            yield _fault(f"configuration.{name}", f"must be {words}", value)
    most = max(
        (s.canaries or 0 for r in run.ledger.records for s in r.shares), default=0
    )
    canaries, complete = given.get("canaries", 0), record.status == "complete"
    if canaries < most or (complete and (canaries > 0) != bool(record.audit)):
        rule = (
            f"must be {most} or more, as released"
            if most
            else "must be 0 without their scores"
        )
        yield _fault("configuration.canaries", rule, canaries)
    if (record.noise == "secure") != ("noise" in given):
        rule = f"must be as in the configuration, {given.get('noise')}"
        yield _fault("noise", rule, record.noise)


def _scores(run: check.Run) -> Iterator[Fault]:
    """Evaluations are of rounds that were done, and the last one is that of the end."""
    record, metrics = run.record, run.record.metrics
    rounds = [one.round for one in metrics]
    if rounds != sorted(set(rounds)) or (
        rounds and not 1 <= rounds[-1] <= record.rounds_done
    ):
        rule = f"must be in increasing rounds of the {record.rounds_done} done"
        yield _fault("metrics", rule, rounds)
    if rounds and rounds[0] == 0:
        yield _fault("metrics", "must be after rounds, from 1", rounds)
    known = {group.name for group in run.plan.groups}
    scored = record.accuracy_by_group if METRIC not in record.configuration else {}
    for field, named in (("accuracy_by_group", scored), ("weights", record.weights)):
        for name in named.keys() - known:
            yield _fault(field, "must be of groups of the plan", name)
    if record.status != "complete":
        return
    if not rounds or rounds[-1] != record.rounds_done:
        rule = f"must have an evaluation of the last round, {record.rounds_done}"
        yield _fault("metrics", rule, rounds)
    elif METRIC not in record.configuration:
        yield from _final(run, metrics[-1].accuracy)


def _final(run: check.Run, last: float | None) -> Iterator[Fault]:
    """The final accuracy, against that of the last evaluation and against its parts.

    The last evaluation is that of the end. In version 0.1 with a model per client it was of
    ``EVALUATED_CLIENTS`` of up to 10,000 random clients (Hoeffding's inequality).
    """
    wide = run.plan.spec.population > EVALUATED_CLIENTS and not run.writes_evidence
    end = run.record.accuracy
    if end is None or last is None:
        if end is not last:
            yield _fault("accuracy", f"must be {last}, as in the last evaluation", end)
        return
    most = (
        math.sqrt(math.log(2 / check.FALSE_ALARM) / (2 * EVALUATED_CLIENTS))
        if wide
        else SCORE
    )
    if abs(end - last) > most:
        yield _fault(
            "accuracy", f"must be within {most:.3g} of the last evaluation, {last}", end
        )
    if (rule := _no_mean(end, run.record)) is not None:
        yield _fault("accuracy", rule, end)


def _no_mean(end: float, record: RunRecord) -> str | None:
    """What the accuracy and its parts must be and are not; None where they can be honest.

    With one model for all, the accuracy is a mean of those by class over the test records, and that
    of a group another mean of them, over the group's training labels: 0 where no class of the group
    was tested. The accuracy need not be within those of the groups then. Where clients have own
    models it is a mean of those by group, over clients; those by class then have other weights.
    """
    classes, groups = (
        record.accuracy_by_class.values(),
        record.accuracy_by_group.values(),
    )
    if not classes and not groups:
        return None
    if _between(groups, end):
        return None
    if not classes:
        return "must be a mean of those by group"
    if not _between(classes, end):
        return "must be a mean of those by class or by group"
    if all(share == 0 or _between(classes, share) for share in groups):
        return None
    return "must be a mean of those by group, which are no means of those by class"


def _between(parts: Collection[float], found: float) -> bool:
    """Whether a score can be a mean of others."""
    return bool(parts) and min(parts) - SCORE <= found <= max(parts) + SCORE


# --- The check that rounds of the run were executed again. ---------------------------------------
# Only what was executed for this verdict counts. What ``replay.json`` says of rounds that agree is
# a claim of whoever wrote the file; that it says of a difference stays until all rounds agree.


@check.register("replay", order=160)
def replay(run: check.Run) -> check.Check:
    """Rounds that were executed again now gave the releases of the ledger; not required."""
    stored = _stored_replay(run)
    for report in filter(None, (run.executed, stored)):
        if report.plan_digest != run.plan.digest or report.chain != run.ledger.chain:
            return check.failed("replay", "the replay is of another run")
        if report.record and report.record != run.record.digest:
            reason = "the replay is of another record, which was changed after it"
            return check.failed("replay", reason)
        if report.outcome == "failed":
            return check.failed("replay", report.reason)
    now, planned = run.executed, run.plan.spec.rounds
    if now is not None and now.outcome == "passed" and now.rounds:
        done = f"{len(set(now.rounds))} of {planned} rounds executed again"
        reason = f"{done}: {now.reason}{_carried(run, now)}"
        return check.passed("replay", reason, "replayed")
    if now is not None and now.outcome == "not shown":
        return _not_executed(now.reason.removeprefix("missing: "))
    if stored is not None and stored.outcome == "not shown":
        return _not_executed(stored.reason.removeprefix("missing: "))
    return _not_executed("rounds that were executed again")


def claimed_rounds(run: check.Run) -> int:
    """How many rounds ``replay.json`` claims to have executed again, with no difference."""
    stored = _stored_replay(run)
    if stored is None or stored.outcome != "passed" or not stored.record:
        return 0
    return len(set(stored.rounds))


def _stored_replay(run: check.Run) -> ReplayReport | None:
    """What ``replay.json`` in the run folder says; None without the file."""
    if run.folder is None or not (run.folder / REPLAY).exists():
        return None
    return ReplayReport.load(run.folder)


def _not_executed(missing: str) -> check.Check:
    return check.not_shown("replay", [missing], required=False)


def _carried(run: check.Run, result: ReplayReport) -> str:
    """What the deviations that were found could carry, for the group where it is most."""
    if not result.deviation:
        return ""
    bounds = [
        carried(result.deviation, run.plan.spec.rounds, group.epsilon, group.delta)
        for group in run.plan.groups
    ]
    added = math.ceil(1e4 * max(bound.epsilon for bound in bounds)) / 1e4
    return (
        f"; releases are off by at most {result.deviation:.1g} deviations of their noise, and "
        f"rounding of that size carries at most +{added:.4f} of epsilon"
    )
