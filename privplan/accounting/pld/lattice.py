"""One round's privacy loss on a lattice: a bound from above and one from below.

A nonnegative measure ``nu`` on losses ``l`` stands for the profile
``g(x) = sum nu(l) max(0, 1 - x e^-l)`` with ``x = e^epsilon``. Write ``h`` for the true
profile, the hockey-stick divergence of P from Q. Composition is monotone in each round's
profile, ``h12(x) = E_P2[h1(x / R2)]``, whatever the total masses are. So ``g >= h`` in each
round gives an upper bound on the composed profile, and ``g <= h`` a lower bound.

The points are multiples of one step, so that rounds can be convolved, but far from where the
loss usually lies only every second, third, ... multiple is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.pld import pairs as dominating_pairs
from privplan.accounting.pld.pairs import UNIT, Array, Rows
from privplan.laws.law import DiscretePair, Kind

# --- The convex hull of a piecewise linear profile, in terms of its measure. ---------------------
# A profile that is not convex has points of negative mass. Such a point lies above the chord of
# its neighbours, so it is no corner of the hull: its mass goes to its two neighbours, keeping
# mass and mean under Q, which is the profile with the point left out. The hull lies below.

_WORTH_A_HULL = 1e-13
_PASSES = 60


def convex(masses: Array, step: float, index: NDArray[np.int64]) -> tuple[Array, Array]:
    """The measure of the convex hull: no negative masses; and the slack that is left over.

    Negative masses are moved up until a point outweighs them, which lowers the profile, since
    ``max(0, 1 - x e^-l)`` grows with the loss; what is left at the end comes off delta.
    """
    for row in np.flatnonzero((masses < -_WORTH_A_HULL).any(axis=1)):
        masses[row] = _hull(masses[row], step, index)
    shortfall = np.zeros(len(masses))
    for line, start in np.argwhere(masses < 0).tolist():
        at, short = int(start), 0.0
        while at < masses.shape[1] and (short := short + float(masses[line, at])) < 0:
            masses[line, at], at = 0.0, at + 1
        if short < 0:
            shortfall[line] -= short
        else:
            masses[line, at] = short
    return masses, shortfall


def _hull(masses: Array, step: float, index: NDArray[np.int64]) -> Array:
    """One row's hull: leaves out points of negative mass, no two neighbours in one pass."""
    place, kept = np.arange(len(masses)), masses.copy()
    for _ in range(_PASSES):
        bad = np.flatnonzero(kept < -_WORTH_A_HULL)
        bad = bad[(bad > 0) & (bad < len(kept) - 1)]
        if not len(bad):
            break
        runs = np.cumsum(np.concatenate([[0], np.diff(bad) > 1]))
        starts = bad[np.concatenate([[True], np.diff(runs) > 0])]
        bad = bad[(bad - starts[runs]) % 2 == 0]
        at = index[place]
        after, before = (at[bad + 1] - at[bad]) * step, (at[bad] - at[bad - 1]) * step
        up, down = np.expm1(after), -np.expm1(-before)
        np.add.at(kept, bad - 1, kept[bad] * np.exp(-before) * up / (up + down))
        np.add.at(kept, bad + 1, kept[bad] * np.exp(after) * down / (up + down))
        stay = np.ones(len(kept), dtype=bool)
        stay[bad] = False
        kept, place = kept[stay], place[stay]
    out = np.zeros_like(masses)
    out[place] = kept
    return out


# --- One round's privacy loss on a lattice: a bound from above and one from below. ---------------

Indices = NDArray[np.int64]
_DENSEST = 1 << 19


