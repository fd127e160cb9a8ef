"""What-if sweeps: the plans of one spec with some of its numbers varied.

The points of a sweep are all combinations of the varied values. They are solved
independently, over processes, and stored in a journal, so that an interrupted sweep
resumes.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privplan.errors import (
    InfeasibleError,
    InputError,
    PrivplanError,
    UnsupportedError,
    did_you_mean,
    one_of,
)
from privplan.files import read_text, write_text
from privplan.guidance import place_in_spec
from privplan.processes import in_jobs
from privplan.sweeps import Journal, Progress, finish, key_of, resumable
from privplan.values import digest
from privplan.visible import csv_cell
from privplan.yaml_text import load_yaml

if TYPE_CHECKING:
    from privplan.plan import GroupPlan, Plan
    from privplan.spec.spec import Spec


_log = logging.getLogger(__name__)

# The varied numbers of a spec: their ranges, and the specs of the points.

LARGEST = 1e100  # absolute value of an end of a range, far from what floats overflow at
MOST_POINTS = 1_000_000  # as many plans as hours of all cores solve
_MAX_VALUES = 10_000  # of a range
_MOST_NAMED = 12  # groups in a line that refuses another name


@dataclass(frozen=True)
class Vary:
    """One number of the spec and its values.

    Attributes:
        path: its place in the spec, for example ``groups.strict.epsilon``.
        values: the values, in the order of the sweep.
    """

    path: str
    values: tuple[float, ...]


def parse_vary(text: str) -> Vary:
    """The values of a list, ``PATH=1,2,4``, or of a range, ``PATH=FROM:TO:COUNT``.

    A range has equal steps between its values, or equal factors with ``:log`` after it.

    Raises:
        InputError: for another form, or numbers that are too large.
    """
    rule = "must be PATH=VALUE,... or PATH=FROM:TO:COUNT or PATH=FROM:TO:COUNT:log"
    path, _, span = text.partition("=")
    fields = span.split(":")
    is_log = len(fields) == 4 and fields[3] == "log"
    is_list = len(fields) == 1
    if not path or not (is_list or len(fields) == 3 or is_log):
        raise InputError.one("vary", rule, text)
    try:
        if is_list:
            values = [float(number) for number in span.split(",")]
        else:
            start = float(fields[0])
            end = float(fields[1])
            count = int(fields[2])
    except ValueError:
        raise InputError.one("vary", rule, text) from None

    if not is_list:
        values = _range(text, start, end, count, is_log)
        if not is_log:
            _note_step(path, start, end, count)
    elif not all(abs(value) <= LARGEST for value in values):
        raise InputError.one("vary", f"must be of a size up to {LARGEST:g}", text)
    return Vary(path, tuple(dict.fromkeys(values)))


def _note_step(path: str, start: float, end: float, count: int) -> None:
    """Say where a count may have been meant as a step.

    As a step it leads to the range's end, and as a count it makes no round step.
    """
    span = abs(end - start)
    steps = span / count
    if steps > 1 and steps == round(steps) and span % max(1, count - 1):
        text = "%s: %d values from %g to %g; a step of %d is %g:%g:%d"
        places = int(steps) + 1
        _log.warning(text, path, count, start, end, count, start, end, places)


def _range(
    text: str, start: float, end: float, count: int, is_log: bool
) -> list[float]:
    """The values of a range.

    Raises:
        InputError: for a range without finite ends, or with too many values.
    """
    is_finite = math.isfinite(start) and math.isfinite(end)
    if not is_finite or not 1 <= count <= _MAX_VALUES:
        rule = f"must have finite ends and 1 to {_MAX_VALUES} values"
        raise InputError.one("vary", rule, text)
    if is_log and not (start > 0 and end > 0):
        raise InputError.one("vary", "must have positive ends with log", text)
    is_too_small = is_log and min(start, end) < 1 / LARGEST
    if is_too_small or max(abs(start), abs(end)) > LARGEST:
        rule = f"must have ends of a size up to {LARGEST:g}"
        raise InputError.one("vary", rule, text)

    steps = [index / max(count - 1, 1) for index in range(count)]
    if is_log:
        values = [start * (end / start) ** step for step in steps]
    else:
        values = [start + (end - start) * step for step in steps]
    # As many digits as people write: 0.3, not 0.30000000000000004.
    return [float(f"{value:.12g}") for value in values]


def in_full(data: dict[str, Any], path: str) -> str:
    """The path that a short one stands for.

    ``strict`` is ``groups.strict.epsilon`` where a group has that name.

    Raises:
        InputError: for a word that is neither a field nor a group.
    """
    from privplan.spec.groups import Group
    from privplan.spec.spec import Spec

    first, _, field = path.partition(".")
    if first in Spec.model_fields and path != "groups":
        return path
    names = []
    groups = data.get("groups")
    if isinstance(groups, list):
        names = [group.get("name") for group in groups]
    if first in names:
        return f"groups.{first}.{field or 'epsilon'}"
    if names and first in Group.model_fields:
        listed = ", ".join(map(str, names[:_MOST_NAMED]))
        rule = f"is a field of each group: name the group, such as {names[0]}.{first}"
        raise InputError.one("vary", f"{rule} (groups: {listed})", first)
    place = place_in_spec(first, of_number=True)
    if names and place == "groups":
        listed = ", ".join(map(str, names[:_MOST_NAMED]))
        rule = f"must be the name of a group, such as {names[0]}=1,2"
        raise InputError.one("vary", f"{rule} (groups: {listed})", first)
    is_placed = place is not None and not place.startswith("groups.")
    if names and not field and is_placed:
        raise InputError.one("vary", f"must be written in full: {place}", first)
    if names and not field:
        meant = did_you_mean(first, [*map(str, names), *Spec.model_fields])
        if not meant:
            meant = f" ({', '.join(map(str, names[:_MOST_NAMED]))})"
        rule = f"must be a field of the spec or one of its groups{meant}"
        raise InputError.one("vary", rule, first)
    return path


def points(varies: Sequence[Vary]) -> list[dict[str, float]]:
    """All combinations of the varied values, the last number varying fastest."""
    paths = [vary.path for vary in varies]
    for path in paths:
        if paths.count(path) > 1:
            raise InputError.one("vary", "must name each path once", path)
    total = math.prod(len(vary.values) for vary in varies)
    if total > MOST_POINTS:
        raise InputError.one("vary", f"must make {MOST_POINTS} points or fewer", total)
    combinations = itertools.product(*(vary.values for vary in varies))
    return [dict(zip(paths, values, strict=True)) for values in combinations]


def with_stated(data: dict[str, Any], vary: Vary) -> Vary:
    """The varied number with the spec's value among its values, in their order."""
    from privplan.spec.changes import stated_number

    stated = stated_number(data, vary.path)
    if stated is None or stated in vary.values:
        return vary
    is_falling = vary.values[0] > vary.values[-1]
    values = sorted((*vary.values, stated), reverse=is_falling)
    return Vary(vary.path, tuple(values))


