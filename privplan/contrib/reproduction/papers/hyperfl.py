"""HyperFL: hypernetworks at clients against gradient inversion (Guo, AAAI 2025)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from privplan.contrib.reproduction.claims import (
    CONTRADICTED,
    NO_ROWS,
    NOT_REPRODUCED,
    ORDER,
    UNDECIDED,
    Outcome,
    Result,
)
from privplan.contrib.reproduction.tables import (
    PAPERS,
    Computed,
    Method,
    Setting,
    data_of,
    paper_of,
    printed_rows,
)

DATA = data_of("hyperfl")
ROUNDS = 200
EPSILON = 4.0
# Standard deviation of Appendix D.
NOISE = 1e-5
# Local epochs.
EPOCHS = 5
# Of a client; EMNIST has 1,000 (appendix).
RECORDS = 600
COLUMNS = (
    ("Fashion-MNIST, 20 clients", "fashion-mnist:12400", 20, RECORDS),
    ("Fashion-MNIST, 100 clients", "fashion-mnist", 100, 580),
    ("CIFAR-10, 20 clients", "cifar-10:12400", 20, RECORDS),
    ("CIFAR-10, 100 clients", "cifar-10", 100, 480),
)
"""Head, data, clients, and records per client.

The partition leaves some out, so data have more.
"""
RELEASING = ("FedAvg", "HyperFL")
"""Methods of Table 5."""
PRIVATE = {"DP-FedAvg": "DPFedAvg", "CENTAUR": "CENTAUR", "PPSGD": "PPSGD"}
"""Methods with noise.

The paper's clients add it before they send, so budgets protect records.
"""


def spec_of(clients: int, colour: bool, **changes: Any) -> dict[str, Any]:
    """The paper's setting, for methods without privacy."""
    grey = {"name": "cnn-hyperfl-2", "parameters": 117066}
    sampling: dict[str, Any] = {"sampling": "full"}
    if clients == 100:
        sampling = {"sampling": "poisson", "cohort": 30}
    return {
        "name": "hyperfl",
        "groups": [{"name": "all", "clients": clients, "epsilon": EPSILON}],
        "rounds": ROUNDS,
        **sampling,
        "clipping_norm": 1.0,
        # The stored runs spent their whole budget.
        "planning": {"slack": 0.0},
        "local": _local(60, 50, 0.02 if colour else 0.01),
        "model": {"name": "cnn-hyperfl-3", "parameters": 107690} if colour else grey,
        **changes,
    }


def _local(steps: int, batch: int, rate: float) -> dict[str, Any]:
    return {
        "steps": steps,
        "batch_size": batch,
        "learning_rate": rate,
        "learning_rate_decay": 1.0,
        "momentum": 0.5,
    }


def methods_of(
    spec: Mapping[str, Any], records: int, rows: Iterable[str]
) -> dict[str, Method]:
    """The rows of a table.

    Those with noise protect each record of a client (record-level DP-SGD).
    """
    local = {name: value for name, value in spec["local"].items() if name != "steps"}
    epochs = spec["local"]["steps"] * local["batch_size"] // records
    groups = [{**group, "records": records} for group in spec["groups"]]
    changes = {
        "unit": "record",
        # Plans of records spend their budget by themselves.
        "planning": {},
        "sampling": "poisson",
        "groups": groups,
        "local": {**local, "epochs": epochs},
    }
    methods: dict[str, Method] = {}
    for name in rows:
        if name in PRIVATE:
            methods[name] = Method(PRIVATE[name], changes=changes)
        else:
            methods[name] = Method(name)
    return methods


def accuracies(*, small: bool = False) -> list[Setting]:
    """Table 1 without EMNIST and CINIC-10.

    Small: few images, another network, ten rounds.
    """
    rows = printed_rows(DATA, "hyperfl-table-1")
    if small:
        model = {"name": "cnn-2", "parameters": 28938}
        spec = spec_of(
            20, colour=False, rounds=10, local=_local(10, 20, 0.02), model=model
        )
        methods = methods_of(spec, 200, rows)
        column = COLUMNS[0][0]
        return [Setting(column, spec, "fashion-mnist:4200", methods, "dominant:20%")]
    settings = []
    for column, data, clients, records in COLUMNS:
        spec = spec_of(clients, data.startswith("cifar"))
        steps = EPOCHS * records // spec["local"]["batch_size"]
        spec["local"] = {**spec["local"], "steps": steps}
        methods = methods_of(spec, records, rows)
        settings.append(Setting(column, spec, data, methods, "dominant:20%"))
    return settings


