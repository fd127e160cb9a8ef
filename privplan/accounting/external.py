"""Independent second opinions: dp-accounting's PLD and Opacus' RDP.

Both are imported when first asked, because they (and torch behind Opacus) are slow to load.
"""

from __future__ import annotations

import math
import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from privplan.accounting.accountant import Interval, checked_delta
from privplan.accounting.external_prv import installed
from privplan.accounting.gdp import central_limit
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_SEGMENTS = 50
_MOST_POINTS = 4e6
_GRID = 0.01


class DpAccountingAccountant:
    """dp-accounting's privacy loss distributions, pessimistic; the lower bound is 0.

    Its default grid of 1e-4 is too coarse when the loss per round is small and too fine when
    the total is large, so the grid follows the standard deviation of the loss per round.
    """

    name = "dp_accounting"
    kind = "second opinion"
    guarantee = False

    def __init__(self) -> None:
        self.version = f"dp-accounting {installed('dp-accounting') or 'missing'}"

    def why_not(self, history: History, relation: Relation) -> str | None:
        """Fixed-size cohorts only under add/remove (Poisson at half the noise)."""
        if installed("dp-accounting") is None:
            return "dp-accounting is not installed"
        if len(history) > _MOST_SEGMENTS:
            return f"more than {_MOST_SEGMENTS} different releases"
        for release, _ in history:
            fixed = release.sampling is SamplingLaw.FIXED_SIZE
            if fixed and relation is not Relation.ADD_REMOVE:
                return f"dp-accounting does not cover fixed_size sampling under {relation}"
        return None

    def epsilon(self, history: History, delta: float, relation: Relation) -> Interval:
        """Upper bound on epsilon at ``delta``.

        Raises:
            InputError: when delta is not in (0, 1).
            UnsupportedError: for a cell it does not cover, or when the library fails.
        """
        checked_delta(delta)
        reason = self.why_not(history, relation)
        if reason is not None:
            raise UnsupportedError(f"dp_accounting: {reason}")
        segments = [
            (sigma, release.sampling_ratio, count)
            for release, count in history
            if (sigma := _noise(release)) < math.inf and release.sampling_ratio > 0
        ]
        if any(sigma == 0 for sigma, _, _ in segments):
            return Interval(0.0, math.inf)
        if not segments:
            return Interval(0.0, 0.0)
        return Interval(0.0, _guarded("dp_accounting", lambda: _pld(segments, delta, relation)))


def _noise(release: Release) -> float:
    """Noise multiplier as Poisson sampling would need it."""
    fixed = release.sampling is SamplingLaw.FIXED_SIZE
    return release.noise_multiplier / 2 if fixed else release.noise_multiplier


def _pld(segments: list[tuple[float, float, int]], delta: float, relation: Relation) -> float:
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.privacy_accountant import NeighboringRelation as Neighbours

    neighbours = {
        Relation.ADD_REMOVE: Neighbours.ADD_OR_REMOVE_ONE,
        Relation.REPLACE_ONE: Neighbours.REPLACE_ONE,
        Relation.ZERO_OUT: Neighbours.REPLACE_SPECIAL,
    }[relation]
    grid = _grid(segments, 2 if relation is Relation.REPLACE_ONE else 1)
    total: Any = None
    for sigma, ratio, count in segments:
        rounds = count
        if ratio == 1:
            sigma, rounds = sigma / math.sqrt(count), 1
        one = pld.from_gaussian_mechanism(
            sigma,
            value_discretization_interval=grid,
            sampling_prob=ratio,
            neighboring_relation=neighbours,
        )
        one = one.self_compose(rounds) if rounds > 1 else one
        total = one if total is None else total.compose(one)
    return float(total.get_epsilon_for_delta(delta))


def _grid(segments: list[tuple[float, float, int]], distance: int) -> float:
    """Grid for the losses: a hundredth of the smallest standard deviation of a release's loss."""
    deviations, square = [], 0.0
    for sigma, ratio, count in segments:
        inverse = min((distance / sigma) ** 2, 30.0)
        if ratio == 1:
            deviation = distance * math.sqrt(count) / sigma
            square += deviation**2
        else:
            deviation = ratio * math.sqrt(math.expm1(inverse))
            square += count * min(deviation, distance / sigma) ** 2
        deviations.append(min(deviation, 0.02 / _GRID))
    span = square + 20 * math.sqrt(square)
    return max(_GRID * min(deviations), span / _MOST_POINTS)


class OpacusAccountant:
    """Opacus' Rényi accountant with its default orders: Poisson or full, add/remove."""

    name = "opacus"
    kind = "second opinion"
    guarantee = False

    def __init__(self) -> None:
        self.version = f"opacus {installed('opacus') or 'missing'}"

    def why_not(self, history: History, relation: Relation) -> str | None:
        """Needs torch; no fixed-size cohorts, no replacement of clients."""
        if find_spec("opacus") is None or find_spec("torch") is None:
            return "opacus is not installed"
        if relation is Relation.REPLACE_ONE:
            return "opacus does not cover replace_one"
        if any(release.sampling is SamplingLaw.FIXED_SIZE for release, _ in history):
            return "opacus does not cover fixed_size sampling"
        return None

    def epsilon(self, history: History, delta: float, relation: Relation) -> Interval:
        """Upper bound on epsilon at ``delta``.

        Raises:
            InputError: when delta is not in (0, 1).
            UnsupportedError: for a cell it does not cover, or when the library fails.
        """
        checked_delta(delta)
        reason = self.why_not(history, relation)
        if reason is not None:
            raise UnsupportedError(f"opacus: {reason}")
        if not central_limit(history, relation):
            return Interval(0.0, 0.0)
        return Interval(0.0, max(0.0, _guarded("opacus", lambda: _opacus(history, delta))))


def _opacus(history: History, delta: float) -> float:
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis import rdp

    orders = RDPAccountant.DEFAULT_ALPHAS
    total = np.zeros(len(orders))
    for release, count in history:
        total = total + rdp.compute_rdp(
            q=release.sampling_ratio,
            noise_multiplier=release.noise_multiplier,
            steps=count,
            orders=orders,
        )
    return float(rdp.get_privacy_spent(orders=orders, rdp=total, delta=delta)[0])


def _guarded(name: str, ask: Callable[[], float]) -> float:
    """The library's answer without its warnings; its failure becomes one line."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            answer = ask()
    except (RuntimeError, ValueError, AssertionError, ArithmeticError, MemoryError) as failure:
        first = str(failure).splitlines()[0] if str(failure) else type(failure).__name__
        raise UnsupportedError(f"{name}: the library failed: {first}") from None
    if math.isnan(answer):
        raise UnsupportedError(f"{name}: the library answered nan")
    return answer
