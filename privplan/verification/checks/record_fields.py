"""The check that the record of a run agrees with itself, with the plan and with the ledger.

What nothing else in the folder contradicts stays a declaration of the run: the names of algorithm,
data set and partition, versions, times, and accuracies that a replay has not measured again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from itertools import chain
from typing import Any

from privplan.errors import Fault
from privplan.record import METRIC, RunRecord
from privplan.verification.checks.check import (
    Check,
    Run,
    evidence_fault,
    first,
    register,
    without_evidence,
)
from privplan.verification.statistics import FALSE_ALARM

EVALUATED_CLIENTS = 100
"""Most clients of whom all are evaluated after each round, so that the last score is final."""
SCORE = 1e-3
"""Largest difference between two evaluations of one model."""
_OF_SIMULATIONS = (
    "dataset",
    "partition",
    "model",
    "device",
    "metrics",
    "accuracy",
    "accuracy_by_class",
    "accuracy_by_group",
)
_OF_THE_END = ("chain", "audit", "accuracy", "accuracy_by_class", "accuracy_by_group")


@register("record", order=15, false_alarm=FALSE_ALARM)
def record_agrees(run: Run) -> Check:
    """No field of the record contradicts another one, the plan, the ledger or the evidence."""
    problems = chain(evidence_fault(run), map(str, _faults(run)))
    missing = without_evidence(run, "the digest of the data")
    return first(problems, "record", "agrees with the plan and the ledger", missing)


def _faults(run: Run) -> Iterator[Fault]:
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


def _progress(run: Run) -> Iterator[Fault]:
    """The rounds that are done, by the status. Clients who take turns may leave a round empty."""
    record, planned = run.record, run.plan.spec.rounds
    done, status, last = record.rounds_done, record.status, planned
    if run.plan.spec.unit == "client" and run.ledger.fault is None:
        last = max((release.round for release in run.ledger.records), default=0)
    if status == "complete" and done != planned:
        yield _fault("rounds_done", f"must be the {planned} planned rounds, as complete", done)
    elif status == "stopped" and (done != last or record.seed is not None):
        yield _fault("status", f"stopped is of a deployment after {last} rounds", done)
    elif status == "running" and done > last:
        yield _fault("rounds_done", f"must be at most {last}, the last round in the ledger", done)


def _end(run: Run) -> Iterator[Fault]:
    """What is known only when a run has ended."""
    record = run.record
    for name in _OF_THE_END if record.status == "running" else ():
        if value := getattr(record, name):
            yield _fault("status", f"must not be running beside {name} of a finished run", value)


def _inputs(run: Run) -> Iterator[Fault]:
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
    kinds = {"aggregation": str, "numbers": dict, "processes": int, "canaries": int}
    for name, kind in kinds.items():
        if not isinstance(value := given.get(name), kind):
            words = {str: "text", dict: "a mapping of numbers", int: "a whole number"}[kind]
            yield _fault(f"configuration.{name}", f"must be {words}", value)
    most = max((s.canaries or 0 for r in run.ledger.records for s in r.shares), default=0)
    canaries, complete = given.get("canaries", 0), record.status == "complete"
    if canaries < most or (complete and (canaries > 0) != bool(record.audit)):
        rule = f"must be {most} or more, as released" if most else "must be 0 without their scores"
        yield _fault("configuration.canaries", rule, canaries)
    if (record.noise == "secure") != ("noise" in given):
        yield _fault(
            "noise", f"must be as in the configuration, {given.get('noise')}", record.noise
        )


def _scores(run: Run) -> Iterator[Fault]:
    """Evaluations are of rounds that were done, and the last one is that of the end."""
    record, metrics = run.record, run.record.metrics
    rounds = [one.round for one in metrics]
    if rounds != sorted(set(rounds)) or (rounds and not 1 <= rounds[-1] <= record.rounds_done):
        rule = f"must be in increasing rounds of the {record.rounds_done} done"
        yield _fault("metrics", rule, rounds)
    if rounds and rounds[0] == 0:
        yield _fault("metrics", "must be after rounds, from 1", rounds)
    if METRIC not in record.configuration:
        known = {group.name for group in run.plan.groups}
        for name in record.accuracy_by_group.keys() - known:
            yield _fault("accuracy_by_group", "must be of groups of the plan", name)
    if record.status != "complete":
        return
    if not rounds or rounds[-1] != record.rounds_done:
        rule = f"must have an evaluation of the last round, {record.rounds_done}"
        yield _fault("metrics", rule, rounds)
    elif METRIC not in record.configuration:
        yield from _final(run, metrics[-1].accuracy)


def _final(run: Run, last: float | None) -> Iterator[Fault]:
    """The final accuracy, against that of the last evaluation and against its parts.

    The last evaluation is that of the final model on all test records, or, with a model per
    client, of ``EVALUATED_CLIENTS`` of up to 10,000 random clients (Hoeffding's inequality).
    """
    end, wide = run.record.accuracy, run.plan.spec.population > EVALUATED_CLIENTS
    if end is None or last is None:
        if end is not last:
            yield _fault("accuracy", f"must be {last}, as in the last evaluation", end)
        return
    most = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * EVALUATED_CLIENTS)) if wide else SCORE
    if abs(end - last) > most:
        yield _fault("accuracy", f"must be within {most:.3g} of the last evaluation, {last}", end)
    if (rule := _no_mean(end, run.record)) is not None:
        yield _fault("accuracy", rule, end)


def _no_mean(end: float, record: RunRecord) -> str | None:
    """What the accuracy and its parts must be and are not; None where they can be honest.

    With one model for all, the accuracy is a mean of those by class over the test records, and that
    of a group another mean of them, over the group's training labels: 0 where no class of the group
    was tested. The accuracy need not be within those of the groups then. Where clients have own
    models it is a mean of those by group, over clients; those by class then have other weights.
    """
    classes, groups = record.accuracy_by_class.values(), record.accuracy_by_group.values()
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
