"""``privplan solve``: the plan of a spec, and its certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from privplan.cli import render
from privplan.errors import InputError

if TYPE_CHECKING:
    from privplan.book.rules import Rule
    from privplan.plan import Plan
    from privplan.spec.spec import Spec


READING = ("task", "label", "client", "group", "groups", "features", "statistics")
"""Options of check-data that say how own data are read."""


def _reading_options(command: Any) -> Any:
    """Adds the options that check-data reads data with."""
    for name in reversed(READING):
        help_ = f"How --data are read, as in check-data --{name}."
        command = click.option(f"--{name}", metavar="VALUE", help=help_)(command)
    return command


class Inverse(NamedTuple):
    """What is asked in the other direction: options of the command."""

    target_noise: float | None
    solve_for: str | None
    max_uploads: float | None
    target_accuracy: float | None = None
    forecast: str | None = None
    anchor: str | None = None
    coverage: str | None = None


class PastRuns(NamedTuple):
    """Where past runs are, whose they are, and how they are composed: options of the command."""

    address: str
    population: str
    rule: Rule | None


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
    metavar="JSON",
    help="With --forecast: which classes each group holds; all alike when left out.",
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
@_reading_options
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
    from privplan.io.text import load_yaml
    from privplan.planning.recipe import replaced_lines
    from privplan.planning.unspent import unspent_lines
    from privplan.report.tables import certificate_table, plan_lines, plan_table, risk_table
    from privplan.spec.spec import Spec

    found = _measured(own)
    data, folder = load_yaml(read_text(spec, "spec"), "spec"), Path(spec).parent
    problem = Spec.parse(data, folder) if found is None else _with_measured(data, folder, found)
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
        for plan in _solve_horizon(problem, spec, output, form, options, second_opinion):
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
    plan = _planned(problem, spec, (output, plot), second_opinion, past, asked)
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
    for warning in (*plan.warnings, *unspent_lines(plan), *replaced_lines(data, plan)):
        render.warn(warning)


def _solve_horizon(
    problem: Spec,
    path: str,
    output: str | None,
    form: str,
    options: dict[str, Any],
    second_opinion: bool | None,
) -> tuple[Plan, ...]:
    """Solve a spec with a horizon, write the horizon and each run's plan, and show them."""
    from privplan.io.files import refuse_overwriting
    from privplan.planning.horizon import plan_path, solve_horizon
    from privplan.planning.recipe import NOT_TUNED
    from privplan.report.tables import certificate_table, horizon_table

    for option, value in options.items():
        if value is not None:
            raise InputError.one(option, "cannot go with a horizon", value)
    models = problem.horizon.all_models() if problem.horizon is not None else ()
    outputs = [output, *(str(plan_path(output, model)) for model in models)] if output else []
    refuse_overwriting(problem.sources(path), outputs)
    planned = solve_horizon(problem, second_opinion=second_opinion)
    written = planned.save(output) if output is not None else []
    if form == "json":
        render.data(planned.model_dump(mode="json"))
    else:
        render.table(*horizon_table(planned))
        render.table(*certificate_table(planned))
        render.text(NOT_TUNED)
        for one in written:
            render.text(f"wrote {one}")
    for warning in dict.fromkeys(line for plan in planned.plans for line in plan.warnings):
        render.warn(warning)
    return planned.plans


def _planned(
    problem: Spec,
    spec: str,
    outputs: Sequence[str | None],
    second_opinion: bool | None,
    book: PastRuns | None,
    asked: Inverse,
) -> Plan:
    """The plan of the spec, from what a book leaves when there is one."""
    from privplan.io.files import refuse_overwriting
    from privplan.planning.solver import solve

    inputs = [path for path in (asked.forecast, asked.coverage) if path is not None]
    refuse_overwriting([*problem.sources(spec), *inputs], outputs)
    for option, value in (
        ("target_accuracy", asked.target_accuracy),
        ("anchor", asked.anchor),
        ("coverage", asked.coverage),
    ):
        if value is not None and asked.forecast is None:
            raise InputError.one(option, "needs --forecast PROXY", value)
    if asked.target_accuracy is not None and (book is not None or asked.target_noise is not None):
        other = "--from-book" if book is not None else "--target-noise"
        raise InputError.one("target_accuracy", f"cannot go with {other}", asked.target_accuracy)
    if asked.forecast is not None:
        return _forecast(problem, spec, second_opinion, book, asked)
    if asked.max_uploads is not None:
        from privplan.planning.inverse import with_uploads

        settled = asked.target_noise is not None
        problem = with_uploads(problem, asked.max_uploads, settled=settled)
    if book is None and asked.target_noise is None:
        return solve(problem, second_opinion=second_opinion)
    if book is None:
        from privplan.planning.inverse import solve_for_noise

        return solve_for_noise(
            problem,
            asked.target_noise or 0.0,
            asked.solve_for or "cohort",
            second_opinion=second_opinion,
        )
    if asked.target_noise is not None:
        raise InputError.one("target_noise", "cannot go with --from-book", asked.target_noise)
    from privplan.book.database import address_of, shown
    from privplan.book.replan import solve_at

    refuse_overwriting([shown(address_of(book.address))], outputs)
    return solve_at(problem, *book, second_opinion=second_opinion)


