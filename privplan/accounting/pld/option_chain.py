"""Prices of options on the likelihood ratio of balls in bins, from above.

Each client is in one uniform round of T, and noise is correlated over all of them by C
(``privplan.laws.rank_one``) with columns c_t. The ratio that bounds all adaptive ones
is (docs/balls-in-bins.md)

    S = (1/T) sum_t exp(<c_t, z> / sigma - |c_t|^2 / (2 sigma^2)),  z ~ N(0, I).

<c_t, z> = d_t z_t + b_t W_t, and W_{t-1} = W_t + a_t z_t is a Markov chain from the
last round to the first. U_t(w, x), the price on the terms of rounds 0 to t where W_t =
w, is E[U_{t-1}(w + a_t z, x - D)] with D the term of round t. Along z it is convex in
exp(g z), g the smallest exponent of a term (calls) or the largest one (puts), and it is
convex in x. So interpolation on grids of w and of x bounds it from above. Calls rise
with w and z, and puts fall: on the side where prices fall, the last outcome of a grid
bounds those beyond. Rows that are too small for the grid are raised, which only adds to
the bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from privplan.accounting.pld.pairs import UNIT, Array
from privplan.accounting.progress import WATCH
from privplan.laws.rank_one import RankOneFactors

# Gauss and Legendre's rule on a cell of outcomes z. Its error is at most 64/15 M
# rho^(-32), M the largest modulus on the ellipse of rho (Trefethen 2013, Theorem 19.3).
# With cells of _WIDEST and |z| below _FARTHEST, rho = 16 gives less than a unit.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_WIDEST = 0.8
_FARTHEST = 13.0
# Outcomes that the grid of w reaches, in deviations: beyond, mass is 1e-13.
_REACH = 7.3
# The same on the side where prices fall. Outcomes beyond count as the last one, which
# adds less than 0.001% to epsilon.
_REACH_OF_FALL = 4.0
# Units of rounding per round besides one for each summed term: of an exponential whose
# argument is at most 64, of the rule above, and of ``ndtr`` in its tails (Cephes: erfc
# has 5.7e-14).
_UNITS_OF_ROUND = 2048
# Elements of the table of prices that are gathered at a time: they stay in the cache.
_GATHERED = 1 << 17
# Larger exponents would overflow; their terms are beyond all strikes.
_LARGEST_EXPONENT = 690.0


class _Chain(NamedTuple):
    """The chain at one noise multiplier: factors over sigma, raised for the grid.

    Attributes:
        d: of the diagonal, over sigma, shape (T,).
        a: deviations of the steps of W, shape (T,).
        b: of the columns, over sigma, shape (T,).
        deviations: of W_t, shape (T,).
    """

    d: Array
    a: Array
    b: Array
    deviations: Array

    @property
    def rounds(self) -> int:
        """T."""
        return len(self.d)

    def term(self, t: int, w: Array, deviation: float) -> Array:
        """Mean of the terms of rounds before t, and of t, where W has this deviation.

        Shape (w, t + 1).
        """
        exponents = np.outer(w, self.b[: t + 1])
        exponents -= (self.b[: t + 1] * deviation) ** 2 / 2
        return np.exp(np.minimum(exponents, _LARGEST_EXPONENT)) / self.rounds


def _chain(factors: RankOneFactors, sigma: float, spacing: float) -> _Chain:
    """The chain with cells of z of ``_WIDEST`` at most.

    C with larger factors has larger inner products of its columns, which bound (Kahane
    1985); columns may then be longer than 1.
    """
    a = np.array(factors.rows)
    deviations = np.zeros(len(a))
    total = 0.0
    for t in range(len(a) - 1, 0, -1):
        # W_{t-1} = W_t + a_t z: cells of its grid are at most _WIDEST of z.
        share = spacing / _WIDEST * (1 + 16 * UNIT)
        a[t] = max(a[t], share * math.sqrt(total / (1 - share * share)))
        total += a[t] * a[t]
        deviations[t - 1] = math.sqrt(total)
    d = np.array(factors.diagonal) / sigma
    return _Chain(d, a, np.array(factors.columns) / sigma, deviations)


class Strikes(NamedTuple):
    """Strikes of each number of rounds: whole multiples of a step.

    Attributes:
        step: between two strikes.
        low: of the rounds 0 to t, the first multiple, shape (T,).
        high: the last one, shape (T,).
    """

    step: float
    low: NDArray[np.int64]
    high: NDArray[np.int64]

    def width(self, t: int) -> int:
        """Number of strikes of the rounds 0 to t."""
        return int(self.high[t] - self.low[t]) + 1

    def values(self, t: int) -> Array:
        """The strikes of the rounds 0 to t."""
        return self.step * np.arange(self.low[t], self.high[t] + 1)


class _Table(NamedTuple):
    """Prices on the terms of rounds 0 to t, from above.

    Attributes:
        mean: of the sum of the terms, by value of W_t.
        prices: by value of W_t and strike.
    """

    mean: Array
    prices: Array


def option_prices(
    factors: RankOneFactors,
    sigma: float,
    sets_of_strikes: Sequence[Strikes],
    *,
    call: bool,
    spacing: float,
) -> list[Array]:
    """Upper bounds on E[(S - x)+], or on E[(x - S)+], at the strikes of all rounds.

    Args:
        factors: of C, all positive, with columns of norm 1 at most.
        sigma: the noise multiplier.
        sets_of_strikes: each x in the last round, and what is tabled before; any choice
            is valid. What does not depend on strikes is computed once for all of them.
        call: whether (S - x)+ is meant.
        spacing: of the grid of W, in its deviations, below 0.4.

    Returns:
        Prices of each set, shape (``strikes.width(T - 1)``,).
    """
    chain = _chain(factors, sigma, spacing)
    w = _grid(chain, 0, call, spacing)
    tables = [_first_table(chain, strikes, call, w) for strikes in sets_of_strikes]
    units = 4 * _UNITS_OF_ROUND
    with WATCH.get()(f"prices over {chain.rounds} rounds") as report:
        for t in range(1, chain.rounds):
            units += _UNITS_OF_ROUND + 2 * len(w) + t
            nodes = _nodes(chain, t, call, _grid(chain, t, call, spacing), w)
            w = nodes.w
            for index, strikes in enumerate(sets_of_strikes):
                table = tables[index]
                tables[index] = _next_table(chain, strikes, call, t, nodes, table)
            report(t, chain.rounds - 1)
    # The product of 1 + u over so many units, each half of UNIT.
    rounding = math.exp(units * UNIT)
    return [table.prices[0] * rounding for table in tables]


def _grid(chain: _Chain, t: int, call: bool, spacing: float) -> Array:
    """Values of W_t; calls weigh outcomes that a factor of norm 1 shifts upwards."""
    deviation = chain.deviations[t]
    if deviation == 0:
        return np.zeros(1)
    shift = float((chain.b * chain.deviations).max()) if call else 0.0
    reach_below, reach_above = _reaches(call, shift)
    below = math.ceil(reach_below / spacing)
    above = math.ceil(reach_above / spacing)
    return np.asarray(np.arange(-below, above + 1) * spacing * deviation)


def _reaches(call: bool, shift: float) -> tuple[float, float]:
    """Deviations below and above the mean: calls rise with an outcome, puts fall."""
    if call:
        return _REACH_OF_FALL, _REACH + shift
    return _REACH, _REACH_OF_FALL


def _first_table(chain: _Chain, strikes: Strikes, call: bool, w: Array) -> _Table:
    """One term: Black and Scholes's formula, with a bound on its cancellation."""
    mean = chain.term(0, w, chain.deviations[0])[:, 0]
    x = strikes.values(0)
    deviation = chain.d[0]
    tiny = 1e-300  # below any mean or strike that matters
    logs = np.log(np.maximum(mean, tiny))[:, None] - np.log(np.maximum(x, tiny))
    upper = logs / deviation + deviation / 2
    lower = upper - deviation
    if call:
        received = mean[:, None] * ndtr(upper)
        paid = x * ndtr(lower)
    else:
        received = x * ndtr(-lower)
        paid = mean[:, None] * ndtr(-upper)
    # The arguments of ``ndtr`` are off by some units of themselves, and its relative
    # slope is at most 1 + |argument|.
    doubt = _UNITS_OF_ROUND * UNIT * (1 + np.minimum(logs**2, 64.0)) * (received + paid)
    prices = np.maximum(received - paid, 0.0) + doubt
    if not call:
        prices = np.where(x > 0, prices, 0.0)
    return _Table(mean, prices)


