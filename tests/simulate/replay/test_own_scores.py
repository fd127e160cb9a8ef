"""Own losses and metrics may change their arguments or refuse some outputs."""

import json

import numpy as np
import pytest
from torch import nn
from torch.nn import functional

import simulate
from privplan.planning.solver import solve
from privplan.spec.spec import Spec


class Classes(nn.Sequential):
    """Three classes from four numbers."""

    def __init__(self):
        super().__init__(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


class Chance(nn.Sequential):
    """A probability, which is 0 or 1 where the sum is far from 0."""

    def __init__(self):
        super().__init__(nn.Linear(4, 1), nn.Hardsigmoid())


def merged(outputs, targets):
    """Accuracy of two classes, of which one is two of the targets."""
    targets[targets == 2] = 1
    predicted = outputs.argmax(1)
    predicted[predicted == 2] = 1
    return (predicted == targets).double().mean()


def merging_loss(outputs, targets):
    """Cross-entropy of two classes, of which one is two of the targets."""
    targets[targets == 2] = 1
    return functional.cross_entropy(outputs, targets)


def brier(outputs, targets):
    """Mean squared error of probabilities, and of nothing else."""
    if not ((outputs >= 0) & (outputs <= 1)).all():
        raise ValueError("must be probabilities")
    return (outputs - targets).square().mean()


class Number(nn.Linear):
    """A number from four, which is zero at first."""

    def __init__(self):
        super().__init__(4, 1)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


def trained(network, folder, **options):
    """A run of ten clients with records of their own."""
    client = np.arange(200) % 10
    x = np.random.default_rng(0).normal(size=(200, 4)).astype("f4")
    y = np.digitize(x[:, 0], [-0.5, 0.5])
    task = "multi-class"
    if network is Chance:
        y = (y > 0).astype(int)
        x *= 8  # saturates some outputs
        task = "binary"
    if network is Number:
        y = 1e-5 * x[:, 0]  # such as kilograms
        task = "regression"
    rate = 2.0 if network is not Number else 1e-3
    plan = solve(
        Spec.parse(
            {
                "name": "own metric",
                "groups": [{"name": "all", "clients": 10, "epsilon": 4.0}],
                "delta": 1e-3,
                "rounds": 3,
                "cohort": 5,
                "clipping_norm": 20.0 if network is not Number else 1e-8,
                "local": {"steps": 3, "batch_size": 5, "learning_rate": rate},
                "model": {
                    "name": "my-net",
                    "parameters": sum(part.numel() for part in network().parameters()),
                },
            }
        )
    )
    groups = ["all"] * len(x)
    return simulate.train(
        plan,
        model=network,
        data=simulate.Data(x, y, client=client, group=groups, task=task),
        seed=1,
        folder=folder,
        **options,
    )


@pytest.mark.parametrize(
    ("network", "options"),
    [
        (Classes, {"metric": merged}),
        (Classes, {"loss": merging_loss}),
        (Chance, {"metric": brier, "loss": nn.MSELoss()}),
    ],
)
def test_a_run_is_executed_again_whatever_its_code_does(network, options, tmp_path):
    run = trained(network, tmp_path / "run", **options)
    assert not run.verdict.failed
    assert run.verdict.executed


def test_a_score_that_own_code_computes_otherwise_breaks_no_run(tmp_path):
    """What it read in a file, say, is another thing when the run is executed again."""
    added = [0.0]

    def changing(outputs, targets):
        return (outputs.argmax(1) == targets).double().mean() + added[0]

    run = trained(Classes, tmp_path / "run", metric=changing)
    added[0] = 0.2
    assert not run.verdict.failed
    assert run.verdict.executed == 0
    assert "scores that own code computes twice" in run.verdict.not_executed


@pytest.mark.parametrize("forged", [False, True])
def test_errors_in_a_small_unit_are_compared_in_it(forged, tmp_path):
    run = trained(Number, tmp_path / "run", metric="mae")
    if forged:
        path = tmp_path / "run" / "record.json"
        record = json.loads(path.read_text())
        record["accuracy"] *= 0.9
        path.write_text(json.dumps(record))
    assert bool(run.verdict.failed) == forged
