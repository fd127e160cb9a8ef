"""Robust-HDP: weights by estimated noise for budgets of records (ICML 2024)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from privplan.accounting.calibrate import noise_multiplier
from privplan.contrib.reproduction.claims import (
    NOT_REPRODUCED,
    NOT_RUN,
    ORDER,
    REPRODUCED,
    Outcome,
    Result,
)
from privplan.contrib.reproduction.epsilon_distribution import TABLE_7, drawn
from privplan.contrib.reproduction.tables import (
    PAPERS,
    Computed,
    Method,
    Setting,
    data_of,
    paper_of,
)
from privplan.planning.records import local_steps, mean_variance, oracle_weights

DATA = data_of("robust_hdp")
POPULATION = 20
RECORDS = 2400
ROUNDS = 200
CLIP = 3.0
DELTA = 1e-4
BATCHES = (16, 32, 64, 128)
DRAWS = 20
"""Draws of epsilons and batch sizes; the paper has one, which it does not print."""

# Table 3 and Figures 2, 5, 8 and 11: noise of DP-SGD on each client.


@lru_cache(maxsize=10_000)
def noise_scale(epsilon: float, batch: int, records: int = RECORDS) -> float:
    """Z of DP-SGD by RDP, which is what the moments accountant bounds."""
    rounds = ROUNDS * local_steps(records, batch, 1)
    return noise_multiplier(
        epsilon, DELTA, sampling_ratio=batch / records, rounds=rounds, accountant="rdp"
    )


def variance(epsilon: float, batch: int) -> float:
    """sigma_i^2 / (p eta^2) of a client: Eqs. 7 and 3.

    Every gradient is clipped, and p is large.
    """
    noise = CLIP * noise_scale(epsilon, batch) / batch
    return local_steps(RECORDS, batch, 1) * noise**2


def clients(name: str, seed: int) -> list[tuple[float, int]]:
    """Epsilons and batch sizes of all clients."""
    sizes = np.random.default_rng([seed, 1]).choice(BATCHES, POPULATION)
    epsilons = drawn(name, POPULATION, seed)
    pairs = zip(epsilons, sizes, strict=True)
    return [(float(epsilon), int(size)) for epsilon, size in pairs]


def table_3() -> Computed:
    """Variance of the mean update per coordinate, by draw."""
    draws: dict[tuple[str, str], list[float]] = {}
    for name in TABLE_7:
        for seed in range(DRAWS):
            pairs = clients(name, seed)
            epsilons = np.array([epsilon for epsilon, _ in pairs])
            noises = np.array([variance(*pair) for pair in pairs])
            strict = np.array(
                [variance(float(epsilons.min()), size) for _, size in pairs]
            )
            equal = np.full(POPULATION, 1 / POPULATION)
            values = {
                "WeiAvg": mean_variance(epsilons / epsilons.sum(), noises),
                "DPFedAvg": mean_variance(equal, noises),
                "minimum epsilon": mean_variance(equal, strict),
                "Oracle (Eq. 8)": mean_variance(oracle_weights(noises), noises),
            }
            for row, value in values.items():
                draws.setdefault((row, name), []).append(value)
    for (row, name), values_of_draws in draws.items():
        yield row, name, values_of_draws


def _means(result: Result, rows: Sequence[str], column: str) -> list[float]:
    """Means of the cells of a column that there are."""
    cells = [result.cell_at(row, column) for row in rows]
    return [cell.mean for cell in cells if cell is not None]


def order_of_others(result: Result) -> Outcome:
    """Whether WeiAvg < DPFedAvg in the mean over draws, by distribution."""
    are_ordered: list[bool] = []
    for name in result.columns:
        means = _means(result, ("WeiAvg", "DPFedAvg"), name)
        are_ordered.append(means == sorted(means))
    evidence = (
        f"in {sum(are_ordered)} of {len(are_ordered)} distributions, means over {DRAWS} "
        "draws"
    )
    return Outcome(ORDER if all(are_ordered) else NOT_REPRODUCED, evidence)


def within_draws(result: Result) -> Outcome:
    """Whether the printed numbers are as one more draw: 95% for all of them.

    By intervals of logarithms, Student's t, with Bonferroni's correction.
    """
    from scipy.stats import t

    printed_cells = [
        (cell.published, cell) for cell in result.cells if cell.published is not None
    ]
    tail = 0.025 / len(printed_cells)  # two-sided
    are_inside: list[bool] = []
    for printed, cell in printed_cells:
        logs = np.log(cell.values)
        quantile = t.isf(tail, len(logs) - 1)
        half = quantile * logs.std(ddof=1) * math.sqrt(1 + 1 / len(logs))
        are_inside.append(bool(abs(math.log(printed) - logs.mean()) <= half))
    ratios = [printed / cell.mean for printed, cell in printed_cells]
    evidence = (
        f"{sum(are_inside)} of {len(are_inside)} printed numbers are in the 95% "
        f"interval (Bonferroni) of one more draw beside {DRAWS}; the median of printed "
        f"over ours is {float(np.median(ratios)):.1f}, about that of twice the noise "
        "multiplier"
    )
    return Outcome(REPRODUCED if all(are_inside) else NOT_REPRODUCED, evidence)


EPSILONS = (0.2, 0.5, 1.0, 2.0, 5.0)


def figure_2() -> Computed:
    """Left: sigma_i^2 by epsilon and batch size, in units of p eta^2; right: a share.

    The share is that of the clients of little noise, per draw.
    """
    for batch in BATCHES:
        for epsilon in EPSILONS:
            value = variance(epsilon, batch)
            yield f"b = {batch}", f"epsilon = {epsilon:g}", value
    shares: list[float] = []
    for seed in range(DRAWS):
        noises = np.array([variance(*pair) for pair in clients("Dist3", seed)])
        shares.append(float(np.sum(noises < 0.1 * noises.max())))
    yield "clients of little noise", "Dist3", shares


def falls_with_both(result: Result) -> Outcome:
    """Whether sigma_i^2 falls with epsilon and with the batch size."""
    rows: list[list[float]] = []
    for batch in BATCHES:
        means: list[float] = []
        for epsilon in EPSILONS:
            cell = result.cell_at(f"b = {batch}", f"epsilon = {epsilon:g}")
            if cell is None:
                return Outcome(NOT_RUN, "no such cells")
            means.append(cell.mean)
        rows.append(means)
    grid = np.array(rows)
    falls_with_batch = (np.diff(grid, axis=0) < 0).all()
    falls_with_epsilon = (np.diff(grid, axis=1) < 0).all()
    evidence = (
        f"from {grid[0, 0]:.3g} (b 16, epsilon 0.2) to {grid[-1, -1]:.3g} (b 128, "
        "epsilon 5)"
    )
    is_right = falls_with_batch and falls_with_epsilon
    return Outcome(ORDER if is_right else NOT_REPRODUCED, evidence)


def sparse(result: Result) -> Outcome:
    """Whether most clients have less than a tenth of the largest variance.

    By the mean over the draws.
    """
    cell = result.cell_at("clients of little noise", "Dist3")
    if cell is None:
        return Outcome(NOT_RUN, "no such cell")
    evidence = (
        f"{min(cell.values):g} to {max(cell.values):g} of {POPULATION} clients, mean "
        f"{cell.mean:g}"
    )
    return Outcome(ORDER if cell.mean > POPULATION / 2 else NOT_REPRODUCED, evidence)


def figure_5() -> Computed:
    """Variance of the mean update where a client claims a larger epsilon.

    It is the client of the median epsilon.
    """
    for factor in (1, 10, 100):
        draws: dict[str, list[float]] = {"WeiAvg": [], "Robust-HDP": []}
        for seed in range(DRAWS):
            pairs = sorted(clients("Dist5", seed))
            noises = np.array([variance(*pair) for pair in pairs])
            claimed = np.array([epsilon for epsilon, _ in pairs])
            claimed[POPULATION // 2] *= factor
            draws["WeiAvg"].append(mean_variance(claimed / claimed.sum(), noises))
            draws["Robust-HDP"].append(mean_variance(oracle_weights(noises), noises))
        for row, values in draws.items():
            yield row, f"{factor}x epsilon", values


def figure_8() -> Computed:
    """Z by sampling ratio, by epsilon."""
    records = 3200  # every ratio is a whole number of records
    for epsilon in EPSILONS:
        for ratio in (0.005, 0.01, 0.02, 0.04, 0.08):
            scale = noise_scale(epsilon, round(ratio * records), records)
            yield f"epsilon = {epsilon:g}", f"q = {ratio:g}", scale


def _means_of_row(result: Result, row: str) -> list[float]:
    """Means of the cells of a row that there are, in the order of the columns."""
    cells = [result.cell_at(row, column) for column in result.columns]
    return [cell.mean for cell in cells if cell is not None]


def sublinear(result: Result) -> Outcome:
    """Whether z rises with q, by less than a factor of 2 where q doubles."""
    factors: list[float] = []
    for row in result.rows:
        means = _means_of_row(result, row)
        factors += [after / before for before, after in pairwise(means)]
    if not factors:
        return Outcome(NOT_RUN, "no cells")
    is_right = min(factors) > 1 and max(factors) < 2
    evidence = f"factor per doubling of q: {min(factors):.2f} to {max(factors):.2f}"
    return Outcome(ORDER if is_right else NOT_REPRODUCED, evidence)


SIZES = (600, 1200, 2400, 4800)


def figure_11() -> Computed:
    """1 / H = 1 / (N z^2) by records N; epsilon 3, batches of 32."""
    for size in SIZES:
        yield "1/H", f"N = {size}", 1 / (size * noise_scale(3.0, 32, size) ** 2)


def slowly(result: Result) -> Outcome:
    """Whether 1/H rises where N falls, and more slowly than 1/N."""
    means = _means_of_row(result, "1/H")
    if len(means) < 2:
        return Outcome(NOT_RUN, "no cells")
    factors = [small / large for small, large in pairwise(means)]
    exponent = math.log(means[0] / means[-1]) / math.log(SIZES[-1] / SIZES[0])
    texts = ", ".join(f"{factor:.2f}" for factor in factors)
    is_right = min(factors) > 1 and exponent < 1
    evidence = f"factor where N halves: {texts}"
    return Outcome(ORDER if is_right else NOT_REPRODUCED, evidence)


# Tables of runs: DP-SGD of 20 to 60 clients on MNIST and Fashion-MNIST.

TRAINED = POPULATION * RECORDS
"""Records that all clients share: 48,000."""
SMALL: dict[str, Any] = {
    "rounds": 10,
    "model": {"name": "mlp-digits:1x28x28", "parameters": 25450},
}
LOCAL = {"epochs": 1, "batch_size": 64, "learning_rate_decay": 1.0}
SMALL_RATE = 10
"""Factor of the learning rates where a twentieth of the rounds must show budgets.

