"""``privplan reproduce``: a published table, computed or trained again."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
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
    """Print a table beside the published one, with a verdict per claim, and store it as JSON."""
    from privplan.contrib.reproduction.claims import Result, Size, verdicts
    from privplan.contrib.reproduction.tables import table_of, tables
    from privplan.errors import InputError
    from privplan.files import write_bytes
    from privplan.report.style import picture, picture_name

    drawn_as = picture_name(plot) if plot is not None else ""
    if show_list:
        if table is not None:
            raise InputError.one("table", "must be left out with --list", table)
        _list(tables(), form)
        return
    if table is None:
        raise InputError.one(
            "table", "must be one of privplan reproduce --list", "nothing"
        )
    chosen = table_of(table)
    if chosen.kind == "left out":
        raise InputError.one(
            "table", f"cannot be reproduced: {chosen.left_out}", chosen.name
        )
    if size is not None and size not in get_args(Size):
        raise InputError.one(
            "size", f"must be one of {', '.join(get_args(Size))}", size
        )
    if chosen.planned is not None:
        if size == "reduced":
            raise InputError.one(
                "size", f"must be full for {chosen.name}, a table of plans", size
            )
        rule = f"must be left out for {chosen.name}, a table of plans"
        render.refuse_options(context, _OF_RUNS, rule)
        result = Result(table=chosen.name, size="full", cells=chosen.computed())
    else:
        from privplan.contrib.reproduction.runs import run_table

        wanted: Any = size or ("reduced" if "reduced" in chosen.trained else "full")
        options = [f"--device={device}", *(["--download"] if download else [])]
        options += [f"--data-dir={data_dir}"] if data_dir is not None else []
        folder, earlier = (
            output / f"{chosen.name}-{wanted}",
            output / f"{chosen.name}.json",
        )
        if wanted not in chosen.minutes:
            about = chosen.sizes.get(wanted, "the paper's setting")
            render.status(
                f"{wanted} size, time not measured: {about}; Ctrl-C keeps finished runs"
            )
        with render.progress(chosen.name) as progress:
            result = run_table(
                chosen,
                wanted,
                seeds,
                folder,
                execute,
                options=options,
                jobs=jobs,
                rows=rows,
                stored=Result.load(earlier) if earlier.is_file() else None,
                progress=progress,
                finished=lambda found, cell: _status(found, cell, output),
            )
    stored = result.save(output)
    if plot is not None:
        panels = list(panels_of(chosen, result))
        write_bytes(
            plot, picture(panels, drawn_as, columns=2 if len(panels) > 1 else 1)
        )
    claims = list(zip(chosen.claims, verdicts(chosen.claims, result), strict=True))
    if form == "json":
        outcomes = [
            {"claim": claim.text, "verdict": found.verdict, "evidence": found.evidence}
            for claim, found in claims
        ]
        render.data({**result.model_dump(mode="json"), "claims": outcomes})
    elif form == "csv":
        shown = io.StringIO()
        csv.writer(shown, lineterminator="\n").writerows(
            [HEADS, *map(_line, result.cells)]
        )
        render.text(shown.getvalue().rstrip())
    elif form == "latex":
        render.text(_latex(result))
    else:
        _show(chosen, result, [(claim.text, found) for claim, found in claims])
        render.text(f"wrote {stored}")


HEADS = ("row", "column", "found", "low", "high", "seeds", "printed")


def _line(cell: Cell) -> list[str]:
    """A cell with its interval of 95%; empty where there is none."""
    half, known = cell.half, "" if cell.published is None else f"{cell.published:g}"
    ends = (
        ["", ""]
        if half is None
        else [f"{cell.mean - half:.6g}", f"{cell.mean + half:.6g}"]
    )
    return [
        csv_cell(cell.row),
        csv_cell(cell.column),
        f"{cell.mean:.6g}",
        *ends,
        str(len(cell.values)),
        known,
    ]


def _latex(result: Result) -> str:
    """A tabular of the rows by the columns, with the printed numbers in brackets."""
    lines = [["", *map(in_latex, result.columns)]]
    for row in result.rows:
        cells = [result.at(row, column) for column in result.columns]
        shown = ["" if cell is None else _words(cell, r" $\pm$ ") for cell in cells]
        lines.append([in_latex(row), *shown])
    body = " \\\\\n".join(" & ".join(line) for line in lines)
    return f"\\begin{{tabular}}{{l{'r' * len(result.columns)}}}\n{body} \\\\\n\\end{{tabular}}"


def _words(cell: Cell, sign: str = " ± ") -> str:
    """Mean, half of its interval, and the printed number."""
    error = "" if cell.half is None else f"{sign}{cell.half:.2g}"
    printed = "" if cell.published is None else f" ({cell.published:g})"
    return f"{cell.mean:.4g}{error}{printed}"


_PLACE = re.compile(
    r"(?:(?P<head>.*) = |(?P<of>.*), (?P<what>\w+) )?(?P<at>[\d.]+)(?P<unit>[\w ]*)"
)
"""Heads of columns with a number, such as ``q = 0.02``, ``Dist4, rate 0.5`` and ``10x epsilon``."""


def panels_of(table: Table, result: Result) -> Iterator[Panel]:
    """Lines where at least three heads of columns have a number; else rows, column by column."""
    from privplan.report.panels import Lines

    unit = table.measure if table.trained else "value"

    def cells_of(column: str) -> list[Cell]:
        return [one for one in result.cells if one.column == column]

    places = {one: known for one in result.columns if (known := _PLACE.fullmatch(one))}
    if len(places) < 3:
        places = {}
    found: dict[tuple[str, str], dict[str, dict[float, float]]] = {}
    for column, place in places.items():
        across = place["head"] or place["what"] or ""
        across += ", in units of" * bool(across and place["unit"]) + place["unit"]
        for cell in cells_of(column):
            both = {cell.row: cell.mean, f"{cell.row}, printed": cell.published}
            for name, value in both.items():
                if value is not None:
                    panel = found.setdefault(
                        (place["of"] or table.title, across.strip()), {}
                    )
                    panel.setdefault(name, {})[float(place["at"])] = value
    for (title, across), named in found.items():
        at = {one for line in named.values() for one in line}
        wide = max(at) > 5 * min(at) > 0
        drawing = Lines(across, unit, named, logarithmic=wide)
        yield drawing.panel(table.name, title)
    for column in (one for one in result.columns if one not in places):
        yield _rows(column, cells_of(column), unit)


def _rows(column: str, cells: Sequence[Cell], unit: str) -> Panel:
    """A row per cell: its mean with the interval, and a diamond at the printed number."""
    from privplan.report.style import Panel, name_rows

    def draw(axes: Axes, theme: Theme) -> None:
        for at, cell in enumerate(cells):
            axes.errorbar(
                cell.mean, at, xerr=cell.half or 0, fmt="o", color=theme.good, capsize=3
            )
            if cell.published is not None:
                axes.plot(cell.published, at, "D", color=theme.bad, mfc="none")
        name_rows(axes, [cell.row for cell in cells], f"{unit}; diamonds: printed")

    words = "; ".join(f"{cell.row} {_words(cell)}" for cell in cells)
    return Panel(
        column, column, f"{column}, {unit}: {words}.", draw, 0.9 + 0.3 * len(cells)
    )


def execute(arguments: Sequence[str]) -> dict[str, Any]:
    """Execute ``privplan`` in this process; returns its JSON output."""
    from privplan.cli import main

    shown = io.StringIO()
    words = [*arguments, "--format=json", "--quiet"]
    with (
        contextlib.redirect_stdout(shown),
        main.make_context("privplan", words) as context,
    ):
        main.invoke(context)
    found: dict[str, Any] = json.loads(shown.getvalue())
    return found


def _status(result: Result, last: Cell, output: Path) -> None:
    """Store the cells so far, and name the last one on standard error."""
    result.save(output)
    render.status(f"{last.row}, {last.column}: {last.mean:.2f}")


def _list(known: Sequence[Table], form: str) -> None:
    if form == "json":
        render.data(
            [
                {
                    "table": one.name,
                    "title": one.title,
                    "kind": one.kind,
                    "sizes": dict(one.sizes),
                    "minutes": dict(one.minutes),
                    "left_out": one.left_out,
                }
                for one in known
            ]
        )
        return
    rows = []
    for one in known:
        times = ", ".join(
            f"{size} {minutes:g} min" for size, minutes in one.minutes.items()
        )
        words = (
            times or one.left_out or (one.sizes["full"] if one.trained else "seconds")
        )
        rows.append([one.name, one.title, words])
    caption = "minutes of one busy CPU core, three seeds"
    render.table(
        "Published tables", ["table", "what", "time"], rows, caption, words=True
    )


def _show(table: Table, result: Result, claims: Sequence[tuple[str, Outcome]]) -> None:
    rows = []
    for cell in result.cells:
        half = "" if cell.half is None else f" ± {cell.half:.2g}"
        printed = "" if cell.published is None else f"{cell.published:g}"
        rows.append([cell.row, cell.column, f"{cell.mean:.4g}{half}", printed])
    size = table.sizes.get(result.size, "")
    many = len(result.seeds)
    caption = f"± is half of the 95% interval over {many} seeds" if many > 1 else ""
    title = f"{table.title}{f' ({result.size} size: {size})' if size else ''}"
    render.table(title, ["row", "column", "found", "printed"], rows, caption)
    for text, found in claims:
        render.text(f"{found.verdict}: {text} ({found.evidence})")
