"""Table 3 and Figures 2, 8 and 11 of Robust-HDP: noise of DP-SGD on each client."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.calibrate import noise_multiplier
from privplan.contrib.reproduction.claims import (
    CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
    ORDER,
    REPRODUCED,
    Cell,
    Outcome,
    Result,
)
from privplan.contrib.reproduction.epsilon_distribution import EpsilonDistribution
from privplan.contrib.reproduction.tables import Method, Setting
from privplan.planning.records import local_steps, mean_variance, oracle_weights
from privplan.values import parse

# --- Numbers of Robust-HDP (S. Malekmohammadi, Y. Yu, Y. Cao, ICML 2024), as printed. ------------

DISTRIBUTIONS = tuple(f"Dist{number}" for number in range(1, 10))
NOISE = {
    "WeiAvg": (1.02, 1.89, 0.92, 3.22, 4.58, 28.29, 9.85, 48.15, 34.91),
    "DPFedAvg": (1.27, 16.94, 16.28, 26.87, 25.64, 70.71, 18.50, 85.70, 43.20),
    "minimum epsilon": (4.68, 103.91, 103.91, 127.18, 103.91, 1868.45, 74.41, 241.37, 87.15),
    "Robust-HDP": (0.27, 0.47, 0.07, 0.64, 0.39, 7.60, 2.25, 13.81, 5.93),
}
"""Table 3: variance of the mean update per coordinate over the squared learning rate; the last row
is the oracle's, from which Robust-HDP differs by 1% at most."""
MNIST = {
    "WeiAvg": (90.08, 88.29, 89.74, 88.20, 84.94, 81.40, 84.43, 78.71, 81.38),
    "PFA": (88.24, 87.93, 88.35, 88.32, 85.65, 82.16, 83.71, 80.25, 78.51),
    "DPFedAvg": (84.24, 82.84, 83.50, 80.43, 83.02, 75.69, 85.71, 70.58, 80.49),
    "minimum epsilon": (77.80, 74.86, 74.86, 71.75, 68.42, 34.32, 77.62, 56.10, 68.44),
    "Robust-HDP": (89.83, 90.71, 89.83, 89.38, 87.52, 84.60, 84.03, 81.19, 81.52),
}
"""Table 12."""
FMNIST = {
    "WeiAvg": (77.65, 78.30, 75.92, 77.10, 72.38, 64.15, 66.80, 66.86, 64.79),
    "PFA": (75.03, 74.85, 72.90, 77.10, 72.44, 71.08, 66.30, 67.89, 64.69),
    "DPFedAvg": (74.12, 71.68, 71.97, 68.10, 70.20, 62.46, 64.15, 65.87, 65.50),
    "minimum epsilon": (73.15, 64.26, 64.26, 62.60, 64.35, 28.66, 65.13, 58.44, 66.36),
    "Robust-HDP": (75.13, 76.25, 75.04, 76.19, 73.80, 71.30, 66.85, 68.32, 66.96),
}
"""Table 13."""
RATES = {
    "mnist": {
        "WeiAvg": (1e-2, 5e-3, 1e-2, 5e-3, 5e-3, 1e-3, 1e-3, 1e-3, 1e-3),
        "PFA": (5e-3, 5e-3, 5e-3, 5e-3, 5e-3, 1e-3, 1e-3, 1e-3, 5e-4),
        "DPFedAvg": (5e-3, 1e-3, 1e-3, 1e-3, 1e-3, 5e-4, 1e-3, 1e-3, 1e-3),
        "minimum epsilon": (5e-4, 5e-4, 5e-4, 5e-4, 1e-3, 1e-4, 1e-3, 5e-4, 1e-3),
        "Robust-HDP": (1e-2, 1e-2, 1e-2, 1e-2, 5e-3, 2e-3, 2e-3, 2e-3, 2e-3),
    },
    "fashion-mnist": {
        "WeiAvg": (5e-3, 5e-3, 5e-3, 5e-3, 2e-3, 5e-4, 5e-4, 5e-4, 5e-4),
        "PFA": (2e-3, 2e-3, 5e-3, 5e-3, 5e-3, 5e-3, 2e-3, 1e-3, 1e-3),
        "DPFedAvg": (2e-3, 1e-3, 1e-3, 1e-3, 1e-3, 5e-4, 5e-4, 5e-4, 5e-4),
        "minimum epsilon": (1e-3, 5e-4, 5e-4, 5e-4, 5e-4, 1e-4, 5e-4, 5e-4, 5e-4),
        "Robust-HDP": (5e-3, 5e-3, 5e-3, 5e-3, 5e-3, 1e-3, 1e-3, 1e-3, 1e-3),
    },
}
"""Tables 8 and 9: learning rates, by data set and method."""
SKEWED = {
    "WeiAvg": (81.14, 81.21, 84.44, 71.64, 81.45, 72.27, 80.55, 71.28, 72.07),
    "PFA": (81.29, 77.40, 80.65, 74.45, 81.89, 64.48, 81.40, 73.39, 72.97),
    "DPFedAvg": (82.61, 74.32, 83.12, 70.8, 81.34, 66.51, 76.10, 65.16, 73.03),
    "Robust-HDP": (84.84, 82.78, 80.78, 78.91, 81.66, 72.30, 79.32, 70.68, 73.82),
}
"""Table 4: MNIST, at most 8 classes per client, 60 clients, batches of 128."""
SKEWED_MIXED = {
    "WeiAvg": (84.60, 78.00, 83.70, 78.42, 77.3, 75.23, 78.01, 66.10, 68.12),
    "PFA": (79.07, 75.72, 83.23, 76.54, 78.06, 64.00, 79.10, 68.08, 71.74),
    "DPFedAvg": (83.41, 74.95, 82.69, 70.85, 77.45, 74.32, 74.92, 62.07, 67.25),
    "Robust-HDP": (83.65, 79.38, 82.88, 77.13, 83.53, 71.14, 80.41, 61.75, 71.76),
}
"""Table 22: as Table 4 with batches of 16 to 128."""
CLIENTS = {
    "WeiAvg": ((81.60, 0.58), (75.20, 0.67), (63.12, 0.78)),
    "PFA": ((82.16, 0.99), (73.15, 1.02), (66.0, 0.98)),
    "DPFedAvg": ((74.02, 1.54), (62.98, 1.85), (58.49, 1.67)),
    "Robust-HDP": ((85.13, 0.68), (76.85, 0.75), (72.77, 0.78)),
}
"""Table 17: MNIST, Dist6, 20, 40 and 60 clients; mean and deviation over three runs."""
LEVELS = ("Dist2", "Dist4", "Dist6", "Dist8")
LEVEL = {
    "WeiAvg": ((88.29, 0.67), (88.20, 0.52), (81.60, 0.58), (78.71, 0.67)),
    "PFA": ((88.32, 0.85), (86.91, 0.97), (82.16, 0.99), (79.92, 0.86)),
    "DPFedAvg": ((82.84, 0.65), (80.43, 1.72), (74.02, 1.54), (70.58, 1.43)),
    "Robust-HDP": ((90.71, 0.65), (89.38, 0.76), (85.13, 0.68), (81.19, 0.97)),
}
"""Table 16: MNIST, by distribution; mean and deviation over three runs."""


