"""``privplan frontier``: what rounds, cohort and budgets buy."""

from __future__ import annotations

from pathlib import Path

import click

from privplan.cli import render


@click.command(name="frontier", help="Show what rounds, cohort and budgets buy.")
@click.argument("spec", metavar="SPEC")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.option("--plot", metavar="PNG", help="Draw the noise against each of them.")
def command(spec: str, form: str, plot: str | None) -> None:
    """Noise against rounds, cohort, epsilon and groups; shadow prices; wrong constants."""
    from privplan.errors import InputError
    from privplan.io.files import keep, write_bytes
    from privplan.report.plots import frontier_picture, picture_name
    from privplan.sensitivity.frontier import frontier
    from privplan.spec.rules import SEARCHED
    from privplan.spec.spec import Spec

    kind = picture_name(plot) if plot is not None else ""
    problem = Spec.load(spec)
    keep(problem.sources(spec), [plot])
    if problem.groups_from is not None:
        source = str((Path(spec).parent / problem.groups_from).resolve())
        problem = problem.model_copy(update={"groups_from": source})
    if problem.unit != "client":
        raise InputError.one("unit", "must be client for a frontier", problem.unit)
    if problem.planning.ratios not in SEARCHED:
        rule = f"must be one of {', '.join(SEARCHED)} for a frontier"
        raise InputError.one("planning.ratios", rule, problem.planning.ratios)
    with render.progress("frontier") as progress:
        answers = frontier(problem, progress)
    if plot is not None:
        write_bytes(plot, frontier_picture(answers, kind))
    if form == "json":
        render.data([vars(answer) for answer in answers])
        return
    rows = [
        [
            answer.question,
            answer.what,
            f"{answer.noise:.4g}" if answer.noise is not None else "-",
            f"{answer.change:+.2%}" if answer.change is not None else "-",
            answer.note,
        ]
        for answer in answers
    ]
    title = f"Frontier of {problem.name}: noise of the mean update, in norm"
    render.table(title, ["question", "what", "noise", "change", "note"], rows)
    if plot is not None:
        render.text(f"wrote {plot}")