def timed(*, small: bool = False) -> list[Setting]:
    """Table 4: Fashion-MNIST for EMNIST, 20 clients; small: an epoch of five."""
    spec = spec_of(20, colour=False, rounds=3 if small else 10)
    if small:
        spec["local"] = {
            **spec["local"],
            "steps": RECORDS // spec["local"]["batch_size"],
        }
    methods = methods_of(spec, RECORDS, printed_rows(DATA, "hyperfl-table-4"))
    return [Setting("20 clients", spec, f"fashion-mnist:{20 * RECORDS}", methods)]


def attacked(*, small: bool = False) -> list[Setting]:
    """Table 3: releases of clients with one image, attacked; MNIST for EMNIST."""
    settings = []
    options = {"attack": "ig", "images": "50", "steps": "1000"}
    if small:
        options = {"attack": "ig", "images": "10", "steps": "200"}
    for column, data, colour in (
        ("MNIST", "mnist", False),
        ("CIFAR-10", "cifar-10", True),
    ):
        spec = spec_of(20, colour)
        records = RECORDS
        if not colour:
            # EMNIST's batches and records.
            spec["local"] = _local(50, 100, 0.01)
            records = 1000
        rows = printed_rows(DATA, "hyperfl-table-3")
        methods = methods_of(spec, records, rows)
        settings.append(Setting(column, spec, data, methods, options=options))
    if small:
        return settings[:1]
    return settings


def released(
    *, attack: str, images: int = 50, steps: int | None = None
) -> list[Setting]:
    """Table 5, Figures 6 and 7: FedAvg and HyperFL under ROG or the tailored attack.

    Args:
        attack: its name.
        images: attacked ones, each of a client of its own.
        steps: of the attack; its own number when None.
    """
    settings = []
    for setting in attacked():
        options = {"attack": attack, "images": str(images)}
        if steps is not None:
            options["steps"] = str(steps)
        if attack == "rog":
            # The decoder is trained on the test records, which nobody attacks.
            options["decoder-data"] = setting.dataset
        methods = {name: setting.methods[name] for name in RELEASING}
        settings.append(replace(setting, methods=methods, options=options))
    return settings


def is_hidden(result: Result) -> Outcome:
    """Whether HyperFL's images are above their null rows, by intervals over seeds."""
    words = []
    verdicts = set()
    for cell in result.cells:
        if cell.row != "HyperFL":
            continue
        if cell.half is None:
            words.append(f"{cell.column}: {cell.mean:+.1f} dB over null")
            verdicts.add(UNDECIDED)
            continue
        low = cell.mean - cell.half
        high = cell.mean + cell.half
        words.append(f"{cell.column}: {low:+.1f} to {high:+.1f} dB over null")
        if low > 0:
            verdicts.add(NOT_REPRODUCED)
        elif high <= 0:
            verdicts.add(ORDER)
        else:
            verdicts.add(UNDECIDED)
    # One column in which images are seen is enough against the statement.
    for verdict in (NOT_REPRODUCED, UNDECIDED, ORDER):
        if verdict in verdicts:
            return Outcome(verdict, "; ".join(words))
    return NO_ROWS


def privacy() -> Computed:
    """Zero-concentrated rho of the stated noise, and the epsilon that it is at least.

    With every client in every round the release is a Gaussian mechanism with mu =
    sqrt(T) / sigma, for which epsilon >= mu^2 / 2 at every delta below 1/2 (Dong, Roth,
    Su 2022, Cor. 2.13: delta(mu^2 / 2) = 1/2 - exp(mu^2 / 2) Phi(-mu), above 0.49
    here).
    """
    mu = math.sqrt(ROUNDS) / NOISE
    yield f"least epsilon of sigma = {NOISE:g}", "20 clients", mu**2 / 2


def is_private(result: Result) -> Outcome:
    """Whether the least epsilon of the stated noise excludes the stated epsilon."""
    [cell] = result.cells
    words = (
        f"epsilon is at least {cell.mean:.3g} at every delta below 0.49, for 200 "
        "releases of all records, where sigma is a multiple of the clipping norm, of "
        "which the paper states none"
    )
    return Outcome(CONTRADICTED if cell.mean > EPSILON else UNDECIDED, words)


PAPERS.register("hyperfl", paper_of(DATA, globals()))
