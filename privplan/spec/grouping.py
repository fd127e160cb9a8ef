"""Grouping of individual budgets by the precision that is left of them.

Clients are cut by epsilon; a group has the least epsilon and the least delta of its
members. A client's precision is, in the small-loss limit, the Gaussian strength mu of
its budget at the smallest delta of all. The best groups are those with the largest sum
of N_g mu_g, g's strictest client counting for all N_g.
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
# Most groups that are made of individual budgets, where their number is free.
MOST_GROUPS = 12
# Distinct budgets that are told apart; more are put into bins.
_MOST_PLACES = 1024
# Share of the precision at which further groups gain too little.
_ENOUGH = 0.99
# Most lines with faults that are named.
_SHOWN = 20
HEADERS = (("client", "epsilon"), ("client", "epsilon", "delta"))


@dataclass(frozen=True)
class Grouping:
    """A partition of clients into groups, strictest first.

    Attributes:
        clients: of each group.
        epsilons: of each group.
        deltas: of each group.
        precision: share that is left of the clients' own.
    """

    clients: tuple[int, ...]
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    precision: float = 1.0

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
    """Mu of the Gaussian with exactly (epsilon, delta), shape (clients,).

    Of many different budgets it is interpolated.
    """
    distinct, where = np.unique(epsilons, return_inverse=True)
    if len(distinct) <= _MOST_PLACES:
        return np.array([_mu_of(float(epsilon), delta) for epsilon in distinct])[where]
    logs = np.log(distinct)
    nodes = np.linspace(logs[0], logs[-1], _MOST_PLACES)
    values = [math.log(mu_of(math.exp(node), delta)) for node in nodes]
    return np.asarray(np.exp(np.interp(logs, nodes, values))[where])


def cut(
    epsilons: Floats, deltas: Floats, max_groups: float | None, *, free: bool
) -> list[dict[str, Any]]:
    """Plain data of the groups of individual budgets.

    Args:
        epsilons: of the clients.
        deltas: of the clients.
        max_groups: limit on their number where it is free; None for ``MOST_GROUPS``.
        free: whether their number is free.
    """
    if not free:
        return group_budgets(epsilons, deltas, DEFAULT_GROUPS).plain()
    limit = MOST_GROUPS
    if max_groups is not None:
        limit = max(1, int(min(max_groups, MOST_GROUPS)))
    return free_groups(epsilons, deltas, limit).plain()


def group_budgets(epsilons: Floats, deltas: Floats, groups: int) -> Grouping:
    """The best grouping into at most ``groups`` groups."""
    return Cuts(epsilons, deltas).best(groups)


def free_groups(
    epsilons: Floats, deltas: Floats, max_groups: int = MOST_GROUPS
) -> Grouping:
    """The fewest groups that retain 99% of the precision, or ``max_groups``."""
    for grouping in groupings(epsilons, deltas, max_groups):
        if grouping.precision >= _ENOUGH:
            break
    return grouping


def groupings(epsilons: Floats, deltas: Floats, max_groups: int) -> Iterator[Grouping]:
    """The best grouping for each number of groups, from 1 to ``max_groups``."""
    cuts = Cuts(epsilons, deltas)
    largest = min(max_groups, cuts.distinct)
    return (cuts.best(number) for number in range(1, largest + 1))


class Cuts:
    """Individual budgets, whose best groups are intervals of epsilon."""

    def __init__(self, epsilons: Floats, deltas: Floats) -> None:
        """Sorts the budgets."""
        order = np.argsort(epsilons, kind="stable")
        self._epsilons = epsilons[order]
        self._deltas = deltas[order]
        mu = strengths(self._epsilons, float(deltas.min()))
        values, begins = np.unique(mu, return_index=True)
        # Bins of as many budgets, and bins of one width.
        if len(values) > _MOST_PLACES:
            even = np.linspace(0, len(values) - 1, _MOST_PLACES // 2).astype(np.int64)
            edges = np.geomspace(values[0], values[-1], _MOST_PLACES // 2)
            begins = begins[np.unique([*even, *np.searchsorted(values, edges)])]
        # Of each place: its strictest mu, and the first client. The end comes last.
        self._mu = mu[begins]
        self._ends = np.append(begins, len(mu))
        self._precision = float(mu.sum())

    @property
    def distinct(self) -> int:
        """Number of places where a group may begin."""
        return len(self._mu)

    def best(self, number: int) -> Grouping:
        """The best groups, at most ``number``, by dynamic programming over it."""
        ends = self._ends
        # Precision of the places i to j in one group, in row j.
        single = (ends[1:, None] - ends[:-1]) * self._mu
        single = np.where(np.tri(len(self._mu), dtype=bool), single, -np.inf)
        # Of the places up to j: the best precision, with each number of groups, and
        # where its last group begins.
        best = single[:, 0]
        choices = []
        for _ in range(number - 1):
            with_last_group = np.append(0.0, best[:-1]) + single
            choices.append(with_last_group.argmax(axis=1))
            best = with_last_group.max(axis=1)

        # From the last group back to the first.
        place = len(self._mu)
        first_places = {0}
        for choice in reversed(choices):
            place = int(choice[place - 1])
            first_places.add(place)
            if place == 0:
                break
        places = sorted(first_places)
        begins = ends[places]
        sizes = np.diff(np.append(begins, ends[-1]))
        return Grouping(
            clients=tuple(sizes.tolist()),
            epsilons=tuple(self._epsilons[begins].tolist()),
            deltas=tuple(np.minimum.reduceat(self._deltas, begins).tolist()),
            precision=float(sizes @ self._mu[places]) / self._precision,
        )


def budgets_of_file(data: dict[str, Any], folder: Path) -> tuple[Floats, Floats] | None:
    """Budgets of the clients in the ``groups_from`` file of a spec's plain data.

    Args:
        data: of the spec.
        folder: of the spec's file.

    Returns:
        Epsilons and deltas; None without a file, or where its groups are there already.
    """
    source = data.get("groups_from")
    groups = data.get("groups")
    if source is None:
        return None
    if groups:
        names = [
            group.get("name") if isinstance(group, dict) else None for group in groups
        ]
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
        rule = "must be a number in (0, 1) or a law"
        raise InputError.one("delta", rule, delta) from None


def read_budgets(path: Path, default_delta: float | str) -> tuple[Floats, Floats]:
    """Budgets of individual clients from a CSV file: client, epsilon[, delta].

    Args:
        path: of the file.
        default_delta: a number or a law, of clients without a delta.

    Returns:
        Epsilons and deltas [clients].
    """
    rows = _csv_rows(path)
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
            continue
        broken_rule, value = fault
        rule = f"line {number} of {path.name}: {broken_rule}"
        faults.append(Fault("groups_from", rule, value))
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


def _csv_rows(path: Path) -> list[tuple[int, list[str]]]:
    """The lines of a CSV file that are not empty, each with its number."""
    # Files of spreadsheets begin with this sign.
    text = read_text(path, "groups_from").removeprefix("\ufeff")
    lines = text.splitlines()
    reader = csv.reader(lines, skipinitialspace=True, strict=True)
    rows = []
    try:
        for row in reader:
            if "".join(row).strip() or len(row) > 1:
                rows.append((reader.line_num, row))
    except csv.Error:
        where = f"line {reader.line_num} of {path.name}"
        rule = f"{where}: quotes must be closed, and doubled within quotes"
        line = lines[reader.line_num - 1][:60]
        raise InputError.one("groups_from", rule, line) from None
    return rows


def _fault(
    row: list[str], columns: tuple[str, ...], clients: set[str]
) -> tuple[str, object] | None:
    """The first rule that a line breaks, and what was found.

    Args:
        row: cells of the line.
        columns: their names.
        clients: of the lines before; it grows by this one.
    """
    client, *cells = [cell.strip() for cell in row]
    if len(row) != len(columns):
        return f"must be {','.join(columns)}", ",".join(row)
    if not client:
        return "client must have a name", client
    if client in clients:
        return "client must be unique", client
    clients.add(client)
    for name, cell in zip(columns[1:], cells, strict=True):
        try:
            if cell.isascii() and "_" not in cell:
                value = float(cell)
            else:
                value = math.nan
        except ValueError:
            value = math.nan
        if math.isnan(value):
            return f"{name} must be a number", cell
        if name == "delta" and not SMALLEST <= value < 1:
            return "delta must be in (0, 1)", value
        if name == "epsilon" and not SMALLEST <= value <= LARGEST:
            return f"epsilon must be in [{SMALLEST:g}, {LARGEST:g}]", value
    return None