@dataclass(frozen=True)
class Spacing:
    """Where the points of a round stand one step apart, and how fast they part elsewhere."""

    low: float = -math.inf
    high: float = math.inf
    growth: float = (
        0.0  # outside, the spacing is a step plus this fraction of the distance to them
    )

    def away(self, step: float, dense: float, total: float) -> Indices:
        """Indices 0, 1, ... whose spacing grows beyond a distance, until ``total`` is passed."""
        last = max(math.ceil(total / step - 1e-9), 1)
        even = min(max(math.ceil(min(dense, total) / step), 1), last, _DENSEST)
        plain = np.arange(even + 1)
        if even >= last:
            return plain
        growth = max(self.growth, 8.0 / _DENSEST)
        turns = math.ceil(math.log1p(growth * (last - even)) / math.log1p(growth)) + 1
        spread = np.expm1(math.log1p(growth) * np.arange(1, turns + 1)) / growth
        index = np.ceil(even + spread).astype(
            np.int64
        )  # sorted; np.unique loads numpy.ma
        index = index[np.concatenate([index[1:] > index[:-1], [True]])]
        stop = int(np.searchsorted(index, last)) + 1
        return np.concatenate([plain, index[:stop]])


EVEN = Spacing()


@dataclass(frozen=True, eq=False)
class Lattice:
    """Masses on the losses ``offset + step * index``; equal only to itself."""

    step: float  # distance of neighbouring multiples
    offset: Array  # shape (rows,)
    index: Indices  # ascending, shape (rows, points)
    masses: Array  # shape (rows, points)
    infinite: Array  # mass at an infinite loss, shape (rows,); 0 in lower bounds
    slack: (
        Array  # what to take off delta in each round, shape (rows,); 0 in upper bounds
    )

    @cached_property
    def losses(self) -> Array:
        """The loss of each mass, shape (rows, points), ascending."""
        return self.offset[:, None] + self.step * self.index


def span(rows: Rows, tail: float) -> tuple[Array, Array]:
    """Losses outside of which P has at most ``tail`` on each side, each of shape (rows,)."""
    if rows.kind == Kind.STITCHED:
        remove, add = rows.halves()
        return span(add, tail)[0], span(remove, tail)[1]
    low, high = dominating_pairs.tail_outcomes(rows, tail)
    return dominating_pairs.loss(rows, low)[:, 0], dominating_pairs.loss(rows, high)[
        :, 0
    ]


def upper(rows: Rows, step: float, tail: float, spacing: Spacing = EVEN) -> Lattice:
    """Connect the dots: the smallest profile on these points above the true one.

    Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022): each outcome is split at random
    between the two points around its loss so that its mass under P and under Q is kept, which
    makes the profile the chord of the true one between the points. Losses above the
    span become infinite, losses below it move up to its lowest point. There is a point
    at the edge of the loss (``REMOVE``: the lower one, ``ADD``: the upper one), where at
    small ratios nearly all the mass lies, and at 0 for ``SWAP`` and ``STITCHED``.
    """
    low, high = span(rows, tail)
    offset = np.zeros_like(low)
    if rows.kind == Kind.STITCHED:
        return _stitched(rows, step, spacing, low, high)
    if rows.kind == Kind.SWAP:
        index = _both_ways(spacing, step, float(np.maximum(high, -low).max()))[None]
    else:
        up = rows.kind == Kind.REMOVE
        edge = rows.edge[:, 0] * (1.0 if up else -1.0)
        near = (edge > low - 2 * step) if up else (edge < high + 2 * step)
        offset = np.where(near, edge, 0.0)
        if up:
            base = np.floor((low - offset) / step + 1e-9).astype(np.int64)
        else:
            base = np.ceil((high - offset) / step - 1e-9).astype(np.int64)
        index = (
            _one_way(spacing, step, offset + step * base, low, high, up=up)
            + base[:, None]
        )
    index = np.broadcast_to(index, (len(low), index.shape[1]))
    masses, infinite = _connect(rows, step, offset, index)
    return Lattice(step, offset, index, masses, infinite, np.zeros_like(infinite))


def _one_way(
    spacing: Spacing, step: float, start: Array, low: Array, high: Array, *, up: bool
) -> Indices:
    """Ascending indices relative to ``start`` that span all rows, shape (1, points)."""
    if up:
        dense, total = float((spacing.high - start).max()), float((high - start).max())
        return spacing.away(step, dense, total)[None]
    dense, total = float((start - spacing.low).max()), float((start - low).max())
    return -spacing.away(step, dense, total)[None, ::-1]


