"""Runs of a table, as one sweep that resumes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
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
from privplan.errors import InputError, PrivplanError, one_of
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
    def place(self) -> tuple[str, str, int]:
        """Column, row and seed."""
        return self.setting.column, self.row, self.seed

    @property
    def key(self) -> str:
        """Key in the journal: what the accuracy depends on, besides the software."""
        described = {
            **_described(self.setting, self.row),
            "column": self.setting.column,
        }
        return key_of({**described, "row": self.row, "seed": self.seed})


Done = dict[tuple[str, str, int], dict[str, Any]]
"""What was measured, by column, row and seed."""


@dataclass(frozen=True)
class _Training:
    """The runs of one table, finished or not.

    Attributes:
        table: the table.
        size: its size.
        settings: its columns.
        seeds: those that are asked for.
        done: what was measured so far; the runs add to it.
    """

    table: Table
    size: Size
    settings: list[Setting]
    seeds: range
    done: Done

    def missing(
        self, rows: Sequence[str], folder: Path, options: Sequence[str]
    ) -> list[Run]:
        """The runs of some rows, or of all, that are not finished."""
        runs: list[Run] = []
        for setting in self.settings:
            for row in setting.methods:
                if rows and row not in rows:
                    continue
                runs_of_row = folder / RUNS / _slug(setting.column) / _slug(row)
                measure = self.table.measure
                for seed in self.seeds:
                    run = Run(setting, row, seed, measure, runs_of_row, tuple(options))
                    if run.place not in self.done:
                        runs.append(run)
        return runs

    def is_complete(self, column: str, row: str) -> bool:
        """Whether all runs of a cell are finished."""
        return all((column, row, seed) in self.done for seed in self.seeds)

    def result(self) -> Result:
        """The table with the cells so far."""
        cells = tuple(_cells(self.table, self.settings, self.done))
        most_values = max(len(cell.values) for cell in cells)
        first = self.table.first_seed
        configuration: dict[str, Any] = {}
        for setting in self.settings:
            described = {row: _described(setting, row) for row in setting.methods}
            configuration[setting.column] = described
        return Result(
            table=self.table.name,
            size=self.size,
            seeds=tuple(range(first, first + most_values)),
            configuration=configuration,
            versions={**versions(), **installed("numpy", "torch")},
            cells=cells,
        )


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

    Args:
        table: the table.
        size: one of the sizes of the table.
        seeds: runs of a cell.
        folder: where the journal and the runs are stored.
        execute: executes ``privplan``.
        options: further options of the command, on which no result depends.
        jobs: runs at a time.
        rows: heads of the rows to run; all when left out.
        stored: an earlier result. What it has of today's settings counts as finished,
            and stays in the result where it has other rows or more seeds.
        progress: called with the numbers of finished and of all runs.
        finished: called with the result so far and a cell whose runs are all finished.

    Raises:
        InputError: for a size or a row that the table does not have.
    """
    if size not in table.trained:
        rule = f"must be one of {', '.join(table.trained)} for {table.name}"
        raise InputError.one("size", rule, size)
    settings = table.trained[size]()
    _check_rows(rows, settings)
    done: Done = {}
    if stored is not None and stored.size == size:
        done = _stored_runs(settings, stored)
    all_seeds = range(table.first_seed, table.first_seed + seeds)
    training = _Training(table, size, settings, all_seeds, done)
    items = {run.key: run for run in training.missing(rows, folder, options)}
    if not items:
        return training.result()

    def spread(work: Callable[[Any], Any], tasks: Sequence[Any], /) -> Iterator[Any]:
        """Reports each cell as soon as its last run is finished."""
        for key, measured in in_jobs(jobs)(work, tasks):
            run = items[key]
            done[run.place] = measured
            column = run.setting.column
            if training.is_complete(column, run.row):
                so_far = training.result()
                cell = so_far.cell_at(run.row, column)
                assert cell is not None
                finished(so_far, cell)
            yield key, measured

    journal: Journal[dict[str, Any]] = Journal(
        folder / _journal_of(table),
        digest({"table": table.name, "size": size}),
        _check,
    )
    with resumable(folder):
        for key, measured in journal.load().items():
            if key in items:
                done[items[key].place] = measured
        work = partial(_executed, execute)
        ended = finish(items, work, spread=spread, journal=journal, progress=progress)
        for key, measured in ended.items():
            done[items[key].place] = measured
    return training.result()


