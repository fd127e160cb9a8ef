"""``privplan reproduce``: a published table, computed or trained again."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from privplan.cli import ON, in_section, render
from privplan.visible import csv_cell, in_latex

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from privplan.contrib.reproduction.claims import Cell, Outcome, Result
    from privplan.contrib.reproduction.tables import Table
    from privplan.report.style import Panel, Theme


FORMS = ("table", "json", "csv", "latex")
_OF_RUNS = ("rows", "seeds", "jobs", "data_dir", "download", "device")
"""Options that only tables of runs take."""


@in_section("tools")
@click.command(
    name="reproduce",
    short_help="Compute or train a published table again.",
    epilog="Example: privplan reproduce gdpfed-plus-table-1 --format json",
)
@click.argument("table", metavar="[TABLE]", required=False)
@click.option(
    "--list", "show_list", is_flag=True, help="List the tables of all papers."
)
@click.option(
    "--size",
    help="full: the paper's setting; reduced: the table's own, for a CPU.  "
    "[reduced where the table has it]",
)
@click.option(
    "--rows",
    multiple=True,
    help="A row to run, by its head; again for more.  [all rows]",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    help="Runs per cell.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Runs at a time.",
)
@ON
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder with data sets.  [PRIVPLAN_DATA]",
)
@click.option("--download", is_flag=True, help="Fetch missing data sets.")
@click.option("--device", metavar="auto|cpu|cuda|cuda:N", default="auto")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    default="table",
    help="csv and latex have the cells alone, without verdicts.  [table]",
)
@click.option(
    "--plot", metavar="PICTURE", help="Draw it beside the printed numbers, too."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("reproduction"),
    show_default=True,
    help="Folder of results; runs are in a folder per table and size, and are resumed.",
)
@click.pass_context
def command(
    context: click.Context,
    table: str | None,
    show_list: bool,
    size: str | None,
    rows: tuple[str, ...],
    seeds: int,
    jobs: int,
    data_dir: Path | None,
    download: bool,
    device: str,
    form: str,
    plot: str | None,
    output: Path,
) -> None:
    """Print a table beside the published one, with a verdict per claim; store it."""
    from privplan.contrib.reproduction.claims import Result
    from privplan.contrib.reproduction.tables import tables
    from privplan.errors import InputError
    from privplan.files import write_bytes
    from privplan.report.style import picture, picture_name

    drawn_as = picture_name(plot) if plot is not None else ""
    if show_list:
        if table is not None:
            raise InputError.one("table", "must be left out with --list", table)
        _list(tables(), form)
        return
    chosen = _reproducible(table, size)
    if chosen.planned is not None:
        rule = f"must be left out for {chosen.name}, a table of plans"
        render.refuse_options(context, _OF_RUNS, rule)
        result = Result(table=chosen.name, size="full", cells=chosen.computed())
    else:
        options = [f"--device={device}"]
        if download:
            options.append("--download")
        if data_dir is not None:
            options.append(f"--data-dir={data_dir}")
        result = _trained(chosen, size, seeds, rows, output, options, jobs)
    stored = result.save(output)
    if plot is not None:
        panels = list(panels_of(chosen, result))
        columns = 2 if len(panels) > 1 else 1
        write_bytes(plot, picture(panels, drawn_as, columns=columns))
    _print(chosen, result, form)
    if form == "table":
        render.text(f"wrote {stored}")


def _reproducible(name: str | None, size: str | None) -> Table:
    """The table of a name.

    Raises:
        InputError: for a table that nothing computes, or a size that it does not have.
    """
    from privplan.contrib.reproduction.claims import Size
    from privplan.contrib.reproduction.tables import table_of
    from privplan.errors import InputError

    if name is None:
        rule = "must be one of privplan reproduce --list"
        raise InputError.one("table", rule, "nothing")
    table = table_of(name)
    if table.kind == "left out":
        rule = f"cannot be reproduced: {table.left_out}"
        raise InputError.one("table", rule, table.name)
    if size is not None and size not in get_args(Size):
        rule = f"must be one of {', '.join(get_args(Size))}"
        raise InputError.one("size", rule, size)
    if table.planned is not None and size == "reduced":
        rule = f"must be full for {table.name}, a table of plans"
        raise InputError.one("size", rule, size)
    return table


def _trained(
    table: Table,
    size_or_default: str | None,
    seeds: int,
    rows: Sequence[str],
    output: Path,
    options: Sequence[str],
    jobs: int,
) -> Result:
    """A table of runs; runs that are finished are not repeated.

    Args:
        table: the table.
        size_or_default: its size; reduced where the table has it, when left out.
        seeds: runs of a cell.
        rows: heads of rows to run; all when left out.
        output: folder of results.
        options: further options of the command, on which no result depends.
        jobs: runs at a time.
    """
    from privplan.contrib.reproduction.claims import Result
    from privplan.contrib.reproduction.runs import run_table

    size: Any = size_or_default
    if size is None:
        size = "reduced" if "reduced" in table.trained else "full"
    if size not in table.minutes:
        about = table.sizes.get(size, "the paper's setting")
        render.status(
            f"{size} size, time not measured: {about}; Ctrl-C keeps finished runs"
        )
    earlier = output / f"{table.name}.json"
    with render.progress(table.name) as progress:
        return run_table(
            table,
            size,
            seeds,
            output / f"{table.runs_of or table.name}-{size}",
            execute,
            options=options,
            jobs=jobs,
            rows=rows,
            stored=Result.load(earlier) if earlier.is_file() else None,
            progress=progress,
            finished=lambda result, cell: _status(result, cell, output),
        )


def _print(table: Table, result: Result, form: str) -> None:
    """Print a result in one of ``FORMS``."""
    from privplan.contrib.reproduction.claims import verdicts

    outcomes = verdicts(table.claims, result)
    if form == "json":
        judged = [
            {
                "claim": claim.text,
                "verdict": outcome.verdict,
                "evidence": outcome.evidence,
            }
            for claim, outcome in zip(table.claims, outcomes, strict=True)
        ]
        render.data({**result.model_dump(mode="json"), "claims": judged})
    elif form == "csv":
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(HEADS)
        writer.writerows(map(_line, result.cells))
        render.text(buffer.getvalue().rstrip())
    elif form == "latex":
        render.text(_latex(result))
    else:
        _show(table, result, outcomes)


HEADS = ("row", "column", "found", "low", "high", "seeds", "printed")


def _line(cell: Cell) -> list[str]:
    """A cell with its interval of 95%; empty where there is none."""
    low = ""
    high = ""
    if cell.half is not None:
        low = f"{cell.mean - cell.half:.6g}"
        high = f"{cell.mean + cell.half:.6g}"
    return [
        csv_cell(cell.row),
        csv_cell(cell.column),
        f"{cell.mean:.6g}",
        low,
        high,
        str(len(cell.values)),
        "" if cell.published is None else f"{cell.published:g}",
    ]


def _latex(result: Result) -> str:
    """A tabular of the rows by the columns, with the printed numbers in brackets."""
    lines = [["", *map(in_latex, result.columns)]]
    for row in result.rows:
        cells = [result.cell_at(row, column) for column in result.columns]
        texts = ["" if cell is None else _words(cell, r" $\pm$ ") for cell in cells]
        lines.append([in_latex(row), *texts])
    body = " \\\\\n".join(" & ".join(line) for line in lines)
    columns = "r" * len(result.columns)
    return f"\\begin{{tabular}}{{l{columns}}}\n{body} \\\\\n\\end{{tabular}}"


def _words(cell: Cell, sign: str = " ± ") -> str:
    """Mean, half of its interval, and the printed number."""
    error = "" if cell.half is None else f"{sign}{cell.half:.2g}"
    printed = "" if cell.published is None else f" ({cell.published:g})"
    return f"{cell.mean:.4g}{error}{printed}"


_PLACE = re.compile(
    r"(?:(?P<head>.*) = |(?P<of>.*), (?P<what>\w+) )?(?P<at>[\d.]+)(?P<unit>[\w ]*)"
)
"""Heads of columns with a number.

