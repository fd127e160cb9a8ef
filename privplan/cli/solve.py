"""``privplan solve``: the plan of a spec, and its certificate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from privplan.cli import render

if TYPE_CHECKING:
    from privplan.plan import Plan


@click.command(name="solve", help="Solve a spec: the plan and its certificate.")
@click.argument("spec", metavar="SPEC")
@click.option("-o", "--output", metavar="PLAN", help="Write the plan there (plan.json).")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="What to show on standard output.",
)
@click.option(
    "--second-opinion/--no-second-opinion",
    "second_opinion",
    default=None,
    help="Rows of prv-accountant in the certificate; without the option, only where it is the "
    "spec's accountant, since it takes longer to load than a plan to solve.",
)
@click.option("--plot", metavar="PNG", help="Draw the plan into that picture.")
@click.option(
    "--from-book",
    "book",
    is_flag=False,
    flag_value="",
    metavar="[ADDRESS]",
    help="Start from what the budget book says is left: the spec's epsilons are budgets over all "
    "runs. A file or SQLAlchemy address, PRIVPLAN_BOOK when left out; write SPEC before it.",
)
@click.option("--population", default="", metavar="NAME", help="Whose groups, in the book.")
def command(
    spec: str,
    output: str | None,
    form: str,
    second_opinion: bool | None,
    plot: str | None,
    book: str | None,
    population: str,
) -> None:
    """Solve, then write, then show: nothing is written when solving fails."""
    from privplan.report.tables import certificate_table, plan_lines, plan_table

    plan = _planned(spec, (output, plot), second_opinion, book, population)
    picture = None
    if plot is not None:
        from privplan.report.plots import picture_name, plan_picture

        picture = plan_picture(plan, picture_name(plot))
    if output is not None:
        plan.save(output)
    if picture is not None and plot is not None:
        from privplan.io.files import write_bytes

        write_bytes(plot, picture)
    if form == "json":
        render.text(plan.to_json().rstrip("\n"))
    else:
        render.table(*plan_table(plan))
        render.table(*certificate_table(plan))
        for line in plan_lines(plan):
            render.text(line)
        for path in (output, plot):
            if path is not None:
                render.text(f"wrote {path}")
    for warning in plan.warnings:
        render.warn(warning)


def _planned(
    spec: str,
    outputs: Sequence[str | None],
    second_opinion: bool | None,
    book: str | None,
    population: str,
) -> Plan:
    """The plan of the spec, from what a book leaves when there is one."""
    from privplan.io.files import refuse_overwriting
    from privplan.planning.solver import solve
    from privplan.spec.spec import Spec

    problem = Spec.load(spec)
    refuse_overwriting(problem.sources(spec), outputs)
    if book is None:
        return solve(problem, second_opinion=second_opinion)
    from privplan.book.database import address_of, shown
    from privplan.book.replan import solve_from_book
    from privplan.book.store import runs

    url = address_of(book)
    refuse_overwriting([shown(url)], outputs)
    past = runs(url)
    return solve_from_book(problem, past, population=population, second_opinion=second_opinion)
