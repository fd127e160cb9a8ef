"""Sensitivity tests: rounds on neighbouring data sets, with the noise off.

A client's influence on a release is compared with the bound that the ledger records,
from which epsilon is computed. With the same releases, the model and the metrics of two
neighbouring data sets must be equal, since they may depend on data through releases
only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from simulate.algorithms.registry import ALGORITHMS
from simulate.contrib.sensitivity.bench import Bench
from simulate.contrib.sensitivity.clients import check_clients, check_senders
from simulate.contrib.sensitivity.neighbours import SensitivityReport
from simulate.contrib.sensitivity.records import check_records
from simulate.engine.experiment import Experiment
from simulate.runs.request import Request, prepare

# Small experiments on the digits for the sensitivity tests.

DATASET = "digits"
_TRAINING = {"learning_rate": 0.2, "learning_rate_decay": 0.9, "momentum": 0.5}
_CLIENTS: Mapping[str, Any] = {
    "groups": [
        {"name": "strict", "clients": 10, "epsilon": 2.0},
        {"name": "medium", "clients": 10, "epsilon": 6.0},
        {"name": "loose", "clients": 10, "epsilon": 12.0},
    ],
    "delta": 1e-3,
    "rounds": 3,
    "cohort": 18,
    "clipping_norm": 0.3,
    "local": {"steps": 2, "batch_size": 10, **_TRAINING},
    "model": {"name": "mlp-digits", "parameters": 2410},
    "planning": {
        "accountant": "rdp",
        "ratios": "uniform",
        "weights": "inverse_variance",
    },
}
_BALANCED = {"accountant": "rdp", "ratios": "balanced"}
_QUANTILE = {"quantile": 0.5, "share": 0.05, "learning_rate": 0.3}
_RECORDS = {
    "unit": "record",
    "groups": [
        {
            "name": "strict",
            "clients": 4,
            "epsilon": 2.0,
            "records": 40,
            "batch_size": 10,
        },
        {"name": "loose", "clients": 6, "epsilon": 8.0, "records": 40},
    ],
    "cohort": 5,
    "clipping_norm": 1.0,
    "local": {"epochs": 2, "batch_size": 20, **_TRAINING},
    "planning": {"accountant": "rdp", "weights": "epsilon"},
}
_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "per group": {},
    "joint": {"planning": {**_BALANCED, "release": "joint"}},
    "adaptive clipping": {"planning": {**_BALANCED, "clipping": _QUANTILE}},
    "adaptive clipping per group": {
        "planning": {"accountant": "rdp", "ratios": "uniform", "clipping": _QUANTILE}
    },
    "replace one": {"relation": "replace_one", "sampling": "fixed_size"},
    "records": _RECORDS,
}
"""Changes of the bench's spec by name of the plan."""


@cache
def bench_plans() -> Mapping[str, Plan]:
    """The plans on which algorithms are tested, by name."""
    return {
        name: solve(
            Spec.parse({"name": name, **_CLIENTS, **changes}), second_opinion=False
        )
        for name, changes in _CHANGES.items()
    }


def bench_experiment(algorithm: str, plan: Plan, seed: int = 0) -> Experiment:
    """An experiment on the digits."""
    if plan.spec.rounds < 2:
        raise InputError.one("plan.rounds", "must be 2 or more", plan.spec.rounds)
    return prepare(
        Request(plan, algorithm, DATASET, Path(), seed, "cpu", own_unit=True)
    )


# Sensitivity tests: rounds on neighbouring data sets, with the noise off.


def check_experiment(experiment: Experiment, plan: str = "") -> SensitivityReport:
    """Test the sensitivity of the algorithm of an experiment."""
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
    algorithm: str, plans: Mapping[str, Plan] | None = None, seed: int = 0
) -> tuple[SensitivityReport, ...]:
    """Test the sensitivity of a registered algorithm."""
    return tuple(_reports(algorithm, plans, seed))


def _reports(
    algorithm: str, plans: Mapping[str, Plan] | None, seed: int
) -> Iterator[SensitivityReport]:
    entry = ALGORITHMS.get(algorithm)
    tested: list[tuple[object, ...]] = []
    tested_plans = bench_plans() if plans is None else plans
    for name, plan in tested_plans.items():
        if plans is None and entry.unmet_requirement(plan):
            continue
        plan.spec.require("sensitivity tests", f"plans.{name}.sampling")
        experiment = bench_experiment(algorithm, plan, seed)
        executed = _executed(experiment.algorithm.plan)
        if executed not in tested:
            yield check_experiment(experiment, name)
        tested.append(executed)


def _executed(plan: Plan) -> tuple[object, ...]:
    """What an algorithm executes of a plan: all but its name and how it was found."""
    spec = plan.spec
    training = spec.rounds, spec.clipping_norm, spec.local, spec.model
    return plan.groups, plan.release, plan.clipping, spec.relation, spec.laws, *training
