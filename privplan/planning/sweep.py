"""What-if sweeps: the plans of one spec with some of its numbers varied.

The points of a sweep are all combinations of the varied values. They are solved independently,
over processes, and stored in a journal, so that an interrupted sweep resumes.
"""

from __future__ import annotations

import itertools
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
)
from privplan.files import read_text, write_text
from privplan.processes import in_jobs
from privplan.sweeps import Journal, Progress, finish, key_of, resumable
from privplan.values import digest
from privplan.visible import csv_cell
from privplan.yaml_text import load_yaml

if TYPE_CHECKING:
    from privplan.spec.spec import Spec


# The numbers of a spec that a what-if sweep varies: their ranges, and the specs of its points.

LARGEST = 1e100  # largest absolute value of the ends of a range
MOST_POINTS = 1_000_000


@dataclass(frozen=True)
class Vary:
    """One number of the spec and its values."""

    path: str  # its place in the spec, for example ``groups.strict.epsilon``
    values: tuple[float, ...]  # the values, in the order of the sweep


def parse_vary(text: str) -> Vary:
    """Values of ``PATH=1,2,4`` or ``PATH=FROM:TO:COUNT``: equal steps, or factors with ``:log``."""
    rule = "must be PATH=VALUE,... or PATH=FROM:TO:COUNT or PATH=FROM:TO:COUNT:log"
    path, _, span = text.partition("=")
    parts = span.split(":")
    log = len(parts) == 4 and parts[3] == "log"
    if not path or len(parts) not in (1, 3 + log):
        raise InputError.one("vary", rule, text)
    try:
        if len(parts) == 1:
            named = tuple(dict.fromkeys(float(one) for one in span.split(",")))
            if not max(map(abs, named)) <= LARGEST or any(map(math.isnan, named)):
                raise InputError.one(
                    "vary", f"must be of a size up to {LARGEST:g}", text
                )
            return Vary(path, named)
        first, last, count = float(parts[0]), float(parts[1]), int(parts[2])
    except ValueError:
        raise InputError.one("vary", rule, text) from None
    if not (math.isfinite(first) and math.isfinite(last) and 1 <= count <= 10_000):
        raise InputError.one(
            "vary", "must have finite ends and 1 to 10000 values", text
        )
    if log and not (first > 0 and last > 0):
        raise InputError.one("vary", "must have positive ends with log", text)
    if max(abs(first), abs(last)) > LARGEST or (log and min(first, last) < 1 / LARGEST):
        raise InputError.one(
            "vary", f"must have ends of a size up to {LARGEST:g}", text
        )
    steps = [i / max(count - 1, 1) for i in range(count)]
    if log:
        values = [float(f"{first * (last / first) ** s:.12g}") for s in steps]
    else:
        values = [float(f"{first + (last - first) * s:.12g}") for s in steps]
    return Vary(path, tuple(dict.fromkeys(values)))


def in_full(data: dict[str, Any], path: str) -> str:
    """The path of a short one: ``strict`` is ``groups.strict.epsilon`` of a group of that name."""
    from privplan.spec.spec import Spec

    first, _, field = path.partition(".")
    groups = data.get("groups")
    names = [one.get("name") for one in groups] if isinstance(groups, list) else []
    if first in names and first not in Spec.model_fields:
        return f"groups.{first}.{field or 'epsilon'}"
    if names and not field and first not in Spec.model_fields:
        known = [*map(str, names), *Spec.model_fields]
        rule = f"must be a field of the spec or one of its groups{did_you_mean(first, known)}"
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
    axes = [[(vary.path, value) for value in vary.values] for vary in varies]
    return [dict(combination) for combination in itertools.product(*axes)]


def with_stated(data: dict[str, Any], vary: Vary) -> Vary:
    """The varied number with the spec's own one among its values, in their order."""
    from privplan.spec.changes import stated_number

    stated = stated_number(data, vary.path)
    if stated is None or stated in vary.values:
        return vary
    is_falling = vary.values[0] > vary.values[-1]
    values = sorted((*vary.values, stated), reverse=is_falling)
    return Vary(vary.path, tuple(values))


def with_and_without(data: dict[str, Any], groups: Sequence[str]) -> list[Vary]:
    """Of each group its number of clients and 0, which leaves it out."""
    named = {one["name"]: one["clients"] for one in data.get("groups") or ()}
    for name in groups:
        if name not in named:
            rule = f"must be one of {', '.join(named)}{did_you_mean(name, named)}"
            raise InputError.one("without", rule, name)
    return [Vary(f"groups.{name}.clients", (named[name], 0.0)) for name in groups]


