"""Table 3 and Figures 2, 8 and 11 of Robust-HDP: noise of DP-SGD on each client."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.calibrate import noise_multiplier
from privplan.planning.update_noise import local_steps, mean_variance, oracle_weights
from privplan.reproduction.claims import (
    CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
    ORDER,
    REPRODUCED,
    Outcome,
)
from privplan.reproduction.printed.robust_hdp import DISTRIBUTIONS, NOISE
from privplan.reproduction.results import Cell, Result
from privplan.spec.epsilon_distribution import EpsilonDistribution
from privplan.values import parse

Floats = NDArray[np.float64]
CLIENTS, RECORDS, ROUNDS, CLIP, DELTA = 20, 2400, 200, 3.0, 1e-4
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
    law = parse(EpsilonDistribution, {"name": name, "clients": CLIENTS, "seed": seed})
    sizes = np.random.default_rng([seed, 1]).choice(BATCHES, CLIENTS)
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
            equal = np.full(CLIENTS, 1 / CLIENTS)
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
    words = f"{min(cell.values):g} to {max(cell.values):g} of {CLIENTS} clients, mean {cell.mean:g}"
    return Outcome(ORDER if min(cell.values) > CLIENTS / 2 else NOT_REPRODUCED, words)


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
