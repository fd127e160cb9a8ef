"""Accountants of other libraries: prv-accountant, dp-accounting and Opacus.

They are second opinions beside the guarantee and never carry it: prv-accountant's
interval is wrong on some ordinary settings and it raises on others (Gopi, Lee and
Wutschitz 2021, "Numerical composition of differential privacy"; see
docs/sharp-edges.md). Libraries are imported when they are first asked, their warnings
are suppressed, and a failure or an impossible result becomes an ``UnsupportedError`` of
one line.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import numpy as np

from privplan.accounting.accountant import Interval, check_supported
from privplan.accounting.families import not_gaussian
from privplan.accounting.gdp import central_limit
from privplan.accounting.rdp import RdpAccountant
from privplan.accounting.release import History, Relation, SamplingLaw
from privplan.errors import UnsupportedError

# Different releases in a history above which prv-accountant, and dp-accounting, take
# minutes.
_FEWEST_SEGMENTS = 20
_MOST_SEGMENTS = 50
# Points of prv-accountant's grid, and the error to ask for relative to the Rényi bound.
_PRV_POINTS = 500_000
_RELATIVE_ERROR = 2e-3
# Points of dp-accounting's grid, and its step over the deviation of a release's loss.
_MOST_POINTS = 4e6
_GRID = 0.01

Reason = Callable[[History, Relation], str | None]
Bounds = Callable[[History, float, Relation], Interval]


@cache
def installed(package: str) -> str | None:
    """Version of an installed package; None when it is missing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True)
class ExternalAccountant:
    """The accountant of another library.

    Attributes:
        name: as specs and tables write it.
        library: the distribution that computes the bounds.
        modules: modules that must be present besides.
        reason: (history, relation) to a line on why the library does not cover them, or
            None.
        bounds: (history, delta, relation) to bounds on epsilon, by the library.
        kind: what tables call it.
        guarantee: whether a guarantee may rest on it.
        version: library and its version.
    """

    name: str
    library: str
    modules: tuple[str, ...]
    reason: Reason
    bounds: Bounds
    kind: str = "second opinion"
    guarantee: bool = False
    version: str = field(init=False)

    def __post_init__(self) -> None:
        text = f"{self.library} {installed(self.library) or 'missing'}"
        object.__setattr__(self, "version", text)

    def why_not(self, history: History, relation: Relation) -> str | None:
        """A line on why the library is missing or does not cover the history."""
        if installed(self.library) is None or not all(map(find_spec, self.modules)):
            return f"{self.library} is not installed"
        return self.reason(history, relation) or not_gaussian(history)

    def epsilon(self, history: History, delta: float, relation: Relation) -> Interval:
        """The library's bounds on epsilon at ``delta``."""
        check_supported(self, history, delta, relation)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                bounds = self.bounds(history, delta, relation)
        except (
            RuntimeError,
            ValueError,
            AssertionError,
            ArithmeticError,
            MemoryError,
        ) as failure:
            reason = type(failure).__name__
            if str(failure):
                reason = str(failure).splitlines()[0]
            raise UnsupportedError(
                f"{self.name}: {self.library} failed: {reason}"
            ) from None
        if not 0 <= bounds.lower <= bounds.upper:
            raise UnsupportedError(
                f"{self.name}: {self.library} answered "
                f"[{bounds.lower}, {bounds.upper}], which cannot be right"
            )
        return bounds


def _prv_reason(history: History, relation: Relation) -> str | None:
    """Poisson sampling under add/remove or zero-out, with few different releases."""
    if relation is Relation.REPLACE_ONE:
        return "prv-accountant does not cover replace_one"
    if len(history) > _FEWEST_SEGMENTS:
        return f"more than {_FEWEST_SEGMENTS} different releases"
    for release, _ in history:
        if release.sampling.law.single != SamplingLaw.POISSON:
            return f"prv-accountant does not cover {release.sampling} sampling"
        if release.sampling_ratio == 1:
            return "prv-accountant does not cover a sampling ratio of 1"
        if not 0 < release.noise_multiplier < math.inf or release.sampling_ratio == 0:
            return "prv-accountant needs noise and a sampling ratio above 0"
    return None


