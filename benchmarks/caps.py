"""Epsilon of Poisson sampling whose cohorts have a cap, from both sides.

python benchmarks/caps.py [--clients 6000] [--ratio 0.02] [--rounds 50] [--noise 0.832]
    [--delta 6.98e-5]

Of a cohort above the cap a uniform part stays. Relation add_remove; the noise and the divisor of
the mean are those of the plan. In a round the draw differs from Poisson sampling with a chance of
t = P(Binomial(n, q) > cap) at most, for either neighbour, so that T rounds, also where updates
depend on earlier releases, have at most delta + T t (1 + e^epsilon) at the epsilon at which Poisson
sampling has delta (Chua et al. 2024, arXiv 2411.04205). From below: all others send zero, and the
client stays with the chance q E[min(1, cap / (1 + Binomial(n - 1, q)))]: Poisson sampling with that
ratio, reached exactly.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from scipy.stats import binom

from privplan import compose
from privplan.accounting.accountant import accountant
from privplan.accounting.release import History, Release

MARGIN = 1 + 1e-9
"""Relative margin of the binomial tail, above its rounding."""


def least(clients: int, ratio: float, cap: int) -> float:
    """The chance that a client of a capped cohort takes part."""
    others = np.arange(clients)
    stays = np.minimum(1.0, cap / (1.0 + others))
    return ratio * float(binom.pmf(others, clients - 1, ratio) @ stays)


def at_least(history: History, delta: float) -> float:
    """Lower bound on the epsilon of a history."""
    return accountant("pld").epsilon(history, delta, "add_remove").lower


def at_most(history: History, delta: float, tail: float) -> float:
    """The least epsilon whose delta with the tail is at most ``delta``; inf where none is found."""
    curve = compose(history)

    def kept(epsilon: float) -> bool:
        more = history.rounds * tail * (1 + math.exp(epsilon))
        return curve.delta(epsilon).upper + more <= delta

    least = curve.epsilon(delta).lower
    steps = [least + (least + 1) * step / 64 for step in range(65)]
    high = next((one for one in steps if kept(one)), math.inf)
    if math.isinf(high) or high == least:
        return high
    low = high - (least + 1) / 64
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if kept(middle) else (middle, high)
    return high


def main() -> None:
    """Print a row for each cap."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=6000)
    parser.add_argument("--ratio", type=float, default=0.02)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--noise", type=float, default=0.832)
    parser.add_argument("--delta", type=float, default=6.98e-5)
    asked = parser.parse_args()
    mean = asked.clients * asked.ratio
    history = History.repeated(Release(asked.noise, asked.ratio, "poisson"), asked.rounds)
    free = accountant("pld").epsilon(history, asked.delta, "add_remove")
    print(f"no cap: at least {free.lower:.5f}, at most {free.upper:.5f}")
    for part in (1.25, 1.4, 1.5, 1.6, 1.75, 2.0):
        cap = round(part * mean)
        tail = float(binom.sf(cap, asked.clients, asked.ratio)) * MARGIN
        kept = least(asked.clients, asked.ratio, cap)
        rare = History.repeated(Release(asked.noise, kept, "poisson"), asked.rounds)
        low, high = at_least(rare, asked.delta), at_most(history, asked.delta, tail)
        gap = "-" if math.isinf(high) else f"{high / low - 1:.2%}"
        print(f"| {cap} | {tail:.2g} | {low:.5f} | {high:.5f} | {gap} |", flush=True)


if __name__ == "__main__":
    main()
