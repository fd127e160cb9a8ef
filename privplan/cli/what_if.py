"""``privplan what-if``: how a plan changes with the numbers of its spec."""

from __future__ import annotations

import os
from pathlib import Path

import click

from privplan.cli import render
from privplan.cli.replaced import warn_replaced
from privplan.io.resume import sweeps_in

PICTURE = "what-if.png"


@click.command(name="what-if", help="Solve a spec with some of its numbers varied.")
@click.argument("spec", metavar="SPEC")
@click.option(
    "--vary",
    "varied",
    multiple=True,
    required=True,
    metavar="PATH=FROM:TO:COUNT[:log]",
    help="A number of the spec, for example groups.strict.epsilon=0.1:2:20; may be repeated for "
    "other numbers. Values of whole numbers, such as rounds, are rounded; each occurs once.",
)
@click.option(
    "--forecast", metavar="PROXY",
    help="Forecast the accuracy of each point from that table (privplan forecast-proxy).",
)  # fmt: skip
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.option("-o", "--output", metavar="FOLDER", help="Folder for table, plot and journal.")
@click.option("--workers", type=click.IntRange(1), default=os.cpu_count() or 1, help="Processes.")
@sweeps_in(lambda options: Path(options["output"]) if options["output"] else None)
def command(
    spec: str,
    varied: tuple[str, ...],
    forecast: str | None,
    form: str,
    output: str | None,
    workers: int,
) -> None:
    """Sweep, then show the noise and the weights of every point."""
    from privplan.forecast.table import ProxyTable
    from privplan.io.files import write_bytes
    from privplan.report.plots import sweep_picture
    from privplan.report.tables import sweep_table
    from privplan.sensitivity.varying import parse_vary
    from privplan.sensitivity.what_if import TABLE, spec_data, sweep

    if forecast is not None:
        ProxyTable.load(forecast)  # its faults before any work
    varies = [parse_vary(text) for text in varied]
    paths = [vary.path for vary in varies]
    data, folder = spec_data(spec), Path(output) if output else None
    with render.progress("what-if") as progress:
        rows = sweep(data, varies, folder, workers=workers, proxy=forecast, progress=progress)
    if folder is not None:
        logarithmic = varied[0].endswith(":log")
        write_bytes(folder / PICTURE, sweep_picture(rows, paths, logarithmic=logarithmic))
    if form == "json":
        render.data(rows)
    else:
        render.table(*sweep_table(rows, paths))
        if folder is not None:
            render.text(f"wrote {folder / TABLE} and {folder / PICTURE}")
    warn_replaced(spec)