def _journal_of(table: Table) -> str:
    """Name of a table's journal; tables that share a folder of runs have one each."""
    return f"journal-{table.name}.jsonl" if table.runs_of else JOURNAL


def _check_rows(rows: Sequence[str], settings: Sequence[Setting]) -> None:
    """Raises InputError for a row that no setting has."""
    all_rows = chain.from_iterable(setting.methods for setting in settings)
    heads = list(dict.fromkeys(all_rows))
    for row in rows:
        if row not in heads:
            raise InputError.one("rows", one_of(heads, row), row)


def _stored_runs(settings: Sequence[Setting], stored: Result) -> Done:
    """The runs of a stored result that today's settings describe alike."""
    done: Done = {}
    for setting in settings:
        for row in setting.methods:
            cell = stored.cell_at(row, setting.column)
            stored_rows = stored.configuration.get(setting.column, {})
            described = json.loads(json.dumps(_described(setting, row)))
            if cell is None or stored_rows.get(row) != described:
                continue
            seconds = dict(zip(stored.seeds, cell.seconds, strict=False))
            for seed, value in zip(stored.seeds, cell.values, strict=False):
                done[setting.column, row, seed] = {
                    "value": value,
                    "seconds": seconds.get(seed, 0.0),
                    "spent": cell.spent,
                    "executed": cell.executed,
                }
    return done


def _cells(table: Table, settings: Sequence[Setting], done: Done) -> Iterator[Cell]:
    """Cells whose run of the first seed is finished, with those of the next seeds."""
    for setting in settings:
        for row in setting.methods:
            runs: list[dict[str, Any]] = []
            seed = table.first_seed
            while (setting.column, row, seed) in done:
                runs.append(done[setting.column, row, seed])
                seed += 1
            if not runs:
                continue
            spent: dict[str, float | None] = {}
            for name in runs[0]["spent"]:
                spent[name] = _largest([run["spent"][name] for run in runs])
            digests = {run.get("executed", "") for run in runs}
            yield table.cell(
                row,
                setting.column,
                [run["value"] for run in runs],
                spent=spent,
                seconds=tuple(run["seconds"] for run in runs),
                executed=digests.pop() if len(digests) == 1 else "",
            )


def _largest(values: Sequence[float | None]) -> float | None:
    """The largest epsilon; None, which is infinite, when one of them is."""
    finite = [value for value in values if value is not None]
    if len(finite) < len(values):
        return None
    return max(finite)


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
    plan_file = run.folder / PLAN
    created = missing_folders(run.folder)
    plan.save(plan_file)
    words = [
        str(plan_file),
        f"--algorithm={run.method.algorithm}",
        f"--dataset={run.setting.dataset}",
        f"--seed={run.seed}",
    ]
    for name, value in run.method.hyperparameters.items():
        words.append(f"--set={name}={value:g}")
    if run.setting.partition != "iid":
        words.append(f"--partition={run.setting.partition}")
    words += [f"--{name}={value}" for name, value in run.setting.options.items()]
    words += run.options
    folder = run.folder / f"seed-{run.seed}"
    try:
        return MEASURES[run.measure](execute, plan, words, folder)
    except PrivplanError:
        # Nothing stays of a row whose first run is refused.
        if created and [path.name for path in run.folder.iterdir()] == [PLAN]:
            plan_file.unlink()
            remove_empty(created)
        raise


def _check(point: Any, result: Any) -> None:
    """Check that a line of the journal can be a run's.

    Raises:
        ValueError: when it lacks a part, or has an unknown one.
    """
    has_place = {"row", "column", "seed"} <= set(point)
    has_result = {"value", "spent", "seconds"} <= set(result) <= _RESULT
    if not has_place or not has_result:
        raise ValueError


def _slug(text: str) -> str:
    """A head of a row or column as the name of a folder."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-")
