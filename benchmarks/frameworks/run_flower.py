"""W1 by Flower: FedAvg with central differential privacy and fixed clipping, simulated.

python run_flower.py ROUNDS
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from flwr.client import ClientApp, NumPyClient
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.simulation import run_simulation
from torch.nn import functional
from workload import (
    CLIENTS,
    CLIP,
    COHORT,
    LEARNING_RATE,
    NOISE_MULTIPLIER,
    STEPS,
    network,
    population,
)

POPULATION: dict[str, torch.Tensor] = {}
"""The population of this process, which a worker makes once."""


class Client(NumPyClient):
    """A client that trains on its ten images."""

    def __init__(self, number: int) -> None:
        self.number = number

    def fit(
        self, parameters: list[np.ndarray], config: dict[str, Any]
    ) -> tuple[list[np.ndarray], int, dict[str, Any]]:
        """Five steps of SGD."""
        torch.set_num_threads(1)
        if not POPULATION:
            POPULATION["x"], POPULATION["y"] = population()
        module = network()
        for value, received in zip(module.parameters(), parameters, strict=True):
            value.data = torch.from_numpy(received.copy())
        x = POPULATION["x"][self.number].float().div_(255)
        y = POPULATION["y"][self.number]
        optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
        for _ in range(STEPS):
            optimizer.zero_grad()
            functional.cross_entropy(module(x), y).backward()
            optimizer.step()
        return [value.detach().numpy() for value in module.parameters()], len(y), {}


def client(context: Context) -> Any:
    """The client of a node."""
    return Client(int(context.node_config["partition-id"])).to_client()


def main(rounds: int) -> None:
    """Train."""

    def server(context: Context) -> ServerAppComponents:
        start = ndarrays_to_parameters(
            [v.detach().numpy() for v in network().parameters()]
        )
        plain = FedAvg(
            fraction_fit=COHORT / CLIENTS,
            fraction_evaluate=0.0,
            min_fit_clients=COHORT,
            min_available_clients=CLIENTS,
            initial_parameters=start,
        )
        strategy = DifferentialPrivacyServerSideFixedClipping(
            plain, NOISE_MULTIPLIER, CLIP, COHORT
        )
        return ServerAppComponents(
            strategy=strategy, config=ServerConfig(num_rounds=rounds)
        )

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(
        ServerApp(server_fn=server), ClientApp(client), CLIENTS, "ray", resources
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
