"""Published tables, and the registry of the papers that print them.

A paper of this project is a file of data beside its module: titles, claims, printed
numbers, sizes and times. The module has the functions that the file names: they compute
a table of plans, list the settings of a table of runs, or judge a claim.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

from privplan.contrib.reproduction.claims import (
    Cell,
    Claim,
    Comparison,
    Differences,
    Judge,
    Result,
    ahead,
    lead_rises,
    printed_within,
    rises,
)
from privplan.errors import InputError, did_you_mean
from privplan.files import read_text
from privplan.plan import Plan
from privplan.record import STREAMS
from privplan.registry import Registry
from privplan.values import digest
from privplan.verification.verify import judge, load_run
from privplan.yaml_text import load_yaml


@dataclass(frozen=True)
class Method:
    """A row of a table of runs.

    Attributes:
        algorithm: name of a registered algorithm.
        hyperparameters: values that differ from the algorithm's defaults.
        changes: fields of the spec that differ for this method, such as its clipping
            norm.
    """

    algorithm: str
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """A column of a table of runs: what all methods are trained on, or attacked.

    Attributes:
        column: head of the column.
        spec: plain data of the spec.
        dataset: name of the data set.
        methods: methods by head of row.
        partition: who holds which records.
        options: further options of the command, by name.
    """

    column: str
    spec: Mapping[str, Any]
    dataset: str
    methods: Mapping[str, Method]
    partition: str = "iid"
    options: Mapping[str, str] = field(default_factory=dict)


Computed = Iterable[tuple[str, str, float | Sequence[float]]]
"""Row, column and value, or several values, of cells."""


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper.

    Attributes:
        name: on the command line, such as ``gdpfed-plus-table-2``.
        title: in the paper, such as ``Table 2: accuracy``.
        claims: what the paper says of it.
        planned: computes the cells of a table of plans.
        trained: settings of a table of runs, by size.
        measure: what is measured of each run: a name of ``MEASURES``.
        printed: printed number and its standard error (or None) by row and column.
        sizes: what each size means, in words.
        minutes: CPU minutes on one core, by size; measured or, as ``sizes`` then says,
            estimated.
        first_seed: of its runs; 1 where seed 0 has chosen learning rates.
        runs_of: name of the table whose runs it measures, too; its own when empty.
        left_out: why nothing computes it; empty for a table that can be reproduced.
        has_results: whether it has any; a table of notation or settings has none.
    """

    name: str
    title: str
    claims: tuple[Claim, ...] = ()
    planned: Callable[[], Computed] | None = None
    trained: Mapping[str, Callable[[], list[Setting]]] = field(default_factory=dict)
    measure: str = "accuracy in percent"
    printed: Mapping[tuple[str, str], tuple[float, float | None]] = field(
        default_factory=dict
    )
    sizes: Mapping[str, str] = field(default_factory=dict)
    minutes: Mapping[str, float] = field(default_factory=dict)
    first_seed: int = 0
    runs_of: str = ""
    left_out: str = ""
    has_results: bool = True

    @property
    def kind(self) -> str:
        """``plans``, ``runs`` or ``left out``."""
        if self.planned:
            return "plans"
        if self.trained:
            return "runs"
        return "left out"

    def cell(
        self, row: str, column: str, values: float | Sequence[float], **details: Any
    ) -> Cell:
        """A cell beside its printed number.

        Args:
            row: head of its row.
            column: head of its column.
            values: the number, or one by seed or draw.
            details: further fields of the cell.
        """
        if not isinstance(values, Sequence):
            values = (values,)
        printed, error = self.printed.get((row, column), (None, None))
        return Cell(
            row=row,
            column=column,
            values=tuple(values),
            published=printed,
            published_error=error,
            **details,
        )

    def computed(self) -> tuple[Cell, ...]:
        """The cells of a table of plans."""
        if self.planned is None:
            return ()
        return tuple(
            self.cell(row, column, values) for row, column, values in self.planned()
        )


@dataclass(frozen=True)
class Paper:
    """A paper with all its tables.

    Attributes:
        title: authors and title.
        tables: its tables and figures, in their order.
        differs: what differs from the paper at the sizes of the stored results.
    """

    title: str
    tables: tuple[Table, ...]
    differs: str = ""


PAPERS: Registry[Paper] = Registry(
    "paper",
    "privplan.papers",
    "privplan.contrib.reproduction.papers",
    order=lambda paper: paper.title.casefold(),
)