def _both_ways(spacing: Spacing, step: float, reach: float) -> Indices:
    """Ascending indices from ``-reach`` to ``reach``, dense around 0."""
    side = spacing.away(step, max(spacing.high, -spacing.low), reach)
    return np.concatenate([-side[:0:-1], side])


def _stitched(
    rows: Rows, step: float, spacing: Spacing, low: Array, high: Array
) -> Lattice:
    """Both halves on one lattice with a point at 0, where the profile's slopes differ.

    The slope of the profile jumps at ``x = 1`` by ``(1 - ratio) TV(N(shift), N(0))``: that is
    the mass of the atom at loss 0.
    """
    remove, add = rows.halves()
    zero = np.zeros(len(low))
    rising = _one_way(spacing, step, zero, low, high, up=True)
    falling = _one_way(spacing, step, zero, low, high, up=False)
    above, infinite = _connect(remove, step, zero, rising, below=False)
    under, _ = _connect(add, step, zero, falling, above=False)
    masses = np.concatenate([under, above[:, 1:]], axis=1)
    around = np.concatenate([-rows.shift, rows.shift], axis=1) / 2
    centre, error = dominating_pairs.normal_cells(around)
    atom = above[:, 0] + ((1 - rows.ratio) * (centre + error))[:, 0]
    masses[:, falling.shape[1] - 1] += atom
    index = np.repeat(
        np.concatenate([falling, rising[:, 1:]], axis=1), len(low), axis=0
    )
    return Lattice(step, zero, index, masses, infinite, np.zeros_like(infinite))


def _connect(
    rows: Rows,
    step: float,
    offset: Array,
    index: Indices,
    *,
    below: bool = True,
    above: bool = True,
) -> tuple[Array, Array]:
    """Masses on the points of ``index`` and the infinite mass.

    ``below`` adds what lies under the first point to it; ``above`` counts what lies over the
    last point as infinite. Rounding errors are added to both neighbours of each cell.
    """
    levels = offset[:, None] + step * index
    gaps = step * np.diff(index, axis=1)
    bounds = np.maximum.accumulate(dominating_pairs.threshold(rows, levels), axis=1)
    inner = dominating_pairs.cells(rows, bounds)
    from_low, low_error = inner.excess(levels[:, :-1])
    from_high, high_error = inner.excess(levels[:, 1:])
    masses = np.zeros(levels.shape)
    masses[:, 1:] += np.maximum(from_low + low_error, 0.0) / -np.expm1(-gaps)
    masses[:, :-1] += np.maximum(high_error - from_high, 0.0) / np.expm1(gaps)
    ends = _tails(rows, bounds)
    if below:
        masses[:, 0] += ends[0]
    return masses, ends[1] if above else np.zeros(len(bounds))


def _tails(rows: Rows, bounds: Array) -> tuple[Array, Array]:
    """Mass of P below the first and above the last bound, rounded up, each of shape (rows,)."""
    count = len(bounds)
    ends = np.empty(
        (2, 2, count, 2)
    )  # without and with the shift, below and above, rows, ends
    ends[0, 0, :, 0], ends[0, 0, :, 1] = -np.inf, bounds[:, 0]
    ends[0, 1, :, 0], ends[0, 1, :, 1] = bounds[:, -1], np.inf
    ends[1] = ends[0] - rows.shift
    mass, error = dominating_pairs.normal_cells(ends.reshape(4 * count, 2))
    centred, shifted = (mass + error).reshape(2, 2, count)
    ratio = rows.p_ratio[:, 0]
    below, above = (1 - ratio) * centred + ratio * shifted
    return below, above


