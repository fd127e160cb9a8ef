"""Federated averaging by pfl, two groups: ``python pfl_run.py PLAN RUN ITERATIONS``."""

import json
import sys

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

from privplan.contrib.adapters.pfl import GuardedMechanism, PlannedUsers, StopAtBudget
from privplan.guard import Guard


class Line(torch.nn.Linear):
    """A linear model with the methods that pfl asks for."""

    def loss(self, x, y, is_eval=False):
        return torch.nn.functional.mse_loss(self(torch.tensor(x)), torch.tensor(y))

    def metrics(self, x, y, is_eval=False):
        return {"loss": Weighted(float(self.loss(x, y)) * len(y), len(y))}


def user(group, position):
    """Ten points on y = 2 x1 - x2."""
    rng = np.random.default_rng([position, len(group)])
    x = rng.normal(size=(10, 2)).astype("f4")
    return Dataset(raw_data=[x, x @ np.array([[2.0], [-1.0]], "f4")])


class SeenMetrics(TrainingProcessCallback):
    """Which metrics a callback of the program gets to see."""

    def __init__(self):
        self.names = set()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.names |= set(aggregate_metrics.to_simple_dict())
        return False, Metrics()


torch.manual_seed(0)
seen = SeenMetrics()
line = Line(2, 1)
with Guard(sys.argv[1], sys.argv[2], framework="pfl") as guard:
    model = PyTorchModel(
        line, torch.optim.SGD, torch.optim.SGD(line.parameters(), lr=1.0)
    )
    backend = SimulatedBackend(
        training_data=PlannedUsers(guard, user),
        val_data=None,
        postprocessors=[GuardedMechanism(guard)],
    )
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(int(sys.argv[3]), 100, 7, None),
        backend=backend,
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=3, local_learning_rate=0.1, local_batch_size=10
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=10),
        callbacks=[StopAtBudget(guard), seen],
    )
    done = guard.round - 1
    print(
        json.dumps(
            {
                "rounds": done,
                "weight": line.weight.detach().numpy().ravel().tolist(),
                "metrics": sorted(seen.names),
            }
        )
    )
