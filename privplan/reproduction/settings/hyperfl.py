"""Settings of HyperFL's tables: personal models of 20 and 100 clients (Guo et al., AAAI 2025)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from privplan.reproduction.printed import hyperfl as printed
from privplan.reproduction.tables import Method, Setting

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
    spec: Mapping[str, Any], records: int, rows: Iterable[str] = printed.ACCURACY
) -> dict[str, Method]:
    """The rows of a table; those with noise protect each record of a client (record-level DP-SGD).

    Args:
        spec: the setting of the others.
        records: records that each client has at least; noisy steps make a pass over them.
        rows: the rows.
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
    methods = methods_of(spec, records, printed.SECONDS)
    return [Setting("20 clients", spec, data, methods)]


def attacked(*, small: bool = False) -> list[Setting]:
    """Table 3: releases of clients with one image, attacked; MNIST in place of EMNIST."""
    found = []
    for column, data, colour in (("MNIST", "mnist", False), ("CIFAR-10", "cifar-10", True)):
        spec = spec_of(20, colour)
        images, steps = ("10", "200") if small else ("50", "1000")
        options = {"attack": "ig", "images": images, "steps": steps}
        methods = methods_of(spec, 2900 if data == "mnist" else 2400, printed.PSNR)
        found.append(Setting(column, spec, data, methods, options=options))
    return found[:1] if small else found
