"""``privplan explain``: the bounds behind a plan, term by term."""

from __future__ import annotations

import click

from privplan.cli import render


@click.command(name="explain", help="Show each term of the bounds as a formula and a number.")
@click.argument("plan", metavar="PLAN")
@click.option("--bound", "only", metavar="NAME", help="Only that bound; all when left out.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
def command(plan: str, only: str | None, form: str) -> None:
    """Formulas with the plan's numbers."""
    from privplan.book_budget import book_lines
    from privplan.errors import InputError
    from privplan.forecast.lines import forecast_lines
    from privplan.plan import Plan
    from privplan.planning.explain import bound, explain
    from privplan.planning.recipe import recipe_lines

    if only is not None:
        bound(only)
    solved = Plan.load(plan)
    rows = [row for row in explain(solved) if only in (None, row.bound)]
    if only is not None and not rows:
        rule = f"must be one that covers {solved.spec.sampling} sampling and the plan's unit"
        raise InputError.one("bound", rule, only)
    names = list(dict.fromkeys(row.bound for row in rows))
    if form == "json":
        render.data([vars(row) for row in rows])
        return
    for name in names:
        terms = [row for row in rows if row.bound == name]
        cells = [
            [
                row.term,
                row.formula,
                f"{row.value:.6g}" if row.value is not None else f"needs {', '.join(row.needs)}",
            ]
            for row in terms
        ]
        render.table(f"{name}: {terms[0].source}", ["term", "formula", "value"], cells)
    if only is None and solved.spec.tuning is None:  # these are of a single run
        from privplan.errors import UnsupportedError
        from privplan.planning.reasons import reasons
        from privplan.planning.risks import risks_of
        from privplan.report.tables import risk_table

        try:
            render.table(*risk_table(risks_of(solved)))
        except UnsupportedError as error:
            render.text(f"no risks: {error}")
        for line in reasons(solved):
            render.text(line)
    known = forecast_lines(solved) if solved.forecast is not None else []
    free = [line for line in solved.warnings if line.startswith("planning.free: ")]
    lines = (*free, *recipe_lines(solved), *known, *book_lines(solved.book)) if only is None else ()
    for line in lines:
        render.text(line)
