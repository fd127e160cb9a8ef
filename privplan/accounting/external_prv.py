"""prv-accountant as a second opinion, guarded.

Source: Gopi, Lee and Wutschitz 2021, "Numerical composition of differential privacy", and
its package prv-accountant. Its interval is wrong on some ordinary settings and it raises
on others (see docs/sharp-edges.md), so it never carries a guarantee, its warnings stay
inside, and an answer that cannot be right becomes a refusal in one line.
"""

from __future__ import annotations

import math
import warnings
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from privplan.accounting.accountant import Interval, checked_delta
from privplan.accounting.rdp import RdpAccountant
from privplan.accounting.release import History, Relation, SamplingLaw
from privplan.errors import UnsupportedError

_MOST_SEGMENTS = 20
_RELATIVE_ERROR = 2e-3


class PrvAccountant:
    """prv-accountant: Poisson sampling under add/remove (or zero-out).

    Args:
        points: most grid points to ask the library for; fewer are faster and wider.
    """

    name = "prv"
    kind = "second opinion"
    guarantee = False

    def __init__(self, points: int = 500_000) -> None:
        self._points = points
        self.version = f"prv-accountant {installed('prv-accountant') or 'missing'}"

    def why_not(self, history: History, relation: Relation) -> str | None:
        """Only noisy Poisson releases, few different ones, without replacement of clients."""
        if installed("prv-accountant") is None:
            return "prv-accountant is not installed"
        if relation is Relation.REPLACE_ONE:
            return "prv-accountant does not cover replace_one"
        if len(history) > _MOST_SEGMENTS:
            return f"more than {_MOST_SEGMENTS} different releases"
        for release, _ in history:
            if release.sampling is not SamplingLaw.POISSON:
                return f"prv-accountant does not cover {release.sampling} sampling"
            if release.sampling_ratio == 1:
                return "prv-accountant does not cover a sampling ratio of 1"
            if not 0 < release.noise_multiplier < math.inf or release.sampling_ratio == 0:
                return "prv-accountant needs noise and a sampling ratio above 0"
        return None

    def epsilon(self, history: History, delta: float, relation: Relation) -> Interval:
        """The library's interval at ``delta``.

        Raises:
            InputError: when delta is not in (0, 1).
            UnsupportedError: for a cell it does not cover, or when the library fails.
        """
        checked_delta(delta)
        reason = self.why_not(history, relation)
        if reason is not None:
            raise UnsupportedError(f"prv: {reason}")
        if not len(history):
            return Interval(0.0, 0.0)
        return _ask(history, delta, self._points)


@cache
def installed(package: str) -> str | None:
    """Version of an installed package; None when it is missing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _ask(history: History, delta: float, points: int) -> Interval:
    error = _error(history, delta, points)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

            rounds = [count for _, count in history]
            library = PRVAccountant(
                prvs=[
                    PoissonSubsampledGaussianMechanism(
                        sampling_probability=release.sampling_ratio,
                        noise_multiplier=release.noise_multiplier,
                    )
                    for release, _ in history
                ],
                eps_error=error,
                delta_error=delta / 1000,
                max_self_compositions=rounds,
            )
            lower, estimate, upper = library.compute_epsilon(delta, rounds)
    except (RuntimeError, ValueError, AssertionError, ArithmeticError, MemoryError) as failure:
        first = str(failure).splitlines()[0] if str(failure) else type(failure).__name__
        raise UnsupportedError(f"prv: prv-accountant failed: {first}") from None
    if not (lower <= estimate <= upper and math.isfinite(upper) and upper >= 0):
        raise UnsupportedError(
            f"prv: prv-accountant answered [{lower}, {upper}], which cannot be right"
        )
    return Interval(max(float(lower), 0.0), float(upper))


def _error(history: History, delta: float, points: int) -> float:
    """Error in epsilon to ask for: a share of the Rényi bound, no finer than the grid allows."""
    bound = RdpAccountant().epsilon(history, delta, Relation.ADD_REMOVE).upper
    wide = RdpAccountant().epsilon(history, delta / 8000 / history.rounds, Relation.ADD_REMOVE)
    if not math.isfinite(bound):
        raise UnsupportedError("prv: epsilon is too large for prv-accountant")
    span = 2 * (wide.upper + 3)
    cells = math.sqrt(history.rounds / 2 * math.log(12_000 / delta))
    return max(_RELATIVE_ERROR * bound, span * cells / points, 1e-6)
