"""Error of buffered Toeplitz (BLT) noise beside that of this project's banded noise.

python benchmarks/buffered.py [--buffers 4] [--starts 4]

The root mean square error of all prefix sums, where each client takes part in every
b-th round of n. C of BLT has the first column 1, c_j = sum_i w_i t_i^(j - 1)
(Dvijotham, McMahan, Pillutla, Steinke, Thakurta 2024); w and t are found by L-BFGS from
several starts, for one buffer up to the number that is asked. Since c is positive and
falls, the client of rounds 1, b + 1, ... moves the releases most (McMahan, Xu, Zhang
2024, arXiv 2408.08868), by the norm of the sum of its columns.
"""

from __future__ import annotations

import argparse
import math
import time
from itertools import product

import numpy as np
import torch
from scipy.optimize import minimize

from privplan.laws.cyclic import CyclicPoisson

SETTINGS = ((50, 5), (100, 5), (200, 10), (512, 16), (500, 50), (500, 100))
"""Rounds n, and b."""


def error(matrix: torch.Tensor) -> torch.Tensor:
    """Root mean square over the rows of A C^-1, A being the prefix sums."""
    ones = torch.ones_like(matrix).tril()
    decoder = torch.linalg.solve_triangular(
        matrix.T.contiguous(), ones.T.contiguous(), upper=True
    )
    return torch.linalg.norm(decoder) / math.sqrt(len(matrix))


def banded(rounds: int, bands: int) -> float:
    """Ours, whose participations move releases of their own by norm 1 each."""
    law = CyclicPoisson(bands)
    matrix = np.zeros((rounds, rounds))
    for round_ in range(1, rounds + 1):
        row = law.mixture(0.0, rounds, round_)[:round_]
        matrix[round_ - 1, round_ - len(row) : round_] = row[::-1]
    return float(error(torch.tensor(matrix))) * math.sqrt(math.ceil(rounds / bands))


def buffered(rounds: int, separation: int, buffers: int, seed: int) -> float:
    """The least error that L-BFGS finds from a start."""
    generator = np.random.default_rng(seed)
    places = torch.arange(rounds)
    lags = places[:, None] - places[None, :]

    def log_error(point: np.ndarray) -> tuple[float, np.ndarray]:
        x = torch.tensor(point, dtype=torch.float64, requires_grad=True)
        weights = x[:buffers].exp()
        decays = torch.sigmoid(x[buffers:])
        powers = decays[:, None] ** places[:-1]
        column = torch.cat([torch.ones(1, dtype=x.dtype), weights @ powers])
        matrix = torch.where(lags >= 0, column[lags.clamp(min=0)], 0.0)
        sensitivity = torch.linalg.norm(matrix[:, ::separation].sum(1))
        value = torch.log(error(matrix) * sensitivity)
        value.backward()
        return float(value.detach()), np.asarray(x.grad)

    log_weights = np.full(buffers, 2 * math.log(0.3 / buffers))
    log_weights = log_weights + generator.normal(size=buffers)
    start = np.concatenate([log_weights, generator.normal(2.0, 2.0, size=buffers)])
    options = {"maxiter": 3000, "ftol": 1e-13, "gtol": 1e-9}
    fitted = minimize(log_error, start, jac=True, method="L-BFGS-B", options=options)
    return math.exp(fitted.fun)


def main() -> None:
    """Print a row for each setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--buffers", type=int, default=4)
    parser.add_argument("--starts", type=int, default=4)
    options = parser.parse_args()
    starts = list(product(range(1, options.buffers + 1), range(options.starts)))
    for rounds, separation in SETTINGS:
        start = time.process_time()
        ours = banded(rounds, separation)
        middle = time.process_time()
        theirs = min(
            buffered(rounds, separation, buffers, seed) for buffers, seed in starts
        )
        errors = f"{ours:.3f} | {theirs:.3f} | {ours / theirs - 1:+.1%}"
        seconds = f"{middle - start:.2f} | {time.process_time() - middle:.1f}"
        print(f"| {separation} of {rounds} | {errors} | {seconds} |", flush=True)


if __name__ == "__main__":
    main()
