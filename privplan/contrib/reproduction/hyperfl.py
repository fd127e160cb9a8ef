"""Numbers of HyperFL (Guo et al., AAAI 2025), as printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from privplan.contrib.reproduction.tables import Method, Setting

ACCURACY = {
    "Local-only": (85.93, 87.01, 65.47, 66.11),
    "FedAvg": (85.67, 88.11, 70.02, 76.24),
    "pFedHN": (87.64, 89.80, 70.18, 80.07),
    "DP-FedAvg": (59.88, 68.29, 29.12, 32.03),
    "CENTAUR": (83.07, 79.77, 50.85, 51.86),
    "PPSGD": (84.47, 82.94, 52.17, 53.92),
    "HyperFL": (88.28, 90.41, 73.03, 78.73),
}
"""Table 1 without EMNIST and CINIC-10."""
PSNR = {
    "FedAvg": (32.64, 16.16),
    "pFedHN": (31.24, 16.02),
    "pFedHN-PC": (28.38, 15.80),
    "DP-FedAvg": (7.74, 7.90),
    "CENTAUR": (9.52, 9.80),
    "PPSGD": (9.73, 9.70),
    "HyperFL": (7.85, 8.35),
}
"""Table 3: EMNIST and CIFAR-10."""
SECONDS = {"FedAvg": 23, "DP-FedAvg": 194, "PPSGD": 223, "CENTAUR": 210, "HyperFL": 37}
"""Table 4: EMNIST, 20 clients, on the paper's machine."""


# -------------------------------------------------------------------------------------------------
# Settings of HyperFL's tables: personal models of 20 and 100 clients (Guo et al., AAAI 2025).

ROUNDS, EPSILON = 200, 4.0
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


def methods_of(
    spec: Mapping[str, Any], records: int, rows: Iterable[str] = ACCURACY
) -> dict[str, Method]:
    """The rows of table; those with noise protect each record of a client (record-level DP-SGD)."""
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
        for name in rows
    }


def accuracies() -> list[Setting]:
    """Table 1 without EMNIST and CINIC-10."""
    found = []
    for column, data, clients in COLUMNS:
        spec = spec_of(clients, data == "cifar-10")
        methods = methods_of(spec, RECORDS[data] // clients)
        found.append(Setting(column, spec, data, methods, "dominant:20%"))
    return found


def accuracies_reduced() -> list[Setting]:
    """Table 1 with few images, a smaller network and ten rounds."""
    local = {
        "steps": 10, "batch_size": 20, "learning_rate": 0.02, "learning_rate_decay": 1.0,
        "momentum": 0.5,
    }  # fmt: skip
    model = {"name": "cnn-2", "parameters": 28938}
    spec = spec_of(20, colour=False, rounds=10, local=local, model=model)
    methods, data = methods_of(spec, 200), "fashion-mnist:4200"
    return [Setting("Fashion-MNIST, 20 clients", spec, data, methods, "dominant:20%")]


def timed(*, small: bool = False) -> list[Setting]:
    """Table 4: Fashion-MNIST in place of EMNIST, 20 clients; fewer records when small."""
    records, rounds = (600, 3) if small else (2900, 10)
    data = f"fashion-mnist:{20 * records}" if small else "fashion-mnist"
    spec = spec_of(20, colour=False, rounds=rounds)
    spec["local"] = {**spec["local"], "steps": records // spec["local"]["batch_size"]}
    methods = methods_of(spec, records, SECONDS)
    return [Setting("20 clients", spec, data, methods)]


def attacked(*, small: bool = False) -> list[Setting]:
    """Table 3: releases of clients with one image, attacked; MNIST in place of EMNIST."""
    found = []
    for column, data, colour in (("MNIST", "mnist", False), ("CIFAR-10", "cifar-10", True)):
        spec = spec_of(20, colour)
        images, steps = ("10", "200") if small else ("50", "1000")
        options = {"attack": "ig", "images": images, "steps": steps}
        methods = methods_of(spec, 2900 if data == "mnist" else 2400, PSNR)
        found.append(Setting(column, spec, data, methods, options=options))
    return found[:1] if small else found
