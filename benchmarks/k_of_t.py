"""Epsilon of k of T rounds at random: a Monte Carlo estimate and the bound by blocks.

python benchmarks/k_of_t.py [--draws 1000000] [--delta 6.98e-5]

The pair is the mixture of N(1_S, sigma^2) over the k-subsets S of T rounds against N(0,
sigma^2); its likelihood ratio is the elementary symmetric polynomial of the rounds' own
ratios over binomial(T, k). Draws are of the pair itself, so that the terms of delta lie
in [0, 1] and their spread gives an honest error. It remains an estimate: plans take the
bound.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from privplan.accounting.accountant import accountant
from privplan.accounting.release import History, Release

# k, T and sigma.
CASES = ((2, 50, 2.0), (5, 50, 2.0), (5, 48, 2.0), (10, 50, 2.0), (5, 50, 1.0))
# Draws that fit the memory at once.
CHUNK = 50_000
# Halvings of the range of epsilon, far below the error of the estimate.
_HALVINGS = 40


def losses(
    sigma: float, k: int, rounds: int, draws: int, *, remove: bool
) -> np.ndarray:
    """Privacy losses of draws of the pair in one direction."""
    generator = np.random.default_rng(1)
    log_ratios = []
    for _ in range(draws // CHUNK):
        z = generator.standard_normal((rounds, CHUNK))
        if remove:
            z[:k] += 1 / sigma
        ratios = np.exp((z - 1 / (2 * sigma)) / sigma)
        sums = np.zeros((k + 1, CHUNK))
        sums[0] = 1
        for ratio in ratios:
            sums[1:] += ratio * sums[:-1]
        log_ratios.append(np.log(sums[k]) - math.log(math.comb(rounds, k)))
    loss = np.concatenate(log_ratios)
    return loss if remove else -loss


def epsilons(loss: np.ndarray, delta: float) -> tuple[float, float, float]:
    """Epsilon at the estimate of delta, and where it lies two standard errors off."""

    def excess(epsilon: float, errors: float) -> float:
        terms = np.maximum(-np.expm1(np.minimum(epsilon - loss, 0)), 0)
        return float(terms.mean() + errors * terms.std() / math.sqrt(len(loss))) - delta

    answers = []
    for errors in (-2.0, 0.0, 2.0):
        low = 0.0
        high = float(loss.max())
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if excess(middle, errors) > 0:
                low = middle
            else:
                high = middle
        answers.append(high)
    return answers[0], answers[1], answers[2]


def main() -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1_000_000)
    parser.add_argument("--delta", type=float, default=6.98e-5)
    options = parser.parse_args()
    for k, rounds, sigma in CASES:
        # The direction with the larger estimate.
        directions = [
            epsilons(
                losses(sigma, k, rounds, options.draws, remove=remove), options.delta
            )
            for remove in (True, False)
        ]
        low, middle, high = max(directions, key=lambda bounds: bounds[1])
        release = Release(sigma, 1.0, f"random_allocation:{rounds // k}")
        history = History.repeated(release, k)
        bound = accountant("pld").epsilon(history, options.delta, "add_remove").upper
        estimate = f"{middle:.4f} ({low:.4f} to {high:.4f})"
        print(f"| {k} of {rounds} | {sigma:g} | {bound:.4f} | {estimate} |", flush=True)


if __name__ == "__main__":
    main()
