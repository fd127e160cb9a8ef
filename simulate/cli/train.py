"""``privplan simulate``: train an algorithm under a plan."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli import WITNESSING, in_section
from privplan.cli.render import refuse_options
from simulate.cli.options import (
    JOBS,
    SEED,
    SEED_OPTION,
    data_options,
    own_of,
    own_options,
    refuse_unused_aggregation,
    report_options,
    request_of,
    seeds_from,
)

if TYPE_CHECKING:
    from simulate.parallel import Ranks
    from simulate.runs.compare import ComparisonRow
    from simulate.runs.request import Request

NOISE = click.option(
    "--noise",
    type=click.Choice(["seeded", "secure", "secure-discrete"]),
    help="Source of cohorts and noise: the seed; a secret key; or a secret key, on a grid.  "
    "[secure with --data, else seeded]",
)
COLUMNS = ["algorithm", "unit of privacy", "released", "source", "hyperparameters"]


def _list_algorithms(
    context: click.Context, parameter: click.Parameter, form: str | None
) -> None:
    """Print what can be trained, and end."""
    if form is None:
        return
    from privplan.cli import render
    from simulate.algorithms.registry import ALGORITHMS

    rows, plain = [], []
    for _, entry in ALGORITHMS.items():
        known = entry.hyperparameters
        defaults = ", ".join(f"{name}={one.default:g}" for name, one in known.items())
        rows.append([entry.name, entry.unit, entry.released, entry.source, defaults])
        named = {
            "algorithm": entry.name,
            "unit": entry.unit,
            "released": entry.released,
        }
        hyperparameters = {
            n: {"default": one.default, "meaning": one.meaning}
            for n, one in known.items()
        }
        plain.append(
            {**named, "source": entry.source, "hyperparameters": hyperparameters}
        )
    if form == "json":
        render.data(plain)
    elif form == "markdown":
        lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
        render.text("\n".join(f"| {' | '.join(row)} |" for row in lines))
    else:
        caption = "unit none: nothing is protected, epsilon is infinite"
        render.table(f"{len(rows)} algorithms", COLUMNS, rows, caption, words=True)
    context.exit()


@in_section("run")
@click.command(
    "simulate",
    short_help="Train an algorithm under a plan.",
    epilog="Example: privplan simulate plan.json --algorithm planned --seed 1 -o run",
)
@click.argument("plan", type=click.Path(path_type=Path))
@click.option(
    "--algorithm", required=True, help="planned, GDPFed+, FedAvg, Local-only, ..."
)
@click.option(
    "--algorithms",
    is_flag=False,
    flag_value="table",
    type=click.Choice(["table", "json", "markdown"]),
    is_eager=True,
    expose_value=False,
    callback=_list_algorithms,
    metavar="[table|json|markdown]",
    help="List all algorithms instead: unit of privacy, releases, source and hyperparameters, "
    "which are chosen by --set NAME=NUMBER.",
)
@data_options
@own_options
@SEED_OPTION
@click.option(
    "--canaries",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Canaries in each group, beyond its clients: their evidence lets verify bound epsilon "
    "from below.",
)
@report_options
@NOISE
@click.option(
    "--noise-key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the secret key is written (mode 600), to resume and to replay the run; beside the "
    "folder if left out.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("run"))
@click.pass_context
def simulate_command(
    context: click.Context,
    /,
    plan: Path,
    algorithm: str,
    output: Path,
    form: str,
    **options: Any,
) -> None:
    """Train under PLAN (a plan.json) and keep the run in a folder.

    The folder holds the executed plan, the ledger of all releases, the record and a plot. An
    interrupted run resumes with the same command, to the same result. Code of --data and --model
    is imported only from this command line, never from a plan or a run folder.

    torchrun --nproc-per-node K -m simulate PLAN ... spreads one run over K processes.
    """
    from simulate.parallel import process_group
    from simulate.runs.run import execute_nonzero_rank

    request = request_of(plan, algorithm, output, options, own_of(context, options))
    refuse_unused_aggregation(request.plan, [algorithm])
    request = replace(request, witnessing=context.meta.get(WITNESSING))
    with process_group(cuda=request.device != "cpu") as ranks:
        if ranks.is_main:
            _execute_main_rank(request, ranks, form)
        else:
            execute_nonzero_rank(request, ranks)


def _execute_main_rank(request: Request, ranks: Ranks, form: str) -> None:
    """Train, and show the result."""
    from privplan.cli import render
    from privplan.plan import Plan
    from privplan.record import ACCURACY, PLAN
    from simulate.runs.run import PLOT, execute

    with render.progress(f"{request.algorithm} on {request.dataset}") as report:
        outcome = execute(request, report, ranks)
    record, output = outcome.record, request.folder
    plan = Plan.load(output / PLAN)
    if outcome.reused:
        render.warn(f"{output} holds this very run, finished; nothing was trained")
    if form == "json":
        shown = {
            "folder": str(output),
            "reused": outcome.reused,
            "plot": str(output / PLOT),
        }
        shown |= {"unit": plan.unit, "relation": str(plan.spec.relation)}
        render.data({**shown, **record.model_dump(mode="json")})
        return
    found = f"{100 * (record.accuracy or 0.0):.2f}%"
    if record.metric != ACCURACY:
        found = "not finite" if record.accuracy is None else f"{record.accuracy:.4g}"
    render.text(
        f"{record.algorithm} on {record.dataset}: test {record.metric} {found} after "
        f"{record.rounds_done} rounds, {record.wall_seconds:.1f} s ({plan.identity})"
    )
    render.text(f"plot: {output / PLOT}")
    if request.key_file is not None:
        render.text(
            f"key of the noise: {request.key_file}; whoever has it removes the noise"
        )
    again = "" if request.own_data is None else ", with the same --data and its options"
    render.text(f"what was spent: privplan verify {shlex.quote(str(output))}{again}")


# --- ``privplan compare``: several algorithms under one plan. ------------------------------------


@in_section("run")
@click.command(
    "compare",
    short_help="Train several algorithms under a plan and show them side by side.",
    epilog="Example: privplan compare plan.json --algorithms DP-FedAvg,planned --seeds 3",
)
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--algorithms", required=True, help="Names with commas between, or all.")
@data_options
@own_options
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--first-seed", type=SEED, default=0, show_default=True)
@JOBS
@report_options
@NOISE
@click.option(
    "--book",
    metavar="BOOK",
    help="Add all runs to this budget book; a file, or any SQLAlchemy address.",
)
@click.option(
    "--recipe",
    type=click.Choice(["published", "ours", "both"]),
    help="How all methods train: as published, with the plan's recipe, or both, in rows of their "
    "own.  [methods of privplan with it, others as published]",
)
@click.option(
    "--tune",
    is_flag=True,
    help="Tune each method by itself, with equal numbers of runs and one accountant; else all "
    "train with the plan's clipping norm and learning rate and with default hyperparameters.",
)
@click.option(
    "--trials",
    type=click.IntRange(min=2),
    default=8,
    show_default=True,
    help="Runs per method that --tune spends on a fifth of the training records, which are held "
    "out; the first has the defaults.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("results")
)
@click.pass_context
def compare_command(
    context: click.Context,
    /,
    plan: Path,
    algorithms: str,
    seeds: int,
    first_seed: int,
    jobs: int,
    form: str,
    recipe: str | None,
    tune: bool,
    trials: int,
    book: str | None,
    output: Path,
    **options: Any,
) -> None:
    """Train ALGORITHMS under PLAN with several seeds: a table, a CSV file and a plot.

    PLAN may be a spec, which is solved. Methods with a rule of their own plan the same budgets by
    it, as the column plan shows. Each run has its own folder; finished runs are reused and
    interrupted ones resumed. With --tune each method first gets its own clipping norm, learning
    rate and hyperparameters, chosen on held-out training records; all then spend the same epsilon.
    On own data it says before and after what all runs spend together.
    """
    from privplan.cli import render
    from privplan.errors import InputError
    from privplan.forecast.target import reached_line
    from privplan.record import ACCURACY
    from simulate.runs.compare import (
        LATEX,
        PLOT,
        TABLE,
        answer,
        compare,
        counted,
        finished_line,
        given_table,
        printed_table,
        select,
        units_apart,
        with_recipes,
    )
    from simulate.runs.together import planned, recorded, together
    from simulate.runs.tune import same_accountant, tuned_comparison

    if not tune:
        refuse_options(context, ("trials",), "must be left out without --tune")
    elif recipe is not None:
        raise InputError.one(
            "recipe", "must be left out with --tune, which tunes it", recipe
        )
    own = own_of(context, options)
    base = request_of(plan, "", output, options, own)
    base = replace(base, plan=same_accountant(base.plan)) if tune else base
    names, omitted = select(algorithms, base, one_unit=tune)
    refuse_unused_aggregation(base.plan, names)
    for line in omitted:
        render.warn(line)
    chosen = seeds_from(first_seed, seeds)
    rows_of = {name: replace(base, algorithm=name) for name in names}
    if recipe is not None:
        rows_of, without = with_recipes(base, names, recipe)
        names = list(rows_of)
        for line in without:
            render.warn(line)
    if book is not None and base.key_file is None:
        rule = "must be left out with seeded noise, which runs of one seed share; --noise secure"
        raise InputError.one("book", rule, book)
    tuned = trials if tune else 0
    if own.data is not None:
        for line in together(planned(rows_of, chosen, tuned)):
            render.warn(f"before the first run: {line}")
    where = f"{base.plan.spec.name} on {base.dataset}, {base.partition_name}"

    def status(row: ComparisonRow) -> None:
        render.status(finished_line(row))

    runs_each, values = counted(seeds, "seed"), None
    title = f"{counted(len(names), 'algorithm')}, {runs_each}"
    if tune:
        with render.progress(f"{title}, {trials} runs each to tune") as progress:
            rows, values = tuned_comparison(
                base, names, chosen, trials, jobs, progress, status
            )
    else:
        with render.progress(title) as progress:
            rows = compare(base, names, chosen, jobs, progress, rows_of, status)
    if form == "json":
        render.data([line for row in rows for line in row.plain()])
    else:
        metric = rows[0].metric
        for line in answer(rows):
            render.text(line)
        for whose, members in units_apart(rows).items():
            heading = f"{whose}{where}: test {metric}, {runs_each}"
            render.table(*printed_table(heading, members, values))
        render.table(*given_table(rows))
        for row in rows:
            reached = None if tune else reached_line(base.plan, row.mean, base.dataset)
            if (
                row.algorithm == "planned"
                and metric == ACCURACY
                and reached is not None
            ):
                render.text(f"planned: {reached}")
    runs = [output / name / f"seed-{seed}" for name in names for seed in chosen]
    if own.data is not None:
        trial = (
            (plan, of, tuned)
            for plan, of, _ in planned(rows_of, chosen, tuned)
            if tuned
        )
        for line in together([*recorded(rows_of, chosen), *trial]):
            render.warn(f"spent: {line}")
    if book is not None:
        from privplan.book.database import address_of, shown
        from privplan.book.entry import booking_of
        from privplan.book.store import add
        from privplan.verification.verify import judge
        from simulate.cli.replay import GIVEN, given_again

        judged = partial(judge, options={GIVEN: given_again(base)})
        for run in runs:
            add(address_of(book), booking_of(run, "", judged=judged))
        render.status(
            f"{shown(address_of(book))}: holds all {counted(len(runs), 'run')}"
        )
    if form == "table":
        plot = f"{output / PLOT} (.svg, .pdf)"
        render.text(f"tables {output / TABLE}, {output / LATEX}; plot {plot}")
