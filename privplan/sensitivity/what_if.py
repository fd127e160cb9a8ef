"""What-if: plans of one spec with some of its numbers varied.

A sweep is a list of points; each is solved by itself, on any core, and kept in a journal as
soon as it is done, so that an interrupted sweep goes on where it stopped.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privplan.errors import InputError, PrivplanError
from privplan.io.files import read_text, write_text
from privplan.io.lock import locked
from privplan.io.text import load_json
from privplan.values import digest

JOURNAL = "what-if.jsonl"
TABLE = "what-if.csv"
SECTIONS = ("planning", "local", "constants")
"""Parts of a spec that may be left out, and varied all the same."""
MOST = 1e100
"""Largest end of a range."""
MOST_POINTS = 1_000_000
COLUMNS = (
    "group", "clients", "epsilon", "delta", "sampling_ratio", "expected_cohort",
    "noise_multiplier", "weight", "epsilon_upper", "accountant", "sampling", "relation",
    "unit", "objective", "value", "noise_std", "noise_norm", "status", "error",
)  # fmt: skip


class InterruptedSweepError(PrivplanError):
    """A sweep that was stopped from the keyboard.

    Args:
        folder: where the points that are done are kept; None when nowhere.
    """

    exit_code = 130

    def __init__(self, folder: str | None) -> None:
        kept = f"what is done is kept in {folder}; the same command resumes"
        super().__init__(f"interrupted: {kept if folder else 'name a folder with -o to resume'}")


@dataclass(frozen=True)
class Vary:
    """One number of the spec and the values it takes.

    Attributes:
        path: where it stands, for example ``groups.strict.epsilon``.
        values: what it becomes.
    """

    path: str
    values: tuple[float, ...]


def parse_vary(text: str) -> Vary:
    """``PATH=FROM:TO:COUNT`` (even steps) or ``PATH=FROM:TO:COUNT:log`` (even factors).

    Raises:
        InputError: naming what is wrong.
    """
    rule = "must be PATH=FROM:TO:COUNT or PATH=FROM:TO:COUNT:log"
    path, _, span = text.partition("=")
    parts = span.split(":")
    log = len(parts) == 4 and parts[3] == "log"
    if not path or len(parts) != 3 + log:
        raise InputError.one("vary", rule, text)
    try:
        first, last, count = float(parts[0]), float(parts[1]), int(parts[2])
    except ValueError:
        raise InputError.one("vary", rule, text) from None
    if not (math.isfinite(first) and math.isfinite(last) and 1 <= count <= 10_000):
        raise InputError.one("vary", "must have finite ends and 1 to 10000 values", text)
    if log and not (first > 0 and last > 0):
        raise InputError.one("vary", "must have positive ends with log", text)
    if max(abs(first), abs(last)) > MOST or (log and min(first, last) < 1 / MOST):
        raise InputError.one("vary", f"must have ends of a size up to {MOST:g}", text)
    steps = [i / max(count - 1, 1) for i in range(count)]
    if log:
        return Vary(path, tuple(float(f"{first * (last / first) ** s:.12g}") for s in steps))
    return Vary(path, tuple(float(f"{first + (last - first) * s:.12g}") for s in steps))


def points(varies: Sequence[Vary]) -> list[dict[str, float]]:
    """Every combination of the varied values.

    Raises:
        InputError: when they are too many.
    """
    total = math.prod(len(vary.values) for vary in varies)
    if total > MOST_POINTS:
        raise InputError.one("vary", f"must make {MOST_POINTS} points or fewer", total)
    axes = [[(vary.path, value) for value in vary.values] for vary in varies]
    return [dict(combination) for combination in itertools.product(*axes)]


def changed(data: dict[str, Any], point: dict[str, float]) -> dict[str, Any]:
    """The spec's plain data with the numbers of a point; whole numbers stay whole.

    Raises:
        InputError: when the spec has no such place.
    """
    data = deepcopy(data)
    for path, value in point.items():
        *parents, last = path.split(".")
        place: Any = data
        for part in parents:
            place = _step(place, part, path)
        if not isinstance(place, dict) or isinstance(place.get(last), dict | list):
            raise InputError.one("vary", "must name a number of the spec", path)
        place[last] = int(value) if value == int(value) else value
    return data


def _step(place: Any, part: str, path: str) -> Any:
    if isinstance(place, list):
        named = [item for item in place if isinstance(item, dict) and item.get("name") == part]
        if named:
            return named[0]
    elif isinstance(place, dict) and isinstance(place.get(part), dict | list):
        return place[part]
    elif isinstance(place, dict) and place.get(part) is None and part in SECTIONS:
        place[part] = {}
        return place[part]
    raise InputError.one("vary", "must name a place of the spec", path)


def solved(data: dict[str, Any], point: dict[str, float]) -> list[dict[str, Any]]:
    """One point: a row a group, or one row with the reason why there is no plan."""
    from privplan.planning.solver import solve
    from privplan.spec.spec import Spec

    try:
        plan = solve(Spec.parse(changed(data, point)), second_opinion=False)
    except PrivplanError as error:
        return [{**point, "error": " ".join(str(error).split())}]
    spent = {row.group: row for row in plan.certificate if row.guarantee}
    rows = []
    for group in plan.groups:
        row = group.model_dump(include={*COLUMNS} & set(type(group).model_fields))
        certified = spent[group.name]
        rows.append(
            {
                **point,
                "group": group.name,
                **row,
                "epsilon_upper": certified.epsilon_upper,
                "accountant": certified.accountant,
                "sampling": certified.sampling,
                "relation": str(certified.relation),
                "unit": certified.unit,
                "objective": plan.objective.name,
                "value": plan.objective.value,
                "noise_std": plan.noise_std,
                "noise_norm": plan.noise_std * math.sqrt(plan.spec.model.parameters),
                "status": plan.status,
            }
        )
    return rows


def sweep(
    data: dict[str, Any],
    varies: Sequence[Vary],
    folder: Path,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Solve every point, keep each in the folder's journal, and write the table at the end.

    Args:
        data: the spec as plain data.
        varies: what is varied.
        folder: where journal and table go; points that its journal has are not solved again.
        workers: how many processes solve.
        progress: told how many points are done, of how many.

    Raises:
        InputError: when a path names no number of the spec, or the folder holds another sweep.
    """
    todo = points(varies)
    _must_be_numbers(data, todo)
    mark = digest({"spec": data, "vary": [[vary.path, list(vary.values)] for vary in varies]})
    journal = folder / JOURNAL
    _kept(journal, mark)  # another sweep is refused before even the lock is made
    with locked(folder):
        done, sound = _kept(journal, mark)
        write_text(journal, sound)
        missing = [point for point in todo if _key(point) not in done]
        progress(len(todo) - len(missing), len(todo))
        for point, rows in _all(data, missing, workers):
            done[_key(point)] = rows
            _keep(journal, {"sweep": mark, "point": point, "rows": rows})
            progress(len(done), len(todo))
        table = [row for point in todo for row in done[_key(point)]]
        write_text(folder / TABLE, csv_text(table, [vary.path for vary in varies]))
    return table


