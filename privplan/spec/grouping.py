"""Grouping of individual budgets by what a plan of them minimises.

Clients are cut by epsilon; a group has the least epsilon and the least delta of its members. What
a client adds to a plan is its worth: by the costs of an objective, or its precision, which in the
small-loss limit is the Gaussian strength mu of its budget at the smallest delta of all. The best
groups are those with the largest sum of N_g worth_g, g's strictest client counting for all N_g.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.gdp import mu_of
from privplan.errors import Fault, InputError
from privplan.files import read_text
from privplan.values import LARGEST, LEAST

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

DEFAULT_GROUPS = 3
MOST_GROUPS = 12
"""Groups that are made of individual budgets, and the most where their number is free."""
_MOST_PLACES = 1024
"""Distinct budgets that are told apart; more are put into bins."""
_ENOUGH = 0.99
_PASSES = 4


@dataclass(frozen=True)
class Grouping:
    """A partition of clients into groups, strictest first."""

    clients: tuple[int, ...]
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    precision: float = 1.0  # root of the error of scales of their own over that of the groups

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
    """Mu of the Gaussian with exactly (epsilon, delta), shape (clients,); of many, interpolated."""
    distinct, where = np.unique(epsilons, return_inverse=True)
    if len(distinct) <= _MOST_PLACES:
        return np.array([_mu_of(float(one), delta) for one in distinct])[where]
    logs = np.log(distinct)
    nodes = np.linspace(logs[0], logs[-1], _MOST_PLACES)
    values = [math.log(mu_of(math.exp(node), delta)) for node in nodes]
    return np.asarray(np.exp(np.interp(logs, nodes, values))[where])


def cut(
    epsilons: Floats, deltas: Floats, costs: Costs | None, most: float | None, *, free: bool
) -> list[dict[str, Any]]:
    """Plain data of the groups of individual budgets, at most ``most`` where the number is free."""
    if not free:
        return group_budgets(epsilons, deltas, DEFAULT_GROUPS, costs).plain()
    groups = MOST_GROUPS if most is None else max(1, int(min(most, MOST_GROUPS)))
    return free_groups(epsilons, deltas, groups, costs).plain()


def group_budgets(
    epsilons: Floats, deltas: Floats, groups: int, costs: Costs | None = None
) -> Grouping:
    """The best grouping into at most ``groups`` groups."""
    return Cuts(epsilons, deltas, costs).best(groups)


def free_groups(
    epsilons: Floats, deltas: Floats, most: int = MOST_GROUPS, costs: Costs | None = None
) -> Grouping:
    """The fewest groups that retain 99% of the precision, or the best ``most``."""
    for found in _growing(epsilons, deltas, most, costs):
        if found.precision >= _ENOUGH:
            break
    return found


def groupings(
    epsilons: Floats, deltas: Floats, most: int, costs: Costs | None = None
) -> list[Grouping]:
    """The best grouping for each number of groups from 1 to ``most``."""
    return list(_growing(epsilons, deltas, most, costs))


def _growing(
    epsilons: Floats, deltas: Floats, most: int, costs: Costs | None
) -> Iterator[Grouping]:
    cuts = Cuts(epsilons, deltas, costs)
    return (cuts.best(number) for number in range(1, min(most, cuts.distinct) + 1))


class Cuts:
    """Individual budgets, whose best groups are intervals of epsilon."""

    def __init__(self, epsilons: Floats, deltas: Floats, costs: Costs | None = None) -> None:
        """Sorts the budgets, and finds the best plan of a scale for every client."""
        order = np.argsort(epsilons, kind="stable")
        self._epsilons, self._deltas, self._costs = epsilons[order], deltas[order], costs
        mu = strengths(self._epsilons, float(deltas.min()))
        values, begins = np.unique(mu, return_index=True)
        if len(values) > _MOST_PLACES:  # bins of as many budgets, and bins of one width
            even = np.linspace(0, len(values) - 1, _MOST_PLACES // 2).astype(np.int64)
            edges = np.geomspace(values[0], values[-1], _MOST_PLACES // 2)
            begins = begins[np.unique([*even, *np.searchsorted(values, edges)])]
        self._mu, self._ends = mu[begins], np.append(begins, len(mu))
        self._precision = float(mu.sum())
        self._own = None if costs is None else balance(self._mu, np.diff(self._ends), costs)

    @property
    def distinct(self) -> int:
        """Number of places where a group may begin."""
        return len(self._mu)

    def best(self, number: int) -> Grouping:
        """The best groups, at most ``number``.

        Gains depend on level and price of the plan, which are first those of clients with scales
        of their own, and then those of the groups found.
        """
        if self._costs is None or self._own is None:
            places = self._partition(self._mu, number)
            kept = float(self._sizes(places) @ self._mu[places])
            return self._grouping(places, kept / self._precision)
        at, best, least = self._own, np.zeros(1, dtype=np.int64), math.inf
        for _ in range(_PASSES):
            places = self._partition(gains(self._mu, at, self._costs), number)
            at = balance(self._mu[places], self._sizes(places), self._costs)
            if not at.error < least * (1 - 1e-4):
                break
            best, least = places, at.error
        return self._grouping(best, min(math.sqrt(self._own.error / least), 1.0))

    def _partition(self, worth: Floats, number: int) -> Integers:
        """Places where the best groups begin, by dynamic programming over their number."""
        ends = self._ends
        one = (ends[1:, None] - ends[:-1]) * worth  # places i to j as one group, in row j
        one = np.where(np.tri(len(worth), dtype=bool), one, -np.inf)
        best, choices = one[:, 0], []
        for _ in range(number - 1):
            with_one_more = np.append(0.0, best[:-1]) + one
            choices.append(with_one_more.argmax(axis=1))
            best = with_one_more.max(axis=1)
        place, begins = len(worth), {0}
        for choice in reversed(choices):
            place = int(choice[place - 1])
            begins.add(place)
            if place == 0:
                break
        return np.array(sorted(begins))

    def _sizes(self, places: Integers) -> Floats:
        return np.diff(np.append(self._ends[places], self._ends[-1])).astype(float)

    def _grouping(self, places: Integers, precision: float) -> Grouping:
        begins = self._ends[places]
        return Grouping(
            clients=tuple(self._sizes(places).astype(int).tolist()),
            epsilons=tuple(self._epsilons[begins].tolist()),
            deltas=tuple(np.minimum.reduceat(self._deltas, begins).tolist()),
            precision=precision,
        )


# --- What a grouping of budgets costs a plan with one release of all groups, by the central limit -
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

_BISECTIONS = 18
_PLACES = 8
_ROUNDS = 6
_PRICES = 1e-12, 1e6
_LEVELS = 1e-9, 1e3


@dataclass(frozen=True)
class Costs:
    """What the error of a plan with one release of all groups depends on, beside the budgets."""

    noise: float  # A, cost of the squared noise multiplier of the mean
    sampling: float  # s, cost of sampling a client
    bias: float  # h^2, cost of weights other than the population's
    cohort: float  # expected clients per round
    rounds: int
    everyone: bool = False  # whether all clients take part in every round
    sensitivity: float = 1.0  # distance of neighbouring sums, in clipping norms


@dataclass(frozen=True)
class Balance:
    """The best scales of groups of clients."""

    error: float
    level: float  # x, the scale beyond which more budget does not lower the error
    price: float  # of an expected client, in the unit of gains


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
    """What a client of each strength adds, at the level and price of a balance; increasing."""
    ratios = _ratios(mu, found.level, found.price, costs)
    scales = _scales(mu, ratios, found.level, costs)
    return np.asarray(scales - scales**2 / (2 * found.level) - found.price * ratios)


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
    """The level x at each price; inf without costs per client."""
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


# --- A file of individual budgets into the groups of a spec. -------------------------------------

_SHOWN = 20
"""Lines with faults that are named, at most."""
HEADERS = (("client", "epsilon"), ("client", "epsilon", "delta"))


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


def read_budgets(path: Path, default_delta: float | str) -> tuple[Floats, Floats]:
    """Budgets of individual clients from a CSV file: client, epsilon[, delta]."""
    text = read_text(path, "groups_from").removeprefix("\ufeff")  # as spreadsheets begin
    lines = text.splitlines()
    reader = csv.reader(lines, skipinitialspace=True, strict=True)
    try:
        rows = [(reader.line_num, row) for row in reader if "".join(row).strip() or len(row) > 1]
    except csv.Error:
        where = f"line {reader.line_num} of {path.name}"
        rule = f"{where}: quotes must be closed, and doubled within quotes"
        raise InputError.one("groups_from", rule, lines[reader.line_num - 1][:60]) from None
    columns = tuple(map(str.strip, rows[0][1])) if rows else ()
    if columns not in HEADERS:
        rule = "must begin with the line client,epsilon or client,epsilon,delta"
        raise InputError.one("groups_from", rule, ",".join(columns)[:60])
    clients: set[str] = set()
    budgets: list[list[float]] = []
    faults: list[Fault] = []
    for number, row in rows[1:]:
        fault = _fault(row, columns, clients)
        if fault is None:
            budgets.append([float(cell) for cell in row[1:]])
        else:
            rule = f"line {number} of {path.name}: {fault[0]}"
            faults.append(Fault("groups_from", rule, fault[1]))
    if faults:
        raise InputError(faults[:_SHOWN])
    if not budgets:
        raise InputError.one("groups_from", "must name at least one client", str(path))
    table = np.array(budgets)
    if len(columns) == 3:
        return table[:, 0], table[:, 1]
    if isinstance(default_delta, str) and default_delta.startswith("n^-"):
        default_delta = len(table) ** -float(default_delta.removeprefix("n^-"))
    delta = float(default_delta)
    if not 0 < delta < 1:
        raise InputError.one("delta", "must be in (0, 1)", delta)
    return table[:, 0], np.full(len(table), delta)


def _fault(
    row: list[str], columns: tuple[str, ...], clients: set[str]
) -> tuple[str, object] | None:
    """The first rule that a line breaks and what was found; adds its client to the clients."""
    client, *cells = [cell.strip() for cell in row]
    if len(row) != len(columns):
        return f"must be {','.join(columns)}", ",".join(row)
    if not client or client in clients:
        return f"client must {'be unique' if client else 'have a name'}", client
    clients.add(client)
    for name, cell in zip(columns[1:], cells, strict=True):
        try:
            value = float(cell) if cell.isascii() and "_" not in cell else math.nan
        except ValueError:
            value = math.nan
        if math.isnan(value):
            return f"{name} must be a number", cell
        if name == "delta" and not LEAST <= value < 1:
            return "delta must be in (0, 1)", value
        if name == "epsilon" and not LEAST <= value <= LARGEST:
            return f"epsilon must be in [{LEAST:g}, {LARGEST:g}]", value
    return None