Those of Dist6.
"""


def setting(
    name: str,
    rows: Sequence[str],
    *,
    dataset: str = "mnist",
    clients: int = POPULATION,
    batches: Sequence[int] = BATCHES,
    rate: float = 1.0,
    small: bool = False,
) -> Setting:
    """The paper's setting under one of its distributions.

    Small: ten rounds of a perceptron. Learning rates are those of Tables 8 and 9 times
    a factor.
    """
    trained = TRAINED // 2 if small else TRAINED
    spec = {
        "name": f"robust-hdp-{name.lower()}",
        "unit": "record",
        "epsilon_distribution": {
            "name": name,
            "clients": clients,
            "records": trained // clients,
            "batch_sizes": list(batches),
        },
        "delta": DELTA,
        "rounds": ROUNDS,
        "clipping_norm": CLIP,
        "local": {**LOCAL, "learning_rate": 0.005},
        "model": {"name": "cnn-2", "parameters": 28938},
        "planning": {"accountant": "pld", "weights": "inverse_variance"},
        **(SMALL if small else {}),
    }
    index = list(TABLE_7).index(name)
    rates = DATA["rates"][dataset]
    methods = {row: _method(row, rate * rates[row][index]) for row in rows}
    return Setting(name, spec, f"{dataset}:{trained}" if small else dataset, methods)


def _method(row: str, rate: float) -> Method:
    """The method of a row; a row of several words is the strictest budget for all."""
    changes = {"local": {**LOCAL, "learning_rate": rate}}
    return Method("minimum-epsilon" if " " in row else row, changes=changes)


def accuracies(
    dataset: str, names: Sequence[str] = (), *, small: bool = False
) -> list[Setting]:
    """Tables 12 and 13, with the paper's learning rates."""
    rows = list(DATA["rates"][dataset])
    return [
        setting(name, rows, dataset=dataset, small=small) for name in names or TABLE_7
    ]


