"""Budgets of individual clients, drawn from a distribution of Robust-HDP, as groups.

Dist1 to Dist9 are those of S. Malekmohammadi, Y. Yu, Y. Cao, Noise-Aware Algorithm for
Heterogeneous Differentially Private Federated Learning, ICML 2024, Table 7.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Part(NamedTuple):
    """A component of a mixture.

    Attributes:
        weight: its chance.
        law: ``normal`` or ``uniform``.
        numbers: mean and standard deviation, or smallest and largest value.
    """

    weight: float
    law: str
    numbers: tuple[float, float]


def _normals(*parts: tuple[float, float, float]) -> tuple[Part, ...]:
    return tuple(
        Part(weight, "normal", (mean, deviation)) for weight, mean, deviation in parts
    )


def _uniform(low: float, high: float) -> tuple[Part, ...]:
    return (Part(1.0, "uniform", (low, high)),)


TABLE_7: dict[str, tuple[Part, ...]] = {
    "Dist1": _normals((1.0, 2.0, 1.0)),
    "Dist2": _normals((0.2, 0.2, 0.01), (0.6, 1.0, 0.1), (0.2, 5.0, 1.0)),
    "Dist3": _uniform(0.2, 5.0),
    "Dist4": _normals((0.2, 0.2, 0.01), (0.6, 0.5, 0.1), (0.2, 2.0, 1.0)),
    "Dist5": _uniform(0.2, 2.0),
    "Dist6": _normals((0.3, 0.2, 0.01), (0.5, 0.5, 0.1), (0.2, 1.0, 0.1)),
    "Dist7": _uniform(0.2, 1.0),
    "Dist8": _normals((0.6, 0.2, 0.01), (0.4, 0.5, 0.1)),
    "Dist9": _uniform(0.2, 0.5),
}
"""Mixtures by name, as printed in Table 7 of Robust-HDP."""
# Smaller draws are repeated: a normal law has negative ones, of which the paper says
# nothing.
LEAST_EPSILON = 0.1


def drawn(name: str, clients: int, seed: int = 0) -> NDArray[np.float64]:
    """Epsilon of each client, ascending, shape (clients,)."""
    source = np.random.default_rng(seed)
    parts = TABLE_7[name]
    chosen = source.choice(len(parts), size=clients, p=[part.weight for part in parts])
    return np.sort([_epsilon(source, parts[index]) for index in chosen])


def _epsilon(source: np.random.Generator, part: Part) -> float:
    """A draw of a component."""
    draw = source.uniform if part.law == "uniform" else source.normal
    while True:
        value = float(draw(*part.numbers))
        if value >= LEAST_EPSILON:
            return value


def with_distribution(data: dict[str, Any]) -> dict[str, Any]:
    """Plain data of a spec with groups in the place of an ``epsilon_distribution``.

    The distribution has a name, clients, records of each client and the batch sizes,
    one of which each client draws. Each client is a group with a budget for each of its
    records.
    """
    law = data.get("epsilon_distribution")
    if law is None:
        return data
    clients = law["clients"]
    epsilons = drawn(law["name"], clients)
    width = len(str(clients))
    sizes = np.random.default_rng([0, 1]).choice(law["batch_sizes"], clients)
    groups = [
        {
            "name": f"c{number:0{width}d}",
            "clients": 1,
            "epsilon": round(float(epsilon), 4),
            "records": law["records"],
            "batch_size": int(size),
        }
        for number, (epsilon, size) in enumerate(
            zip(epsilons, sizes, strict=True), start=1
        )
    ]
    spec = {**data, "groups": groups}
    del spec["epsilon_distribution"]
    return spec
