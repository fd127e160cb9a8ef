"""Balls in bins: the bound beside Monte Carlo, and its noise beside that of other laws.

``python benchmarks/balls_in_bins.py bounds 10 20 50`` asks, for each number of rounds,
five epsilons and three deltas: the noise multiplier at which the certificate spends
epsilon, delta there by importance sampling, and how far sigma is above the one at which
Monte Carlo has delta. ``noise 50`` compares noise with ``cyclic_allocation``.
"""

from __future__ import annotations

import argparse
import math
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.calibrate import calibrate
from privplan.accounting.pld.balls_in_bins import (
    balls_in_bins_pairs,
    estimated_epsilon,
)
from privplan.accounting.pld.profile import delta_of
from privplan.accounting.release import SamplingLaw
from privplan.laws.correlated import column_norms, factors
from privplan.laws.rank_one import RankOneFactors, best_factors, noise_of_models

Floats = NDArray[np.float64]

EPSILONS = (0.1, 0.5, 1.5, 3.0, 8.0)
DELTAS = (1e-4, 1e-6, 1e-9)
PUBLISHED_DELTA = 6.98e-5  # of 6,000 clients
MOMENTUM = 0.5
LAST_WEIGHT = 0.35
PILOT = 20_000
SAMPLES = 200_000
CHUNK = 20_000  # samples at a time, which bounds memory
TILTS = np.arange(0.0, 6.1, 0.5)  # shifts along the mean column that are tried
STRETCHES = (1.0, 1.25, 1.5, 2.0, 2.5)  # of the client's own column: for large epsilon


def matrix(rank_one: RankOneFactors) -> Floats:
    """C."""
    diagonal, rows, columns = map(np.array, rank_one.arrays)
    return np.asarray(np.tril(np.outer(rows, columns), -1) + np.diag(diagonal))


class Proposal(NamedTuple):
    """Where outcomes are drawn: the mixture of N(stretch c_t / sigma + tilt v, I).

    Attributes:
        stretch: of the column of the client's round.
        tilt: along v, the direction of the mean column.
    """

    stretch: float
    tilt: float


