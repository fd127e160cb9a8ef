"""Ten programs of a user with a type checker: mypy reads them, nothing runs them."""

from pathlib import Path

import numpy as np
from torch import Tensor, nn

import privplan
import simulate


def cost_of_a_mechanism() -> float:
    certificate = privplan.account(
        noise_multiplier=1.5, sampling_ratio=0.02, rounds=50, delta=1e-5
    )
    return certificate.epsilon


def costs_of_many() -> np.ndarray:
    bounds = privplan.account(
        noise_multiplier=np.array([1.0, 2.0]),
        sampling_ratio=0.02,
        rounds=50,
        delta=1e-5,
        tolerance=0.001,
    )
    return bounds.upper


def noise_for_a_budget(epsilon: float) -> float:
    return privplan.calibrate(
        epsilon, sampling_ratio=0.02, rounds=50, clients=6000, contributions=2
    )


def budgets_of_a_plan(spec: Path) -> dict[str, float]:
    plan = privplan.solve(spec)
    strict = plan.groups["strict"]
    first_group = plan.groups[0]
    for group in plan.groups:
        assert group.noise_multiplier > 0
    return {strict.name: strict.epsilon, first_group.name: first_group.weight}


def a_changed_spec() -> privplan.Plan:
    spec = privplan.preset("digits").replace(rounds=30)
    assert spec.groups["strict"].clients > 0
    return privplan.solve(spec)


def risk_of_a_group(plan: privplan.Plan) -> float:
    group = plan.groups["strict"]
    curve = privplan.tradeoff(plan.history("strict"), delta=group.delta)
    return curve.advantage


def verdict_of_a_run() -> bool:
    verdict = privplan.verify("run", rounds=0)
    for group in verdict.groups:
        print(group.group, group.realised_upper)
    return verdict.kept


def what_is_left(book: privplan.Book) -> float:
    book.add("run", "patients", rounds=0)
    book.declare("survey", privplan.History(), group="strict", clients=100)
    spent = {row.group: row.epsilon_upper for row in book.spent(population="patients")}
    assert spent
    return book.left("strict", 4.0, rounds=10, sampling_ratio=0.1).headroom


def own_data_and_model(plan: privplan.Plan, x: np.ndarray, y: Tensor) -> float | None:
    data = simulate.Data(x, y, client=np.arange(len(x)) % 20, codes=(2,))
    run = simulate.train(
        plan, data=data, model=nn.Linear, model_args={"in_features": 3}, seed=1
    )
    table = simulate.Data.load("patients.csv", label="ill", features=["age"])
    assert table.shape == data.shape
    return run.score


def methods_side_by_side(plan: privplan.Plan) -> list[str]:
    rows = simulate.compare(plan, ["planned", "FedAvg"], seeds=2, device="cpu")
    return [f"{row.algorithm} {row.mean}" for row in rows]
