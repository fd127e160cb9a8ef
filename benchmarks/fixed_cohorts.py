"""What an adversary reaches who chooses the others' updates in every round.

python benchmarks/fixed_cohorts.py [--rounds 50] [--delta 6.98e-5] [--step 0.002]

Of fixed cohorts, under the relation replace_one, so the client's update is u in one
world and v in the other. Coupling the others that are drawn, every convex measure of a
round is at most that of (1 - q) N(w) + q N(u) against (1 - q) N(w) + q N(v): all others
send the same w, and u, v and w are at most the clipping norm C. Delta after T rounds is
V_T(-epsilon), with V_0(x) = max(0, 1 - e^-x) and V_t(x) the largest E[V_(t-1)(x +
loss)] of a round over u, v and w: the adversary knows all earlier releases. Here u is
C, v is -C, and w in nine places between. That is an estimate: losses are split onto a
grid.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.signal import fftconvolve
from scipy.stats import norm

from privplan.accounting.accountant import accountant
from privplan.accounting.release import History, Release

PLACES = (-1.0, -0.95, -0.8, -0.4, 0.0, 0.4, 0.8, 0.95, 1.0)
"""What all others send, in clipping norms."""
SETTINGS = ((1.3, 0.02), (2.5, 0.02), (5.0, 0.2))
WIDE = 60.0
"""Largest sum of losses, which is far above epsilon."""
Losses = tuple[NDArray[np.float64], int]


def losses(noise: float, ratio: float, others_update: float, step: float) -> Losses:
    """Chances of losses k * step under the first world, k from -m to m; and m."""
    x = np.linspace(-12 - 1 / noise, 12 + 1 / noise, 200_001)
    w = others_update / noise

    def log_density(place: float) -> NDArray[np.float64]:
        """Over that of N(w), at x."""
        moved = np.log(ratio) + (place - w) * (x - w) - (place - w) ** 2 / 2
        return np.logaddexp(np.log1p(-ratio), moved)

    first = log_density(1.0 / noise)
    second = log_density(-1.0 / noise)
    masses = np.exp(first) * norm.pdf(x - w) * (x[1] - x[0])
    # Each loss is split between the two points of the grid around it.
    cells = (first - second) / step
    low = np.floor(cells).astype(int)
    points = int(max(-low.min(), low.max() + 1))
    masses_up = masses * (cells - low)
    chances = np.bincount(low + points, masses - masses_up, 2 * points + 1)
    chances += np.bincount(low + points + 1, masses_up, 2 * points + 1)
    return chances, points


def delta(epsilon: float, rounds: int, choices: list[Losses], step: float) -> float:
    """Delta of the best adversary who has these rounds to choose from."""
    count = int(WIDE / step)
    x = np.arange(-count, count + 1) * step
    value = np.maximum(0, -np.expm1(-x))
    padding = max(points for _, points in choices)
    above = -np.expm1(-(x[-1] + step * np.arange(1, padding + 1)))
    for _ in range(rounds):
        padded = np.concatenate([np.zeros(padding), value, above])
        after_choice = [
            fftconvolve(
                padded[padding - points : len(padded) - padding + points],
                chances[::-1],
                "valid",
            )
            for chances, points in choices
        ]
        value = np.maximum.reduce(after_choice)
    return float(np.interp(-epsilon, x, value))


def reached(noise: float, ratio: float, rounds: int, goal: float, step: float) -> float:
    """Epsilon at the delta ``goal`` of the best adversary."""
    choices = [losses(noise, ratio, place, step) for place in PLACES]

    def over(epsilon: float) -> float:
        return float(np.log(max(delta(epsilon, rounds, choices, step), 1e-300) / goal))

    return float(brentq(over, 1e-3, WIDE / 4, xtol=1e-4))


def main() -> None:
    """Print a row for each noise multiplier and ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--delta", type=float, default=6.98e-5)
    parser.add_argument("--step", type=float, default=0.002)
    options = parser.parse_args()
    for noise, ratio in SETTINGS:
        history = History.repeated(Release(noise, ratio, "fixed_size"), options.rounds)
        bounds = accountant("pld").epsilon(history, options.delta, "replace_one")
        low = math.floor(bounds.lower * 1e3) / 1e3
        high = math.ceil(bounds.upper * 1e3) / 1e3
        epsilon = reached(noise, ratio, options.rounds, options.delta, options.step)
        print(f"| {noise} | {ratio} | {low:.3f} | {epsilon:.3f} | {high:.3f} |")


if __name__ == "__main__":
    main()