Such as ``q = 0.02``, ``Dist4, rate 0.5`` and ``10x epsilon``.
"""
_FEWEST_POINTS = 3
"""Fewer numbers make no line."""
_WIDE = 5
"""From this factor between the ends on, an axis is logarithmic."""


def panels_of(table: Table, result: Result) -> Iterator[Panel]:
    """Lines where at least three heads of columns have a number; else rows."""
    unit = table.measure if table.trained else "value"
    places: dict[str, re.Match[str]] = {}
    for column in result.columns:
        place = _PLACE.fullmatch(column)
        if place is not None:
            places[column] = place
    if len(places) < _FEWEST_POINTS:
        places = {}
    yield from _lines(table, result, places, unit)
    for column in result.columns:
        if column not in places:
            yield _rows(column, _cells_of(result, column), unit)


def _cells_of(result: Result, column: str) -> list[Cell]:
    """The cells of a column."""
    return [cell for cell in result.cells if cell.column == column]


def _lines(
    table: Table, result: Result, places: dict[str, re.Match[str]], unit: str
) -> Iterator[Panel]:
    """A panel per title and axis, with ours and the printed numbers as lines.

    Args:
        table: the table.
        result: its result.
        places: of the columns that have a number in their heads.
        unit: of the values.
    """
    from privplan.report.panels import Lines

    panels: dict[tuple[str, str], dict[str, dict[float, float]]] = {}
    for column, place in places.items():
        axis = place["head"] or place["what"] or ""
        if axis and place["unit"]:
            axis += ", in units of"
        axis += place["unit"]
        panel = (place["of"] or table.title, axis.strip())
        for cell in _cells_of(result, column):
            values = {cell.row: cell.mean, f"{cell.row}, printed": cell.published}
            for name, value in values.items():
                if value is not None:
                    lines = panels.setdefault(panel, {})
                    lines.setdefault(name, {})[float(place["at"])] = value

    for (title, axis), lines in panels.items():
        numbers = {*chain.from_iterable(lines.values())}
        is_wide = max(numbers) > _WIDE * min(numbers) > 0
        drawing = Lines(axis, unit, lines, logarithmic=is_wide)
        yield drawing.panel(table.name, title)


def _rows(column: str, cells: Sequence[Cell], unit: str) -> Panel:
    """A row per cell: its mean, its interval, a diamond at the printed number."""
    from privplan.report.style import Panel, name_rows

    def draw(axes: Axes, theme: Theme) -> None:
        for position, cell in enumerate(cells):
            axes.errorbar(
                cell.mean,
                position,
                xerr=cell.half or 0,
                fmt="o",
                color=theme.good,
                capsize=3,
            )
            if cell.published is not None:
                axes.plot(cell.published, position, "D", color=theme.bad, mfc="none")
        name_rows(axes, [cell.row for cell in cells], f"{unit}; diamonds: printed")

    words = "; ".join(f"{cell.row} {_words(cell)}" for cell in cells)
    height = 0.9 + 0.3 * len(cells)
    return Panel(column, column, f"{column}, {unit}: {words}.", draw, height)


def execute(arguments: Sequence[str]) -> dict[str, Any]:
    """Execute ``privplan`` in this process; returns its JSON output."""
    from privplan.cli import main

    printed = io.StringIO()
    words = [*arguments, "--format=json", "--quiet"]
    with (
        contextlib.redirect_stdout(printed),
        main.make_context("privplan", words) as context,
    ):
        main.invoke(context)
    data: dict[str, Any] = json.loads(printed.getvalue())
    return data


def _status(result: Result, last: Cell, output: Path) -> None:
    """Store the cells so far, and name the last one on standard error."""
    result.save(output)
    render.status(f"{last.row}, {last.column}: {last.mean:.2f}")


def _list(tables: Sequence[Table], form: str) -> None:
    """Print the tables of all papers, and what each takes."""
    if form == "json":
        entries = [
            {
                "table": table.name,
                "title": table.title,
                "kind": table.kind,
                "sizes": dict(table.sizes),
                "minutes": dict(table.minutes),
                "left_out": table.left_out,
            }
            for table in tables
        ]
        render.data(entries)
        return
    rows: list[list[str]] = []
    for table in tables:
        times = ", ".join(
            f"{size} {minutes:g} min" for size, minutes in table.minutes.items()
        )
        words = times or table.left_out
        if not words:
            words = table.sizes["full"] if table.trained else "seconds"
        rows.append([table.name, table.title, words])
    caption = "minutes of one busy CPU core, three seeds"
    heads = ["table", "what", "time"]
    render.table("Published tables", heads, rows, caption, words=True)


def _show(table: Table, result: Result, outcomes: Sequence[Outcome]) -> None:
    """Print a result as a table, and the verdict on each claim."""
    rows: list[list[str]] = []
    for cell in result.cells:
        half = "" if cell.half is None else f" ± {cell.half:.2g}"
        printed = "" if cell.published is None else f"{cell.published:g}"
        rows.append([cell.row, cell.column, f"{cell.mean:.4g}{half}", printed])
    title = table.title
    size = table.sizes.get(result.size, "")
    if size:
        title += f" ({result.size} size: {size})"
    caption = ""
    if len(result.seeds) > 1:
        caption = f"± is half of the 95% interval over {len(result.seeds)} seeds"
    render.table(title, ["row", "column", "found", "printed"], rows, caption)
    for claim, outcome in zip(table.claims, outcomes, strict=True):
        render.text(f"{outcome.verdict}: {claim.text} ({outcome.evidence})")
