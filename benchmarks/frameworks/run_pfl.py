"""W1 by pfl-research: federated averaging with a central Gaussian mechanism.

python run_pfl.py ROUNDS
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
from torch.nn import functional
from workload import (
    CLIENTS,
    CLIP,
    COHORT,
    LEARNING_RATE,
    NOISE_MULTIPLIER,
    RECORDS,
    STEPS,
    network,
    population,
)


class Network(torch.nn.Module):
    """The network with the two functions that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.body = network()

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of a batch."""
        return functional.cross_entropy(self.body(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, object]:
        """No metrics."""
        return {}


def main(rounds: int) -> None:
    """Train."""
    torch.set_num_threads(1)
    images, labels = population()
    sampler = np.random.default_rng(0)

    def dataset(user: int) -> PyTorchTensorDataset:
        return PyTorchTensorDataset((images[user].float().div_(255), labels[user]))

    users = FederatedDataset(dataset, lambda: int(sampler.integers(CLIENTS)))
    model = Network()
    wrapped = PyTorchModel(
        model, torch.optim.SGD, torch.optim.SGD(model.parameters(), lr=1.0)
    )
    mechanism = CentrallyAppliedPrivacyMechanism(
        GaussianMechanism(CLIP, NOISE_MULTIPLIER)
    )
    backend = SimulatedBackend(
        training_data=users, val_data=users, postprocessors=[mechanism]
    )
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=10**9,
            train_cohort_size=COHORT,
            val_cohort_size=0,
        ),
        backend=backend,
        model=wrapped,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=STEPS,
            local_learning_rate=LEARNING_RATE,
            local_batch_size=RECORDS,
        ),
        model_eval_params=None,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
