"""Discrete pairs on a lattice: pairs that a law or a noise family gives as a finite loss.

The lattices have the properties of ``lattice.upper`` and ``lattice.lower``, so rounds of discrete
pairs compose with rounds of Gaussian ones.
"""

from __future__ import annotations

import math

import numpy as np

from privplan.accounting.pld.dominating_pairs import UNIT, Array
from privplan.accounting.pld.lattice import Lattice
from privplan.laws.pairs import DiscretePair


def discretise(pair: DiscretePair, step: float, *, from_above: bool) -> Lattice:
    """One round of a discrete pair on multiples of ``step``.

    From above each loss is split between its two neighbours so that its mass under P and under Q
    is kept (connect the dots, Doroshenko et al. 2022). From below each loss moves down to its
    lower neighbour, and an infinite loss is left out.

    Args:
        pair: the pair.
        step: distance of neighbouring losses.
        from_above: whether the profile is an upper bound.

    Returns:
        A lattice of one row.
    """
    losses, masses = np.array(pair.losses), np.array(pair.masses)
    below = np.floor(losses / step).astype(np.int64)
    below -= below * step > losses
    if not from_above:
        return _gathered(step, below, masses * (1 - 8 * UNIT), 0.0)
    share = np.expm1(below * step - losses) / math.expm1(-step)
    doubt = 8 * UNIT * (1 + np.abs(losses) / step)
    high = masses * np.minimum(share + doubt, 1 + 8 * UNIT)
    low = masses * np.clip(1 - share + doubt, 0.0, 1 + 8 * UNIT)
    index, both = np.concatenate([below, below + 1]), np.concatenate([low, high])
    return _gathered(step, index, both, pair.infinite)


def _gathered(step: float, index: np.ndarray, masses: Array, infinite: float) -> Lattice:
    places, where = np.unique(index, return_inverse=True)
    total = np.asarray(np.bincount(where, masses, len(places)), dtype=np.float64)
    zero = np.zeros(1)
    return Lattice(step, zero, places[None], total[None], np.array([infinite]), zero)


def second_moment(pair: DiscretePair) -> float:
    """Second moment of the finite loss under P; only a scale, never a bound."""
    losses, masses = np.array(pair.losses), np.array(pair.masses)
    return float(masses @ losses**2 / masses.sum())