def lower(
    rows: Rows,
    step: float,
    tail: float,
    spacing: Spacing = EVEN,
    most_slack: float | Array | None = None,
) -> Lattice:
    """A profile on lattice points below the true one, touching it between the points.

    Take the tests "loss above the middle of two neighbouring points": each gives a line below
    the true profile. At every point take the smaller of its two neighbouring lines and join
    the points: still below. Where that is not convex, take the convex hull. The masses are
    written with the mass of a cell and with the distance of its mean likelihood ratio from the
    point, both local, so nothing cancels. The lattice is laid so that the cell at the
    edge of the loss has its mean on a point.

    A loss that varies by much less than the step allows no such profile but that of a round
    without any loss, which is then returned; so it is where the slack would be above
    ``most_slack`` (by default ``tail``).
    """
    low, high = span(rows, tail)
    offset, index = _lay(rows, step, spacing, low, high)
    levels = offset[:, None] + step * index
    gaps = np.broadcast_to(
        step * np.diff(index, axis=1), (len(low), index.shape[1] - 1)
    )
    middle = dominating_pairs.threshold(rows, levels[:, :-1] + gaps / 2)
    infinity = np.full((len(levels), 1), np.inf)
    bounds = np.concatenate(
        [-infinity, np.maximum.accumulate(middle, axis=1), infinity], axis=1
    )
    inner = dominating_pairs.cells(rows, bounds)
    excess, error = inner.excess(levels)
    masses, slack = _below(inner.first_mass(), excess, error, gaps)
    masses, shortfall = convex(masses, step, index[0])
    slack += shortfall
    hopeless = slack > (tail if most_slack is None else most_slack)
    masses[hopeless] = np.where(index[0] == 0, 1.0, 0.0)
    every = np.broadcast_to(index, masses.shape)
    offset, slack = np.where(hopeless, 0.0, offset), np.where(hopeless, 0.0, slack)
    return Lattice(step, offset, every, masses, np.zeros(len(low)), slack)


def _below(
    mass: Array, excess: Array, error: Array, gaps: Array
) -> tuple[Array, Array]:
    """Masses of the profile through the smaller of the neighbouring lines, and the slack.

    At point k let ``under`` and ``over`` be the negative and the positive part of the excess
    of its cell. The slope of the profile from k to k + 1 is minus the mass of Q beyond their
    middle plus ``(under_k - over_k+1) / (x_k+1 - x_k)``; the masses are its differences.
    """
    under, over = np.maximum(-excess, 0.0), np.maximum(excess, 0.0)
    slack = under[:, -1] + error[:, -1]
    over[:, 0] = 0.0
    over[:, -1] -= under[:, -1]
    base = mass * (1 - 8 * UNIT) - excess
    base[:, 0] = mass[:, 0] * (1 - 8 * UNIT) + under[:, 0]
    base[:, -1] = mass[:, -1] * (1 - 8 * UNIT) - over[:, -1]
    under[:, -1] = 0.0
    bend = (under[:, :-1] - over[:, 1:]) - error[:, :-1] - error[:, 1:]
    masses = base - error
    masses[:, :-1] += bend / np.expm1(gaps)
    unbend = (under[:, :-1] - over[:, 1:]) + error[:, :-1] + error[:, 1:]
    masses[:, 1:] -= unbend / -np.expm1(-gaps)
    return masses, slack


def _lay(
    rows: Rows, step: float, spacing: Spacing, low: Array, high: Array
) -> tuple[Array, Indices]:
    """Offsets and indices of the lower lattice, of shapes (rows,) and (1, points)."""
    if rows.kind == Kind.SWAP:
        reach = float(np.maximum(high, -low).max()) + step
        return np.zeros_like(low), _both_ways(spacing, step, reach)[None]
    up = rows.kind == Kind.REMOVE
    offset = _edge_mean(rows, step, *((low, high) if up else (high, low)))
    return offset, _one_way(spacing, step, offset, low - step, high + step, up=up)