def with_point(data: dict[str, Any], point: dict[str, float]) -> dict[str, Any]:
    """A copy of the spec's plain data with the numbers of a point; integers stay integers."""
    from privplan.spec.changes import with_changes

    numbers = {
        path: int(one) if one == int(one) else one for path, one in point.items()
    }
    return with_changes(data, numbers)


# The rows of a what-if sweep: how a point is solved, what is shown of its plan, and its CSV.

COLUMNS = (
    "group", "clients", "epsilon", "delta", "sampling_ratio", "expected_cohort",
    "noise_multiplier", "weight", "counts", "epsilon_upper", "accountant", "sampling", "relation",
    "unit", "objective", "value", "mean_noise_std", "noise_norm", "status", "error",
)  # fmt: skip

DECIDED: dict[str, Callable[[Spec], float | None]] = {
    "rounds": lambda spec: spec.rounds,
    "cohort": lambda spec: spec.expected_cohort,
    "clipping_norm": lambda spec: spec.clipping_norm,
}
"""Further columns, of what ``planning.free`` lets the plan of a point decide."""


CHANCES = ("advantage", "tpr_at_fpr_0.01")
"""Columns of a sweep with chances: upper bounds on any attack; None where the curve is unknown."""
EXTRA = (
    "record_sampling_ratio",
    *DECIDED,
    *CHANCES,
)  # columns of which only some rows have values


def solve_point(
    asked: tuple[dict[str, Any], dict[str, float], bool],
) -> list[dict[str, Any]]:
    """Rows of a spec at one point: one per group, or one with the reason for no plan."""
    from privplan.accounting.calibrate import PLD
    from privplan.planning.noise import upper_bounds_only
    from privplan.planning.risks import risks_of
    from privplan.planning.solver import solve
    from privplan.spec.spec import Spec

    data, point, chances = asked
    try:
        with upper_bounds_only():
            plan = solve(Spec.parse(with_point(data, point)), second_opinion=False)
    except PrivplanError as error:
        return [{**point, "error": " ".join(str(error).split())}]
    free = (data.get("planning") or {}).get("free") or ()
    decided = {
        name: value(plan.spec) for name, value in DECIDED.items() if name in free
    }
    guarantees = {row.group: row for row in plan.certificate if row.guarantee}
    attacks: dict[str, dict[str, float | str | None]] = {}
    if chances:
        attacks = {group.name: dict.fromkeys(CHANCES) for group in plan.groups}
        with suppress(UnsupportedError):
            risks = risks_of(plan) if plan.guarantee == PLD else ()
            attacks |= {
                r.group: {name: r.curve.to_dict()[name] for name in CHANCES}
                for r in risks
            }
    rows = []
    for group in plan.groups:
        fields = group.model_dump(include={*COLUMNS} & set(type(group).model_fields))
        certified = guarantees[group.name]
        rows.append(
            {
                **point,
                **decided,
                "group": group.name,
                **fields,
                **group.model_dump(include={"record_sampling_ratio"}),
                **attacks.get(group.name, {}),
                "counts": group.weight * plan.spec.population / group.clients,
                "epsilon_upper": certified.epsilon_upper,
                "accountant": certified.accountant,
                "sampling": certified.sampling,
                "relation": str(certified.relation),
                "unit": certified.unit,
                "objective": plan.objective.name,
                "value": plan.objective.value,
                "mean_noise_std": plan.mean_noise_std,
                "noise_norm": plan.mean_noise_std
                * math.sqrt(plan.spec.model.parameters),
                "status": plan.status,
            }
        )
    return rows


def csv_text(rows: Sequence[dict[str, Any]], first: Sequence[str]) -> str:
    """Rows as tidy CSV, the varied numbers first."""
    import csv
    from io import StringIO

    buffer = StringIO()
    extra = [name for name in EXTRA if any(name in row for row in rows)]
    columns = list(dict.fromkeys((*first, *extra, *COLUMNS)))
    writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: csv_cell(value) for name, value in row.items()} for row in rows
    )
    return buffer.getvalue()


