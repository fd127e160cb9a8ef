"""One round's privacy loss on a lattice: a bound from above and one from below.

A nonnegative measure ``nu`` on losses ``l`` stands for the profile
``g(x) = sum nu(l) max(0, 1 - x e^-l)`` with ``x = e^epsilon``. Write ``h`` for the
true profile, the hockey-stick divergence of P from Q. Composition is monotone in each
round's profile, ``h12(x) = E_P2[h1(x / R2)]``, whatever the total masses are. So
``g >= h`` in each round gives an upper bound on the composed profile, and ``g <= h`` a
lower bound.

The points are multiples of one step, so that rounds can be convolved, but far from
where the loss usually lies only every second, third, ... multiple is used.
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

Indices = NDArray[np.int64]

# A negative mass of this size is rounding: it is moved, not cut off as a corner.
_LEAST_CORNER = 1e-13
# Each pass of the hull leaves out up to half of its corners; what 60 passes leave is
# moved up as rounding is, which is a bound as well.
_MAX_HULL_PASSES = 60
# Points one step apart on either side, at most: a quarter of the longest circle.
_MAX_DENSE_POINTS = 1 << 19
# Part of a step by which rounding may misplace an end without costing a point.
_ROUNDED_INDEX = 1e-9
# The search for an edge cuts its interval into 32 parts, three times.
_EDGE_LEVELS = 33
_EDGE_PASSES = 3
# No cell's mean is sought further from the edge than this, in steps.
_EDGE_REACH = 200


def convex(masses: Array, step: float, index: Indices) -> tuple[Array, Array]:
    """The measure of the convex hull of a piecewise linear profile.

    A profile that is not convex has points of negative mass. Such a point lies above
    the chord of its neighbours, so it is no corner of the hull: its mass goes to its
    two neighbours. The hull lies below the profile.

    What is negative by rounding only is moved up until a point outweighs it. That
    lowers the profile, since ``max(0, 1 - x e^-l)`` grows with the loss ``l``.

    Args:
        masses: shape (rows, points); overwritten.
        step: distance of neighbouring multiples.
        index: the multiple that each point is, shape (points,).

    Returns:
        Masses of 0 or more, and for each row the negative mass that no point above
        outweighed: it is to be taken off delta.
    """
    for bent in np.flatnonzero((masses < -_LEAST_CORNER).any(axis=1)):
        masses[bent] = _hull(masses[bent], step, index)

    shortfall = np.zeros(len(masses))
    for row, first in np.argwhere(masses < 0).tolist():
        # Carry the negative mass up, point by point, until the sum is positive.
        point = int(first)
        carried = 0.0
        while point < masses.shape[1]:
            carried += float(masses[row, point])
            if carried >= 0:
                break
            masses[row, point] = 0.0
            point += 1

        if carried < 0:
            shortfall[row] -= carried
        else:
            masses[row, point] = carried
    return masses, shortfall


def _hull(masses: Array, step: float, index: Indices) -> Array:
    """One row's hull: leaves out points of negative mass, no two neighbours at once."""
    remaining = np.arange(len(masses))
    hull = masses.copy()
    for _ in range(_MAX_HULL_PASSES):
        corners = np.flatnonzero(hull < -_LEAST_CORNER)
        corners = corners[(corners > 0) & (corners < len(hull) - 1)]
        if not len(corners):
            break

        # Of each run of neighbours only the first, third, ... leaves in this pass.
        runs = np.cumsum(np.concatenate([[0], np.diff(corners) > 1]))
        starts = corners[np.concatenate([[True], np.diff(runs) > 0])]
        corners = corners[(corners - starts[runs]) % 2 == 0]

        # With distances b and a to the points before and after, the mass m is split
        # into m e^-b (e^a - 1) / s and m e^a (1 - e^-b) / s, where
        # s = (e^a - 1) + (1 - e^-b). That keeps the mass under P and, times e^-loss,
        # under Q: the profile with the point left out.
        places = index[remaining]
        after = (places[corners + 1] - places[corners]) * step
        before = (places[corners] - places[corners - 1]) * step
        up = np.expm1(after)
        down = -np.expm1(-before)
        to_before = hull[corners] * np.exp(-before) * up / (up + down)
        to_after = hull[corners] * np.exp(after) * down / (up + down)
        np.add.at(hull, corners - 1, to_before)
        np.add.at(hull, corners + 1, to_after)

        stays = np.ones(len(hull), dtype=bool)
        stays[corners] = False
        hull = hull[stays]
        remaining = remaining[stays]

    masses_of_hull = np.zeros_like(masses)
    masses_of_hull[remaining] = hull
    return masses_of_hull