def tables() -> list[Table]:
    """The tables of all papers."""
    all_tables: list[Table] = []
    for _, paper in PAPERS.items():
        all_tables += paper.tables
    return all_tables


def table_of(name: str) -> Table:
    """The table of a name.

    Raises:
        InputError: for a name that no table has.
    """
    tables_by_name = {table.name: table for table in tables()}
    plain = name.strip().lower().replace("_", "-")
    if plain not in tables_by_name:
        near = did_you_mean(plain, tables_by_name)
        rule = f"must be one of privplan reproduce --list{near}"
        raise InputError.one("table", rule, name)
    return tables_by_name[plain]


# --- The file of a paper. -------------------------------------------------------------

Functions = Mapping[str, Callable[..., Any]]
"""Functions of the module beside the file, by name."""


def data_of(paper: str) -> dict[str, Any]:
    """What the file of a paper holds."""
    path = files("privplan.contrib.reproduction.papers").joinpath(f"{paper}.yaml")
    data: dict[str, Any] = load_yaml(path.read_text(encoding="utf-8"), paper)
    return data


def printed_rows(data: Mapping[str, Any], table: str) -> dict[str, list[Any]]:
    """The printed rows of a table by their heads, in the order of its columns."""
    [rows] = [
        entry["printed"]["rows"] for entry in data["tables"] if entry["name"] == table
    ]
    return dict(rows)


def paper_of(data: Mapping[str, Any], functions: Functions) -> Paper:
    """The paper of a file; names of functions are of the module that calls."""
    words = data.get("words", {})
    paper_tables = [_table(entry, words, functions) for entry in data["tables"]]
    return Paper(data["title"], tuple(paper_tables), data.get("differs", ""))


def _table(
    entry: Mapping[str, Any], words: Mapping[str, str], functions: Functions
) -> Table:
    """The table of an entry; ``words`` are those that its texts have in braces."""
    fields = dict(entry)
    if "planned" in entry:
        fields["planned"] = called(entry["planned"], functions)
    if "trained" in entry:
        fields["trained"] = {
            size: called(call, functions) for size, call in entry["trained"].items()
        }
    claims = [_claim(claim, words, functions) for claim in entry.get("claims", ())]
    fields["claims"] = tuple(claims)
    fields["printed"] = {}
    if "printed" in entry:
        fields["printed"] = _printed(**entry["printed"])
    fields["sizes"] = {
        size: text.format_map(words) for size, text in entry.get("sizes", {}).items()
    }
    fields["left_out"] = entry.get("left_out", "").format_map(words)
    return Table(**fields)


def called(call: Any, functions: Functions) -> Callable[..., Any]:
    """A function of a module: its name, or its name with arguments.

    The argument ``of`` is a function in its turn.
    """
    if isinstance(call, str):
        return functions[call]
    [(name, arguments)] = call.items()
    if "of" in arguments:
        arguments = dict(arguments)
        arguments["settings"] = called(arguments.pop("of"), functions)
    shared: Functions = {"tuned": tuned, "by_rate": by_rate, "by_value": by_value}
    return partial(shared.get(name) or functions[name], **arguments)


def tuned(
    settings: Callable[[], list[Setting]],
    rates: Mapping[str, Sequence[float]],
    numbers: Mapping[str, Mapping[str, float]],
) -> list[Setting]:
    """Settings at the learning rates of rows, by column, and at their other numbers.

    Both are the best at seed 0: rates of ``by_rate``, and then numbers of ``by_value``.
    """
    tuned_settings: list[Setting] = []
    for index, setting in enumerate(settings()):
        methods = dict(setting.methods)
        for row, rates_of_row in rates.items():
            methods[row] = at_rate(setting, row, rates_of_row[index])
        for row, numbers_of_row in numbers.items():
            methods[row] = _with(methods[row], numbers_of_row)
        tuned_settings.append(replace(setting, methods=methods))
    return tuned_settings


def by_rate(
    settings: Callable[[], list[Setting]], values: Sequence[float]
) -> list[Setting]:
    """Settings at each learning rate of a grid, the same for all rows."""
    columns: list[Setting] = []
    for setting in settings():
        for value in values:
            methods = {row: at_rate(setting, row, value) for row in setting.methods}
            column = f"{setting.column}, rate {value:g}"
            columns.append(replace(setting, column=column, methods=methods))
    return columns


