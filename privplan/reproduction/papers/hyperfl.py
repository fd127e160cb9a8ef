"""HyperFL: hypernetworks at the clients against gradient inversion (Guo et al., AAAI 2025)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from privplan.reproduction.claims import CONTRADICTED, NOT_RUN, Outcome, ahead, every
from privplan.reproduction.results import Cell, Result
from privplan.reproduction.tables import PAPERS, Claim, Method, Paper, Setting, Table

ROUNDS, EPSILON, NOISE = 200, 4.0, 1e-5
RESULTS = {
    "Local-only": (85.93, 87.01, 65.47, 66.11),
    "FedAvg": (85.67, 88.11, 70.02, 76.24),
    "pFedHN": (87.64, 89.80, 70.18, 80.07),
    "DP-FedAvg": (59.88, 68.29, 29.12, 32.03),
    "CENTAUR": (83.07, 79.77, 50.85, 51.86),
    "PPSGD": (84.47, 82.94, 52.17, 53.92),
    "HyperFL": (88.28, 90.41, 73.03, 78.73),
}
"""Table 1 without EMNIST and CINIC-10."""
COLUMNS = (
    ("Fashion-MNIST, 20 clients", "fashion-mnist", 20),
    ("Fashion-MNIST, 100 clients", "fashion-mnist", 100),
    ("CIFAR-10, 20 clients", "cifar-10", 20),
    ("CIFAR-10, 100 clients", "cifar-10", 100),
)
RECORDS = {"fashion-mnist": 58_000, "cifar-10": 48_000}
"""Records that the clients are sure to share; the partition leaves some out."""
PRIVATE = {"DP-FedAvg": "DPFedAvg", "CENTAUR": "CENTAUR", "PPSGD": "PPSGD"}
"""Methods with noise. The paper's clients add it before they send, so budgets protect records."""


def spec_of(clients: int, colour: bool, **changes: Any) -> dict[str, Any]:
    """The paper's setting, for methods without privacy."""
    grey = {"name": "cnn-hyperfl-2", "parameters": 117066}
    sampling = {"sampling": "poisson", "cohort": 30} if clients == 100 else {"sampling": "full"}
    return {
        "name": "hyperfl",
        "groups": [{"name": "all", "clients": clients, "epsilon": EPSILON}],
        "rounds": ROUNDS,
        **sampling,
        "clipping_norm": 1.0,
        "local": {
            "steps": 60,
            "batch_size": 50,
            "learning_rate": 0.02 if colour else 0.01,
            "learning_rate_decay": 1.0,
            "momentum": 0.5,
        },
        "model": {"name": "cnn-hyperfl-3", "parameters": 107690} if colour else grey,
        **changes,
    }


def methods_of(spec: Mapping[str, Any], records: int) -> dict[str, Method]:
    """The rows of Table 1; those with noise protect each record of a client (record-level DP-SGD).

    Args:
        spec: the setting of the others.
        records: records that each client has at least; noisy steps make a pass over them.
    """
    local = {name: value for name, value in spec["local"].items() if name != "steps"}
    groups = [{**group, "records": records} for group in spec["groups"]]
    changes = {
        "unit": "record",
        "sampling": "poisson",
        "groups": groups,
        "local": {**local, "epochs": 1},
    }
    return {
        name: Method(PRIVATE[name], changes=changes) if name in PRIVATE else Method(name)
        for name in RESULTS
    }


