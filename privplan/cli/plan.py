"""``privplan solve``: the plan of a spec, and its certificate."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from privplan.cli import render
from privplan.cli.horizon_plans import solve_horizon_spec
from privplan.errors import InputError
from privplan.files import write_text
from privplan.spec.presets import DEFAULT, PRESETS, preset
from privplan.sweeps import sweeps_in

if TYPE_CHECKING:
    from privplan.book.spending import BookRule as Rule
    from privplan.plan import Plan
    from privplan.spec.spec import Spec


# --- What ``privplan solve`` is asked (targets, forecasts, limits, past runs), and its plan. -----


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


def planned(
    problem: Spec,
    spec: str,
    outputs: Sequence[str | None],
    second_opinion: bool | None,
    book: PastRuns | None,
    asked: Inverse,
) -> Plan:
    """The plan of the spec, from what a book leaves when there is one."""
    from privplan.files import refuse_overwriting
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

        unknown = None if asked.target_noise is None else asked.solve_for or "cohort"
        problem = with_uploads(problem, asked.max_uploads, unknown=unknown)
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
    from privplan.book.replan import solve_at
    from privplan.book.store import address_of, shown

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
    from privplan.forecast.features import read_coverage
    from privplan.forecast.model import forecaster_with, with_forecast
    from privplan.forecast.target import solve_for_accuracy

    model = forecaster_with(str(asked.forecast), asked.anchor, asked.coverage)
    coverage = read_coverage(asked.coverage, problem, model.table.classes)
    if asked.target_accuracy is None:
        without = asked._replace(forecast=None, anchor=None, coverage=None)
        plan = planned(problem, spec, (), second_opinion, book, without)
        return with_forecast(plan, model, coverage)
    if asked.max_uploads is not None:
        from privplan.planning.inverse import with_uploads

        unknown = asked.solve_for or "epsilon"
        problem = with_uploads(problem, asked.max_uploads, unknown=unknown)
    return solve_for_accuracy(
        problem,
        asked.target_accuracy,
        model,
        coverage,
        asked.solve_for or "epsilon",
        second_opinion=second_opinion,
    )


# --- Own data and models of a command that solves: options, and the spec with what they hold. ----

READING = ("task", "label", "client", "group", "groups", "features", "statistics")
"""Options of check-data that say how own data are read."""


def reading_options(command: Any) -> Any:
    """Adds the options that check-data reads data with."""
    for name in reversed(READING):
        help_ = f"How --data are read, as in check-data --{name}."
        command = click.option(f"--{name}", metavar="VALUE", help=help_)(command)
    return command


def measured(own: Mapping[str, Any]) -> dict[str, Any] | None:
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


def with_measured(data: Any, folder: Path, found: Mapping[str, Any]) -> Spec:
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


# --- ``privplan solve``: the plan of a spec, and its certificate. --------------------------------


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
def solve_command(
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
    from privplan.files import read_text, spec_mapping
    from privplan.forecast.target import forecast_lines
    from privplan.planning.choices import replaced_lines
    from privplan.planning.explain import unspent_lines
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
        from privplan.files import write_bytes

        write_bytes(plot, picture)
    if form == "json":
        render.text(plan.to_json().rstrip("\n"))
    else:
        render.table(*plan_table(plan))
        render.table(*certificate_table(plan))
        if any(group.risk is not None for group in plan.spec.groups):
            from privplan.planning.explain import risks_of

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


# --- ``privplan explain``: the bounds behind a plan, term by term. -------------------------------


@click.command(name="explain", help="Show each term of the bounds as a formula and a number.")
@click.argument("plan", metavar="PLAN")
@click.option("--bound", "only", metavar="NAME", help="Only that bound; all when left out.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
def explain_command(plan: str, only: str | None, form: str) -> None:
    """Formulas with the plan's numbers."""
    from privplan.errors import InputError
    from privplan.forecast.target import forecast_lines
    from privplan.plan import Plan, book_lines
    from privplan.planning.choices import recipe_lines
    from privplan.planning.explain import bound, explain

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
        from privplan.planning.explain import reasons, risks_of
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


# --- ``privplan init``: a commented spec to start from. ------------------------------------------


@click.command(name="init", help="Write a commented spec to start from.")
@click.option(
    "--preset",
    "name",
    metavar="NAME",
    help=f"One of: {', '.join(PRESETS)}; {DEFAULT} when left out.",
)
@click.option("-o", "--output", metavar="SPEC", help="File to write; standard output if left out.")
@click.option("--schema", is_flag=True, help="Write the JSON schema of a spec instead.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def init_command(name: str | None, output: str | None, schema: bool, force: bool) -> None:
    """Write a preset, or the schema."""
    if schema and name is not None:
        raise InputError.one("preset", "must be left out with --schema", name)
    text = _schema() if schema else preset(DEFAULT if name is None else name)
    if output is None:
        render.text(text.rstrip("\n"))
        return
    if Path(output).is_dir():
        raise InputError.one("output", "must be a file, not a folder", output)
    if Path(output).exists() and not force:
        raise InputError.one("output", "must not exist yet; --force replaces it", output)
    write_text(output, text)
    render.text(f"wrote {output}")


def _schema() -> str:
    import json

    from privplan.spec.spec import Spec

    return json.dumps(Spec.model_json_schema(), indent=1) + "\n"


# --- Warnings of commands that read a spec: values in it that its recipe decides instead. --------


def warn_replaced(path: str | Path) -> None:
    """Warn of values of a spec's file that its recipe replaces, as ``solve`` does.

    The spec is solved for that only where it holds a value that its recipe decides.

    Args:
        path: file of a valid spec.
    """
    from privplan.errors import PrivplanError
    from privplan.files import load_yaml, read_text
    from privplan.planning.choices import decides_given, replaced_lines
    from privplan.planning.solver import solve
    from privplan.spec.spec import Spec

    data = load_yaml(read_text(path, "spec"), "spec")
    try:
        spec = Spec.load(path)
        if not decides_given(data, spec):
            return
        lines = replaced_lines(data, solve(spec, second_opinion=False))
    except PrivplanError:  # no plan whose values could differ
        return
    for line in lines:
        render.warn(line)


# --- ``privplan what-if``: how a plan changes with the numbers of its spec. ----------------------

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
def what_if_command(
    spec: str,
    varied: tuple[str, ...],
    forecast: str | None,
    form: str,
    output: str | None,
    workers: int,
) -> None:
    """Sweep, then show the noise and the weights of every point."""
    from privplan.files import write_bytes
    from privplan.forecast.features import ProxyTable
    from privplan.planning.sweep import TABLE, parse_vary, spec_data, sweep
    from privplan.report.plots import sweep_picture
    from privplan.report.tables import sweep_table

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


# --- ``privplan frontier``: noise against rounds, cohort and budgets. ----------------------------


@click.command(name="frontier", help="Show what rounds, cohort and budgets buy.")
@click.argument("spec", metavar="SPEC")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.option(
    "--forecast", metavar="PROXY",
    help="Forecast the accuracy of each point from that table (privplan forecast-proxy).",
)  # fmt: skip
@click.option("--plot", metavar="PNG", help="Draw the noise against each of them.")
def frontier_command(spec: str, form: str, forecast: str | None, plot: str | None) -> None:
    """Noise against rounds, cohort, epsilon and groups; shadow prices; wrong constants."""
    from privplan.files import refuse_overwriting, write_bytes
    from privplan.planning.frontier import frontier, load_problem, unscaled_lines
    from privplan.report.plots import frontier_picture, picture_name
    from privplan.report.tables import frontier_table

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
