"""Pairs of a person with several clients, each drawn independently of the others.

With m clients of one person, Poisson ratio q and shift s = 1 / sigma, P is the mixture of N(j s, 1)
with the chances of a Binomial(m, q) draw j and Q = N(0, 1): a draw of j clients moves the sum by
j clipping norms at most, and a mixture is dominated by one whose shifts are no smaller, in both
orders and also where updates depend on earlier releases (Ganesh 2024, arXiv 2401.10294). Clients
that all send the same vector reach it. So it covers records of one person, too, at one client or at
several of the same group: their shifts are orthogonal, and together at most as long.

The loss l grows with the outcome, and a cell of outcomes is one of losses. From above, its mass is
split between its ends with the masses under P and Q kept; from below it is one loss, that of their
ratio. Both are O(h^2) from the truth. Outcomes beyond 37 deviations have a mass below 1e-290.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from privplan.accounting.families import stated
from privplan.accounting.pld.pairs import LARGEST_SHIFT, Array
from privplan.errors import TooLittleNoiseError
from privplan.laws.law import DominatingPairs

_REACH, _CELL = 37.0, 0.02
_MARGIN = 4e-13  # relative margin of masses and losses, above their rounding
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(
    6
)  # off by less than a rounding in such a cell


@lru_cache(maxsize=256)
def several_pairs(shift: float, ratio: float, clients: int) -> DominatingPairs:
    """The pairs of a person that is removed, and of one that is added, for a ratio in (0, 1)."""
    most = clients * shift
    if most > LARGEST_SHIFT:
        raise TooLittleNoiseError(
            f"noise_multiplier: pld needs {clients / LARGEST_SHIFT:g} or more under sampling for "
            f"{clients} clients of one person, found {1 / shift:g}"
        )
    drawn = np.arange(clients + 1)
    chance = [
        math.comb(clients, j) * ratio**j * (1 - ratio) ** (clients - j) for j in drawn
    ]
    logs = np.log(np.maximum(chance, 1e-300))[:, None]
    ends = np.linspace(
        -_REACH, most + _REACH, math.ceil((2 * _REACH + most) / _CELL) + 1
    )
    half = np.diff(ends)[:, None] / 2
    inside = ends[:-1, None] + half * (1 + _NODES)

    def loss(outcome: Array) -> Array:
        terms = logs + drawn[:, None] * shift * (
            outcome.ravel() - drawn[:, None] * shift / 2
        )
        top = terms.max(axis=0)
        found: Array = (top + np.log(np.exp(terms - top).sum(axis=0))).reshape(
            outcome.shape
        )
        return found

    at, inner = np.maximum.accumulate(loss(ends)), loss(inside)
    without = half * _WEIGHTS * np.exp(-(inside**2) / 2) / math.sqrt(2 * math.pi)
    with_ = np.zeros_like(without)
    for j, one in enumerate(chance):
        with_ += one * half * _WEIGHTS * np.exp(-((inside - j * shift) ** 2) / 2)
    with_ /= math.sqrt(2 * math.pi)
    upper, lower = [], []
    for sign, masses, others in ((1, with_, without), (-1, without, with_)):
        low, high = (at[:-1], at[1:]) if sign > 0 else (-at[1:], -at[:-1])
        fall = -np.expm1(
            low[:, None] - sign * inner
        )  # of exp(-loss) from the lower end, relative
        width = np.maximum(-np.expm1(low - high), 1e-300)
        total = masses.sum(axis=1)
        share = np.clip((masses * fall).sum(axis=1) / width, 0.0, total)
        upper.append(
            stated(np.append(low, high), np.append(total - share, share), 1, _MARGIN)
        )
        rise = (others * np.expm1(sign * inner - low[:, None])).sum(axis=1)
        some = (other := others.sum(axis=1)) > 0
        mean = low[some] + np.log1p(rise[some] / other[some])
        lower.append(stated(mean, total[some], -1, _MARGIN))
    return DominatingPairs((upper[0], upper[1]), (lower[0], lower[1]))
