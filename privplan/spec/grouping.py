"""Grouping of individual budgets by what a plan of them minimises.

Clients are cut by epsilon; a group has the least epsilon and the least delta of its members. A
grouping retains sum_g N_g worth_g of sum_i worth_i, where the worth of a client says what its
budget adds to the plan: with the costs of an objective by ``privplan.spec.grouping``,
otherwise its precision, which in the small-loss limit is its Gaussian strength mu. The best cuts
are found exactly (``privplan.spec.grouping``) where all have one delta; with several,
budgets are compared at the smallest of all.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.gdp import mu_of
from privplan.errors import Fault, InputError
from privplan.files import read_text
from privplan.values import LARGEST, LEAST

# --- Groups of individual budgets, and the strength of a budget. ---------------------------------

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Worth = Callable[[Floats], Floats]
"""Strengths -> worth of a client of each, at least 0 and increasing."""

_NODES = 1024


@dataclass(frozen=True)
class Grouping:
    """A partition of clients into groups, strictest first.

    Attributes:
        clients: clients of each group.
        epsilons: smallest epsilon in each group.
        delta: smallest delta of all clients, at which budgets are compared.
        precision: root of the error of individual scales over that of the grouping: the fraction
            of their precision that it retains.
        deltas: smallest delta in each group.
    """

    clients: tuple[int, ...]
    epsilons: tuple[float, ...]
    delta: float
    precision: float = 1.0
    deltas: tuple[float, ...] = ()

    @property
    def strengths(self) -> Floats:
        """Strength of each group's budget, shape (groups,)."""
        return strengths(np.array(self.epsilons), self.delta)

    def with_deltas(self, epsilons: Floats, deltas: Floats) -> Grouping:
        """The groups, cut by epsilon, each with the smallest delta of its members."""
        own = deltas[np.argsort(epsilons, kind="stable")]
        starts = np.cumsum([0, *self.clients[:-1]])
        return replace(self, deltas=tuple(np.minimum.reduceat(own, starts).tolist()))

    def plain(self) -> list[dict[str, Any]]:
        """The groups as plain data, named after their rank, strictest first."""
        rows = zip(self.clients, self.epsilons, self.deltas, strict=True)
        return [
            {"name": name_of(rank), "clients": clients, "epsilon": epsilon, "delta": delta}
            for rank, (clients, epsilon, delta) in enumerate(rows, start=1)
        ]


def name_of(rank: int) -> str:
    """Name of a group that is made of individual budgets, from 1."""
    return f"budget-{rank}"


@lru_cache(maxsize=1 << 16)
def _mu_of(epsilon: float, delta: float) -> float:
    return mu_of(epsilon, delta)


def strengths(epsilons: Floats, delta: float) -> Floats:
    """Mu of the Gaussian mechanism that spends exactly (epsilon, delta), shape (clients,).

    Where there are many, solved at nodes and interpolated in log-log, to about 1e-6.
    """
    distinct, where = np.unique(epsilons, return_inverse=True)
    if len(distinct) <= _NODES:
        return np.array([_mu_of(float(one), delta) for one in distinct])[where]
    logs = np.log(distinct)
    nodes = np.linspace(logs[0], logs[-1], _NODES)
    values = [math.log(mu_of(math.exp(node), delta)) for node in nodes]
    return np.asarray(np.exp(np.interp(logs, nodes, values))[where])


# --- Groups of budgets at one delta, exactly. ----------------------------------------------------
#
# Sorted by strength, the best groups are intervals, and
#
#     f_g(j) = max_{i < j} f_{g-1}(i) + (C_j - C_i) worth_i
#
# over distinct budgets with cumulative counts C is an exact dynamic program. The lines in C_j have
# slopes worth_i that grow with i, so the best i grows with j: each layer is solved by divide and
# conquer, all intervals of one depth at once.

_MOST_STARTS = 4096