def _full() -> list[Setting]:
    found = []
    for column, data, clients in COLUMNS:
        spec = spec_of(clients, data == "cifar-10")
        methods = methods_of(spec, RECORDS[data] // clients)
        found.append(Setting(column, spec, data, methods, "dominant:20%"))
    return found


def _reduced() -> list[Setting]:
    local = {
        "steps": 10, "batch_size": 20, "learning_rate": 0.02, "learning_rate_decay": 1.0,
        "momentum": 0.5,
    }  # fmt: skip
    model = {"name": "cnn-2", "parameters": 28938}
    spec = spec_of(20, colour=False, rounds=10, local=local, model=model)
    methods, data = methods_of(spec, 200), "fashion-mnist:4200"
    return [Setting("Fashion-MNIST, 20 clients", spec, data, methods, "dominant:20%")]


def _privacy() -> list[Cell]:
    """Zero-concentrated rho of the stated noise, and the epsilon that it is at least.

    With every client in every round the release is a Gaussian mechanism with mu = sqrt(T) /
    sigma, for which epsilon >= mu^2 / 2 at every delta below 1/2 (Dong, Roth, Su 2022, Cor. 2.13:
    delta(mu^2 / 2) = 1/2 - exp(mu^2 / 2) Phi(-mu), above 0.49 here).
    """
    mu = math.sqrt(ROUNDS) / NOISE
    row = f"least epsilon of sigma = {NOISE:g}"
    return [Cell(row=row, column="20 clients", published=EPSILON, values=(mu**2 / 2,))]


def _is_private(result: Result) -> Outcome:
    """Whether the stated noise gives the stated epsilon."""
    [cell] = result.cells
    return Outcome(CONTRADICTED, f"epsilon is at least {cell.mean:.3g} at every delta below 0.49")


def _inferior(result: Result) -> Outcome:
    """Whether every DP method is below FedAvg and Local-only."""
    private = ("DP-FedAvg", "CENTAUR", "PPSGD")
    found = [ahead(name, *private)(result) for name in ("FedAvg", "Local-only")]
    if any(one.verdict == NOT_RUN for one in found):
        return Outcome(NOT_RUN, "no such rows")
    return max(found, key=lambda one: one.verdict == "not reproduced")


PAPERS.register(
    "hyperfl",
    Paper(
        "HyperFL (Guo, Zeng, Chen, Zhang, Ren, Zhou, Qu)",
        (
            Table(
                "hyperfl-table-1",
                "Table 1: accuracy of personal models",
                (
                    Claim("DP methods are below FedAvg and Local-only", _inferior),
                    Claim(
                        "HyperFL is above the DP methods",
                        ahead("HyperFL", "DP-FedAvg", "CENTAUR", "PPSGD"),
                    ),
                    Claim("HyperFL is above Local-only", ahead("HyperFL", "Local-only")),
                    Claim("HyperFL is above FedAvg", ahead("HyperFL", "FedAvg")),
                    Claim(
                        "CENTAUR and PPSGD are above DP-FedAvg",
                        every(ahead("CENTAUR", "DP-FedAvg"), ahead("PPSGD", "DP-FedAvg")),
                    ),
                ),
                trained={"full": _full, "reduced": _reduced},
                printed={
                    (row, column): (value, None)
                    for row, values in RESULTS.items()
                    for (column, _, _), value in zip(COLUMNS, values, strict=True)
                },
                sizes={
                    "full": "Fashion-MNIST and CIFAR-10; DP methods protect each record of a "
                    "client (epsilon 4)",
                    "reduced": "Fashion-MNIST, cnn-2, 20 clients of 203 to 207 images, dominant "
                    "classes (20% of all), 10 rounds of 10 steps of 20 images, rate 0.02; DP "
                    "methods protect each record of a client (epsilon 4)",
                },
                minutes={"reduced": 6},
            ),
            Table(
                "hyperfl-table-2",
                "Table 2: HyperFL-LPM with pre-trained models",
                left_out="needs pre-trained ViT-S/16 and ResNet-18",
            ),
            Table(
                "hyperfl-table-3",
                "Table 3: reconstruction by inverted gradients (IG)",
                left_out="by privplan attack: docs/attacks.md and docs/hyperfl.md",
            ),
            Table(
                "hyperfl-table-4",
                "Table 4: seconds per round",
                left_out="it times the paper's own programs on its own machine",
            ),
            Table(
                "hyperfl-table-5",
                "Table 5: reconstruction by ROG",
                left_out="ROG needs a pre-trained decoder; docs/hyperfl.md has a stronger attack",
            ),
            Table(
                "hyperfl-privacy",
                "Appendix D: epsilon of the DP methods",
                (Claim("sigma = 1e-5 satisfies epsilon = 4", _is_private),),
                planned=_privacy,
            ),
        ),
    ),
)