def with_and_without(data: dict[str, Any], groups: Sequence[str]) -> list[Vary]:
    """Of each group its number of clients and 0, which leaves it out."""
    clients = {group["name"]: group["clients"] for group in data.get("groups") or ()}
    for name in groups:
        if name not in clients:
            raise InputError.one("without", one_of(clients, name), name)
    return [Vary(f"groups.{name}.clients", (clients[name], 0.0)) for name in groups]


def with_point(data: dict[str, Any], point: dict[str, float]) -> dict[str, Any]:
    """A copy of a spec's plain data with a point's numbers; integers stay such."""
    from privplan.spec.changes import with_changes

    numbers: dict[str, float] = {}
    for path, number in point.items():
        is_whole = number == int(number)
        numbers[path] = int(number) if is_whole else number
    return with_changes(data, numbers)


# The rows: how a point is solved, what is shown of its plan, and their CSV.

COLUMNS = (
    "group", "clients", "epsilon", "delta", "sampling_ratio", "expected_cohort",
    "noise_multiplier", "weight", "counts", "epsilon_upper", "accountant", "sampling",
    "relation", "unit", "objective", "value", "mean_noise_std", "noise_norm",
    "relative_noise", "status", "error",
)  # fmt: skip

DECIDED: dict[str, Callable[[Spec], float | None]] = {
    "rounds": lambda spec: spec.rounds,
    "cohort": lambda spec: spec.expected_cohort,
    "clipping_norm": lambda spec: spec.clipping_norm,
}
"""Further columns, of what ``planning.free`` lets the plan of a point decide."""


CHANCES = ("advantage", "tpr_at_fpr_0.01")
"""Columns of a sweep with chances: upper bounds on any attack.

None where the curve of attacks is unknown.
"""
EXTRA = ("record_sampling_ratio", *DECIDED, *CHANCES)
"""Columns of which only some rows have values."""
Chance = float | str | None