@dataclass(frozen=True)
class Spacing:
    """Where the points of a round stand one step apart, and how fast they part.

    Attributes:
        low: loss from which on the points stand one step apart.
        high: loss up to which they do.
        growth: outside, the spacing is a step plus this fraction of the distance.
    """

    low: float = -math.inf
    high: float = math.inf
    growth: float = 0.0

    def away(self, step: float, dense: float, total: float) -> Indices:
        """Indices 0, 1, ... of the points on one side of a start.

        Args:
            step: distance of neighbouring multiples.
            dense: distance up to which every multiple is a point.
            total: distance that the last point reaches or passes.
        """
        last_index = max(math.ceil(total / step - _ROUNDED_INDEX), 1)
        dense_points = max(math.ceil(min(dense, total) / step), 1)
        even = min(dense_points, last_index, _MAX_DENSE_POINTS)
        near = np.arange(even + 1)
        if even >= last_index:
            return near

        # With growth g the k-th point beyond is ((1 + g)^k - 1) / g multiples further.
        # Even spacing that is cut at _MAX_DENSE_POINTS grows a little.
        growth = max(self.growth, 8.0 / _MAX_DENSE_POINTS)
        turns = (
            math.ceil(math.log1p(growth * (last_index - even)) / math.log1p(growth)) + 1
        )
        spread = np.expm1(math.log1p(growth) * np.arange(1, turns + 1)) / growth
        beyond = np.ceil(even + spread).astype(np.int64)

        # The indices are sorted, and np.unique would load numpy.ma.
        beyond = beyond[np.concatenate([beyond[1:] > beyond[:-1], [True]])]
        stop = int(np.searchsorted(beyond, last_index)) + 1
        return np.concatenate([near, beyond[:stop]])


EVEN = Spacing()


@dataclass(frozen=True, eq=False)
class Lattice:
    """Masses on the losses ``offset + step * index``; equal only to itself.

    Attributes:
        step: distance of neighbouring multiples.
        offset: loss of index 0, shape (rows,).
        index: ascending, shape (rows, points).
        masses: shape (rows, points).
        infinite: mass at an infinite loss, shape (rows,); 0 in lower bounds.
        slack: what to take off delta in each round, shape (rows,); 0 in upper bounds.
    """

    step: float
    offset: Array
    index: Indices
    masses: Array
    infinite: Array
    slack: Array

    @cached_property
    def losses(self) -> Array:
        """The loss of each mass, shape (rows, points), ascending."""
        return self.offset[:, None] + self.step * self.index


def span(rows: Rows, tail: float) -> tuple[Array, Array]:
    """Losses outside of which P has at most ``tail`` on each side, shape (rows,)."""
    if rows.kind == Kind.STITCHED:
        remove, add = rows.halves()
        return span(add, tail)[0], span(remove, tail)[1]
    low, high = dominating_pairs.tail_outcomes(rows, tail)
    lowest_loss = dominating_pairs.loss(rows, low)[:, 0]
    highest_loss = dominating_pairs.loss(rows, high)[:, 0]
    return lowest_loss, highest_loss


