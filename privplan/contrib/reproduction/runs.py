"""Runs of a table, as one sweep that resumes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from privplan.cli.doctor import installed, versions
from privplan.contrib.reproduction.claims import Cell, Result, Size
from privplan.contrib.reproduction.epsilon_distribution import with_distribution
from privplan.contrib.reproduction.tables import (
    MEASURES,
    Execute,
    Method,
    Setting,
    Table,
)
from privplan.errors import InputError, PrivplanError, did_you_mean
from privplan.files import missing_folders, remove_empty
from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.processes import in_jobs
from privplan.spec.spec import Spec
from privplan.sweeps import Journal, Progress, finish, key_of, resumable
from privplan.values import digest

JOURNAL = "journal.jsonl"
RUNS = "runs"
PLAN = "plan.json"
_RESULT = {"value", "spent", "seconds", "executed"}


@dataclass(frozen=True)
class Run:
    """One run of a table.

    Attributes:
        setting: the column with data and partition.
        row: head of the row.
        seed: the run's seed.
        measure: what is measured, of ``MEASURES``.
        folder: folder of the row's runs.
        options: further options, such as where data are, on which no result depends.
    """

    setting: Setting
    row: str
    seed: int
    measure: str
    folder: Path
    options: tuple[str, ...]

    @property
    def method(self) -> Method:
        """The method of the row."""
        return self.setting.methods[self.row]

    @property
    def key(self) -> str:
        """Key in the journal: all that the accuracy depends on, besides the software."""
        described = {
            **_described(self.setting, self.row),
            "column": self.setting.column,
        }
        return key_of({**described, "row": self.row, "seed": self.seed})


Done = dict[tuple[str, str, int], dict[str, Any]]
"""What was measured, by column, row and seed."""


def run_table(
    table: Table,
    size: Size,
    seeds: int,
    folder: Path,
    execute: Execute,
    *,
    options: Sequence[str] = (),
    jobs: int = 1,
    rows: Sequence[str] = (),
    stored: Result | None = None,
    progress: Progress = lambda done, total: None,
    finished: Callable[[Result, Cell], None] = lambda result, cell: None,
) -> Result:
    """Execute all runs of a table, or of some rows; finished ones are not repeated.

    ``stored`` is an earlier result. What it has of today's settings counts as finished,
    and stays in the result where it has other rows or more seeds.
    """
    if size not in table.trained:
        rule = f"must be one of {', '.join(table.trained)} for {table.name}"
        raise InputError.one("size", rule, size)
    settings, first = table.trained[size](), table.first_seed
    heads = list(dict.fromkeys(row for one in settings for row in one.methods))
    for row in rows:
        if row not in heads:
            rule = f"must be one of {'; '.join(heads)}{did_you_mean(row, heads)}"
            raise InputError.one("rows", rule, row)
    done = (
        _known(settings, stored) if stored is not None and stored.size == size else {}
    )
    runs = [
        Run(
            one,
            row,
            seed,
            table.measure,
            folder / RUNS / _slug(one.column) / _slug(row),
            tuple(options),
        )
        for one in settings
        for row in one.methods
        for seed in range(first, first + seeds)
        if (not rows or row in rows) and (one.column, row, seed) not in done
    ]
    items = {run.key: run for run in runs}
    journal: Journal[dict[str, Any]] = Journal(
        folder / JOURNAL, digest({"table": table.name, "size": size}), _check
    )

    def result() -> Result:
        cells = tuple(_cells(table, settings, done))
        return Result(
            table=table.name,
            size=size,
            seeds=tuple(range(first, first + max(len(cell.values) for cell in cells))),
            configuration={
                one.column: {row: _described(one, row) for row in one.methods}
                for one in settings
            },
            versions={**versions(), **installed("numpy", "torch")},
            cells=cells,
        )

    def add(key: str, found: dict[str, Any]) -> None:
        run = items[key]
        done[run.setting.column, run.row, run.seed] = found

    def spread(work: Callable[[Any], Any], tasks: Sequence[Any], /) -> Iterator[Any]:
        for key, found in in_jobs(jobs)(work, tasks):
            add(key, found)
            run = items[key]
            head = (run.setting.column, run.row)
            if all((*head, seed) in done for seed in range(first, first + seeds)):
                so_far = result()
                [cell] = [one for one in so_far.cells if (one.column, one.row) == head]
                finished(so_far, cell)
            yield key, found

    if not items:
        return result()
    with resumable(folder):
        for key, found in journal.load().items():
            if key in items:
                add(key, found)
        work = partial(_executed, execute)
        ended = finish(items, work, spread=spread, journal=journal, progress=progress)
        for key, found in ended.items():
            add(key, found)
    return result()


def _known(settings: Sequence[Setting], stored: Result) -> Done:
    """The runs of a stored result that today's settings describe alike."""
    done: Done = {}
    for one in settings:
        for row in one.methods:
            described = json.loads(json.dumps(_described(one, row)))
            cell = stored.at(row, one.column)
            if (
                cell is None
                or stored.configuration.get(one.column, {}).get(row) != described
            ):
                continue
            for seed, value in zip(stored.seeds, cell.values, strict=False):
                at = seed - stored.seeds[0]
                seconds = cell.seconds[at] if at < len(cell.seconds) else 0.0
                same = {"spent": cell.spent, "executed": cell.executed}
                done[one.column, row, seed] = {
                    "value": value,
                    "seconds": seconds,
                    **same,
                }
    return done