def solve_point(
    item: tuple[dict[str, Any], dict[str, float], bool],
) -> list[dict[str, Any]]:
    """Rows of a spec at one point.

    Args:
        item: plain data of the spec, the point's numbers, and whether an attacker's
            chances are asked for.

    Returns:
        One row per group, or one with the reason for no plan.
    """
    from privplan.planning.solver import solve
    from privplan.spec.spec import Spec

    data, point, with_chances = item
    try:
        plan = solve(Spec.parse(with_point(data, point)), second_opinion=False)
    except PrivplanError as error:
        reason = " ".join(str(error).split())
        return [{**point, "error": reason}]

    free = (data.get("planning") or {}).get("free") or ()
    decided = {
        name: value(plan.spec) for name, value in DECIDED.items() if name in free
    }
    chances = _chances(plan) if with_chances else {}
    rows = []
    for group in plan.groups:
        row = _row(plan, group, chances.get(group.name, {}))
        rows.append({**point, **decided, **row})
    return rows


def _row(plan: Plan, group: GroupPlan, chances: dict[str, Chance]) -> dict[str, Any]:
    """Columns of a group of a plan."""
    from privplan.planning.recipe import relative_noise

    columns = {*COLUMNS} & {*type(group).model_fields}
    certified = next(
        row for row in plan.certificate if row.guarantee and row.group == group.name
    )
    root = math.sqrt(plan.spec.model.parameters)
    return {
        "group": group.name,
        **group.model_dump(include=columns),
        **group.model_dump(include={"record_sampling_ratio"}),
        **chances,
        "counts": group.weight * plan.spec.population / group.clients,
        "epsilon_upper": certified.epsilon_upper,
        "accountant": certified.accountant,
        "sampling": certified.sampling,
        "relation": str(certified.relation),
        "unit": certified.unit,
        "objective": plan.objective.name,
        "value": plan.objective.value,
        "mean_noise_std": plan.mean_noise_std,
        "noise_norm": plan.mean_noise_std * root,
        "relative_noise": relative_noise(plan),
        "status": plan.status,
    }


def _chances(plan: Plan) -> dict[str, dict[str, Chance]]:
    """Columns ``CHANCES`` by group; None where the curve of attacks is unknown."""
    from privplan.accounting.calibrate import PLD
    from privplan.planning.risks import risks_of

    chances: dict[str, dict[str, Chance]]
    chances = {group.name: dict.fromkeys(CHANCES) for group in plan.groups}
    if plan.guarantee != PLD:
        return chances
    with suppress(UnsupportedError):
        for risk in risks_of(plan):
            curve = risk.curve.to_dict()
            chances[risk.group] = {name: curve[name] for name in CHANCES}
    return chances


def csv_text(rows: Sequence[dict[str, Any]], first: Sequence[str]) -> str:
    """Rows as tidy CSV, the varied numbers first."""
    import csv
    from io import StringIO

    filled = {*itertools.chain.from_iterable(rows)}
    extra = [name for name in EXTRA if name in filled]
    columns = list(dict.fromkeys((*first, *extra, *COLUMNS)))
    buffer = StringIO()
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: csv_cell(value) for name, value in row.items()})
    return buffer.getvalue()


def check_rows(point: dict[str, float], rows: list[dict[str, Any]]) -> None:
    """Check that rows of a journal can be those of a point.

    Raises:
        ValueError, KeyError: for columns of another sweep, or texts instead of numbers.
    """
    columns = {*point, *EXTRA, *COLUMNS}
    for row in rows:
        numbers = [row[name] for name in point]
        if "error" not in row:
            numbers += [row["weight"], row["relative_noise"]]
        are_numbers = all(isinstance(number, int | float) for number in numbers)
        if not {*row} <= columns or not are_numbers:
            raise ValueError


# The sweep itself.

JOURNAL = "what-if.jsonl"
TABLE = "what-if.csv"
# How the rules begin of a field that a spec does not have, and of an integer.
UNKNOWN = "is not a known field"
WHOLE = "must be a whole number"