class _Nodes(NamedTuple):
    """Values of W that a step reaches from each value, and what interpolation weighs.

    Attributes:
        w: the values of W_t.
        start: index of the first node of each, shape (w,).
        z: outcomes of the step, shape (w, nodes).
        weights: expectations of the hat functions in exp(g z), shape (w, nodes), and
            on the side where prices fall the chance of all that is beyond.
        low: the lowest outcome with a weight, shape (w, 1).
        high: the highest one.
    """

    w: Array
    start: Array
    z: Array
    weights: Array
    low: Array
    high: Array


def _hat_masses(z: Array, cell: float, g: float) -> Array:
    """What the cell above each outcome weighs at its lower and its upper end.

    Interpolation in exp(g z), under N(0, 1); shape (w, nodes - 1, 2).
    """
    # (e^(gu) - 1) / (e^(gh) - 1) in a cell of width h, and what is left of 1: no term
    # is negative, so that nothing cancels where g is small.
    inside = cell * (1 + _NODES) / 2
    to_upper = -np.expm1(-g * inside) * np.exp(g * (inside - cell))
    to_lower = -np.expm1(g * (inside - cell))
    density = _WEIGHTS * cell / math.sqrt(8 * math.pi) / -math.expm1(-g * cell)
    to_ends = np.stack([to_lower, to_upper], axis=1) * density[:, None]
    return np.asarray(np.exp(-((z[:, :-1, None] + inside) ** 2) / 2) @ to_ends)