def by_value(
    tables: Sequence[str], rows: Sequence[str], name: str, values: Sequence[float]
) -> list[Setting]:
    """Rows of the tuned settings of tables at each value of a hyperparameter."""
    columns: list[Setting] = []
    for table in tables:
        for setting in table_of(table).trained["reduced"]():
            for value in values:
                number = {name: value}
                methods = {row: _with(setting.methods[row], number) for row in rows}
                column = f"{setting.column}, {name} {value:g}"
                columns.append(replace(setting, column=column, methods=methods))
    return columns


def _with(method: Method, numbers: Mapping[str, float]) -> Method:
    """The method with other hyperparameters."""
    return replace(method, hyperparameters={**method.hyperparameters, **numbers})


def at_rate(setting: Setting, row: str, rate: float) -> Method:
    """The method of a row at a learning rate."""
    method = setting.methods[row]
    local = {
        **setting.spec["local"],
        **method.changes.get("local", {}),
        "learning_rate": rate,
    }
    return replace(method, changes={**method.changes, "local": local})


def _printed(
    columns: Sequence[str], rows: Mapping[str, Sequence[Any]], runs: int = 0
) -> dict[tuple[str, str], tuple[float, float | None]]:
    """Printed numbers and their standard errors, by row and column.

    Args:
        columns: heads of columns.
        rows: the numbers of each row; with a number of runs, means and standard
            deviations; None where nothing is printed.
        runs: over how many runs the means are.
    """
    printed: dict[tuple[str, str], tuple[float, float | None]] = {}
    for row, values in rows.items():
        for column, value in zip(columns, values, strict=True):
            if value is None:
                continue
            if runs:
                mean, deviation = value
                printed[row, column] = (mean, deviation / runs**0.5)
            else:
                printed[row, column] = (value, None)
    return printed


def _claim(
    entry: Mapping[str, Any], words: Mapping[str, str], functions: Functions
) -> Claim:
    """The claim of an entry."""
    note = entry.get("note", "").format_map(words)
    return Claim(entry["text"], _rule(entry, functions), note)


def _rule(entry: Mapping[str, Any], functions: Functions) -> Judge | Differences:
    """A function of the module, or one of the rules for all papers."""
    if "judge" in entry:
        return functions[entry["judge"]]
    if "within" in entry:
        return printed_within(entry["within"])
    margin = entry.get("margin", 0.0)
    columns = entry.get("columns", ())
    if "falls" in entry or "rises" in entry:
        return Differences(_changes(entry, columns), margin)
    for name, sign in (("lead_rises", 1.0), ("lead_falls", -1.0)):
        if name in entry:
            high, low = entry[name]
            return Differences(lead_rises(high, low, sign=sign), margin)
    rows: Sequence[str] = entry.get("ahead") or entry.get("as_printed") or []
    pairs = entry.get("pairs") or [(rows[0], row) for row in rows[1:]]
    as_printed = "as_printed" in entry
    return Differences(ahead(pairs, columns=columns, as_printed=as_printed), margin)


def _changes(
    entry: Mapping[str, Any], columns: Sequence[Any]
) -> Callable[[Result], list[Comparison]]:
    """Rows that rise and rows that fall, along columns or several lists of them."""
    paths = [columns]
    if columns and not isinstance(columns[0], str):
        paths = [*columns]
    rules: list[Callable[[Result], list[Comparison]]] = []
    for path in paths:
        rules.append(rises(entry.get("rises", ()), columns=path))
        rules.append(rises(entry.get("falls", ()), sign=-1.0, columns=path))

    def comparisons(result: Result) -> list[Comparison]:
        return [*chain.from_iterable(rule(result) for rule in rules)]

    return comparisons


# --- What a cell of a table of runs measures. -----------------------------------------

Execute = Callable[[Sequence[str]], Mapping[str, Any]]
"""Executes ``privplan`` with these arguments; returns what it prints as JSON data.

Other processes can import it.
"""
Measure = Callable[[Execute, Plan, Sequence[str], Path], dict[str, Any]]
"""Measures a run, from the executor, the plan, the words and the folder of the result.

The words are those for data, method and seed. The result has ``value``, ``spent``
(largest epsilon by group; None is infinite) and ``seconds`` (wall time).
"""


