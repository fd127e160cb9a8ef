"""Grouping of individual budgets by the precision that is left of them.

Clients are cut by epsilon; a group has the least epsilon and the least delta of its members. A
client's precision is, in the small-loss limit, the Gaussian strength mu of its budget at the
smallest delta of all. The best groups are those with the largest sum of N_g mu_g, g's strictest
client counting for all N_g.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.gdp import mu_of
from privplan.errors import Fault, InputError
from privplan.files import read_text
from privplan.values import LARGEST, SMALLEST

Floats = NDArray[np.float64]

DEFAULT_GROUPS = 3
MOST_GROUPS = (
    12  # groups made of individual budgets, and the most where their number is free
)
_MOST_PLACES = 1024  # distinct budgets that are told apart; more are put into bins
_ENOUGH = 0.99


@dataclass(frozen=True)
class Grouping:
    """A partition of clients into groups, strictest first."""

    clients: tuple[int, ...]
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    precision: float = 1.0  # share that is left of the clients' own

    def plain(self) -> list[dict[str, Any]]:
        """The groups as plain data, named after their rank, strictest first."""
        rows = zip(self.clients, self.epsilons, self.deltas, strict=True)
        return [
            {
                "name": name_of(rank),
                "clients": clients,
                "epsilon": epsilon,
                "delta": delta,
            }
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
    epsilons: Floats, deltas: Floats, most: float | None, *, free: bool
) -> list[dict[str, Any]]:
    """Plain data of the groups of individual budgets, at most ``most`` where the number is free."""
    if not free:
        return group_budgets(epsilons, deltas, DEFAULT_GROUPS).plain()
    groups = MOST_GROUPS if most is None else max(1, int(min(most, MOST_GROUPS)))
    return free_groups(epsilons, deltas, groups).plain()


def group_budgets(epsilons: Floats, deltas: Floats, groups: int) -> Grouping:
    """The best grouping into at most ``groups`` groups."""
    return Cuts(epsilons, deltas).best(groups)


def free_groups(epsilons: Floats, deltas: Floats, most: int = MOST_GROUPS) -> Grouping:
    """The fewest groups that retain 99% of the precision, or the best ``most``."""
    for found in groupings(epsilons, deltas, most):
        if found.precision >= _ENOUGH:
            break
    return found


def groupings(epsilons: Floats, deltas: Floats, most: int) -> Iterator[Grouping]:
    """The best grouping for each number of groups from 1 to ``most``."""
    cuts = Cuts(epsilons, deltas)
    return (cuts.best(number) for number in range(1, min(most, cuts.distinct) + 1))


class Cuts:
    """Individual budgets, whose best groups are intervals of epsilon."""

    def __init__(self, epsilons: Floats, deltas: Floats) -> None:
        """Sorts the budgets."""
        order = np.argsort(epsilons, kind="stable")
        self._epsilons, self._deltas = epsilons[order], deltas[order]
        mu = strengths(self._epsilons, float(deltas.min()))
        values, begins = np.unique(mu, return_index=True)
        if len(values) > _MOST_PLACES:  # bins of as many budgets, and bins of one width
            even = np.linspace(0, len(values) - 1, _MOST_PLACES // 2).astype(np.int64)
            edges = np.geomspace(values[0], values[-1], _MOST_PLACES // 2)
            begins = begins[np.unique([*even, *np.searchsorted(values, edges)])]
        self._mu, self._ends = mu[begins], np.append(begins, len(mu))
        self._precision = float(mu.sum())

    @property
    def distinct(self) -> int:
        """Number of places where a group may begin."""
        return len(self._mu)

    def best(self, number: int) -> Grouping:
        """The best groups, at most ``number``, by dynamic programming over their number."""
        ends = self._ends
        one = (
            ends[1:, None] - ends[:-1]
        ) * self._mu  # places i to j as one group, in row j
        one = np.where(np.tri(len(self._mu), dtype=bool), one, -np.inf)
        best, choices = one[:, 0], []
        for _ in range(number - 1):
            with_one_more = np.append(0.0, best[:-1]) + one
            choices.append(with_one_more.argmax(axis=1))
            best = with_one_more.max(axis=1)
        place, first = len(self._mu), {0}
        for choice in reversed(choices):
            place = int(choice[place - 1])
            first.add(place)
            if place == 0:
                break
        places = sorted(first)
        begins, sizes = ends[places], np.diff(np.append(ends[places], ends[-1]))
        return Grouping(
            clients=tuple(sizes.tolist()),
            epsilons=tuple(self._epsilons[begins].tolist()),
            deltas=tuple(np.minimum.reduceat(self._deltas, begins).tolist()),
            precision=float(sizes @ self._mu[places]) / self._precision,
        )


# --- A file of individual budgets into the groups of a spec. -------------------------------------

_SHOWN = 20  # lines with faults that are named, at most
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
        raise InputError.one(
            "delta", "must be a number in (0, 1) or a law", delta
        ) from None


def read_budgets(path: Path, default_delta: float | str) -> tuple[Floats, Floats]:
    """Budgets of individual clients from a CSV file: client, epsilon[, delta]."""
    text = read_text(path, "groups_from").removeprefix(
        "\ufeff"
    )  # as spreadsheets begin
    lines = text.splitlines()
    reader = csv.reader(lines, skipinitialspace=True, strict=True)
    try:
        rows = [
            (reader.line_num, row)
            for row in reader
            if "".join(row).strip() or len(row) > 1
        ]
    except csv.Error:
        where = f"line {reader.line_num} of {path.name}"
        rule = f"{where}: quotes must be closed, and doubled within quotes"
        raise InputError.one(
            "groups_from", rule, lines[reader.line_num - 1][:60]
        ) from None
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
        if name == "delta" and not SMALLEST <= value < 1:
            return "delta must be in (0, 1)", value
        if name == "epsilon" and not SMALLEST <= value <= LARGEST:
            return f"epsilon must be in [{SMALLEST:g}, {LARGEST:g}]", value
    return None