def upper(rows: Rows, step: float, tail: float, spacing: Spacing = EVEN) -> Lattice:
    """Connect the dots: the smallest profile on these points above the true one.

    Each outcome is split at random between the two points around its loss so that its
    mass under P and under Q is kept, which makes the profile the chord of the true one
    between the points. Losses above the span become infinite, losses below it move up
    to its lowest point.

    There is a point at the edge of the loss (``REMOVE``: the lower one, ``ADD``: the
    upper one), where at small ratios nearly all the mass lies, and at 0 for ``SWAP``
    and ``STITCHED``.

    Args:
        rows: pairs of one kind.
        step: distance of neighbouring multiples.
        tail: mass that may become infinite above, or move up below, in each row.
        spacing: where points stand further apart.

    Source: Doroshenko, Ghazi, Kamath, Kumar and Manurangsi (2022).
    """
    low, high = span(rows, tail)
    offset = np.zeros_like(low)
    if rows.kind == Kind.STITCHED:
        return _stitched(rows, step, spacing, low, high)
    if rows.kind == Kind.SWAP:
        reach = float(np.maximum(high, -low).max())
        index = _in_both_directions(spacing, step, reach)[None]
    elif rows.kind == Kind.REMOVE:
        # From the edge upwards; far from it the offset is 0.
        edge = rows.edge[:, 0]
        offset = np.where(edge > low - 2 * step, edge, 0.0)
        base = np.floor((low - offset) / step + _ROUNDED_INDEX).astype(np.int64)
        start = offset + step * base
        rising = _in_one_direction(spacing, step, start, low, high, up=True)
        index = rising + base[:, None]
    else:
        # From the edge downwards.
        edge = -rows.edge[:, 0]
        offset = np.where(edge < high + 2 * step, edge, 0.0)
        base = np.ceil((high - offset) / step - _ROUNDED_INDEX).astype(np.int64)
        start = offset + step * base
        falling = _in_one_direction(spacing, step, start, low, high, up=False)
        index = falling + base[:, None]
    index = np.broadcast_to(index, (len(low), index.shape[1]))
    masses, infinite = _connect(rows, step, offset, index)
    return Lattice(step, offset, index, masses, infinite, np.zeros_like(infinite))


def _in_one_direction(
    spacing: Spacing, step: float, start: Array, low: Array, high: Array, *, up: bool
) -> Indices:
    """Ascending indices relative to ``start`` that span all rows, (1, points)."""
    if up:
        dense = float((spacing.high - start).max())
        total = float((high - start).max())
        return spacing.away(step, dense, total)[None]
    dense = float((start - spacing.low).max())
    total = float((start - low).max())
    return -spacing.away(step, dense, total)[None, ::-1]


def _in_both_directions(spacing: Spacing, step: float, reach: float) -> Indices:
    """Ascending indices from ``-reach`` to ``reach``, dense around 0."""
    rising = spacing.away(step, max(spacing.high, -spacing.low), reach)
    return np.concatenate([-rising[:0:-1], rising])