def accuracy(
    execute: Execute, plan: Plan, words: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Test accuracy of a run, in percent, and what its ledger spent."""
    record = execute(["simulate", *words, f"--output={folder}"])
    run = load_run(folder)
    numbers = run.record.configuration.get("numbers") or {}
    return {
        "value": 100 * (record["accuracy"] or 0.0),
        "spent": {group.group: group.realised_upper for group in judge(run, 0).groups},
        "seconds": record["wall_seconds"],
        "executed": executed(run.plan, numbers),
    }


_OF_GROUPS = ("sampling_ratio", "noise_multiplier", "weight", "scale", "kept_fraction")


def executed(plan: Plan, numbers: Mapping[str, float]) -> str:
    """Digest of plan, numbers and what streams are drawn by.

    Five digits of each number count, so that all machines agree.
    """
    groups: list[list[str]] = []
    for group in plan.groups:
        values = [getattr(group, name) for name in _OF_GROUPS]
        values.append(plan.clip_factor(group))
        groups.append([f"{value:.5g}" for value in values])
    clipping: list[tuple[str, str]] = []
    if plan.clipping is not None:
        clipping = _rounded(plan.clipping.model_dump())
    described = [
        [STREAMS, plan.spec_digest],
        str(plan.release),
        groups,
        f"{plan.spec.clipping_norm:.5g}",
        dict(clipping) or "",
        dict(_rounded(numbers)),
    ]
    return digest(described)[:16]


def _rounded(numbers: Mapping[str, float]) -> list[tuple[str, str]]:
    """Names and five digits, in the order of the names."""
    return [(name, f"{value:.5g}") for name, value in sorted(numbers.items())]


def round_seconds(
    execute: Execute, plan: Plan, words: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Wall time of a run by its rounds, evaluation included."""
    measured = accuracy(execute, plan, words, folder)
    return {**measured, "value": measured["seconds"] / plan.spec.rounds}


def reconstruction(
    execute: Execute,
    plan: Plan,
    words: Sequence[str],
    folder: Path,
    score: str = "psnr",
) -> dict[str, Any]:
    """Mean score of what an attack reads from the releases of single clients.

    The score is PSNR in dB, or SSIM. ``spent`` is the epsilon of the attacked group's
    releases.

    Raises:
        InputError: for a score whose package is missing.
    """
    printed = execute(["attack", *words, f"--output={folder}"])
    [row] = printed["rows"]
    if isinstance(row["scores"][score], str):
        rule = "must be available; pip install 'privplan[attacks]' brings scikit-image"
        raise InputError.one("measure", rule, score)
    mean, _, _ = row["scores"][score]
    epsilon = float(row["epsilon"])
    spent = epsilon if math.isfinite(epsilon) else None
    return {
        "value": mean,
        "spent": dict.fromkeys(row["groups"], spent),
        "seconds": row["seconds"],
        "executed": executed(plan, {}),
    }


def above_null(
    execute: Execute, plan: Plan, words: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Mean PSNR of an attack over that of its best null row, in dB."""
    measured = reconstruction(execute, plan, words, folder)
    table = json.loads(read_text(folder / "attacks.json", "attacks"))
    [row] = table["rows"]
    best = max(null["psnr"][0] for null in row["nulls"].values())
    return {**measured, "value": measured["value"] - best}


def weight_distance(
    execute: Execute, plan: Plan, words: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Half the sum of |w - w*| over the groups, in percent.

    w* are the weights of the plan, w the weights that the server found from the
    updates, else those in the ledger; both are shares of all rounds.
    """
    measured = accuracy(execute, plan, words, folder)
    run = load_run(folder)
    used = dict(run.record.weights)
    if not used:
        for line in run.ledger.records:
            for share in line.shares:
                used[share.group] = used.get(share.group, 0.0) + share.factor
    total = sum(used.values()) or 1.0
    gaps = [
        abs(used.get(group.name, 0.0) / total - group.weight) for group in plan.groups
    ]
    return {**measured, "value": 50 * sum(gaps)}


MEASURES: dict[str, Measure] = {
    "accuracy in percent": accuracy,
    "distance of the weights to the optimal ones in percent": weight_distance,
    "seconds per round": round_seconds,
    "PSNR in dB": reconstruction,
    "PSNR over the best null row in dB": above_null,
    "SSIM": partial(reconstruction, score="ssim"),
}
"""By the words for the numbers."""