def _cells(table: Table, settings: Sequence[Setting], done: Done) -> Iterator[Cell]:
    """Cells of which the run of the first seed is finished, with those of the next seeds."""
    for setting in settings:
        for row in setting.methods:
            runs: list[dict[str, Any]] = []
            seed = table.first_seed
            while (
                found := done.get((setting.column, row, seed + len(runs)))
            ) is not None:
                runs.append(found)
            if not runs:
                continue
            groups = [one["spent"] for one in runs]
            kinds = {one.get("executed", "") for one in runs}
            yield table.cell(
                row,
                setting.column,
                [one["value"] for one in runs],
                spent={
                    name: _largest([one[name] for one in groups]) for name in groups[0]
                },
                seconds=tuple(one["seconds"] for one in runs),
                executed=kinds.pop() if len(kinds) == 1 else "",
            )


def _largest(values: Sequence[float | None]) -> float | None:
    """The largest epsilon; None, which is infinite, when one of them is."""
    return (
        None if None in values else max(value for value in values if value is not None)
    )


def _described(setting: Setting, row: str) -> dict[str, Any]:
    """What a run depends on besides its seed, as JSON data."""
    method = setting.methods[row]
    return {
        "algorithm": method.algorithm,
        "hyperparameters": dict(method.hyperparameters),
        "spec": {**setting.spec, **method.changes},
        "dataset": setting.dataset,
        "partition": setting.partition,
        **setting.options,
    }


@lru_cache(maxsize=32)
def _solved(text: str) -> Plan:
    """The plan of a spec's plain data as JSON."""
    return solve(Spec.parse(with_distribution(json.loads(text))))


def _executed(execute: Execute, run: Run) -> dict[str, Any]:
    """What is measured of one run, realised epsilon per group and wall time."""
    described = _described(run.setting, run.row)
    plan = _solved(json.dumps(described["spec"]))
    plan_file, created = run.folder / PLAN, missing_folders(run.folder)
    plan.save(plan_file)
    numbers = [
        f"--set={name}={value:g}" for name, value in run.method.hyperparameters.items()
    ]
    words = [
        str(plan_file),
        f"--algorithm={run.method.algorithm}",
        f"--dataset={run.setting.dataset}",
        f"--seed={run.seed}",
        *numbers,
        *(
            [f"--partition={partition}"]
            if (partition := run.setting.partition) != "iid"
            else []
        ),
        *(f"--{name}={value}" for name, value in run.setting.options.items()),
        *run.options,
    ]
    try:
        return MEASURES[run.measure](
            execute, plan, words, run.folder / f"seed-{run.seed}"
        )
    except PrivplanError:  # nothing stays of a row whose first run is refused
        if created and [one.name for one in run.folder.iterdir()] == [PLAN]:
            plan_file.unlink()
            remove_empty(created)
        raise


def _check(point: Any, result: Any) -> None:
    """Check that a line of the journal can be a run's."""
    if not {"value", "spent", "seconds"} <= set(result) <= _RESULT or not {
        "row",
        "column",
        "seed",
    } <= set(point):
        raise ValueError


def _slug(text: str) -> str:
    """A head of a row or column as the name of a folder."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-")