def _on_mnist(name: str, small: bool, **numbers: Any) -> Setting:
    """MNIST with four methods, and some numbers of ``setting``."""
    rows = ("WeiAvg", "PFA", "DPFedAvg", "Robust-HDP")
    rate = SMALL_RATE if small else 1.0
    return setting(name, rows, rate=rate, small=small, **numbers)


def by_level(names: Sequence[str], *, small: bool = False) -> list[Setting]:
    """Table 16: 20 clients with stricter and stricter budgets."""
    return [_on_mnist(name, small) for name in names]


def by_clients(numbers: Sequence[int], *, small: bool = False) -> list[Setting]:
    """Table 17: Dist6, clients that share the same records."""
    return [
        replace(_on_mnist("Dist6", small, clients=clients), column=f"{clients} clients")
        for clients in numbers
    ]


def few_classes(
    batches: Sequence[int], names: Sequence[str] = (), *, small: bool = False
) -> list[Setting]:
    """Tables 4 and 22, and their weights: 60 clients with 8 classes each.

    All are of the same size. There are more records than they take, so that every
    client finds its own of each class.
    """
    data = f"mnist:{TRAINED // 2 + 1500}" if small else "mnist"
    settings: list[Setting] = []
    for name in names or TABLE_7:
        column = _on_mnist(name, small, clients=60, batches=batches)
        settings.append(replace(column, partition="pathological:8", dataset=data))
    return settings


def weights(settings: Callable[[], list[Setting]]) -> list[Setting]:
    """Figures of weights: without PFA, which has WeiAvg's, and with the control.

    Robust-HDP-norms has the weights of the updates' norms alone, without the
    decomposition.
    """
    controlled: list[Setting] = []
    for setting in settings():
        methods = dict(setting.methods)
        methods.pop("PFA", None)
        methods["Robust-HDP-norms"] = replace(
            methods["Robust-HDP"], algorithm="Robust-HDP-norms"
        )
        controlled.append(replace(setting, methods=methods))
    return controlled


PAPERS.register("robust-hdp", paper_of(DATA, globals()))