class Intervals:
    """Budgets at one delta, whose best groups are intervals of epsilon.

    Attributes:
        distinct: number of places where a group may begin.
    """

    def __init__(self, epsilons: Floats, mu: Floats, delta: float) -> None:
        """Sorts the budgets."""
        self._epsilons, self._delta = np.sort(epsilons), delta
        values, counts = np.unique(mu, return_counts=True)
        starts, ends = starts_of(values), np.append(0, np.cumsum(counts))
        self._mu, self._total = values[starts], np.append(ends[starts], ends[-1])
        self.distinct = len(starts)

    def best(self, worth: Worth, number: int) -> Grouping:
        """The ``number`` groups whose clients are worth most together."""
        cuts = _partition(worth(self._mu), self._total, number)
        clients, begins = np.diff(self._total[cuts]), self._total[cuts[:-1]]
        least = self._epsilons[begins]
        return Grouping(tuple(clients.tolist()), tuple(least.tolist()), self._delta)


def starts_of(mu: Floats) -> Integers:
    """Indices at which a group may begin: all, or those of fine bins where there are many."""
    if len(mu) <= _MOST_STARTS:
        return np.arange(len(mu))
    even = np.linspace(0, len(mu) - 1, _MOST_STARTS // 2)
    spaced = np.searchsorted(mu, np.geomspace(mu[0], mu[-1], _MOST_STARTS // 2))
    return np.unique(np.concatenate([even.astype(np.int64), spaced]))


def _partition(worth: Floats, total: Integers, number: int) -> list[int]:
    """Boundaries of the best groups, as indices of distinct budgets."""
    best = np.concatenate([[0.0], total[1:] * worth[0]])
    layers: list[Integers] = []
    for _ in range(number - 1):
        best, choices = _layer(best, worth, total)
        layers.append(choices)
    return _cuts(layers, len(worth))


def _cuts(layers: list[Integers], size: int) -> list[int]:
    """Boundaries of the groups, from the choices of every layer."""
    cuts = [size]
    for choices in reversed(layers):
        cuts.append(int(choices[cuts[-1]]))
    return [0, *reversed([cut for cut in cuts if cut > 0])]


def _layer(before: Floats, mu: Floats, total: Integers) -> tuple[Floats, Integers]:
    """Best values and their choices with one more group, shape (budgets + 1,)."""
    size = len(mu)
    offsets = before[:-1] - total[:-1] * mu
    best, choices = np.zeros(size + 1), np.zeros(size + 1, dtype=np.int64)
    low, high = np.array([1]), np.array([size])
    left, right = np.array([0]), np.array([size - 1])
    while len(low):
        middle = (low + high) // 2
        value, choice = _maxima(middle, left, np.minimum(right, middle - 1), offsets, mu, total)
        best[middle], choices[middle] = value, choice
        lows = np.concatenate([low, middle + 1])
        highs = np.concatenate([middle - 1, high])
        lefts, rights = np.concatenate([left, choice]), np.concatenate([choice, right])
        nonempty = lows <= highs
        low, high = lows[nonempty], highs[nonempty]
        left, right = lefts[nonempty], rights[nonempty]
    return best, choices


def _maxima(
    queries: Integers, left: Integers, right: Integers, offsets: Floats, mu: Floats, total: Integers
) -> tuple[Floats, Integers]:
    """Values and indices of the best line i in [left, right] of each query j."""
    lengths = right - left + 1
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    lines = np.arange(int(lengths.sum())) + np.repeat(left - starts, lengths)
    values = offsets[lines] + np.repeat(total[queries], lengths) * mu[lines]
    best = np.maximum.reduceat(values, starts)
    hits = np.flatnonzero(values == np.repeat(best, lengths))
    return best, lines[hits[np.searchsorted(hits, starts)]]


# -------------------------------------------------------------------------------------------------
# What a grouping of budgets costs a plan with one release of all groups, by the central limit.
#
# A client of Gaussian strength mu over T rounds that takes part with ratio q enters the sum with a
# scale v of t(mu, q) = q sqrt(log(1 + mu^2 / (T q^2))) at most, its q / sigma. The error is
#
#     (A + s sum_i v_i^2) / S^2 + h^2 (n sum_i v_i^2 / S^2 - 1),   S = sum_i v_i,
#
# with A the cost of noise, s that of sampling per client and h^2 that of bias. It falls with v_i
# up to the level x = (A + c sum v^2) / (c S), c = s + n h^2, by x v - v^2 / 2 to first order, so
# that budgets beyond the level buy nothing; and clients share the cohort at one price per
# expected client. What a client adds is thus gain(mu) = max_q v - v^2 / 2x - price q with v =
# t(mu, q) <= x.

_ROOTS = 200
_BISECTIONS = 18
_PLACES = 8
_ROUNDS = 6
_PRICES = 1e-12, 1e6
_LEVELS = 1e-9, 1e3


@dataclass(frozen=True)
class Costs:
    """What the error of a plan with one release of all groups depends on, beside the budgets.

    Attributes:
        noise: A, cost of the squared noise multiplier of the mean.
        sampling: s, cost of sampling a client.
        bias: h^2, cost of weights other than the population's.
        cohort: expected clients per round.
        rounds: number of rounds.
        everyone: whether all clients take part in every round.
        sensitivity: distance of neighbouring sums, in clipping norms.
    """

    noise: float
    sampling: float
    bias: float
    cohort: float
    rounds: int
    everyone: bool = False
    sensitivity: float = 1.0


@dataclass(frozen=True)
class Balance:
    """The best scales of groups of clients.

    Attributes:
        error: their error.
        level: x, the scale beyond which more budget does not lower it.
        price: of an expected client, in the unit of gains.
    """

    error: float
    level: float
    price: float


def balance(mu: Floats, counts: Floats, costs: Costs) -> Balance:
    """The least error over sampling ratios and scales, up to the grid of the ratios."""
    price = 0.0
    if not costs.everyone:

        def crowded(prices: Floats) -> NDArray[np.bool_]:
            levels = _level(mu, counts, prices, costs)
            return _ratios(mu, levels, prices, costs) @ counts > costs.cohort

        price = float(_crossing(crowded, *_PRICES, ()))
    level = float(_level(mu, counts, np.array(price), costs))
    scales = _scales(mu, _ratios(mu, level, price, costs), level, costs)
    total, clients = float(counts @ scales), float(counts.sum())
    spread = clients * float(counts @ (scales - total / clients) ** 2)
    error = costs.noise + costs.sampling * float(counts @ scales**2) + costs.bias * spread
    return Balance(error / total**2, level, price)


def gains(mu: Floats, found: Balance, costs: Costs) -> Floats:
    """What a client of each strength adds, at the level and price of a balance; increasing.

    Computed at nodes and interpolated where there are many strengths.
    """
    if len(mu) > 2 * _ROOTS:
        nodes = np.geomspace(mu.min(), mu.max() * (1 + 1e-12), _ROOTS)
        return np.interp(np.log(mu), np.log(nodes), gains(nodes, found, costs))
    ratios = _ratios(mu, found.level, found.price, costs)
    scales = _scales(mu, ratios, found.level, costs)
    return np.asarray(scales - scales**2 / (2 * found.level) - found.price * ratios)


def condensed(mu: Floats, counts: Floats) -> tuple[Floats, Floats]:
    """Many strengths at few nodes, with the clients between two nodes at the lower one."""
    if len(mu) <= 2 * _ROOTS:
        return mu, counts
    nodes = np.geomspace(mu.min(), mu.max(), _ROOTS)
    where = np.clip(np.searchsorted(nodes, mu * (1 + 1e-12), side="right") - 1, 0, _ROOTS - 1)
    sums = np.bincount(where, weights=counts, minlength=_ROOTS)
    return nodes[sums > 0], np.asarray(sums[sums > 0], dtype=float)


def _scales(mu: Floats, ratios: Floats, level: Floats | float, costs: Costs) -> Floats:
    """Scales at the ratios, at most the level, shape (*levels, groups)."""
    share = mu / math.sqrt(costs.rounds)
    if not costs.everyone:
        share = ratios * np.sqrt(np.log1p((share / ratios) ** 2))
    return np.asarray(np.minimum(share / costs.sensitivity, np.expand_dims(level, -1)))


def _ratios(mu: Floats, level: Floats | float, price: Floats | float, costs: Costs) -> Floats:
    """The ratio of most gain for each strength, by bisection, shape (*levels, groups).

    The slope of the gain, (1 - t / x) dt/dq, falls with q; it is the price at the best ratio.
    """
    shape = (*np.shape(level), len(mu))
    if costs.everyone:
        return np.ones(shape)
    low, high = np.full(shape, math.log(1e-9)), np.zeros(shape)
    share, most = mu / math.sqrt(costs.rounds), costs.sensitivity * np.expand_dims(level, -1)
    least = costs.sensitivity * np.expand_dims(price, -1)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        ratio = np.exp(middle)
        square = (share / ratio) ** 2
        root = np.sqrt(np.log1p(square))
        more = (1 - ratio * root / most) * (root - square / ((1 + square) * root)) > least
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return np.asarray(np.exp(high))


def _level(mu: Floats, counts: Floats, prices: Floats, costs: Costs) -> Floats:
    """The x of the module's docstring at each price; inf without costs per client."""
    client = costs.sampling + costs.bias * float(counts.sum())
    if client <= 0:
        return np.full(np.shape(prices), math.inf)

    def scarce(levels: Floats) -> NDArray[np.bool_]:
        own = np.broadcast_to(prices[..., None], levels.shape)
        scales = _scales(mu, _ratios(mu, levels, own, costs), levels, costs)
        return client * ((scales * (levels[..., None] - scales)) @ counts) < costs.noise

    return _crossing(scarce, *_LEVELS, np.shape(prices))


def _crossing(
    before: Callable[[Floats], NDArray[np.bool_]], low: float, high: float, shape: tuple[int, ...]
) -> Floats:
    """Where a condition that holds up to some place ends, to about 2e-4 of it."""
    left, right = np.full(shape, math.log(low)), np.full(shape, math.log(high))
    for _ in range(_ROUNDS):
        width = (right - left) / _PLACES
        inner = left[..., None] + width[..., None] * np.arange(1, _PLACES)
        left = left + width * before(np.exp(inner)).sum(axis=-1)
        right = left + width
    return np.asarray(np.exp(right))


# --- Grouping of individual budgets by what a plan of them minimises. ----------------------------

_ENOUGH = 0.99
_PASSES = 4
DEFAULT_GROUPS = 3
MOST_GROUPS = 12
"""Groups that are made of individual budgets, and the most where their number is free."""


def group_budgets(
    epsilons: Floats, deltas: Floats, groups: int, costs: Costs | None = None
) -> Grouping:
    """The best grouping into at most ``groups`` groups; see ``groupings``."""
    return groupings(epsilons, deltas, groups, costs=costs, every=False)[-1]


def free_groups(
    epsilons: Floats, deltas: Floats, most: int = MOST_GROUPS, costs: Costs | None = None
) -> Grouping:
    """The fewest groups that retain 99% of the precision, or the best ``most``; likewise."""
    return groupings(epsilons, deltas, most, stop=True, costs=costs)[-1]


def groupings(
    epsilons: Floats,
    deltas: Floats,
    most: int,
    stop: bool = False,
    costs: Costs | None = None,
    every: bool = True,
) -> list[Grouping]:
    """The best grouping for each number of groups from 1 to ``most``."""
    if not len(epsilons):
        raise InputError.one("groups_from", "must name at least one client", 0)
    delta = float(deltas.min())
    mu = strengths(epsilons, delta)
    cuts = Intervals(epsilons, mu, delta)
    own = balance(*_bins(mu), costs) if costs is not None else None
    largest = min(most, cuts.distinct)
    found = []
    for number in range(1 if stop or every else largest, largest + 1):
        if costs is None or own is None:
            best = cuts.best(lambda mu: mu, number)
            kept = float(np.array(best.clients) @ best.strengths) / float(mu.sum())
            best = replace(best, precision=kept)
        else:
            best = _balanced(cuts, number, own, costs)
        found.append(best.with_deltas(epsilons, deltas))
        if stop and best.precision >= _ENOUGH:
            break
    return found


def _balanced(cuts: Intervals, number: int, own: Balance, costs: Costs) -> Grouping:
    """The best groups by a plan's error, and the precision that they retain.

    Gains depend on level and price of the plan, which are first those of clients with scales of
    their own, and then those of the groups found.
    """
    at, best, least = own, None, math.inf
    for _ in range(_PASSES):
        found = cuts.best(partial(gains, found=at, costs=costs), number)
        at = balance(found.strengths, np.array(found.clients, dtype=float), costs)
        if best is not None and not at.error < least * (1 - 1e-4):
            break
        best, least = found, at.error
    return replace(best or found, precision=min(math.sqrt(own.error / least), 1.0))


def _bins(mu: Floats) -> tuple[Floats, Floats]:
    """Strengths of all clients at few nodes, and the clients of each."""
    values, counts = np.unique(mu, return_counts=True)
    starts, ends = starts_of(values), np.append(0, np.cumsum(counts))
    sizes = np.diff(np.append(ends[starts], ends[-1]))
    return condensed(values[starts], sizes.astype(float))


# --- A file of individual budgets into the groups of a spec. -------------------------------------

_SHOWN = 20
"""Lines with faults that are named, at most."""
_UNIT = "\x1f"
"""What stands between cells that were read from quotes."""
HEADERS = (("client", "epsilon"), ("client", "epsilon", "delta"))


def read_budgets(path: Path, default_delta: float | str) -> tuple[Floats, Floats]:
    """Budgets of individual clients from a CSV file: client, epsilon[, delta]."""
    text = read_text(path, "groups_from").removeprefix("\ufeff")  # as spreadsheets begin
    separator = _UNIT if '"' in text else ","
    numbered = list(enumerate(text.splitlines(), start=1)) or [(1, "")]
    if separator == _UNIT:
        numbered = _unquoted(path.name, numbered)
    (_, header), *rows = numbered
    columns = tuple(part.strip() for part in header.split(separator))
    if columns not in HEADERS:
        rule = "must begin with the line client,epsilon or client,epsilon,delta"
        raise InputError.one("groups_from", rule, header[:60].replace(separator, ","))
    rows = [pair for pair in rows if pair[1].strip()]
    if not rows:
        raise InputError.one("groups_from", "must name at least one client", str(path))
    table = _table([line for _, line in rows], len(columns), separator)
    if table is None:
        cells = [(number, line.split(separator)) for number, line in rows]
        raise InputError(_faults(path.name, cells, columns))
    if len(columns) == 3:
        return table[:, 0], table[:, 1]
    delta = _law(default_delta, table)
    if not 0 < delta < 1:
        raise InputError.one("delta", "must be in (0, 1)", delta)
    return table[:, 0], np.full(len(table), delta)


def _unquoted(file: str, numbered: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Lines with cells in quotes as lines whose cells have no quotes around them."""
    found, faults = [], []
    for number, line in numbered:
        try:
            cells = next(csv.reader([line], skipinitialspace=True, strict=True), [])
        except csv.Error:
            rule = f"line {number} of {file}: quotes must be closed, and doubled within quotes"
            faults.append(Fault("groups_from", rule, line))
            continue
        found.append((number, _UNIT.join(cells)))
    if faults:
        raise InputError(_shown(file, [[fault] for fault in faults]))
    return found


def _table(lines: list[str], columns: int, separator: str) -> Floats | None:
    """The numbers of all lines, shape (clients, columns - 1); None if a line has a fault."""
    clients = {line.partition(separator)[0].strip() for line in lines}
    if len(clients) < len(lines) or "" in clients:
        return None
    if any(line.count(separator) != columns - 1 for line in lines):
        return None
    try:
        used = range(1, columns)
        table = np.loadtxt(lines, delimiter=separator, usecols=used, ndmin=2, comments=None)
    except ValueError:
        return None
    sound = np.all((table >= LEAST) & (table <= LARGEST)) and np.all(table[:, 1:] < 1)
    return table if sound else None


def _faults(file: str, rows: list[tuple[int, list[str]]], columns: tuple[str, ...]) -> list[Fault]:
    """The faults of the first lines that have one, and the number of other such lines."""
    seen: set[str] = set()
    found: list[list[Fault]] = []
    for number, row in rows:
        place, (client, *cells) = f"line {number} of {file}", map(str.strip, row)
        own = []
        if len(row) != len(columns):
            line = ",".join(row)
            own.append(Fault("groups_from", f"{place}: must be {','.join(columns)}", line))
        else:
            if not client or client in seen:
                rule = "must be unique" if client else "must have a name"
                own.append(Fault("groups_from", f"{place}: client {rule}", client))
            pairs = zip(columns[1:], cells, strict=True)
            own += [fault for name, cell in pairs for fault in _cell_faults(place, name, cell)]
        seen.add(client)
        found += [own] if own else []
    return _shown(file, found)


def _shown(file: str, found: list[list[Fault]]) -> list[Fault]:
    """The faults of the first lines, and the number of others."""
    shown = [fault for own in found[:_SHOWN] for fault in own]
    if len(found) > _SHOWN:
        rule = f"has faults in {len(found) - _SHOWN} more lines"
        shown.append(Fault("groups_from", rule, file))
    return shown


def _cell_faults(place: str, name: str, cell: str) -> Iterator[Fault]:
    """The fault of an epsilon or a delta, if it has one."""
    if not _is_number(cell):
        yield Fault("groups_from", f"{place}: {name} must be a number", cell)
    elif name == "epsilon" and not 0 < float(cell) < math.inf:
        yield Fault("groups_from", f"{place}: epsilon must be positive and finite", float(cell))
    elif name == "epsilon" and not LEAST <= float(cell) <= LARGEST:
        rule = f"epsilon must be in [{LEAST:g}, {LARGEST:g}]"
        yield Fault("groups_from", f"{place}: {rule}", float(cell))
    elif name == "delta" and not LEAST <= float(cell) < 1:
        yield Fault("groups_from", f"{place}: delta must be in (0, 1)", float(cell))


def _is_number(cell: str) -> bool:
    """Whether NumPy reads the text as a number, which has no underscores or other digits."""
    try:
        float(cell)
    except ValueError:
        return False
    return cell.isascii() and "_" not in cell


def _law(delta: float | str, table: Floats) -> float:
    if isinstance(delta, str) and delta.startswith("n^-"):
        return float(len(table) ** -float(delta.removeprefix("n^-")))
    return float(delta)


def budgets_of_file(data: dict[str, Any], folder: Path) -> tuple[Floats, Floats] | None:
    """Budgets of the clients in the ``groups_from`` file of a spec's plain data."""
    source, groups = data.get("groups_from"), data.get("groups")
    if source is None:
        return None
    if groups:
        names = [one.get("name") if isinstance(one, dict) else None for one in groups]
        if names != [name_of(rank) for rank in range(1, len(names) + 1)]:
            rule = "must be left out with groups_from, whose file makes the groups"
            raise InputError.one("groups", rule, groups)
        return None
    if not isinstance(source, str):
        raise InputError.one("groups_from", "must be the name of a file", source)
    delta = data.get("delta", "n^-1.1")
    try:
        return read_budgets(folder / source, delta)
    except (TypeError, ValueError):
        raise InputError.one("delta", "must be a number in (0, 1) or a law", delta) from None


def cut(
    epsilons: Floats, deltas: Floats, costs: Costs | None, most: float | None, *, free: bool
) -> list[dict[str, Any]]:
    """Plain data of the groups of individual budgets."""
    if not free:
        return group_budgets(epsilons, deltas, DEFAULT_GROUPS, costs).plain()
    groups = MOST_GROUPS if most is None else max(1, int(min(most, MOST_GROUPS)))
    return free_groups(epsilons, deltas, groups, costs).plain()