def _prv(history: History, delta: float, relation: Relation) -> Interval:
    if not len(history):
        return Interval(0.0, 0.0)
    # The error to ask for: a share of the Rényi bound, no finer than the grid allows.
    bound = RdpAccountant().epsilon(history, delta, Relation.ADD_REMOVE).upper
    # The width of its grid is epsilon at a share of delta per round.
    tail_delta = max(delta / 8000 / history.rounds, 1e-30)
    wide = RdpAccountant().epsilon(history, tail_delta, Relation.ADD_REMOVE)
    if not math.isfinite(bound):
        raise UnsupportedError("prv: epsilon is too large for prv-accountant")
    cells = math.sqrt(history.rounds / 2 * math.log(12_000 / delta))
    error = max(
        _RELATIVE_ERROR * bound, 2 * (wide.upper + 3) * cells / _PRV_POINTS, 1e-6
    )
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
    if not (lower <= estimate <= upper and math.isfinite(upper) and upper >= 0):
        raise UnsupportedError(
            f"prv: prv-accountant answered [{lower}, {upper}], which cannot be right"
        )
    return Interval(max(float(lower), 0.0), float(upper))


def _dp_accounting_reason(history: History, relation: Relation) -> str | None:
    """Of fixed-size cohorts those under add/remove, as Poisson at half the noise."""
    if len(history) > _MOST_SEGMENTS:
        return f"more than {_MOST_SEGMENTS} different releases"
    for release, _ in history:
        if (
            release.sampling is SamplingLaw.FIXED_SIZE
            and relation is Relation.ADD_REMOVE
        ):
            continue
        if release.sampling.law.single not in (SamplingLaw.FULL, SamplingLaw.POISSON):
            return (
                f"dp-accounting does not cover {release.sampling} sampling under "
                f"{relation}"
            )
    return None


def _dp_accounting(history: History, delta: float, relation: Relation) -> Interval:
    """dp-accounting's privacy loss distributions, pessimistic; the lower bound is 0.

    Its default grid of 1e-4 is too coarse when the loss per round is small and too fine
    when the total is large, so the grid follows the standard deviation of the loss per
    round.
    """
    segments = []
    for release, count in history:
        sigma = release.noise_multiplier
        if release.sampling is SamplingLaw.FIXED_SIZE:
            # As Poisson sampling at half the noise.
            sigma /= 2
        if sigma < math.inf and release.sampling_ratio > 0:
            segments.append((sigma, release.sampling_ratio, count))
    if any(sigma == 0 for sigma, _, _ in segments):
        return Interval(0.0, math.inf)
    return Interval(0.0, _pld(segments, delta, relation) if segments else 0.0)


def _pld(
    segments: list[tuple[float, float, int]], delta: float, relation: Relation
) -> float:
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.privacy_accountant import NeighboringRelation as Neighbours

    neighbours = {
        Relation.ADD_REMOVE: Neighbours.ADD_OR_REMOVE_ONE,
        Relation.REPLACE_ONE: Neighbours.REPLACE_ONE,
        Relation.ZERO_OUT: Neighbours.REPLACE_SPECIAL,
    }[relation]
    grid = _grid(segments, 2 if relation is Relation.REPLACE_ONE else 1)
    options = {
        "value_discretization_interval": grid,
        "neighboring_relation": neighbours,
    }
    total: Any = None
    for sigma, ratio, count in segments:
        rounds = count
        if ratio == 1:
            # Without sampling, releases compose to a Gaussian.
            sigma = sigma / math.sqrt(count)
            rounds = 1
        losses = pld.from_gaussian_mechanism(sigma, sampling_prob=ratio, **options)
        if rounds > 1:
            losses = losses.self_compose(rounds)
        total = losses if total is None else total.compose(losses)
    return float(total.get_epsilon_for_delta(delta))


def _grid(segments: list[tuple[float, float, int]], distance: int) -> float:
    """Grid for the losses: a hundredth of the smallest deviation of a release's loss.

    Wider where the sum of all losses would need too many points.
    """
    deviations: list[float] = []
    square = 0.0
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


def _opacus_reason(history: History, relation: Relation) -> str | None:
    """Poisson sampling and full participation, without replacement of clients."""
    if relation is Relation.REPLACE_ONE:
        return "opacus does not cover replace_one"
    for release, _ in history:
        if release.sampling.law.single not in (SamplingLaw.FULL, SamplingLaw.POISSON):
            return f"opacus does not cover {release.sampling} sampling"
    return None


def _opacus(history: History, delta: float, relation: Relation) -> Interval:
    """Opacus' Rényi accountant with its default orders; the lower bound is 0."""
    if not central_limit(history, relation):
        return Interval(0.0, 0.0)
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
    spent = rdp.get_privacy_spent(orders=orders, rdp=total, delta=delta)[0]
    return Interval(0.0, max(0.0, float(spent)))


PRV = ExternalAccountant("prv", "prv-accountant", (), _prv_reason, _prv)
DP_ACCOUNTING = ExternalAccountant(
    "dp_accounting", "dp-accounting", (), _dp_accounting_reason, _dp_accounting
)
OPACUS = ExternalAccountant("opacus", "opacus", ("torch",), _opacus_reason, _opacus)