def _nodes(chain: _Chain, t: int, call: bool, w: Array, later: Array) -> _Nodes:
    """The nodes of a step from W_t to W_{t-1}, which has the values ``later``."""
    step = chain.a[t]
    cell = float(later[1] - later[0]) / step
    exponents = np.append(step * chain.b[:t], chain.d[t])
    shift = float(exponents.max()) if call else 0.0
    reach_below, reach_above = _reaches(call, shift)
    count = min(len(later), math.ceil((reach_below + reach_above) / cell) + 3)
    start = np.searchsorted(later, w - step * reach_below) - 1
    start = np.clip(start, 0, len(later) - count)
    z = (later[start[:, None] + np.arange(count)] - w[:, None]) / step

    exponent = exponents.min() if call else exponents.max()
    masses = _hat_masses(z, cell, float(exponent))
    # The rule is only as good as said up to there.
    is_near = np.abs(z) <= _FARTHEST
    masses *= (is_near[:, :-1] & is_near[:, 1:])[..., None]
    weights = np.zeros_like(z)
    weights[:, :-1] += masses[..., 0]
    weights[:, 1:] += masses[..., 1]
    low, high = _ends_of_rows(z, is_near, weights, call)
    return _Nodes(w, start, z, weights, low, high)


def _ends_of_rows(
    z: Array, is_near: NDArray[np.bool_], weights: Array, call: bool
) -> tuple[Array, Array]:
    """The lowest and the highest outcome that is near, each of shape (w, 1).

    The one on the side where prices fall gets the chance of all that is beyond.
    """
    rows = np.arange(len(z))
    lowest = is_near.argmax(axis=1)
    highest = z.shape[1] - 1 - is_near[:, ::-1].argmax(axis=1)
    low = z[rows, lowest]
    high = z[rows, highest]
    if call:
        weights[rows, lowest] += ndtr(low)
    else:
        weights[rows, highest] += ndtr(-high)
    return low[:, None], high[:, None]


def _next_table(
    chain: _Chain, strikes: Strikes, call: bool, t: int, nodes: _Nodes, table: _Table
) -> _Table:
    """Prices on the terms of rounds 0 to t from those on the rounds before."""
    shifts = _shifts(chain, strikes, call, t, nodes)
    prices = np.empty((len(nodes.w), strikes.width(t)))
    for rows, expected in _expected(strikes, call, t, table, nodes, shifts):
        prices[rows] = expected

    # Beyond the nodes where prices rise a call is at most the mean there, and a put at
    # most its strike.
    means = chain.term(t, nodes.w, chain.deviations[t])
    if call:
        moved = np.append(chain.a[t] * chain.b[:t], chain.d[t])
        outside = (means * ndtr(moved - nodes.high)).sum(axis=1)
        outside += (nodes.weights * shifts.beyond).sum(axis=1)
        prices += outside[:, None]
    else:
        prices += ndtr(nodes.low) * np.maximum(strikes.values(t), 0.0)
    return _Table(means.sum(axis=1), prices)


