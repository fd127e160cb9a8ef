"""What-if sweeps: the plans of one spec with some of its numbers varied.

The points of a sweep are all combinations of the varied values. They are solved independently,
over processes, and stored in a journal, so that an interrupted sweep resumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from privplan.errors import Fault, InfeasibleError, InputError, PrivplanError, UnsupportedError
from privplan.io.files import read_text, write_text
from privplan.io.resume import Journal, Progress, finish, in_jobs, key_of, resumable
from privplan.io.text import load_yaml
from privplan.sensitivity.rows import Question, check_rows, csv_text, solve_point
from privplan.sensitivity.sharing import axes_of, evenly
from privplan.sensitivity.varying import Vary, points, with_point
from privplan.values import digest

JOURNAL = "what-if.jsonl"
TABLE = "what-if.csv"
UNKNOWN = "is not a known field"
"""How the rule of a field begins that a spec does not have."""
WHOLE = "must be a whole number"
"""How the rule of a number of the spec begins that is an integer."""


def spec_data(path: str) -> dict[str, Any]:
    """Plain data of a valid spec file, with the path of a file of budgets resolved.

    A budget that not even one round keeps, where the rounds follow from the budgets, is no fault:
    points of the sweep may keep theirs.

    Raises:
        InputError: when the file is not a valid spec.
    """
    from privplan.spec.spec import Spec

    sources = [Path(path)]
    with suppress(InfeasibleError, UnsupportedError):
        sources = Spec.load(path).sources(path)
    data: dict[str, Any] = load_yaml(read_text(path, "spec"), "spec")
    if len(sources) > 1:
        data["groups_from"] = str(sources[1].resolve())
    return data


def sweep(
    data: dict[str, Any],
    varies: Sequence[Vary],
    folder: Path | None = None,
    *,
    workers: int = 1,
    proxy: str | None = None,
    progress: Progress = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Rows of every point, in the order of ``points``.

    Args:
        data: the spec as plain data.
        varies: the varied numbers; those that must be whole are rounded, without repetition.
        folder: where journal and table are written; points in its journal are not solved again.
            Nothing is stored when None.
        workers: number of processes.
        proxy: path of a table of proxy runs, for forecasts; None without.
        progress: called with the number of finished points and of all points.

    Raises:
        InputError: when a path is not a number of the spec, or the folder holds another sweep.
        InterruptedSweepError: on Ctrl-C; the same call resumes.
    """
    points(varies)  # its faults before any number is rounded
    _require_given(data, varies)
    varies = [_rounded(data, vary) for vary in varies]
    todo = points(varies)
    _require_plans(data, todo)
    journal = None if folder is None else _journal(folder, data, varies, proxy)
    if journal is not None:
        journal.load()  # another sweep is refused before the lock is created
    axes = axes_of([with_point(data, point) for point in evenly(todo)])
    items = {key_of(point): Question(data, point, proxy, axes) for point in todo}
    with resumable(folder):
        spread = in_jobs(min(workers, len(items)))
        results = finish(items, solve_point, spread=spread, journal=journal, progress=progress)
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
    except PrivplanError:  # no rounds keep the budgets there: a valid spec without a plan
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
        if isinstance(free, list) and vary.path.replace("local.steps", "local_steps") in free:
            rule = "must not name what planning.free leaves to solve, which decides it anew"
            raise InputError.one("vary", rule, vary.path)


def _require_plans(data: dict[str, Any], todo: Sequence[dict[str, float]]) -> None:
    """Raise InputError when every point is faulty, with the faults that all share, each once.

    Where they share none, those of the first point. A path that is no number of the spec is faulty
    at every value, and is raised at once; so is a horizon. A point whose rounds follow from its
    budgets, and at which none keep them, has no plan but no fault either.
    """
    from privplan.spec.horizon import refuse_horizon
    from privplan.spec.spec import Spec

    shared: dict[tuple[str, str], Fault] | None = None
    first: list[Fault] = []
    for point in todo:
        try:
            spec = Spec.parse(with_point(data, point))
        except InputError as error:
            found = {(fault.field, fault.rule): fault for fault in error.faults}
        except PrivplanError:
            return
        else:
            refuse_horizon(spec.horizon)
            return
        if any(rule.startswith(UNKNOWN) or field == "vary" for field, rule in found):
            raise InputError(list(found.values()))
        if shared is None:
            shared, first = found, list(found.values())
        shared = {key: fault for key, fault in shared.items() if key in found}
    raise InputError(list((shared or {}).values()) or first)


def _journal(
    folder: Path, data: dict[str, Any], varies: Sequence[Vary], proxy: str | None
) -> Journal[list[dict[str, Any]]]:
    """The journal of a sweep, identified by the spec, the varied values and the proxy runs."""
    identity = {"spec": data, "vary": [[vary.path, list(vary.values)] for vary in varies]}
    if proxy is not None:
        from privplan.forecast.table import ProxyTable

        identity["proxy"] = ProxyTable.load(proxy).digest
    return Journal(folder / JOURNAL, digest(identity), check_rows)