def _edge_mean(rows: Rows, step: float, near: Array, far: Array) -> Array:
    """The level at which the cell that holds everything at the edge has its mean, shape (rows,).

    The cell reaches half a step from the level towards ``far``. When even the cell at ``near``
    has its mean further out, the lattice starts at ``near``.
    """
    remove = rows.kind == Kind.REMOVE
    reach = np.minimum(np.abs(far - near), 200 * step)
    start, stop = near, near + np.where(far > near, 1.0, -1.0) * reach
    inside = np.ones(len(near), dtype=bool)
    many = Rows(
        rows.kind, np.repeat(rows.shift, 33, axis=0), np.repeat(rows.ratio, 33, axis=0)
    )
    infinity = np.full((33 * len(near), 1), np.inf)
    pick = np.arange(len(near))
    for _ in range(3):
        levels = np.linspace(start, stop, 33, axis=1)
        column = levels.reshape(-1, 1)
        bound = dominating_pairs.threshold(
            many, column + (step / 2 if remove else -step / 2)
        )
        ends = np.concatenate(
            [-infinity, bound] if remove else [bound, infinity], axis=1
        )
        gap = dominating_pairs.cells(many, ends).excess(column)[0].reshape(levels.shape)
        further = gap > 0 if remove else gap < 0
        last = np.where(further.all(axis=1), 31, np.argmin(further, axis=1) - 1)
        inside &= last >= 0
        if not inside.any():
            return near
        last = np.maximum(last, 0)
        start, stop = levels[pick, last], levels[pick, last + 1]
    here, there = gap[pick, last], gap[pick, last + 1]
    share = np.where(
        here * there < 0, here / np.where(here == there, 1.0, here - there), 0.0
    )
    return np.where(inside, start + share * (stop - start), near)


# --- Discrete pairs on a lattice: pairs that a law or a noise family gives as a finite loss. -----
# The lattices have the properties of ``lattice.upper`` and ``lattice.lower``, so rounds of
# discrete pairs compose with rounds of Gaussian ones.


def discretise(pair: DiscretePair, step: float, *, from_above: bool) -> Lattice:
    """One round of a discrete pair on multiples of ``step``.

    From above each loss is split between its two neighbours so that its mass under P and under Q
    is kept (connect the dots, Doroshenko et al. 2022). From below the losses around a point are a
    cell of ``lower``, and an infinite loss is left out.
    """
    losses, masses = np.array(pair.losses), np.array(pair.masses)
    if not from_above:
        return _under(step, losses, masses)
    below = np.floor(losses / step).astype(np.int64)
    below -= below * step > losses
    share = np.expm1(below * step - losses) / math.expm1(-step)
    doubt = 8 * UNIT * (1 + np.abs(losses) / step)
    high = masses * np.minimum(share + doubt, 1 + 8 * UNIT)
    low = masses * np.clip(1 - share + doubt, 0.0, 1 + 8 * UNIT)
    index, both = np.concatenate([below, below + 1]), np.concatenate([low, high])
    return _gathered(step, index, both, pair.infinite)


def _under(step: float, losses: Array, masses: Array) -> Lattice:
    offset = losses[-1:] - step * np.rint(
        losses[-1:] / step
    )  # the largest is on a point
    places, where = np.unique(
        np.rint((losses - offset) / step).astype(int), return_inverse=True
    )
    excess = -np.expm1(step * places[where] + offset - losses) * masses
    excess[-1] = 0.0
    doubt = UNIT * (8 * np.abs(excess) + 4 * np.abs(losses) * masses)
    mass, over, error = (
        np.asarray(np.bincount(where, each, len(places))[None], dtype=np.float64)
        for each in (masses, excess, doubt)
    )
    found, slack = _below(mass, over, error, step * np.diff(places)[None])
    found, shortfall = convex(found, step, places)
    return Lattice(step, offset, places[None], found, np.zeros(1), slack + shortfall)


def _gathered(
    step: float, index: np.ndarray, masses: Array, infinite: float
) -> Lattice:
    places, where = np.unique(index, return_inverse=True)
    total = np.asarray(np.bincount(where, masses, len(places)), dtype=np.float64)
    zero = np.zeros(1)
    return Lattice(step, zero, places[None], total[None], np.array([infinite]), zero)


def second_moment(pair: DiscretePair) -> float:
    """Second moment of the finite loss under P; only a scale, never a bound."""
    losses, masses = np.array(pair.losses), np.array(pair.masses)
    return float(masses @ losses**2 / masses.sum())