def _forecast(
    problem: Spec,
    spec: str,
    second_opinion: bool | None,
    book: PastRuns | None,
    asked: Inverse,
) -> Plan:
    """The plan with its forecast; for the target accuracy where one is asked for."""
    from privplan.forecast.model import forecaster_with, with_forecast
    from privplan.forecast.table import read_coverage
    from privplan.forecast.target import solve_for_accuracy

    model = forecaster_with(str(asked.forecast), asked.anchor, asked.coverage)
    coverage = read_coverage(asked.coverage, problem, model.table.classes)
    if asked.target_accuracy is None:
        without = asked._replace(forecast=None, anchor=None, coverage=None)
        plan = _planned(problem, spec, (), second_opinion, book, without)
        return with_forecast(plan, model, coverage)
    if asked.max_uploads is not None:
        from privplan.planning.inverse import with_uploads

        problem = with_uploads(problem, asked.max_uploads, settled=True)
    return solve_for_accuracy(
        problem,
        asked.target_accuracy,
        model,
        coverage,
        asked.solve_for or "epsilon",
        second_opinion=second_opinion,
    )


def _measured(own: Mapping[str, Any]) -> dict[str, Any] | None:
    """What check-data, a command of the simulation backend, finds of data and model.

    Returns:
        ``clients``, numbers by name of the group, None where the data name no clients;
        ``parameters``, None without a model. None without data and model.
    """
    words = []
    for name in ("data", "model", *READING, "model_args", "fix"):
        value, option = own[name], name.replace("_", "-")
        if value and own["data"] is None and name in READING:
            raise InputError.one(option, "is only for --data", value)
        if value and own["model"] is None and name in ("model_args", "fix"):
            raise InputError.one(option, "is only for --model", value)
        if value:
            words += [] if name == "data" else [f"--{option}"] + [value] * (value is not True)
    if own["data"] is None and own["model"] is None:
        return None
    from privplan.cli import main

    check = main.get_command(click.Context(main), "check-data")
    if check is None:
        raise InputError.one("data", "needs the simulation backend, privplan[simulate]", "none")
    source = [] if own["data"] is None else [own["data"]]
    found: dict[str, Any] = check.main(["--for-spec", *words, *source], standalone_mode=False)
    return found


def _with_measured(data: Any, folder: Path, found: Mapping[str, Any]) -> Spec:
    """The spec with the clients of own data and the parameters of an own model.

    Raises:
        InputError: when groups of the data and of the spec differ, or for other faults.
    """
    from privplan.spec.spec import Spec

    if not isinstance(data, dict):
        return Spec.parse(data)
    clients, parameters = found["clients"], found["parameters"]
    if clients is not None:
        groups = data.get("groups")
        if not isinstance(groups, list) or not all(isinstance(one, dict) for one in groups):
            raise InputError.one("groups", "must be a list of groups with --data", groups)
        names = [str(one.get("name")) for one in groups]
        if None in clients and len(groups) == 1:
            clients = {names[0]: clients[None]}
        if None in clients and len(groups) > 1:
            rule = f"must name the groups {', '.join(names)}, by --group or --groups"
            raise InputError.one("data.group", rule, "none")
        if sorted(names) != sorted(map(str, clients)):
            rule = f"must be the groups of the data, {', '.join(sorted(map(str, clients)))}"
            raise InputError.one("groups", rule, ", ".join(names))
        data["groups"] = [{**one, "clients": clients[str(one["name"])]} for one in groups]
    if parameters is not None:
        named = data.get("model")
        model = named if isinstance(named, dict) else {}
        data["model"] = {"name": "own-model", **model, "parameters": parameters}
    return Spec.parse(data, folder)