# --- Table 3 and Figures 2, 8 and 11 of Robust-HDP: noise of DP-SGD on each client. --------------

Floats = NDArray[np.float64]
POPULATION, RECORDS, ROUNDS, CLIP, DELTA = 20, 2400, 200, 3.0, 1e-4
BATCHES = (16, 32, 64, 128)
DRAWS = 20
"""Draws of epsilons and batch sizes; the paper has one, which it does not print."""


@lru_cache(maxsize=10_000)
def noise_scale(epsilon: float, batch: int, records: int = RECORDS) -> float:
    """Z of DP-SGD by RDP, which is what the moments accountant bounds."""
    rounds = ROUNDS * local_steps(records, batch, 1)
    return noise_multiplier(
        epsilon, DELTA, sampling_ratio=batch / records, rounds=rounds, accountant="rdp"
    )


def variance(epsilon: float, batch: int) -> float:
    """sigma_i^2 / (p eta^2) of a client (Eqs. 7 and 3, every gradient clipped, large p)."""
    return local_steps(RECORDS, batch, 1) * (CLIP * noise_scale(epsilon, batch) / batch) ** 2


def drawn(name: str, seed: int) -> tuple[Floats, list[int]]:
    """Epsilons and batch sizes of all clients."""
    law = parse(EpsilonDistribution, {"name": name, "clients": POPULATION, "seed": seed})
    sizes = np.random.default_rng([seed, 1]).choice(BATCHES, POPULATION)
    return law.draw(), [int(size) for size in sizes]


