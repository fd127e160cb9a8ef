"""Server optimisers against torch.optim and loops; averages against definitions."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from privplan.evidence.rounds import EVIDENCE, VECTORS
from privplan.planning.solver import solve
from privplan.record import LEDGER, RunRecord
from privplan.spec.training import Averaging, ServerOptimiser
from simulate.algorithms.registry import ALGORITHMS
from simulate.engine.evaluation import measure
from simulate.engine.loop import train
from simulate.runs.ledger_writer import MemoryLedger
from simulate.runs.request import Request, prepare
from simulate.runs.run import execute, run_prepared
from simulate.server import SERVER_OPTIMISERS, add, averaged
from tests.simulate import tiny
from tests.simulate.conftest import digits_spec, interrupt

START = torch.tensor([1.0, -2.0, 0.5])
STEPS = [
    torch.tensor([0.5, 0.0, -0.2]),
    torch.tensor([0.1, 0.3, 0.2]),
    torch.tensor([-1.0, 1, 0]),
]


def path(server, steps=STEPS):
    """The released models after each step."""
    theta = START
    state = server.start(START)
    models = []
    for step in steps:
        theta, state = server.step(theta, step, state)
        models.append(server.released(theta, state))
    return models


def server_of(**options):
    chosen = ServerOptimiser.model_validate(options)
    return SERVER_OPTIMISERS.get(chosen.optimizer)(chosen)


@pytest.mark.parametrize(("name", "momentum"), [("sgd", 0.0), ("momentum", 0.7)])
def test_sgd_and_momentum_are_those_of_torch(name, momentum):
    options = {"momentum": momentum} if name == "momentum" else {}
    weight = START.clone().requires_grad_()
    optimiser = torch.optim.SGD([weight], lr=0.3, momentum=momentum)
    server = server_of(optimizer=name, learning_rate=0.3, **options)
    for step, model in zip(STEPS, path(server), strict=True):
        weight.grad = -step
        optimiser.step()
        assert_close(model, weight.detach())


@pytest.mark.parametrize("name", ["adagrad", "adam", "yogi"])
def test_adaptive_optimisers_are_those_of_reddi_et_al(name):
    rate = 0.2
    beta1 = 0.9
    beta2 = 0.99
    tau = 0.05
    server = server_of(optimizer=name, learning_rate=rate, epsilon=tau)
    theta = START.tolist()
    m = [0.0] * 3
    v = [tau**2] * 3
    for step, model in zip(STEPS, path(server), strict=True):
        for i, delta in enumerate(step.tolist()):
            m[i] = beta1 * m[i] + (1 - beta1) * delta
            square = delta**2
            if name == "adagrad":
                v[i] += square
            elif name == "adam":
                v[i] = beta2 * v[i] + (1 - beta2) * square
            else:
                v[i] -= (1 - beta2) * square * float(np.sign(v[i] - square))
            theta[i] += rate * m[i] / (v[i] ** 0.5 + tau)
        assert_close(model, torch.tensor(theta))


def test_an_ema_has_geometric_weights():
    models = torch.stack(path(server_of(optimizer="sgd")))
    for t, average in enumerate(
        path(averaged(add(), Averaging(decay=0.6), rounds=3)), start=1
    ):
        weights = 0.6 ** torch.arange(t - 1, -1, -1, dtype=torch.float32)
        assert_close(average, weights @ models[:t] / weights.sum())


def test_a_tail_is_the_mean_of_the_last_models():
    models = path(add())
    averages = path(averaged(add(), Averaging(method="tail", fraction=0.5), rounds=3))
    assert_close(averages[0], models[0])
    assert_close(averages[2], (models[1] + models[2]) / 2)


def test_exactly_the_algorithms_with_their_own_server_refuse():
    model = {"name": "mlp-digits", "parameters": 2410}
    plain_plan = tiny.plan(model=model)
    plan_with_server = tiny.plan(model=model, server={"optimizer": "momentum"})
    refusing = {
        name
        for name, entry in ALGORITHMS.items()
        if entry.unmet_requirement(plain_plan)
        != entry.unmet_requirement(plan_with_server)
    }
    assert refusing == {"DP-FedAvg-LS", "DP-FedPGN", "DP-FedPGN-LS"}


def test_an_interrupted_run_resumes_to_the_same_bits(tmp_path):
    data = {"rounds": 4, "averaging": {}}
    plan = solve(digits_spec(**data, server={"optimizer": "yogi"}))

    once, twice = (
        Request(plan, "planned", "digits", tmp_path / name) for name in ("one", "two")
    )
    execute(once)
    interrupt(twice, 2)
    execute(twice)
    for name in (EVIDENCE, LEDGER, VECTORS):
        assert (tmp_path / "one" / name).read_bytes() == (
            tmp_path / "two" / name
        ).read_bytes()
    uninterrupted, resumed = (
        RunRecord.load(tmp_path / name) for name in ("one", "two")
    )
    assert uninterrupted.accuracy == resumed.accuracy


def test_the_average_is_evaluated_and_released(tmp_path):
    data = {"rounds": 2, "averaging": {"decay": 0.5}}
    plan = solve(digits_spec(**data))
    request = Request(plan, "planned", "digits", tmp_path / "run")
    experiment = prepare(request)
    record = run_prepared(request, experiment).record
    end = train(experiment, MemoryLedger(experiment.algorithm.plan.digest))
    average = end.server["averaged_model"]
    assert (
        record.accuracy == measure(experiment.model, average, experiment.data).accuracy
    )
    last_measure = measure(experiment.model, end.theta, experiment.data)
    assert last_measure.loss != record.metrics[-1].loss
