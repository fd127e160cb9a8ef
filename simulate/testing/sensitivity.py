"""Sensitivity tests: rounds on neighbouring data sets, with the noise off.

A client's influence on a release is compared with the bound that the ledger records, from which
epsilon is computed. With the same releases, the model and the metrics of two neighbouring data
sets must be equal, since they may depend on data through releases only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from privplan.plan import Plan
from simulate.algorithms.entry import Hyperparameters
from simulate.algorithms.registry import ALGORITHMS
from simulate.engine.experiment import Experiment
from simulate.testing.bench import Bench
from simulate.testing.client_level import check_clients, check_senders
from simulate.testing.experiments import bench_experiment, bench_plans
from simulate.testing.record_level import check_records
from simulate.testing.report import SensitivityReport


def check_experiment(experiment: Experiment, plan: str = "") -> SensitivityReport:
    """Test the sensitivity of the algorithm of an experiment.

    Args:
        experiment: the run; its plan has two rounds or more, and no two clients share a record.
        plan: name of the plan in the report.
    """
    bench = Bench(experiment)
    bench.check_noise()
    if experiment.algorithm.mechanism.release_client is None:
        check_clients(bench)
    else:
        check_senders(bench)
        if experiment.algorithm.local.poisson:
            check_records(bench)
    return bench.report(plan)


def check_sensitivity(
    algorithm: str,
    plans: Mapping[str, Plan] | None = None,
    hyperparameters: Hyperparameters | None = None,
    seed: int = 0,
) -> tuple[SensitivityReport, ...]:
    """Test the sensitivity of a registered algorithm.

    Args:
        algorithm: its name, in any case.
        plans: plans by name; those of ``bench_plans`` that it can execute when None.
        hyperparameters: values that differ from the algorithm's defaults.
        seed: seed of the runs, 0 or more.

    Returns:
        One report per plan; plans for which the algorithm executes the same plan are tested once.

    Raises:
        PrivplanError: for an unknown name, or plans that the algorithm cannot execute.
    """
    return tuple(_reports(algorithm, plans, hyperparameters, seed))


def _reports(
    algorithm: str,
    plans: Mapping[str, Plan] | None,
    hyperparameters: Hyperparameters | None,
    seed: int,
) -> Iterator[SensitivityReport]:
    entry, tested = ALGORITHMS.get(algorithm), list[tuple[object, ...]]()
    known = bench_plans() if plans is None else plans
    for name, plan in known.items():
        if plans is None and entry.unmet_requirement(plan):
            continue
        experiment = bench_experiment(algorithm, plan, hyperparameters, seed)
        executed = _executed(experiment.algorithm.plan)
        if executed not in tested:
            yield check_experiment(experiment, name)
        tested.append(executed)


def _executed(plan: Plan) -> tuple[object, ...]:
    """What an algorithm executes of a plan: all but its name and how it was found."""
    spec = plan.spec
    training = spec.rounds, spec.clipping_norm, spec.local, spec.model
    return plan.groups, plan.release, plan.clipping, spec.relation, spec.sampling, *training
