"""The check that a run's record agrees with itself, the plan and the ledger.

What nothing else in the folder contradicts stays a declaration of the run: the names of
algorithm, data set and partition, versions, times, and accuracies that a replay has not
measured again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from itertools import chain

from privplan.errors import Fault
from privplan.evidence.rounds import EvidenceHeader
from privplan.record import CLIENTS, METRIC, RunRecord
from privplan.verification.checks import check
from privplan.verification.run import Run

# Most clients of whom all are evaluated after each round.
EVALUATED_CLIENTS = 100
# Largest difference between two evaluations of one model.
SCORE = 1e-3
# Fields that only a simulation has.
_OF_SIMULATIONS = (
    "dataset",
    "partition",
    "model",
    "device",
    "metrics",
    "accuracy",
    "accuracy_by_class",
    "accuracy_by_group",
    "weights",
)
# Fields that only a run that has ended has.
_OF_THE_END = (
    "chain",
    "audit",
    "accuracy",
    "accuracy_by_class",
    "accuracy_by_group",
    "weights",
)
# Entries of the configuration that each simulation has, and their kinds.
_CONFIGURED: dict[str, tuple[type, str]] = {
    "aggregation": (str, "text"),
    "numbers": (dict, "a mapping of numbers"),
    "processes": (int, "a whole number"),
    "canaries": (int, "a whole number"),
}


# Entries that a simulation has beside another one only.
_COMPANIONS = {
    "noise_commitment": "noise",
    "test": "own_data",
    "tuned": "own_data",
    "task": "own_model",
    "metric": "own_model",
    "own_loss": "own_model",
}


@check.register("record", order=15, false_alarm=check.FALSE_ALARM)
def record_agrees(run: Run) -> check.Check:
    """No field of the record contradicts another one, plan, ledger or evidence.

    What a reader quotes from a run stands in its record: data, model, method and
    scores.
    """
    problems = chain(check.evidence_fault(run), map(str, _faults(run)))
    missing = [*check.without_evidence(run, "the digest of the data"), *_people(run)]
    reason = "agrees with the plan and the ledger"
    return check.first(problems, "record", reason, missing)


def _people(run: Run) -> Iterator[str]:
    """Missing evidence: that own records are their clients', whoever else takes part.

    Records that are dealt make clients of no people. One record more would deal others
    anew, too.
    """
    if run.record.cuts_up_people:
        yield "clients in the own data, whose records were dealt at random"


def _faults(run: Run) -> Iterator[Fault]:
    """All contradictions of the record, those of a simulation only where it is one."""
    yield from _progress(run)
    yield from _end(run)
    if run.record.seed is None:
        rule = "is only for a simulation, which has a seed"
        for name in _OF_SIMULATIONS:
            value = getattr(run.record, name)
            if value:
                yield _fault(name, rule, value)
        return
    yield from _planned_inputs(run)
    yield from _inputs_of_evidence(run)
    yield from _configured(run)
    yield from _canaries(run)
    yield from _parts(run)
    yield from _noise(run)
    yield from _scores(run)
    yield from _last_score(run)


def _fault(field: str, rule: str, value: object) -> Fault:
    """A fault that names its field as a reader of ``record.json`` sees it."""
    return Fault(f"record.{field}", rule, value)


def _progress(run: Run) -> Iterator[Fault]:
    """The rounds that are done, by the status."""
    record = run.record
    planned = run.plan.spec.rounds
    done = record.rounds_done
    # Clients who take turns may leave a round empty, so the ledger does not tell the
    # last round where they add the noise.
    last_round = planned
    if run.plan.spec.unit == "client" and run.ledger.fault is None:
        last_round = max((release.round for release in run.ledger.records), default=0)

    if record.status == "complete" and done != planned:
        rule = f"must be the {planned} planned rounds, as complete"
        yield _fault("rounds_done", rule, done)
    elif record.status == "stopped" and (done != last_round or record.seed is not None):
        yield _fault(
            "status", f"stopped is of a deployment after {last_round} rounds", done
        )
    elif record.status == "running" and done > last_round:
        rule = f"must be at most {last_round}, the last round in the ledger"
        yield _fault("rounds_done", rule, done)


def _end(run: Run) -> Iterator[Fault]:
    """What is known only when a run has ended."""
    if run.record.status != "running":
        return
    for name in _OF_THE_END:
        value = getattr(run.record, name)
        if value:
            rule = f"must not be running beside {name} of a finished run"
            yield _fault("status", rule, value)


def _planned_inputs(run: Run) -> Iterator[Fault]:
    """Names that a simulation must have, and its model, rounds and clients."""
    record = run.record
    spec = run.plan.spec
    for name in ("algorithm", "dataset"):
        if not getattr(record, name):
            yield _fault(name, "must be named in the record of a simulation", "nothing")
    recorded_and_planned = {
        "model": (record.model, spec.model.name),
        "configuration.rounds": (record.configuration.get("rounds"), spec.rounds),
        "configuration.clients": (
            record.configuration.get("clients"),
            spec.population,
        ),
    }
    for field, (recorded, planned) in recorded_and_planned.items():
        if recorded != planned:
            yield _fault(field, f"must be {planned}, as planned", recorded)


def _inputs_of_evidence(run: Run) -> Iterator[Fault]:
    """Data and hyperparameters, against the digests of the evidence."""
    configuration = run.record.configuration
    header, _ = run.evidence
    data = configuration.get("data")
    if not isinstance(data, str) or (header is not None and data != header.data):
        rule = "must be the digest of the data"
        if header:
            rule += " in the evidence"
        yield _fault("configuration.data", rule, data)
    if not isinstance(header, EvidenceHeader):
        return
    if header.settings != run.record.settings_digest:
        rule = "must be the hyperparameters of the evidence"
        yield _fault("configuration.numbers", rule, configuration.get("numbers"))


def _configured(run: Run) -> Iterator[Fault]:
    """The kinds of what a simulation was configured with."""
    for name, (kind, words) in _CONFIGURED.items():
        value = run.record.configuration.get(name)
        if not isinstance(value, kind):
            yield _fault(f"configuration.{name}", f"must be {words}", value)
    for name, companion in _COMPANIONS.items():
        names = run.record.configuration
        if names.get(name) is not None and companion not in names:
            # Its text may be chosen by whoever wrote the record.
            rule = f"must be absent without {companion}"
            yield _fault(f"configuration.{name}", rule, "one")
    if "evidence" in run.record.configuration:
        rule = "is only for a deployment"
        value = run.record.configuration["evidence"]
        yield _fault("configuration.evidence", rule, value)


def _parts(run: Run) -> Iterator[Fault]:
    """The parts of groups that take turns, as far as plan and law tell them."""
    for group in run.plan.groups:
        recorded = run.record.parts.get(group.name)
        if recorded is None:
            continue
        seated, _ = run.plan.law_of(group).law.seated(group.name, range(group.clients))
        planned = getattr(seated, "parts", ())
        # Clients that data name have turns by their names.
        is_named = run.record.partition == CLIENTS
        is_part = len(recorded) == len(planned) and sum(recorded) == group.clients
        if not is_part or (recorded != planned and not is_named):
            rule = f"must be the {len(planned)} parts that the law makes"
            yield _fault(f"parts.{group.name}", rule, f"{len(recorded)} parts")


def _canaries(run: Run) -> Iterator[Fault]:
    """The number of canaries, against the releases and the audit."""
    released = 0
    for release in run.ledger.records:
        released = max([released, *(share.canaries or 0 for share in release.shares)])
    canaries = run.record.configuration.get("canaries", 0)
    is_complete = run.record.status == "complete"
    lacks_audit = is_complete and (canaries > 0) != bool(run.record.audit)
    if canaries < released or lacks_audit:
        rule = "must be 0 without their scores"
        if released:
            rule = f"must be {released} or more, as released"
        yield _fault("configuration.canaries", rule, canaries)


def _noise(run: Run) -> Iterator[Fault]:
    """The source of the noise, against the configuration."""
    configuration = run.record.configuration
    if (run.record.noise == "secure") != ("noise" in configuration):
        rule = f"must be as in the configuration, {configuration.get('noise')}"
        yield _fault("noise", rule, run.record.noise)


def _scores(run: Run) -> Iterator[Fault]:
    """Evaluations are of rounds that were done, and scores of groups of the plan."""
    record = run.record
    rounds = [evaluation.round for evaluation in record.metrics]
    in_order = rounds == sorted(set(rounds))
    if not in_order or (rounds and not 1 <= rounds[-1] <= record.rounds_done):
        rule = f"must be in increasing rounds of the {record.rounds_done} done"
        yield _fault("metrics", rule, rounds)
    if rounds and rounds[0] == 0:
        yield _fault("metrics", "must be after rounds, from 1", rounds)

    groups = {group.name for group in run.plan.groups}
    by_group: dict[str, Mapping[str, object]] = {
        "accuracy_by_group": record.accuracy_by_group,
        "weights": record.weights,
        "parts": record.parts,
    }
    for field, values in by_group.items():
        for name in values.keys() - groups:
            yield _fault(field, "must be of groups of the plan", name)


def _last_score(run: Run) -> Iterator[Fault]:
    """The last evaluation is that of the end."""
    record = run.record
    if record.status != "complete":
        return
    rounds = [evaluation.round for evaluation in record.metrics]
    if not rounds or rounds[-1] != record.rounds_done:
        rule = f"must have an evaluation of the last round, {record.rounds_done}"
        yield _fault("metrics", rule, rounds)
    elif METRIC not in record.configuration:
        yield from _accuracy(run, record.metrics[-1].accuracy)


def _accuracy(run: Run, last_accuracy: float | None) -> Iterator[Fault]:
    """The final accuracy, against that of the last evaluation and against its parts."""
    accuracy = run.record.accuracy
    if accuracy is None or last_accuracy is None:
        if accuracy is not last_accuracy:
            rule = f"must be {last_accuracy}, as in the last evaluation"
            yield _fault("accuracy", rule, accuracy)
        return

    tolerance = SCORE
    # In version 0.1 with a model per client the last evaluation was of
    # ``EVALUATED_CLIENTS`` of up to 10,000 random clients (Hoeffding's inequality).
    if run.plan.spec.population > EVALUATED_CLIENTS and not run.writes_evidence:
        tolerance = math.sqrt(math.log(2 / check.FALSE_ALARM) / (2 * EVALUATED_CLIENTS))
    if abs(accuracy - last_accuracy) > tolerance:
        rule = f"must be within {tolerance:.3g} of the last evaluation, {last_accuracy}"
        yield _fault("accuracy", rule, accuracy)
    broken_rule = _no_mean(accuracy, run.record)
    if broken_rule is not None:
        yield _fault("accuracy", broken_rule, accuracy)


def _no_mean(accuracy: float, record: RunRecord) -> str | None:
    """What the accuracy and its parts must be and are not; None if they can be honest.

    With one model for all, the accuracy is a mean of those by class over the test
    records, and that of a group another mean of them, over the group's training labels:
    0 where no class of the group was tested. The accuracy need not be within those of
    the groups then. Where clients have own models it is a mean of those by group, over
    clients; those by class then have other weights.
    """
    by_class = record.accuracy_by_class.values()
    by_group = record.accuracy_by_group.values()
    if not by_class and not by_group:
        return None
    if _can_be_mean(accuracy, by_group):
        return None
    if not by_class:
        return "must be a mean of those by group"
    if not _can_be_mean(accuracy, by_class):
        return "must be a mean of those by class or by group"
    if all(share == 0 or _can_be_mean(share, by_class) for share in by_group):
        return None
    return "must be a mean of those by group, which are no means of those by class"


def _can_be_mean(score: float, scores: Collection[float]) -> bool:
    """Whether a score can be a mean of others."""
    return bool(scores) and min(scores) - SCORE <= score <= max(scores) + SCORE
