"""Settings of Robust-HDP's tables: DP-SGD of 20 to 60 clients on MNIST and Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from privplan.reproduction.plans import robust_hdp as plans
from privplan.reproduction.printed import robust_hdp as printed
from privplan.reproduction.tables import Method, Setting

ALGORITHMS = {
    "WeiAvg": "WeiAvg",
    "PFA": "PFA",
    "DPFedAvg": "DPFedAvg",
    "minimum epsilon": "minimum-epsilon",
    "Robust-HDP": "Robust-HDP",
}
TRAINED = plans.CLIENTS * plans.RECORDS
"""Records that all clients share: 48,000."""
SMALL: dict[str, Any] = {
    "rounds": 10,
    "model": {"name": "mlp-digits:1x28x28", "parameters": 25450},
}
SMALL_TRAINED = TRAINED // 2
SMALL_RATE = 10
"""Factor of the learning rates where a twentieth of the rounds must show the budgets of Dist6."""
SMALL_SKEWED = ("Dist2", "Dist6")
SMALL_CLIENTS = (20, 60)


def spec_of(name: str, **changes: Any) -> dict[str, Any]:
    """The paper's setting on MNIST and Fashion-MNIST under one of its distributions."""
    return {
        "name": f"robust-hdp-{name.lower()}",
        "unit": "record",
        "epsilon_distribution": spread(name),
        "delta": plans.DELTA,
        "rounds": plans.ROUNDS,
        "clipping_norm": plans.CLIP,
        "local": {
            "epochs": 1, "batch_size": 64, "learning_rate": 0.005, "learning_rate_decay": 1.0
        },
        "model": {"name": "cnn-2", "parameters": 28938},
        "planning": {"accountant": "pld", "weights": "inverse_variance"},
        **changes,
    }  # fmt: skip


def spread(
    name: str,
    clients: int = plans.CLIENTS,
    batches: Sequence[int] = plans.BATCHES,
    trained: int = TRAINED,
) -> dict[str, Any]:
    """Budgets and batch sizes of as many clients, which share so many records."""
    return {
        "name": name,
        "clients": clients,
        "records": trained // clients,
        "batch_sizes": list(batches),
    }


def settings(
    dataset: str,
    names: Iterable[str] = printed.DISTRIBUTIONS,
    rows: Iterable[str] = ALGORITHMS,
    rate: float = 1.0,
    **changes: Any,
) -> list[Setting]:
    """One column per distribution, with the learning rates of Tables 8 and 9.

    Args:
        dataset: ``mnist`` or ``fashion-mnist``.
        names: the distributions.
        rows: the methods.
        rate: factor of the learning rates.
        changes: fields of the spec that differ.
    """
    found = []
    for name in names:
        spec = spec_of(name, **changes)
        methods = {row: _method(spec, row, rate * _rate(dataset, row, name)) for row in rows}
        found.append(Setting(name, spec, dataset, methods))
    return found


def _rate(dataset: str, row: str, name: str) -> float:
    return printed.RATES[dataset][row][printed.DISTRIBUTIONS.index(name)]


def _method(spec: Mapping[str, Any], row: str, rate: float) -> Method:
    return Method(ALGORITHMS[row], changes={"local": {**spec["local"], "learning_rate": rate}})


def smaller(dataset: str) -> list[Setting]:
    """Tables 12 and 13 in minutes: Dist4 with fewer records, fewer rounds and a perceptron."""
    law = spread("Dist4", trained=SMALL_TRAINED)
    [one] = settings(dataset, ("Dist4",), epsilon_distribution=law, **SMALL)
    return [replace(one, dataset=f"{dataset}:{SMALL_TRAINED}")]


def by_level(*, small: bool = False) -> list[Setting]:
    """Table 16: 20 clients with stricter and stricter budgets; the first and last when small."""
    found = []
    for name in (printed.LEVELS[0], printed.LEVELS[-1]) if small else printed.LEVELS:
        found += _scaled(name, printed.LEVEL, spread(name, trained=_records(small)), small)
    return found


def by_clients(*, small: bool = False) -> list[Setting]:
    """Table 17: Dist6, 20 to 60 clients that share the same records."""
    found = []
    for clients in SMALL_CLIENTS if small else (20, 40, 60):
        law = spread("Dist6", clients, trained=_records(small))
        [one] = _scaled("Dist6", printed.CLIENTS, law, small)
        found.append(replace(one, column=f"{clients} clients"))
    return found


def skewed(batches: Sequence[int], *, small: bool = False) -> list[Setting]:
    """Tables 4 and 22: 60 clients with at most 8 classes each."""
    found = []
    for name in SMALL_SKEWED if small else printed.DISTRIBUTIONS:
        law = spread(name, 60, batches, _records(small))
        [one] = _scaled(name, printed.SKEWED, law, small)
        found.append(replace(one, partition="shards:8"))
    return found


def _scaled(name: str, rows: Iterable[str], law: Mapping[str, Any], small: bool) -> list[Setting]:
    """One column on MNIST; when small, with few rounds at large rates and a perceptron."""
    if not small:
        return settings("mnist", (name,), rows, epsilon_distribution=law)
    [one] = settings("mnist", (name,), rows, SMALL_RATE, epsilon_distribution=law, **SMALL)
    return [replace(one, dataset=f"mnist:{SMALL_TRAINED}")]


def _records(small: bool) -> int:
    return SMALL_TRAINED if small else TRAINED
