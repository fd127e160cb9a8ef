"""``privplan frontier``: noise against rounds, cohort and budgets."""

from __future__ import annotations

import click

from privplan.cli import render
from privplan.cli.replaced import warn_replaced


@click.command(name="frontier", help="Show what rounds, cohort and budgets buy.")
@click.argument("spec", metavar="SPEC")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.option(
    "--forecast", metavar="PROXY",
    help="Forecast the accuracy of each point from that table (privplan forecast-proxy).",
)  # fmt: skip
@click.option("--plot", metavar="PNG", help="Draw the noise against each of them.")
def command(spec: str, form: str, forecast: str | None, plot: str | None) -> None:
    """Noise against rounds, cohort, epsilon and groups; shadow prices; wrong constants."""
    from privplan.io.files import refuse_overwriting, write_bytes
    from privplan.report.plots import frontier_picture, picture_name
    from privplan.report.tables import frontier_table
    from privplan.sensitivity.frontier import frontier, load_problem, unscaled_lines

    kind = picture_name(plot) if plot is not None else ""
    problem = load_problem(spec)
    refuse_overwriting(problem.sources(spec), [plot])
    model = None
    if forecast is not None:
        from privplan.forecast.model import forecaster

        model = forecaster(forecast)
    with render.progress("frontier") as progress:
        points = frontier(problem, progress, model)
    if plot is not None:
        write_bytes(plot, frontier_picture(points, kind))
    if form == "json":
        render.data([point.plain() for point in points])
    else:
        render.table(*frontier_table(problem.name, points))
        if plot is not None:
            render.text(f"wrote {plot}")
    for line in unscaled_lines(problem):
        render.warn(line)
    warn_replaced(spec)