def spec_data(path: str) -> dict[str, Any]:
    """Plain data of a valid spec file, or of the spec of a plan file or a run folder.

    The path of a file of budgets is resolved. A budget that not even one round keeps,
    where the rounds follow from the budgets, is no fault: points may keep theirs.
    """
    from privplan.spec.spec import Spec

    data: Any = None
    if not Path(path).is_dir():
        data = load_yaml(read_text(path, "spec"), "spec", path)
    if Path(path).is_dir() or (isinstance(data, dict) and "certificate" in data):
        from privplan.plan import Plan

        return Plan.load(path).spec.plain()
    sources = [Path(path)]
    with suppress(InfeasibleError, UnsupportedError):
        sources = Spec.load(path).sources(path)
    if len(sources) > 1:
        data["groups_from"] = str(sources[1].resolve())
    mapping: dict[str, Any] = data
    return mapping


def sweep(
    data: dict[str, Any],
    varies: Sequence[Vary],
    folder: Path | None = None,
    *,
    chances: bool = False,
    workers: int = 1,
    progress: Progress = lambda done, total: None,
) -> list[dict[str, Any]]:
    """The rows of every point, in the order of ``points``.

    Args:
        data: plain data of the spec.
        varies: the varied numbers.
        folder: where the journal and the table are stored, for a sweep that resumes.
        chances: whether to add an attacker's chances, ``CHANCES``.
        workers: processes.
        progress: called with the numbers of finished and of all points.

    Raises:
        InputError: for a number that cannot be varied, or where every point is faulty.
    """
    points(varies)  # its faults before any number is rounded
    _require_fixed(data, varies)
    varies = [_rounded(data, vary) for vary in varies]
    todo = points(varies)
    _require_plans(data, todo)

    journal: Journal[list[dict[str, Any]]] | None = None
    if folder is not None:
        values_by_path = [[vary.path, list(vary.values)] for vary in varies]
        identity: dict[str, Any] = {"spec": data, "vary": values_by_path}
        if chances:
            identity["chances"] = True
        journal = Journal(folder / JOURNAL, digest(identity), check_rows)
        journal.load()  # another sweep is refused before the lock is created

    items = {key_of(point): (data, point, chances) for point in todo}
    with resumable(folder):
        spread = in_jobs(min(workers, len(items)))
        results = finish(
            items, solve_point, spread=spread, journal=journal, progress=progress
        )
        rows: list[dict[str, Any]] = []
        for point in todo:
            rows += results[key_of(point)]
        if folder is not None:
            write_text(folder / TABLE, csv_text(rows, [vary.path for vary in varies]))
    return rows


def _rounded(data: dict[str, Any], vary: Vary) -> Vary:
    """The varied number, with distinct whole values where the spec takes only those."""
    from privplan.spec.spec import Spec

    broken = [value for value in vary.values if value != round(value)]
    if not broken:
        return vary
    try:
        Spec.parse(with_point(data, {vary.path: broken[0]}))
    except InputError as error:
        for fault in error.faults:
            if fault.field == vary.path and fault.rule.startswith(WHOLE):
                whole_values = dict.fromkeys(
                    float(round(value)) for value in vary.values
                )
                return Vary(vary.path, tuple(whole_values))
    except PrivplanError:
        pass  # no rounds keep the budgets there: a valid spec without a plan
    return vary


def _require_fixed(data: dict[str, Any], varies: Sequence[Vary]) -> None:
    """Raises InputError for a varied number that the plan or a recipe decides anew."""
    for vary in varies:
        if vary.path in _names_in(data.get("recipe"), "decides"):
            rule = "must not name what recipe.decides leaves to the recipe"
            raise InputError.one("vary", rule, vary.path)
        if vary.path in _names_in(data.get("planning"), "free"):
            rule = (
                "must not name what planning.free leaves to solve, which decides it "
                "anew"
            )
            raise InputError.one("vary", rule, vary.path)


def _names_in(section: object, field: str) -> list[Any]:
    """A list of a section of unchecked data; empty where there is none."""
    names = section.get(field) if isinstance(section, dict) else None
    if isinstance(names, list):
        return names
    return []


def _require_plans(data: dict[str, Any], todo: Sequence[dict[str, float]]) -> None:
    """Raises InputError when every point is faulty, with the faults of the first.

    A path that is no number of the spec is faulty at every value, and is raised at
    once. A point whose rounds follow from its budgets, and at which none keep them, has
    no plan but no fault.
    """
    from privplan.spec.spec import Spec

    first_error: InputError | None = None
    for point in todo:
        try:
            Spec.parse(with_point(data, point))
            return
        except InputError as error:
            if any(fault.rule.startswith(UNKNOWN) for fault in error.faults):
                raise
            if first_error is None:
                first_error = error
        except PrivplanError:
            return
    if first_error is not None:
        raise first_error
