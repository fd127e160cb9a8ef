"""A file of individual budgets into the groups of a spec."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privplan.errors import Fault, InputError
from privplan.io.files import read_text
from privplan.spec.grouped import Grouping
from privplan.spec.grouping import MOST_GROUPS, free_groups, group_budgets, with_least_error
from privplan.spec.grouping_costs import Costs
from privplan.values import LARGEST, LEAST

Floats = NDArray[np.float64]

DEFAULT_GROUPS = 3
_SHOWN = 20
"""Lines with faults that are named, at most."""
_UNIT = "\x1f"
"""What stands between cells that were read from quotes."""
HEADERS = (("client", "epsilon"), ("client", "epsilon", "delta"))


def read_budgets(path: Path, default_delta: float | str) -> tuple[Floats, Floats]:
    """Budgets of individual clients from a CSV file: client, epsilon[, delta].

    Args:
        path: the file, with a header line.
        default_delta: for a file without deltas: a number, or a law such as ``n^-1.1``.

    Returns:
        epsilon and delta of each client, shape (clients,) each.

    Raises:
        InputError: naming the lines that are no budget, or repeat a client.
    """
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
    """Lines with cells in quotes as lines whose cells have no quotes around them.

    Raises:
        InputError: naming the lines where a quote is not closed.
    """
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


def with_groups(
    data: dict[str, Any],
    folder: Path,
    costs_of: Callable[[dict[str, Any]], Costs | None],
    error_of: Callable[[dict[str, Any]], float | None],
) -> dict[str, Any]:
    """Plain data of a spec with the groups of its ``groups_from`` file filled in.

    Args:
        data: the spec's data; returned unchanged when it names no file, or has the groups that
            were filled in before, which ``groups_precision`` shows.
        folder: where a relative path starts.
        costs_of: plain data with all clients in one group -> costs of the plan's objective.
        error_of: plain data with groups -> error of their plan; None where the costs say it.

    Raises:
        InputError: when the file cannot be read or holds what is not a budget, or groups are given.
    """
    source = data.get("groups_from")
    if source is None:
        return data
    if data.get("groups"):
        if data.get("groups_precision") is None:
            rule = "must be left out with groups_from, whose file makes the groups"
            raise InputError.one("groups", rule, data["groups"])
        return data
    if not isinstance(source, str):
        raise InputError.one("groups_from", "must be the name of a file", source)
    planning = data.get("planning") or {}
    given = planning.get("group_count") if isinstance(planning, dict) else None
    count = DEFAULT_GROUPS if given is None else given
    named = planning.get("free") if isinstance(planning, dict) else None
    free = isinstance(named, list | tuple) and "groups" in named
    if free and given is not None:
        rule = "must be left out where planning.free names groups, which decides how many"
        raise InputError.one("planning.group_count", rule, count)
    faults = []
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        rule = "must be a whole number, 1 or more"
        faults.append(Fault("planning.group_count", rule, count))
    delta = data.get("delta", "n^-1.1")
    try:
        epsilons, deltas = read_budgets(folder / source, delta)
    except InputError as error:
        raise InputError([*faults, *error.faults]) from None
    except (TypeError, ValueError):
        faults.append(Fault("delta", "must be a number in (0, 1) or a law", delta))
    if faults:
        raise InputError(faults)
    everybody = Grouping((len(epsilons),), (epsilons.min(),), (deltas.min(),), 1.0)
    costs = costs_of({**data, "groups": groups_of(everybody)})

    def error_with(one: Grouping) -> float | None:
        return error_of({**data, "groups": groups_of(one), "groups_precision": one.precision})

    if free:
        most = _most_groups(data.get("cohort"))
        found = free_groups(epsilons, deltas, most, costs, error_with)
    else:
        found = group_budgets(epsilons, deltas, count, costs)
        found = with_least_error(found, epsilons, deltas, costs, error_with)
    return {**data, "groups": groups_of(found), "groups_precision": found.precision}


def _most_groups(cohort: Any) -> int:
    """Most groups when they are free: each takes one client or more of a cohort."""
    served = isinstance(cohort, int | float) and 1 <= cohort < MOST_GROUPS
    return int(cohort) if served else MOST_GROUPS


def groups_of(found: Grouping) -> list[dict[str, Any]]:
    """The groups of a grouping as plain data, named after their rank, strictest first."""
    rows = zip(found.clients, found.epsilons, found.deltas, strict=True)
    return [
        {
            "name": f"budget-{rank}",
            "clients": int(clients),
            "epsilon": float(epsilon),
            "delta": float(delta),
        }
        for rank, (clients, epsilon, delta) in enumerate(rows, start=1)
    ]
