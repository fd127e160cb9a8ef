"""``privplan solve``: the plan of a spec, and its certificate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from privplan.cli import render

if TYPE_CHECKING:
    from privplan.plan import Plan


class Inverse(NamedTuple):
    """What is asked in the other direction: options of the command."""

    target_noise: float | None
    solve_for: str
    max_uploads: float | None


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
@click.option(
    "--target-noise",
    type=float,
    metavar="NORM",
    help="Plan for at most that noise of the mean update, in norm, at the least --solve-for.",
)
@click.option(
    "--solve-for",
    type=click.Choice(["cohort", "epsilon", "rounds"]),
    default="cohort",
    show_default=True,
    help="With --target-noise: the fewest clients per round, the strictest budgets (all times one "
    "factor), or the most rounds.",
)
@click.option(
    "--max-uploads",
    type=float,
    metavar="N",
    help="Plan with at most that many uploads over all rounds; the cohort follows.",
)
@click.option("--population", default="", metavar="NAME", help="Whose groups, in the book.")
def command(
    spec: str,
    output: str | None,
    form: str,
    second_opinion: bool | None,
    plot: str | None,
    book: str | None,
    target_noise: float | None,
    solve_for: str,
    max_uploads: float | None,
    population: str,
) -> None:
    """Solve, then write, then show: nothing is written when solving fails."""
    from privplan.report.tables import certificate_table, plan_lines, plan_table, risk_table

    asked = Inverse(target_noise, solve_for, max_uploads)
    plan = _planned(spec, (output, plot), second_opinion, book, population, asked)
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
        if any(group.risk is not None for group in plan.spec.groups):
            from privplan.planning.risks import risks_of

            render.table(*risk_table(risks_of(plan)))
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
    asked: Inverse,
) -> Plan:
    """The plan of the spec, from what a book leaves when there is one."""
    from privplan.errors import InputError
    from privplan.io.files import refuse_overwriting
    from privplan.planning.solver import solve
    from privplan.spec.spec import Spec

    problem = Spec.load(spec)
    refuse_overwriting(problem.sources(spec), outputs)
    if asked.max_uploads is not None:
        from privplan.planning.inverse import with_uploads

        problem = with_uploads(problem, asked.max_uploads)
    if book is None and asked.target_noise is None:
        return solve(problem, second_opinion=second_opinion)
    if book is None:
        from privplan.planning.inverse import solve_for_noise

        return solve_for_noise(
            problem, asked.target_noise or 0.0, asked.solve_for, second_opinion=second_opinion
        )
    if asked.target_noise is not None:
        raise InputError.one("target_noise", "cannot go with --from-book", asked.target_noise)
    from privplan.book.database import address_of, shown
    from privplan.book.replan import solve_from_book
    from privplan.book.store import runs

    url = address_of(book)
    refuse_overwriting([shown(url)], outputs)
    past = runs(url)
    return solve_from_book(problem, past, population=population, second_opinion=second_opinion)
