"""The record of a run: before its first round, and after its last with its plot."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from privplan.accounting.curve import compose
from privplan.errors import UnsupportedError
from privplan.files import write_bytes
from privplan.ledger import history_of, read_ledger
from privplan.plan import Plan
from privplan.record import STREAMS, RunRecord, versions_of
from privplan.report.plots import run_picture
from simulate import audit as traces
from simulate.aggregators import WEIGHT
from simulate.algorithm import declaration
from simulate.algorithms.registry import ALGORITHMS
from simulate.data.partition.clients import parts_by_group
from simulate.engine.evaluation import AccuracyMeasures, by_group
from simulate.engine.experiment import Experiment
from simulate.engine.loop import Progress, evaluate
from simulate.parallel import one_core
from simulate.runs.request import Request
from simulate.tasks import MULTI_CLASS, finite_or_none

PLOT = "accuracy.png"
# Most clients whose personal models are evaluated after the last round, once: a hundred
# times as many as while the run trains.
FINAL_CLIENTS = 10_000
# Plans meet their budget within this share, so a run that keeps its plan shows no more.
_EPSILON_TOLERANCE = 1e-4


def initial_record(request: Request, experiment: Experiment) -> RunRecord:
    """The record of a run before its first round."""
    algorithm = experiment.algorithm
    plan = algorithm.plan
    return RunRecord(
        plan_digest=plan.digest,
        algorithm=algorithm.name,
        dataset=experiment.data.name,
        partition=request.partition_name,
        model=experiment.model.name,
        seed=experiment.seed,
        device=experiment.device.type,
        configuration=_configuration(request, experiment),
        parts=parts_by_group(experiment.partition, plan),
        versions=versions_of("privplan", "torch", "numpy"),
        status="running",
        rounds_done=0,
        executed=declaration(algorithm, experiment.model, experiment.seed),
        noise="seeded" if experiment.key is None else "secure",
    )


def _configuration(request: Request, experiment: Experiment) -> dict[str, Any]:
    """What else the result depends on; an entry is left out where it is the default."""
    chosen = ALGORITHMS.get(request.algorithm).complete(request.hyperparameters)
    configuration: dict[str, Any] = {
        "aggregation": chosen.aggregation,
        "numbers": dict(chosen.values),
        "data": experiment.data.digest,
        "clients": experiment.algorithm.plan.spec.population,
        "rounds": experiment.rounds,
        "processes": experiment.ranks.size,
        "canaries": experiment.canaries,
        "streams": STREAMS,
    }
    if experiment.metric is not None:
        configuration["metric"] = experiment.metric.name
        # Who verifies must repeat an own loss, and would forget it if nothing asked.
        if not callable(request.metric) and request.loss is None:
            configuration["task_metric"] = True
    if experiment.key is not None:
        if experiment.discrete:
            configuration["noise"] = "secure-discrete"
        else:
            configuration["noise"] = "secure"
        configuration["noise_commitment"] = experiment.key.commitment
    if request.own_data is not None:
        configuration["own_data"] = True
        # The score of clients' own models is one on their records, whoever is tested.
        is_of_clients = experiment.algorithm.personalisation.per_client
        if request.own_data.test_of_others and not is_of_clients:
            configuration["test"] = "others"
        if request.tuned:
            configuration["tuned"] = True
    if request.own_model is not None:
        configuration["own_model"] = request.own_model.digest()
        if request.task != MULTI_CLASS:
            configuration["task"] = request.task
    if request.loss is not None:
        configuration["own_loss"] = True
    return configuration


def spent_by_group(folder: Path, plan: Plan) -> dict[str, float]:
    """Upper bound on the epsilon of each group by the ledger, at the group's delta.

    For plots and trackers; the accountant is that of privacy loss distributions. A
    group whose releases it does not cover is left out.
    """
    releases = read_ledger(folder, plan.digest).records
    spent = {}
    for group in plan.groups:
        with suppress(UnsupportedError):
            curve = compose(history_of(releases, group.name), plan.spec.relation)
            epsilon = curve.epsilon(group.delta, tolerance=_EPSILON_TOLERANCE)
            spent[group.name] = epsilon.upper
    return spent


def write_finished(
    folder: Path,
    experiment: Experiment,
    end: Progress,
    record: RunRecord,
    spent: Mapping[str, float],
) -> RunRecord:
    """Evaluate the final state, and write audit evidence, plot and complete record.

    Args:
        folder: the run folder.
        experiment: the run.
        end: the state after the last round.
        record: of this state, not yet complete.
        spent: upper bounds on epsilon by group, for the plot.

    Returns:
        The complete record, which is written last.
    """
    measures = end.measures
    if measures is None:
        with one_core():
            measures = evaluate(experiment, end, max_clients=FINAL_CLIENTS)
    # The last point of the curve gets the final score, which may be of more clients
    # than those that were evaluated while the run trained.
    score = finite_or_none(measures.accuracy)
    last_point = record.metrics[-1].model_copy(
        update={"accuracy": score, "loss": measures.loss}
    )
    # A score that is weighed by clients' labels is a release of these.
    label_shares: Mapping[str, np.ndarray] = {}
    if experiment.data.labels_are_public:
        label_shares = experiment.label_shares()
    scores_by_group = by_group(measures, label_shares)
    finite_scores = {
        name: value
        for name, value in scores_by_group.items()
        if finite_or_none(value) is not None
    }
    # Where the server finds weights from the updates, its state holds their sum over
    # the rounds; the record has the mean.
    weights = {
        group.name: float(end.server[WEIGHT + group.name]) / end.round
        for group in experiment.algorithm.plan.groups
        if WEIGHT + group.name in end.server
    }
    finished = record.model_copy(
        update={
            "status": "complete",
            "chain": end.chain,
            "audit": _write_audit(folder, experiment, end),
            "metrics": (*record.metrics[:-1], last_point),
            "accuracy": score,
            "accuracy_by_class": _accuracy_by_class(experiment, measures),
            "accuracy_by_group": finite_scores,
            "weights": weights,
        }
    )
    write_bytes(folder / PLOT, run_picture(finished, experiment.algorithm.plan, spent))
    finished.save(folder)
    return finished


def _accuracy_by_class(
    experiment: Experiment, measures: AccuracyMeasures
) -> dict[str, float]:
    """Accuracy of each class that has test records; empty under a metric of its own."""
    if measures.score is not None:
        return {}
    rows = zip(experiment.data.classes, measures.by_class, measures.total, strict=True)
    return {name: float(share) for name, share, records in rows if records}


def _write_audit(folder: Path, experiment: Experiment, end: Progress) -> str:
    """Write what was seen of the canaries; its digest, empty for a run without any."""
    if experiment.canary is None or end.canary_scores is None:
        return ""
    evidence = traces.audit_evidence(
        experiment.canary,
        experiment.algorithm.plan,
        end.chain,
        end.canary_scores,
        traces.final_scores(experiment.canary, experiment.start, end.theta),
    )
    evidence.save(folder)
    return evidence.digest
