"""Pairs of a person with several clients, each drawn independently of the others.

With m clients of one person, Poisson ratio q and shift s = 1 / sigma, P is the mixture
of N(j s, 1) with the chances of a Binomial(m, q) draw j and Q = N(0, 1): a draw of j
clients moves the sum by j clipping norms at most, and a mixture is dominated by one
whose shifts are no smaller, in both orders and also where updates depend on earlier
releases (Ganesh 2024, arXiv 2401.10294). Clients that all send the same vector reach
it. So it covers records of one person, too, at one client or at several of the same
group: their shifts are orthogonal, and together at most as long.

The loss l grows with the outcome, and a cell of outcomes is one of losses. From above,
its mass is split between its ends with the masses under P and Q kept; from below it is
one loss, that of their ratio. Both are O(h^2) from the truth.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from privplan.accounting.families import stated
from privplan.accounting.pld.pairs import LARGEST_SHIFT, Array
from privplan.errors import TooLittleNoiseError
from privplan.laws.law import DiscretePair, DominatingPairs

# Outcomes beyond so many deviations have a mass below 1e-290.
_REACH = 37.0
# Largest width of a cell of outcomes.
_CELL = 0.02
# Relative margin of masses and losses, above their rounding.
_MARGIN = 4e-13
# Gauss and Legendre's rule, off by less than a rounding in such a cell.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)


class _Mixture(NamedTuple):
    """The law P of outcomes, by how many clients are drawn.

    Attributes:
        shift: of one client, in deviations.
        chances: that 0, 1, ... clients are drawn.
    """

    shift: float
    chances: list[float]

    def loss(self, outcome: Array) -> Array:
        """The log of ``sum_j chance_j exp(j s y - (j s)^2 / 2)`` at outcomes y."""
        drawn = np.arange(len(self.chances))[:, None]
        logs = np.log(np.maximum(self.chances, 1e-300))[:, None]
        places = outcome.ravel()
        terms = logs + drawn * self.shift * (places - drawn * self.shift / 2)
        top = terms.max(axis=0)
        losses = top + np.log(np.exp(terms - top).sum(axis=0))
        return np.asarray(losses.reshape(outcome.shape))

    def masses(self, inside: Array, half: Array) -> Array:
        """Mass of P at the nodes of each cell, shape (cells, nodes)."""
        total = np.zeros_like(inside)
        for drawn, chance in enumerate(self.chances):
            squares = (inside - drawn * self.shift) ** 2
            total += chance * half * _WEIGHTS * np.exp(-squares / 2)
        return total / math.sqrt(2 * math.pi)


def _mixture(shift: float, ratio: float, clients: int) -> _Mixture:
    """Of a Binomial(clients, ratio) draw."""
    chances = []
    for drawn in range(clients + 1):
        all_drawn = math.comb(clients, drawn) * ratio**drawn
        chances.append(all_drawn * (1 - ratio) ** (clients - drawn))
    return _Mixture(shift, chances)


@lru_cache(maxsize=256)
def several_pairs(shift: float, ratio: float, clients: int) -> DominatingPairs:
    """The pairs of a person that is removed, and of one that is added.

    Args:
        shift: of one client, 1 over the noise multiplier.
        ratio: chance that a client is drawn, in (0, 1).
        clients: how many the person has.

    Raises:
        TooLittleNoiseError: when the largest loss may leave the floating-point range.
    """
    largest = clients * shift
    if largest > LARGEST_SHIFT:
        rule = f"pld needs {clients / LARGEST_SHIFT:g} or more under sampling"
        raise TooLittleNoiseError(
            f"noise_multiplier: {rule} for {clients} clients of one person, "
            f"found {1 / shift:g}"
        )
    mixture = _mixture(shift, ratio, clients)

    # Cells of outcomes, with the nodes inside each, shape (cells, nodes).
    cells = math.ceil((2 * _REACH + largest) / _CELL)
    ends = np.linspace(-_REACH, largest + _REACH, cells + 1)
    half = np.diff(ends)[:, None] / 2
    inside = ends[:-1, None] + half * (1 + _NODES)
    losses = np.maximum.accumulate(mixture.loss(ends))
    inner = mixture.loss(inside)

    # Masses of a person that takes part, and of one that does not.
    present = mixture.masses(inside, half)
    density = half * _WEIGHTS * np.exp(-(inside**2) / 2)
    absent = density / math.sqrt(2 * math.pi)
    removed = _bounds(losses[:-1], losses[1:], inner, present, absent)
    added = _bounds(-losses[1:], -losses[:-1], -inner, absent, present)
    return DominatingPairs((removed[0], added[0]), (removed[1], added[1]))


def _bounds(
    low: Array, high: Array, inner: Array, masses: Array, reference: Array
) -> tuple[DiscretePair, DiscretePair]:
    """One direction from above and from below.

    Args:
        low: smallest loss of each cell.
        high: largest loss of each cell.
        inner: losses at the nodes, shape (cells, nodes).
        masses: of P at the nodes.
        reference: masses of Q at the nodes.
    """
    # From above: the share of the upper end keeps the mass under Q, of exp(-loss)
    # relative to the lower end.
    fall = -np.expm1(low[:, None] - inner)
    width = np.maximum(-np.expm1(low - high), 1e-300)
    total = masses.sum(axis=1)
    share = np.clip((masses * fall).sum(axis=1) / width, 0.0, total)
    ends = np.append(low, high)
    upper = stated(ends, np.append(total - share, share), 1, _MARGIN)

    # From below: the log of the ratio of both masses, from the lower end on.
    rise = (reference * np.expm1(inner - low[:, None])).sum(axis=1)
    reference_total = reference.sum(axis=1)
    positive = reference_total > 0
    ratio = rise[positive] / reference_total[positive]
    mean = low[positive] + np.log1p(ratio)
    return upper, stated(mean, total[positive], -1, _MARGIN)