def check_rows(point: dict[str, float], rows: list[dict[str, Any]]) -> None:
    """Check that rows of a journal can be those of a point."""
    for row in rows:
        numbers = [row[name] for name in point]
        numbers += [] if "error" in row else [row["weight"], row["noise_norm"]]
        known = {*point, *EXTRA, *COLUMNS}
        if not {*row} <= known or not all(
            isinstance(one, int | float) for one in numbers
        ):
            raise ValueError


# --- What-if sweeps: the plans of one spec with some of its numbers varied. ----------------------

JOURNAL = "what-if.jsonl"
TABLE = "what-if.csv"
UNKNOWN = (
    "is not a known field"  # how the rule of a field begins that a spec does not have
)
WHOLE = "must be a whole number"  # how the rule of a number of the spec begins that is an integer


def spec_data(path: str) -> dict[str, Any]:
    """Plain data of a valid spec file, or of the spec of a plan file or a run folder.

    The path of a file of budgets is resolved.

    A budget that not even one round keeps, where the rounds follow from the budgets, is no fault:
    points of the sweep may keep theirs.
    """
    from privplan.spec.spec import Spec

    data: Any = None
    if not Path(path).is_dir():
        data = load_yaml(read_text(path, "spec"), "spec")
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
    """Rows of every point, in the order of ``points``; with ``chances``, those of an attacker."""
    points(varies)  # its faults before any number is rounded
    _require_given(data, varies)
    varies = [_rounded(data, vary) for vary in varies]
    todo = points(varies)
    _require_plans(data, todo)
    journal: Journal[list[dict[str, Any]]] | None = None
    if folder is not None:
        identity: dict[str, Any] = {
            "spec": data,
            "vary": [[vary.path, list(vary.values)] for vary in varies],
        }
        identity |= {"chances": True} if chances else {}
        journal = Journal(folder / JOURNAL, digest(identity), check_rows)
        journal.load()  # another sweep is refused before the lock is created
    items = {key_of(point): (data, point, chances) for point in todo}
    with resumable(folder):
        spread = in_jobs(min(workers, len(items)))
        results = finish(
            items, solve_point, spread=spread, journal=journal, progress=progress
        )
        rows = [row for point in todo for row in results[key_of(point)]]
        if folder is not None:
            write_text(folder / TABLE, csv_text(rows, [vary.path for vary in varies]))
    return rows


def _rounded(data: dict[str, Any], vary: Vary) -> Vary:
    """The varied number, with distinct whole values where the spec takes only whole ones."""
    from privplan.spec.spec import Spec

    broken = [value for value in vary.values if value != round(value)]
    try:
        if broken:
            Spec.parse(with_point(data, {vary.path: broken[0]}))
    except InputError as error:
        for fault in error.faults:
            if fault.field == vary.path and fault.rule.startswith(WHOLE):
                whole = dict.fromkeys(float(round(value)) for value in vary.values)
                return Vary(vary.path, tuple(whole))
    except (
        PrivplanError
    ):  # no rounds keep the budgets there: a valid spec without a plan
        pass
    return vary


def _require_given(data: dict[str, Any], varies: Sequence[Vary]) -> None:
    """Raise InputError for a number that is varied and that ``planning.free`` lets solve decide."""
    planning = data.get("planning") or {}
    free = planning.get("free") if isinstance(planning, dict) else None
    recipe = data.get("recipe")
    decides = recipe.get("decides") if isinstance(recipe, dict) else None
    for vary in varies:
        if isinstance(decides, list) and vary.path in decides:
            rule = "must not name what recipe.decides leaves to the recipe"
            raise InputError.one("vary", rule, vary.path)
        if isinstance(free, list) and vary.path in free:
            rule = "must not name what planning.free leaves to solve, which decides it anew"
            raise InputError.one("vary", rule, vary.path)


def _require_plans(data: dict[str, Any], todo: Sequence[dict[str, float]]) -> None:
    """Raise InputError when every point is faulty, with those of the first.

    A path that is no number of the spec is faulty at every value, and is raised at once. A point
    whose rounds follow from its budgets, and at which none keep them, has no plan but no fault.
    """
    from privplan.spec.spec import Spec

    first: InputError | None = None
    for point in todo:
        try:
            Spec.parse(with_point(data, point))
            return
        except InputError as error:
            first = first or error
            if any(one.rule.startswith(UNKNOWN) for one in error.faults):
                raise
        except PrivplanError:
            return
    if first is not None:
        raise first
