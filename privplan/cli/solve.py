"""``privplan solve``: the plan of a spec, and its certificate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli import render
from privplan.cli.asked_plan import Inverse, PastRuns, planned
from privplan.cli.horizon_plans import solve_horizon_spec
from privplan.cli.own_spec import measured, reading_options, with_measured
from privplan.errors import InputError

if TYPE_CHECKING:
    from privplan.book.rules import Rule


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
    help="With --target-noise: the fewest clients per round (default), the strictest budgets (all "
    "times one factor), or the most rounds. With --target-accuracy: the strictest budgets "
    "(default), the fewest clients or the fewest rounds.",
)
@click.option(
    "--target-accuracy",
    type=float,
    metavar="PERCENT",
    help="Plan for that accuracy by the forecast, at the least --solve-for.",
)
@click.option(
    "--forecast",
    metavar="PROXY",
    help="Forecast the accuracy from that table of proxy runs (privplan forecast-proxy).",
)
@click.option(
    "--anchor",
    metavar="PLAN=PERCENT",
    help="With --forecast: an accuracy that you know and the plan that reached it.",
)
@click.option(
    "--coverage",
    metavar="FILE",
    help="With --forecast: a JSON file, which classes each group holds; all alike when left out.",
)
@click.option(
    "--max-uploads",
    type=float,
    metavar="N",
    help="Plan with at most that many uploads over all rounds; the cohort follows.",
)
@click.option("--population", default="", metavar="NAME", help="Whose groups, in the book.")
@click.option(
    "--rule",
    type=click.Choice(["renyi", "gaussian", "exact"]),
    help="With --from-book: renyi, gaussian, a filter for a run chosen after seeing earlier ones "
    "(default: the rule of the group's account, or the filter that fits the first run); exact, for "
    "runs that were all fixed before the first result.",
)
@click.option(
    "--data",
    metavar="SOURCE",
    help="Own data, as in check-data: the spec's clients per group are taken from there.",
)
@click.option(
    "--model",
    metavar="MODULE:CLASS",
    help="Own torch.nn.Module: the spec's model.parameters are taken from there.",
)
@click.option("--model-args", metavar="JSON", help="Keyword arguments of the model's class.")
@click.option("--fix", is_flag=True, help="Group normalisation for batch normalisation.")
@reading_options
def command(
    spec: str,
    output: str | None,
    form: str,
    second_opinion: bool | None,
    plot: str | None,
    book: str | None,
    target_noise: float | None,
    solve_for: str | None,
    max_uploads: float | None,
    target_accuracy: float | None,
    forecast: str | None,
    anchor: str | None,
    coverage: str | None,
    population: str,
    rule: Rule | None,
    **own: Any,
) -> None:
    """Solve, then write, then show: nothing is written when solving fails."""
    from privplan.forecast.lines import forecast_lines
    from privplan.io.files import read_text
    from privplan.io.kinds import spec_mapping
    from privplan.planning.recipe import replaced_lines
    from privplan.planning.unspent import unspent_lines
    from privplan.report.tables import certificate_table, plan_lines, plan_table, risk_table
    from privplan.spec.spec import Spec

    found = measured(own)
    data, folder = spec_mapping(read_text(spec, "spec"), spec), Path(spec).parent
    problem = Spec.parse(data, folder) if found is None else with_measured(data, folder, found)
    if problem.horizon is not None:
        options = {
            "plot": plot,
            "from_book": book,
            "target_noise": target_noise,
            "solve_for": solve_for,
            "max_uploads": max_uploads,
            "target_accuracy": target_accuracy,
            "forecast": forecast,
            "anchor": anchor,
            "coverage": coverage,
            "population": population or None,
            "rule": rule,
        }
        for plan in solve_horizon_spec(problem, spec, output, form, options, second_opinion):
            for line in replaced_lines(data, plan):
                render.warn(line)
        return
    if solve_for is not None and target_noise is None and target_accuracy is None:
        raise InputError.one("solve_for", "needs --target-noise or --target-accuracy", solve_for)
    asked = Inverse(
        target_noise, solve_for, max_uploads, target_accuracy, forecast, anchor, coverage
    )
    if rule is not None and book is None:
        raise InputError.one("rule", "needs --from-book", rule)
    past = None if book is None else PastRuns(book, population, rule)
    plan = planned(problem, spec, (output, plot), second_opinion, past, asked)
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
        for line in (*plan_lines(plan), *forecast_lines(plan)):
            render.text(line)
        for path in (output, plot):
            if path is not None:
                render.text(f"wrote {path}")
    initial = plan.spec.model.initial
    of_file = () if initial is None else initial.warnings()
    for warning in (*plan.warnings, *unspent_lines(plan), *replaced_lines(data, plan), *of_file):
        render.warn(warning)