def table_3() -> list[Cell]:
    """Variance of the mean update per coordinate, by method and distribution, per draw."""
    found: dict[tuple[str, str], list[float]] = {}
    for name in DISTRIBUTIONS:
        for seed in range(DRAWS):
            epsilons, sizes = drawn(name, seed)
            pairs = list(zip(epsilons, sizes, strict=True))
            noises = np.array([variance(float(one), size) for one, size in pairs])
            strict = np.array([variance(float(epsilons.min()), size) for size in sizes])
            equal = np.full(POPULATION, 1 / POPULATION)
            values = {
                "WeiAvg": mean_variance(epsilons / epsilons.sum(), noises),
                "DPFedAvg": mean_variance(equal, noises),
                "minimum epsilon": mean_variance(equal, strict),
                "Robust-HDP": mean_variance(oracle_weights(noises), noises),
            }
            for row, value in values.items():
                found.setdefault((row, name), []).append(value)
    return [
        Cell(row=row, column=name, published=known, values=tuple(found[row, name]))
        for row, printed in NOISE.items()
        for name, known in zip(DISTRIBUTIONS, printed, strict=True)
    ]


def least_noise(result: Result) -> Outcome:
    """Whether Robust-HDP has less noise than the others in every draw."""
    held = total = 0
    for name in result.columns:
        cells = [result.at(row, name) for row in ("Robust-HDP", *list(NOISE)[:3])]
        known = [cell.values for cell in cells if cell is not None]
        if len(known) < len(cells):
            return Outcome(NOT_RUN, "no such rows")
        for first, *others in zip(*known, strict=True):
            total += 1
            held += first < min(others)
    return Outcome(ORDER if held == total else NOT_REPRODUCED, f"in {held} of {total} draws")


def order_of_others(result: Result) -> Outcome:
    """Whether WeiAvg < DPFedAvg < minimum epsilon in the mean over draws, by distribution."""
    held = []
    for name in result.columns:
        cells = [result.at(row, name) for row in list(NOISE)[:3]]
        means = [cell.mean for cell in cells if cell is not None]
        held.append(means == sorted(means))
    words = f"in {sum(held)} of {len(held)} distributions, means over {DRAWS} draws"
    return Outcome(ORDER if all(held) else NOT_REPRODUCED, words)


def within_draws(result: Result) -> Outcome:
    """Whether each printed number is between the least and the largest of the draws."""
    cells = [cell for cell in result.cells if cell.published is not None]
    known = [(cell.published or 0.0, cell) for cell in cells]
    inside = [min(cell.values) <= printed <= max(cell.values) for printed, cell in known]
    ratio = float(np.median([printed / cell.mean for printed, cell in known]))
    words = (
        f"{sum(inside)} of {len(inside)} printed numbers are in the range of {DRAWS} draws; the "
        f"median of printed over ours is {ratio:.1f}, about that of twice the noise multiplier"
    )
    return Outcome(REPRODUCED if all(inside) else NOT_REPRODUCED, words)


EPSILONS = (0.2, 0.5, 1.0, 2.0, 5.0)


def figure_2() -> list[Cell]:
    """Left: sigma_i^2 by epsilon and batch size, in units of p eta^2; right: a share per draw."""
    cells = [
        Cell(row=f"b = {batch}", column=f"epsilon = {one:g}", values=(variance(one, batch),))
        for batch in BATCHES
        for one in EPSILONS
    ]
    shares = []
    for seed in range(DRAWS):
        noises = np.array(
            [variance(float(e), b) for e, b in zip(*drawn("Dist3", seed), strict=True)]
        )
        shares.append(float(np.sum(noises < 0.1 * noises.max())))
    return [*cells, Cell(row="clients of little noise", column="Dist3", values=tuple(shares))]


def falls_with_both(result: Result) -> Outcome:
    """Whether sigma_i^2 falls with epsilon and with the batch size."""
    grid = np.array(
        [
            [cell.mean for one in EPSILONS if (cell := result.at(f"b = {b}", f"epsilon = {one:g}"))]
            for b in BATCHES
        ]
    )
    if grid.shape != (len(BATCHES), len(EPSILONS)):
        return Outcome(NOT_RUN, "no such cells")
    held = bool((np.diff(grid, axis=0) < 0).all() and (np.diff(grid, axis=1) < 0).all())
    words = f"from {grid[0, 0]:.3g} (b 16, epsilon 0.2) to {grid[-1, -1]:.3g} (b 128, epsilon 5)"
    return Outcome(ORDER if held else NOT_REPRODUCED, words)


def sparse(result: Result) -> Outcome:
    """Whether most clients have less than a tenth of the largest variance."""
    cell = result.at("clients of little noise", "Dist3")
    if cell is None:
        return Outcome(NOT_RUN, "no such cell")
    words = (
        f"{min(cell.values):g} to {max(cell.values):g} of {POPULATION} clients, mean {cell.mean:g}"
    )
    return Outcome(ORDER if min(cell.values) > POPULATION / 2 else NOT_REPRODUCED, words)


RATIOS = (0.005, 0.01, 0.02, 0.04, 0.08)