class _Shifts(NamedTuple):
    """How far the term of a round moves the strike, by value of W and node.

    Attributes:
        whole: number of steps.
        part: of the next step.
        beyond: what is cut, because all strikes are then below the tabled ones.
    """

    whole: Array
    part: Array
    beyond: Array


def _shifts(
    chain: _Chain, strikes: Strikes, call: bool, t: int, nodes: _Nodes
) -> _Shifts:
    """The term of round t over the step of the strikes, rounded to the larger price."""
    shared = chain.b[t] * nodes.w[:, None]
    variance = chain.d[t] ** 2 + (chain.b[t] * chain.deviations[t]) ** 2
    diagonal = chain.d[t] * nodes.z
    largest = float(np.abs(diagonal).max() + np.abs(shared).max() + variance)
    doubt = UNIT * (16 + 4 * largest)
    if not call:
        doubt = -doubt
    steps = np.exp(np.minimum(diagonal + shared - variance / 2, _LARGEST_EXPONENT))
    steps *= (1 + doubt) / chain.rounds / strikes.step
    highest = float(max(strikes.high[t] - strikes.low[t - 1], 0) + 1)
    beyond = np.maximum(steps - highest, 0.0) * strikes.step
    steps = np.minimum(steps, highest)
    whole_steps = np.floor(steps).astype(np.int64)
    return _Shifts(whole_steps, steps - whole_steps, beyond)


def _extended(
    strikes: Strikes, call: bool, t: int, table: _Table, lowest: int, highest: int
) -> Array:
    """The table of the rounds before t, from one multiple of the step to another.

    Beyond it a call falls by at most 1 per unit of strike and does not rise, and a put
    rises by at most that and does not fall.
    """
    low = int(strikes.low[t - 1])
    prices = table.prices
    if call and low == 0:
        # At strike 0 a call costs the mean.
        prices = prices.copy()
        mean = table.mean * (1 + _UNITS_OF_ROUND * UNIT)
        prices[:, 0] = np.minimum(prices[:, 0], mean)
    # Below the strikes a call is worth more by their distance, above them a put.
    below = strikes.step * np.arange(low - lowest, 0, -1)
    above = strikes.step * np.arange(1, highest - int(strikes.high[t - 1]) + 1)
    if call:
        above = np.zeros_like(above)
    else:
        below = np.zeros_like(below)
    prices_below = prices[:, :1] + below
    prices_above = prices[:, -1:] + above
    return np.concatenate([prices_below, prices, prices_above], axis=1)


def _expected(
    strikes: Strikes, call: bool, t: int, table: _Table, nodes: _Nodes, shifts: _Shifts
) -> Iterator[tuple[slice, Array]]:
    """Expected prices over the nodes, for some values of W at a time."""
    low = int(strikes.low[t])
    lowest = min(low - int(shifts.whole.max()) - 1, int(strikes.low[t - 1]))
    highest = max(
        int(strikes.high[t]) - int(shifts.whole.min()), int(strikes.high[t - 1])
    )
    prices = _extended(strikes, call, t, table, lowest, highest)
    columns = strikes.width(t) + 1
    windows = np.lib.stride_tricks.sliding_window_view(prices, columns, axis=1)

    # A strike between two has a part of the price of each: the one below, and above.
    starts = low - 1 - shifts.whole - lowest
    rows = nodes.start[:, None] + np.arange(nodes.z.shape[1])
    fractions = (
        np.stack([shifts.part, 1 - shifts.part], axis=1) * nodes.weights[:, None]
    )
    batch = max(1, _GATHERED // (columns * nodes.z.shape[1]))
    for begin in range(0, len(rows), batch):
        places = slice(begin, begin + batch)
        sums = fractions[places] @ windows[rows[places], starts[places]]
        yield places, sums[:, 0, :-1] + sums[:, 1, 1:]
