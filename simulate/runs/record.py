"""The record of a run before its first round, at an interruption, and after its last round."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from privplan.accounting.curve import compose
from privplan.auditing.findings import AuditEvidence
from privplan.errors import UnsupportedError
from privplan.ledger import history_of, read_ledger
from privplan.plan import Plan
from privplan.record import RunRecord
from simulate.audit import traces
from simulate.engine.evaluation import by_group
from simulate.engine.experiment import Experiment
from simulate.engine.loop import Progress, evaluate, one_core
from simulate.engine.measurements import executed
from simulate.runs.plots import accuracy_by_round
from simulate.tasks import finite_or_none

PLOT = "accuracy.png"
FINAL_CLIENTS = 10_000
"""Most clients whose personal models are evaluated after the last round."""


def initial_record(
    experiment: Experiment, partition: str, aggregation: str, numbers: Mapping[str, float]
) -> RunRecord:
    """Record of a run before its first round.

    Args:
        experiment: the run.
        partition: name of the partition scheme, such as ``dirichlet:0.3``.
        aggregation: how the group methods scale, ``paper`` or ``mean``.
        numbers: hyperparameters of the algorithm by name.
    """
    algorithm = experiment.algorithm
    return RunRecord(
        plan_digest=algorithm.plan.digest,
        algorithm=algorithm.name,
        dataset=experiment.data.name,
        partition=partition,
        model=experiment.model.name,
        seed=experiment.seed,
        device=experiment.device.type,
        configuration={
            "aggregation": aggregation,
            "numbers": dict(numbers),
            "data": experiment.data.digest,
            "clients": algorithm.plan.spec.population,
            "rounds": experiment.rounds,
            "processes": experiment.ranks.size,
            "canaries": experiment.canaries,
            **({} if experiment.metric is None else {"metric": experiment.metric.name}),
            **noise_configuration(experiment),
        },
        versions={
            "python": platform.python_version(),
            **{name: version(name) for name in ("privplan", "torch", "numpy")},
        },
        status="running",
        rounds_done=0,
        metrics=(),
        accuracy=None,
        accuracy_by_class={},
        accuracy_by_group={},
        wall_seconds=0.0,
        executed=executed(experiment),
        noise="seeded" if experiment.key is None else "secure",
    )


def noise_configuration(experiment: Experiment) -> dict[str, str]:
    """Kind of the noise and commitment to its key; empty for noise from the seed."""
    if experiment.key is None:
        return {}
    kind = "secure-discrete" if experiment.discrete else "secure"
    return {"noise": kind, "noise_commitment": experiment.key.commitment}


def record_at(record: RunRecord, progress: Progress, seconds: float) -> RunRecord:
    """The record with the state of training and the wall time so far."""
    changes = {
        "rounds_done": progress.round,
        "metrics": progress.metrics,
        "wall_seconds": seconds,
    }
    return record.model_copy(update=changes)


def spent_by_group(folder: Path, plan: Plan) -> dict[str, float]:
    """Upper bound on the epsilon that the ledger implies at each group's delta, by group.

    For plots and trackers, within 1e-4 of the lower bound as plans are, so that a run that keeps
    its plan shows no more than its budget. A group whose releases the accountant does not cover is
    left out.
    """
    records, spent = read_ledger(folder, plan.digest).records, {}
    for group in plan.groups:
        with suppress(UnsupportedError):
            curve = compose(history_of(records, group.name), plan.spec.relation)
            spent[group.name] = curve.epsilon(group.delta, tolerance=1e-4).upper
    return spent


def write_finished(
    folder: Path,
    experiment: Experiment,
    end: Progress,
    record: RunRecord,
    spent: Mapping[str, float],
) -> RunRecord:
    """Evaluate the final state; write the audit evidence, the plot and the complete record.

    Args:
        folder: the run folder.
        experiment: the run.
        end: state of training after the last round.
        record: the record with this state.
        spent: realised epsilon per group, for the plot.

    Returns:
        The complete record.
    """
    measures = end.measures
    if measures is None:
        with one_core():
            measures = evaluate(experiment, end, most=FINAL_CLIENTS)
    parts = (experiment.data.classes, measures.by_class, measures.total)
    classes = zip(*parts, strict=True) if measures.score is None else ()
    evidence = _audit_evidence(experiment, end)
    if evidence is not None:
        evidence.save(folder)
    finished = record.model_copy(
        update={
            "status": "complete",
            "chain": end.chain,
            "audit": "" if evidence is None else evidence.digest,
            "accuracy": finite_or_none(measures.accuracy),
            "accuracy_by_class": {name: float(share) for name, share, total in classes if total},
            "accuracy_by_group": _finite(by_group(measures, experiment.label_shares())),
        }
    )
    accuracy_by_round(folder / PLOT, finished, experiment.algorithm.plan, spent)
    finished.save(folder)
    return finished


def _finite(scores: Mapping[str, float]) -> dict[str, float]:
    """The finite ones of the scores by name."""
    return {name: value for name, value in scores.items() if finite_or_none(value) is not None}


def _audit_evidence(experiment: Experiment, end: Progress) -> AuditEvidence | None:
    """The canaries' scores as evidence; None in a run without canaries."""
    if experiment.canary is None or end.canary_scores is None:
        return None
    final = traces.final_scores(experiment.canary, experiment.start, end.theta)
    plan = experiment.algorithm.plan
    return traces.audit_evidence(experiment.canary, plan, end.chain, end.canary_scores, final)