def _stitched(
    rows: Rows, step: float, spacing: Spacing, low: Array, high: Array
) -> Lattice:
    """Both halves on one lattice with a point at 0, where the profile's slopes differ.

    The slope of the profile jumps at ``x = 1`` by
    ``(1 - ratio) TV(N(shift), N(0))``: that is the mass of the atom at loss 0.
    """
    remove, add = rows.halves()
    zero = np.zeros(len(low))
    rising = _in_one_direction(spacing, step, zero, low, high, up=True)
    falling = _in_one_direction(spacing, step, zero, low, high, up=False)
    above, infinite = _connect(remove, step, zero, rising, below=False)
    under, _ = _connect(add, step, zero, falling, above=False)
    masses = np.concatenate([under, above[:, 1:]], axis=1)

    # TV(N(shift), N(0)) is the mass of N(0) within half a shift, here rounded up.
    around = np.concatenate([-rows.shift, rows.shift], axis=1) / 2
    centre, error = dominating_pairs.normal_cells(around)
    atom = above[:, 0] + ((1 - rows.ratio) * (centre + error))[:, 0]
    masses[:, falling.shape[1] - 1] += atom

    index = np.concatenate([falling, rising[:, 1:]], axis=1)
    index = np.repeat(index, len(low), axis=0)
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

    ``below`` adds what lies under the first point to it; ``above`` counts what lies
    over the last point as infinite.
    """
    levels = offset[:, None] + step * index
    gaps = step * np.diff(index, axis=1)
    bounds = np.maximum.accumulate(dominating_pairs.threshold(rows, levels), axis=1)
    inner = dominating_pairs.cells(rows, bounds)

    # A cell from loss a to loss b with masses p under P and q under Q gives its upper
    # end (p - e^a q) / (1 - e^(a-b)) and its lower end (e^b q - p) / (e^(b-a) - 1).
    # The rounding errors of both differences are added, so both ends are bounds.
    from_low, low_error = inner.excess(levels[:, :-1])
    from_high, high_error = inner.excess(levels[:, 1:])
    masses = np.zeros(levels.shape)
    masses[:, 1:] += np.maximum(from_low + low_error, 0.0) / -np.expm1(-gaps)
    masses[:, :-1] += np.maximum(high_error - from_high, 0.0) / np.expm1(gaps)

    mass_below, mass_above = tails(rows, bounds)
    if below:
        masses[:, 0] += mass_below
    if not above:
        mass_above = np.zeros(len(bounds))
    return masses, mass_above


def tails(rows: Rows, bounds: Array) -> tuple[Array, Array]:
    """Mass of P below the first and above the last bound, rounded up, (rows,) each."""
    # Axes: without and with the shift; below and above; rows; ends of the interval.
    count = len(bounds)
    ends = np.empty((2, 2, count, 2))
    ends[0, 0, :, 0] = -np.inf
    ends[0, 0, :, 1] = bounds[:, 0]
    ends[0, 1, :, 0] = bounds[:, -1]
    ends[0, 1, :, 1] = np.inf
    ends[1] = ends[0] - rows.shift
    mass, error = dominating_pairs.normal_cells(ends.reshape(4 * count, 2))
    centred, shifted = (mass + error).reshape(2, 2, count)

    # P is a mixture of the normal law and the shifted one.
    ratio = rows.p_ratio[:, 0]
    below, above = (1 - ratio) * centred + ratio * shifted
    return below, above


def lower(
    rows: Rows,
    step: float,
    tail: float,
    spacing: Spacing = EVEN,
    max_slack: float | Array | None = None,
) -> Lattice:
    """A profile on lattice points below the true one, touching it between the points.

    Take the tests "loss above the middle of two neighbouring points": each gives a line
    below the true profile. At every point take the smaller of its two neighbouring
    lines and join the points: still below. Where that is not convex, take the convex
    hull. The masses are written with the mass of a cell and with the distance of its
    mean likelihood ratio from the point, both local, so nothing cancels. The lattice is
    laid so that the cell at the edge of the loss has its mean on a point.

    A loss that varies by much less than the step allows no such profile but that of a
    round without any loss, which is then returned; so it is where the slack would be
    above ``max_slack``.

    Args:
        rows: pairs of one kind.
        step: distance of neighbouring multiples.
        tail: mass that may be left out at either end of each row.
        spacing: where points stand further apart.
        max_slack: what a round may take off delta; ``tail`` by default.
    """
    low, high = span(rows, tail)
    offset, index = _lay(rows, step, spacing, low, high)
    levels = offset[:, None] + step * index
    gaps = np.broadcast_to(step * np.diff(index, axis=1), levels[:, 1:].shape)

    # The cell of a point reaches to the middles between it and its neighbours.
    middles = dominating_pairs.threshold(rows, levels[:, :-1] + gaps / 2)
    middles = np.maximum.accumulate(middles, axis=1)
    bounds = np.pad(middles, ((0, 0), (1, 1)), constant_values=(-np.inf, np.inf))
    inner = dominating_pairs.cells(rows, bounds)
    excess, error = inner.excess(levels)
    masses, slack = _below(inner.first_mass(), excess, error, gaps)
    masses, shortfall = convex(masses, step, index[0])
    slack += shortfall

    # Rounds of which nothing would be left are rounds without any loss.
    hopeless = slack > (tail if max_slack is None else max_slack)
    masses[hopeless] = np.where(index[0] == 0, 1.0, 0.0)
    offset = np.where(hopeless, 0.0, offset)
    slack = np.where(hopeless, 0.0, slack)
    index = np.broadcast_to(index, masses.shape)
    return Lattice(step, offset, index, masses, np.zeros(len(low)), slack)


def _below(
    mass: Array, excess: Array, error: Array, gaps: Array
) -> tuple[Array, Array]:
    """Masses of the profile through the smaller of the neighbouring lines.

    At point k let ``under`` and ``over`` be the negative and the positive part of the
    excess of its cell. The slope of the profile from k to k + 1 is minus the mass of Q
    beyond their middle plus ``(under_k - over_k+1) / (x_k+1 - x_k)``; the masses are
    its differences. Every rounding error is taken off.

    Args:
        mass: of P in each cell, shape (rows, points).
        excess: ``P(cell) - e^loss Q(cell)`` at the loss of its point, likewise.
        error: bound on the rounding error of ``excess``, likewise.
        gaps: distances of neighbouring points, shape (rows, points - 1).

    Returns:
        Masses, which may be negative, and what each row takes off delta.
    """
    under = np.maximum(-excess, 0.0)
    over = np.maximum(excess, 0.0)

    # No line is beyond the last point: what lies under it comes off delta. Nor is one
    # before the first.
    slack = under[:, -1] + error[:, -1]
    over[:, 0] = 0.0
    over[:, -1] -= under[:, -1]

    # Eight units of rounding bound the mass of P in a cell.
    lowered_mass = mass * (1 - 8 * UNIT)
    base = lowered_mass - excess
    base[:, 0] = lowered_mass[:, 0] + under[:, 0]
    base[:, -1] = lowered_mass[:, -1] - over[:, -1]
    under[:, -1] = 0.0

    # The bend of the slope between two points goes to the lower one rounded down, and
    # off the upper one rounded up.
    bend = under[:, :-1] - over[:, 1:]
    low_bend = bend - error[:, :-1] - error[:, 1:]
    high_bend = bend + error[:, :-1] + error[:, 1:]
    masses = base - error
    masses[:, :-1] += low_bend / np.expm1(gaps)
    masses[:, 1:] -= high_bend / -np.expm1(-gaps)
    return masses, slack


def _lay(
    rows: Rows, step: float, spacing: Spacing, low: Array, high: Array
) -> tuple[Array, Indices]:
    """Offsets and indices of the lower lattice, of shapes (rows,) and (1, points)."""
    if rows.kind == Kind.SWAP:
        reach = float(np.maximum(high, -low).max()) + step
        return np.zeros_like(low), _in_both_directions(spacing, step, reach)[None]
    up = rows.kind == Kind.REMOVE
    edge_end = low if up else high
    other_end = high if up else low
    offset = _edge_mean(rows, step, edge_end, other_end)
    low_end = low - step
    high_end = high + step
    return offset, _in_one_direction(spacing, step, offset, low_end, high_end, up=up)


def _edge_mean(rows: Rows, step: float, edge_end: Array, other_end: Array) -> Array:
    """The level at which the cell that holds all at the edge has its mean, (rows,).

    The cell reaches half a step from the level towards ``other_end``. When even the
    cell at ``edge_end`` has its mean further out, the lattice starts at ``edge_end``.
    The level only decides where the points lie: it may be inexact.
    """
    reach = np.minimum(np.abs(other_end - edge_end), _EDGE_REACH * step)
    start = edge_end
    stop = edge_end + np.where(other_end > edge_end, 1.0, -1.0) * reach

    # Find the part in which the mean changes its side, by ever smaller parts.
    inside = np.ones(len(edge_end), dtype=bool)
    pick = np.arange(len(edge_end))
    for _ in range(_EDGE_PASSES):
        levels = np.linspace(start, stop, _EDGE_LEVELS, axis=1)
        gap = _edge_excess(rows, step, levels)
        further = gap > 0 if rows.kind == Kind.REMOVE else gap < 0
        last_further = np.argmin(further, axis=1) - 1
        crossing = np.where(further.all(axis=1), _EDGE_LEVELS - 2, last_further)
        inside &= crossing >= 0
        if not inside.any():
            return edge_end
        crossing = np.maximum(crossing, 0)
        start = levels[pick, crossing]
        stop = levels[pick, crossing + 1]

    # A secant within it.
    first_gap = gap[pick, crossing]
    last_gap = gap[pick, crossing + 1]
    change = np.where(first_gap == last_gap, 1.0, first_gap - last_gap)
    share = np.where(first_gap * last_gap < 0, first_gap / change, 0.0)
    return np.where(inside, start + share * (stop - start), edge_end)


def _edge_excess(rows: Rows, step: float, levels: Array) -> Array:
    """``P - e^level Q`` of the cell at the edge of the loss, for each level."""
    column = levels.reshape(-1, 1)
    count = levels.shape[1]
    shift = np.repeat(rows.shift, count, axis=0)
    ratio = np.repeat(rows.ratio, count, axis=0)
    repeated = Rows(rows.kind, shift, ratio)
    infinity = np.full((len(column), 1), np.inf)
    if rows.kind == Kind.REMOVE:
        bound = dominating_pairs.threshold(repeated, column + step / 2)
        ends = np.concatenate([-infinity, bound], axis=1)
    else:
        bound = dominating_pairs.threshold(repeated, column + -step / 2)
        ends = np.concatenate([bound, infinity], axis=1)
    excess = dominating_pairs.cells(repeated, ends).excess(column)[0]
    return excess.reshape(levels.shape)


def discretise(pair: DiscretePair, step: float, *, from_above: bool) -> Lattice:
    """One round of a discrete pair on multiples of ``step``.

    A law or a noise family gives such a pair as a finite loss. The lattices have the
    properties of ``upper`` and ``lower``, so its rounds compose with Gaussian ones.

    From above each loss is split between its two neighbours so that its mass under P
    and under Q is kept (connect the dots, Doroshenko et al. 2022). From below the
    losses around a point are a cell of ``lower``, and an infinite loss is left out.
    """
    losses = np.array(pair.losses)
    masses = np.array(pair.masses)
    if not from_above:
        return _discrete_lower(step, losses, masses)

    # The multiple below each loss; division may have rounded up to the one above.
    below = np.floor(losses / step).astype(np.int64)
    below -= below * step > losses

    # The share of the upper neighbour, (1 - e^(a-l)) / (1 - e^-step) at a loss l above
    # the multiple a. Rounding is added to both shares.
    share = np.expm1(below * step - losses) / math.expm1(-step)
    doubt = 8 * UNIT * (1 + np.abs(losses) / step)
    high = masses * np.minimum(share + doubt, 1 + 8 * UNIT)
    low = masses * np.clip(1 - share + doubt, 0.0, 1 + 8 * UNIT)

    # Losses that share a multiple are gathered on it.
    index = np.concatenate([below, below + 1])
    places, where = np.unique(index, return_inverse=True)
    split_masses = np.concatenate([low, high])
    gathered = _sums_at(where, split_masses, len(places))
    zero = np.zeros(1)
    infinite = np.array([pair.infinite])
    return Lattice(step, zero, places[None], gathered, infinite, zero)


def _discrete_lower(step: float, losses: Array, masses: Array) -> Lattice:
    """The profile of ``lower`` for a discrete pair, whose largest loss is a point."""
    offset = losses[-1:] - step * np.rint(losses[-1:] / step)
    nearest = np.rint((losses - offset) / step).astype(int)
    places, where = np.unique(nearest, return_inverse=True)

    # P - e^level Q of each loss at its point; none at the largest, which is on one.
    excess = -np.expm1(step * places[where] + offset - losses) * masses
    excess[-1] = 0.0
    doubt = UNIT * (8 * np.abs(excess) + 4 * np.abs(losses) * masses)

    lattice_masses, slack = _below(
        _sums_at(where, masses, len(places)),
        _sums_at(where, excess, len(places)),
        _sums_at(where, doubt, len(places)),
        step * np.diff(places)[None],
    )
    lattice_masses, shortfall = convex(lattice_masses, step, places)
    slack = slack + shortfall
    return Lattice(step, offset, places[None], lattice_masses, np.zeros(1), slack)


def _sums_at(where: NDArray[np.intp], values: Array, count: int) -> Array:
    """The sum of the values at each of ``count`` places, as a row."""
    return np.asarray(np.bincount(where, values, count)[None], dtype=np.float64)


def second_moment(pair: DiscretePair) -> float:
    """Second moment of the finite loss under P; only a scale, never a bound."""
    losses = np.array(pair.losses)
    masses = np.array(pair.masses)
    return float(masses @ losses**2 / masses.sum())
