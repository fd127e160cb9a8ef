"""A file of individual budgets into the groups of a spec."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privplan.errors import Fault, InputError
from privplan.io.files import read_text
from privplan.spec.grouping import Grouping, group_budgets
from privplan.spec.grouping_costs import Costs

Floats = NDArray[np.float64]

DEFAULT_GROUPS = 3
_SHOWN = 20
"""Lines with faults that are named, at most."""
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
    header, _, rows = text.partition("\n")
    columns = tuple(part.strip() for part in header.split(","))
    if columns not in HEADERS:
        rule = "must begin with the line client,epsilon or client,epsilon,delta"
        raise InputError.one("groups_from", rule, header[:60])
    numbered = [pair for pair in enumerate(rows.splitlines(), start=2) if pair[1].strip()]
    if not numbered:
        raise InputError.one("groups_from", "must name at least one client", str(path))
    lines = [line for _, line in numbered]
    table = _table(lines, len(columns))
    if table is None:
        raise InputError(_faults(path.name, numbered, columns))
    if len(columns) == 3:
        return table[:, 0], table[:, 1]
    delta = _law(default_delta, table)
    if not 0 < delta < 1:
        raise InputError.one("delta", "must be in (0, 1)", delta)
    return table[:, 0], np.full(len(table), delta)


def _table(lines: list[str], columns: int) -> Floats | None:
    """The numbers of all lines, shape (clients, columns - 1); None if a line has a fault."""
    clients = {line.partition(",")[0].strip() for line in lines}
    if len(clients) < len(lines) or "" in clients:
        return None
    if any(line.count(",") != columns - 1 for line in lines):
        return None
    try:
        used = range(1, columns)
        table = np.loadtxt(lines, delimiter=",", usecols=used, ndmin=2, comments=None)
    except ValueError:
        return None
    sound = np.all((table > 0) & np.isfinite(table)) and np.all(table[:, 1:] < 1)
    return table if sound else None


def _faults(file: str, numbered: list[tuple[int, str]], columns: tuple[str, ...]) -> list[Fault]:
    """The faults of the first lines that have one, and the number of other such lines."""
    seen: set[str] = set()
    found: list[list[Fault]] = []
    for number, line in numbered:
        place, (client, *cells) = f"line {number} of {file}", map(str.strip, line.split(","))
        own = []
        if len(cells) != len(columns) - 1:
            own.append(Fault("groups_from", f"{place}: must be {','.join(columns)}", line))
        elif not client:
            own.append(Fault("groups_from", f"{place}: client must have a name", line))
        elif client in seen:
            own.append(Fault("groups_from", f"{place}: client must be unique", client))
        else:
            pairs = zip(columns[1:], cells, strict=True)
            own += [fault for name, cell in pairs for fault in _cell_faults(place, name, cell)]
        seen.add(client)
        found += [own] if own else []
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
    elif name == "delta" and not 0 < float(cell) < 1:
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
    data: dict[str, Any], folder: Path, costs_of: Callable[[dict[str, Any]], Costs | None]
) -> dict[str, Any]:
    """Plain data of a spec with the groups of its ``groups_from`` file filled in.

    Args:
        data: the spec's data; returned unchanged when it names no file, or has the groups that
            were filled in before, which ``groups_precision`` shows.
        folder: where a relative path starts.
        costs_of: plain data with all clients in one group -> costs of the plan's objective.

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
    count = planning.get("group_count", DEFAULT_GROUPS) if isinstance(planning, dict) else None
    named = planning.get("free") if isinstance(planning, dict) else None
    free = isinstance(named, list | tuple) and "groups" in named
    if free and isinstance(planning, dict) and planning.get("group_count") is not None:
        rule = "must be left out where planning.free names groups, which decides how many"
        raise InputError.one("planning.group_count", rule, count)
    if not free and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise InputError.one("planning.group_count", "must be a whole number, 1 or more", count)
    delta = data.get("delta", "n^-1.1")
    try:
        epsilons, deltas = read_budgets(folder / source, delta)
    except (TypeError, ValueError):
        raise InputError.one("delta", "must be a number in (0, 1) or a law", delta) from None
    everybody = Grouping((len(epsilons),), (epsilons.min(),), (deltas.min(),), 1.0)
    costs = costs_of({**data, "groups": groups_of(everybody)})
    found = group_budgets(epsilons, deltas, None if free else count, costs)
    return {**data, "groups": groups_of(found), "groups_precision": found.precision}


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