def sampled(
    moves: Floats, epsilon: float, proposal: Proposal, samples: int, seed: int
) -> tuple[float, float]:
    """Delta of removing a client, and its standard error."""
    generator = np.random.default_rng(seed)
    rounds = len(moves)
    mean = moves.mean(axis=1)
    shift = proposal.tilt * mean / np.linalg.norm(mean)
    centres = proposal.stretch * moves + shift[:, None]
    values = []
    for _ in range(samples // CHUNK):
        chosen = generator.integers(rounds, size=CHUNK)
        z = generator.standard_normal((CHUNK, rounds)) + centres.T[chosen]
        log_ratio = log_mean(z @ moves - (moves**2).sum(axis=0) / 2)
        log_density = log_mean(z @ centres - (centres**2).sum(axis=0) / 2)
        excess = np.maximum(np.exp(log_ratio) - math.exp(epsilon), 0.0)
        values.append(excess * np.exp(-log_density))
    all_values = np.concatenate(values)
    return float(all_values.mean()), float(all_values.std()) / math.sqrt(samples)


def log_mean(logs: Floats) -> Floats:
    """Log of the mean of exponentials over the last axis."""
    largest = logs.max(axis=1)
    return np.asarray(largest + np.log(np.exp(logs - largest[:, None]).mean(axis=1)))


def monte_carlo(moves: Floats, epsilon: float) -> tuple[float, float]:
    """Delta and its error by the proposal of least relative error in a pilot."""
    best = Proposal(1.0, 0.0)
    lowest = math.inf
    for stretch, tilt in product(STRETCHES, TILTS):
        proposal = Proposal(stretch, float(tilt))
        delta, error = sampled(moves, epsilon, proposal, PILOT, 1)
        if 0 < error < lowest * delta:
            lowest = error / delta
            best = proposal
    return sampled(moves, epsilon, best, SAMPLES, 2)


def noise_at(rank_one: RankOneFactors, epsilon: float, delta: float) -> float:
    """About the noise multiplier at which epsilon is spent, by bisection of its log."""
    low = math.log(0.3)
    high = math.log(300.0)
    while high - low > 1e-3:
        middle = (low + high) / 2
        spent = estimated_epsilon(rank_one, math.exp(middle), delta, epsilon)
        if spent > epsilon:
            low = middle
        else:
            high = middle
    return math.exp(high)


def compare_bounds(rounds: int) -> None:
    """A line for each budget."""
    rank_one = best_factors(rounds, MOMENTUM, LAST_WEIGHT)
    for epsilon in EPSILONS:
        for delta in DELTAS:
            sigma = noise_at(rank_one, epsilon, delta)
            pair = balls_in_bins_pairs(rank_one, sigma).upper[0]
            bound = delta_of(pair, epsilon)[1]
            sample, error = monte_carlo(matrix(rank_one) / sigma, epsilon)
            # Over 1% of sigma, by the estimate of epsilon: how fast delta falls.
            beyond = delta_of(
                balls_in_bins_pairs(rank_one, sigma * 1.02).upper[0], epsilon
            )
            slope = math.log(bound / beyond[1]) / math.log(1.02)
            above = math.log(bound / sample) / slope
            verdict = "ok" if bound >= sample - 4 * error else "BELOW"
            print(
                f"T {rounds} epsilon {epsilon:g} delta {delta:g}: sigma {sigma:.4f} "
                f"bound {bound:.4g} sampled {sample:.4g} +- {error:.2g} "
                f"sigma above by {above:.2%} {verdict}",
                flush=True,
            )


def cyclic_noise(bands: int, rounds: int) -> tuple[float, float]:
    """Noise of the last and of all models under ``cyclic_allocation`` with B turns."""
    series, rows = factors(bands, MOMENTUM, rounds)
    norms = column_norms(series, rows)
    c = np.zeros((rounds, rounds))
    for t in range(rounds):
        for lag in range(min(bands, rounds - t)):
            c[t + lag, t] = rows[t + lag] * series[lag] / norms[t]
    noise = noise_of_models(c, MOMENTUM)
    return noise.last_model, noise.all_models


def compare_noise(rounds: int) -> None:
    """The noise of each law at the published delta."""
    for epsilon in EPSILONS[1:4]:
        for bands in range(1, rounds // 2 + 1):
            if rounds % bands:
                continue
            if bands == 1:
                name = f"random_allocation:{rounds}"
                left = (1.0, noise_of_models(np.eye(rounds), MOMENTUM).all_models)
            else:
                name = f"cyclic_allocation:{bands}:{rounds // bands}"
                left = cyclic_noise(bands, rounds)
            report(name, epsilon, rounds, left)
        name = f"balls_in_bins:{rounds}"
        law = SamplingLaw(name).law
        last = law.noise_left(MOMENTUM, rounds)
        report(
            name, epsilon, rounds, (last, law.mean_noise_left(MOMENTUM, rounds) or last)
        )


def report(name: str, epsilon: float, rounds: int, left: tuple[float, float]) -> None:
    """One law's noise in clipping norms."""
    rounds_of_client = SamplingLaw(name).law.rounds_of_client(rounds)
    sigma = calibrate(
        "noise_multiplier",
        epsilon,
        PUBLISHED_DELTA,
        sampling_ratio=1.0,
        rounds=rounds_of_client,
        sampling=name,
    )
    print(
        f"epsilon {epsilon:g} {name}: sigma {sigma:.4f} "
        f"last model {sigma * left[0]:.4f} all models {sigma * left[1]:.4f}",
        flush=True,
    )


def main() -> None:
    """Compare bounds or noise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("bounds", "noise"))
    parser.add_argument("rounds", type=int, nargs="+")
    arguments = parser.parse_args()
    compare = compare_bounds if arguments.what == "bounds" else compare_noise
    for rounds in arguments.rounds:
        compare(rounds)


if __name__ == "__main__":
    main()