def _must_be_numbers(data: dict[str, Any], todo: Sequence[dict[str, float]]) -> None:
    """Refuse what is wrong at the first point and at the last: a name, not a value."""
    from privplan.spec.spec import Spec

    found = []
    for point in (todo[0], todo[-1]):
        try:
            Spec.parse(changed(data, point))
        except InputError as error:
            found.append(error.faults)
    if len(found) == 2:
        rules = {(fault.field, fault.rule) for fault in found[1]}
        faults = [fault for fault in found[0] if (fault.field, fault.rule) in rules]
        if faults:
            raise InputError(faults)


def _keep(path: Path, line: dict[str, Any]) -> None:
    try:
        with path.open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(line, allow_nan=False) + "\n")
    except OSError as error:
        raise InputError.one("output", f"must be writable ({error.strerror})", str(path)) from None


def csv_text(rows: Sequence[dict[str, Any]], first: Sequence[str]) -> str:
    """Rows as tidy CSV, the varied numbers first."""
    import csv
    from io import StringIO

    buffer = StringIO()
    columns = [*first, *(name for name in COLUMNS if name not in first)]
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _key(point: dict[str, float]) -> str:
    return json.dumps(point, sort_keys=True)


def _kept(path: Path, mark: str) -> tuple[dict[str, list[dict[str, Any]]], str]:
    """Points of the journal, and its text without a last line that was cut off.

    Raises:
        InputError: when the journal is of another sweep, or was damaged.
    """
    if not path.exists():
        return {}, ""
    text = read_text(path, "output")
    sound = text[: text.rfind("\n") + 1]
    done = {}
    for number, line in enumerate(sound.split("\n")[:-1], start=1):
        try:
            entry = load_json(line)
            found, point, rows = entry["sweep"], entry["point"], entry["rows"]
            _check(point, rows)
        except (ValueError, KeyError, TypeError):
            rule = f"must be as it was written; line {number} is none of a sweep"
            raise InputError.one("output", rule, str(path)) from None
        if found != mark:
            raise InputError.one("output", "must not hold another sweep", str(path))
        done[_key(point)] = rows
    return done, sound


def _check(point: dict[str, float], rows: list[dict[str, Any]]) -> None:
    """Whether rows of a journal are those of a point.

    Raises:
        KeyError, TypeError, ValueError: when they are not.
    """
    for row in rows:
        known = {name: row[name] for name in point}
        numbers = () if "error" in row else (row["weight"], row["noise_norm"])
        if not {*row} <= {*point, *COLUMNS} or not all(
            isinstance(value, int | float) for value in (*known.values(), *numbers)
        ):
            raise ValueError


def _all(
    data: dict[str, Any], missing: Sequence[dict[str, float]], workers: int
) -> Iterator[tuple[dict[str, float], list[dict[str, Any]]]]:
    if workers <= 1 or len(missing) <= 1:
        for point in missing:
            yield point, solved(data, point)
        return
    from privplan.io.processes import in_processes

    yield from in_processes(_one, [(data, point) for point in missing], workers)


def _one(
    work: tuple[dict[str, Any], dict[str, float]],
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    return work[1], solved(*work)