def figure_8() -> list[Cell]:
    """Z by sampling ratio, by epsilon."""
    records = 3200  # every ratio is a whole number of records
    return [
        Cell(
            row=f"epsilon = {one:g}",
            column=f"q = {ratio:g}",
            values=(noise_scale(one, round(ratio * records), records),),
        )
        for one in EPSILONS
        for ratio in RATIOS
    ]


def sublinear(result: Result) -> Outcome:
    """Whether z rises with q, by less than a factor of 2 where q doubles."""
    factors: list[float] = []
    for row in result.rows:
        means = [cell.mean for column in result.columns if (cell := result.at(row, column))]
        factors += [after / before for before, after in pairwise(means)]
    if not factors:
        return Outcome(NOT_RUN, "no cells")
    held = min(factors) > 1 and max(factors) < 2
    words = f"factor per doubling of q: {min(factors):.2f} to {max(factors):.2f}"
    return Outcome(ORDER if held else NOT_REPRODUCED, words)


SIZES = (600, 1200, 2400, 4800)


def figure_11() -> list[Cell]:
    """1 / H = 1 / (N z^2) by records N; epsilon 3, batches of 32."""
    return [
        Cell(
            row="1/H", column=f"N = {size}", values=(1 / (size * noise_scale(3.0, 32, size) ** 2),)
        )
        for size in SIZES
    ]


def slowly(result: Result) -> Outcome:
    """Whether 1/H rises where N falls, and more slowly than 1/N."""
    means = [cell.mean for column in result.columns if (cell := result.at("1/H", column))]
    if len(means) < 2:
        return Outcome(NOT_RUN, "no cells")
    factors = [small / large for small, large in pairwise(means)]
    exponent = math.log(means[0] / means[-1]) / math.log(SIZES[-1] / SIZES[0])
    words = f"factor where N halves: {', '.join(f'{one:.2f}' for one in factors)}"
    if min(factors) <= 1:
        return Outcome(CONTRADICTED, f"{words}; 1/H falls with N falling")
    return Outcome(ORDER if exponent < 1 else NOT_REPRODUCED, words)


# --- Settings of Robust-HDP's tables: DP-SGD of 20 to 60 clients on MNIST and Fashion-MNIST. -----

ALGORITHMS = {
    "WeiAvg": "WeiAvg",
    "PFA": "PFA",
    "DPFedAvg": "DPFedAvg",
    "minimum epsilon": "minimum-epsilon",
    "Robust-HDP": "Robust-HDP",
}
TRAINED = POPULATION * RECORDS
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
        "delta": DELTA,
        "rounds": ROUNDS,
        "clipping_norm": CLIP,
        "local": {
            "epochs": 1, "batch_size": 64, "learning_rate": 0.005, "learning_rate_decay": 1.0
        },
        "model": {"name": "cnn-2", "parameters": 28938},
        "planning": {"accountant": "pld", "weights": "inverse_variance"},
        **changes,
    }  # fmt: skip


def spread(
    name: str,
    clients: int = POPULATION,
    batches: Sequence[int] = BATCHES,
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
    names: Iterable[str] = DISTRIBUTIONS,
    rows: Iterable[str] = ALGORITHMS,
    rate: float = 1.0,
    **changes: Any,
) -> list[Setting]:
    """One column per distribution, with the learning rates of Tables 8 and 9."""
    found = []
    for name in names:
        spec = spec_of(name, **changes)
        methods = {row: _method(spec, row, rate * _rate(dataset, row, name)) for row in rows}
        found.append(Setting(name, spec, dataset, methods))
    return found


def _rate(dataset: str, row: str, name: str) -> float:
    return RATES[dataset][row][DISTRIBUTIONS.index(name)]


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
    for name in (LEVELS[0], LEVELS[-1]) if small else LEVELS:
        found += _scaled(name, LEVEL, spread(name, trained=_records(small)), small)
    return found


def by_clients(*, small: bool = False) -> list[Setting]:
    """Table 17: Dist6, 20 to 60 clients that share the same records."""
    found = []
    for clients in SMALL_CLIENTS if small else (20, 40, 60):
        law = spread("Dist6", clients, trained=_records(small))
        [one] = _scaled("Dist6", CLIENTS, law, small)
        found.append(replace(one, column=f"{clients} clients"))
    return found


def skewed(batches: Sequence[int], *, small: bool = False) -> list[Setting]:
    """Tables 4 and 22: 60 clients with at most 8 classes each."""
    found = []
    for name in SMALL_SKEWED if small else DISTRIBUTIONS:
        law = spread(name, 60, batches, _records(small))
        [one] = _scaled(name, SKEWED, law, small)
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
