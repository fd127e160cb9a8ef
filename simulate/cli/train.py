"""``privplan simulate`` and ``privplan compare``: train algorithms under a plan."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli import ON, WITNESSING, in_section, render
from privplan.cli.folders import FolderPath
from privplan.cli.render import refuse_options
from simulate.cli.options import (
    JOBS,
    SEED,
    SEED_OPTION,
    data_options,
    refuse_unused_aggregation,
    report_options,
    request_of,
    seeds_from,
)
from simulate.cli.own_options import own_of, own_options

if TYPE_CHECKING:
    from simulate.algorithms.registry import AlgorithmEntry
    from simulate.parallel import Ranks
    from simulate.runs.request import Request

NOISE = click.option(
    "--noise",
    type=click.Choice(["seeded", "secure", "secure-discrete"]),
    help="Source of cohorts and noise: the seed; a secret key; or a secret key, on a "
    "grid.  [secure with --data, else seeded]",
)
_ALGORITHM_COLUMNS = [
    "algorithm",
    "unit of privacy",
    "released",
    "source",
    "hyperparameters",
]


def _list_algorithms(
    context: click.Context, parameter: click.Parameter, form: str | None
) -> None:
    """Print what can be trained, and end."""
    if form is None:
        return
    from simulate.algorithms.registry import ALGORITHMS

    entries = [entry for _, entry in ALGORITHMS.items()]
    if form == "json":
        render.data(list(map(_as_data, entries)))
        context.exit()
    rows = [
        [entry.name, entry.unit, entry.released, entry.source, _defaults(entry)]
        for entry in entries
    ]
    if form == "markdown":
        lines = [_ALGORITHM_COLUMNS, ["---"] * len(_ALGORITHM_COLUMNS), *rows]
        render.text("\n".join(f"| {' | '.join(row)} |" for row in lines))
    else:
        title = f"{len(rows)} algorithms"
        caption = "unit none: nothing is protected, epsilon is infinite"
        render.table(title, _ALGORITHM_COLUMNS, rows, caption, words=True)
    context.exit()


def _defaults(entry: AlgorithmEntry) -> str:
    """Defaults of the hyperparameters, as text."""
    return ", ".join(
        f"{name}={hyperparameter.default:g}"
        for name, hyperparameter in entry.hyperparameters.items()
    )


def _as_data(entry: AlgorithmEntry) -> dict[str, Any]:
    """What an algorithm is, for JSON."""
    hyperparameters = {
        name: {"default": hyperparameter.default, "meaning": hyperparameter.meaning}
        for name, hyperparameter in entry.hyperparameters.items()
    }
    return {
        "algorithm": entry.name,
        "unit": entry.unit,
        "released": entry.released,
        "source": entry.source,
        "hyperparameters": hyperparameters,
    }


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
    help="List all algorithms instead: unit of privacy, releases, source and "
    "hyperparameters, which are chosen by --set NAME=NUMBER.",
)
@data_options
@own_options
@SEED_OPTION
@click.option(
    "--canaries",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Canaries in each group, beyond its clients: their evidence lets verify bound "
    "epsilon from below.",
)
@report_options
@NOISE
@click.option(
    "--noise-key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the secret key is written (mode 600), to resume and to replay the run; "
    "beside the folder if left out.",
)
@click.option(
    "--commit-every",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Put ledger and evidence on disk after every N-th round, and before each "
    "checkpoint; 1 with own data.",
)
@click.option(
    "--plan-only",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Train nothing: write the plan that the method executes, to be approved.",
)
@click.option("-o", "--output", type=FolderPath(), default=Path("run"))
@click.pass_context
def simulate_command(
    context: click.Context,
    /,
    plan: Path,
    algorithm: str,
    output: Path,
    form: str,
    plan_only: Path | None,
    **options: Any,
) -> None:
    """Train under PLAN (a plan.json) and keep the run in a folder.

    The folder holds the executed plan, the ledger of all releases, the record and a
    plot. An interrupted run resumes with the same command, to the same result. Code of
    --data and --model is imported only from this command line, never from a plan or a
    run folder.

    torchrun --nproc-per-node K -m simulate PLAN ... spreads one run over K processes.
    """
    from simulate.parallel import process_group
    from simulate.runs.recipes import recipe_of_own
    from simulate.runs.run import execute_nonzero_rank

    request = request_of(plan, algorithm, output, options, own_of(context, options))
    refuse_unused_aggregation(request.plan, [algorithm])
    for line in recipe_of_own(request):
        render.warn(line)
    if plan_only is not None:
        _write_executed_plan(request, plan, plan_only)
        return
    request = replace(request, witnessing=context.meta.get(WITNESSING))
    with process_group(cuda=request.device != "cpu") as ranks:
        if ranks.is_main:
            _execute_main_rank(request, ranks, form)
        else:
            execute_nonzero_rank(request, ranks)


def _write_executed_plan(request: Request, source: Path, path: Path) -> None:
    """Write the plan that a method executes: some make another one of PLAN's spec."""
    from privplan.files import refuse_overwriting
    from simulate.runs.request import SEEDED, prepare

    refuse_overwriting([source], [path])
    # A key of the noise is not needed and would be refused beside a finished run.
    executed = prepare(replace(request, noise=SEEDED, noise_key_file=None))
    plan = executed.algorithm.plan
    plan.save(path)
    render.text(f"{request.algorithm} executes {plan.identity}: {path}")


def _execute_main_rank(request: Request, ranks: Ranks, form: str) -> None:
    """Train, and show the result."""
    from privplan.plan import Plan
    from privplan.record import ACCURACY, PLAN
    from simulate.algorithms.registry import ALGORITHMS
    from simulate.runs.records import PLOT
    from simulate.runs.run import execute

    with render.progress(f"{request.algorithm} on {request.dataset}") as report:
        outcome = execute(request, report, ranks)
    record = outcome.record
    output = request.folder
    plan = Plan.load(output / PLAN)
    if outcome.reused:
        render.warn(f"{output} holds this very run, finished; nothing was trained")
    entry = ALGORITHMS.get(record.algorithm)
    identity = plan.identity
    if entry.unit == "none":
        from privplan.accounting.release import SHORT

        identity = f"plan {plan.digest[:SHORT]}, unit none"
    exposes = entry.unit == "none" and entry.released != "nothing"
    if exposes and request.own_data is not None:
        render.warn(f"{record.algorithm} adds no noise: nobody is protected")
    if form == "json":
        shown = {
            "folder": str(output),
            "reused": outcome.reused,
            "plot": str(output / PLOT),
            "unit": plan.unit,
            "relation": str(plan.spec.relation),
        }
        render.data(shown | record.model_dump(mode="json"))
        return
    if record.metric == ACCURACY:
        score = f"{100 * (record.accuracy or 0.0):.2f}%"
    elif record.accuracy is None:
        score = "not finite"
    else:
        score = f"{record.accuracy:.4g}"
    render.text(
        f"{record.algorithm} on {record.dataset}: test {record.metric} {score} after "
        f"{record.rounds_done} rounds, {record.wall_seconds:.1f} s ({identity})"
    )
    render.text(f"plot: {output / PLOT}")
    # Without noise there is nothing that a key removes.
    if request.key_file is not None and not exposes:
        render.text(
            f"key of the noise: {request.key_file}; whoever has it removes the noise"
        )
    if request.own_data is None:
        again = ""
    else:
        again = ", with the same --data and its options"
    render.text(f"what was spent: privplan verify {shlex.quote(str(output))}{again}")


@in_section("run")
@click.command(
    "compare",
    short_help="Train several algorithms under a plan and show them side by side.",
    epilog=(
        "Example: privplan compare plan.json --algorithms DP-FedAvg,planned --seeds 3; "
        "plans are laid side by side by privplan report a.json b.json, and the runs of "
        "a comparison in FOLDER/results.csv"
    ),
)
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--algorithms", required=True, help="Names with commas between, or all.")
@data_options
@own_options
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="How many runs of each method; --first-seed begins their seeds.",
)
@click.option("--first-seed", type=SEED, default=0, show_default=True)
@JOBS
@ON
@report_options
@NOISE
@click.option(
    "--book",
    metavar="BOOK",
    help="Add all runs to this budget book; a file, or any SQLAlchemy address. Not with "
    "--tune, whose trials have no ledger.",
)
@click.option(
    "--recipe",
    type=click.Choice(["published", "ours", "both"]),
    help="How all methods train: as published, with the plan's recipe, or both, in rows "
    "of their own.  [methods of privplan with it, others as published, own ones as written]",
)
@click.option(
    "--tune",
    is_flag=True,
    help="Tune each method by itself, with equal numbers of runs and one accountant; else "
    "all train with the plan's clipping norm and learning rate and with default "
    "hyperparameters.",
)
@click.option(
    "--trials",
    type=click.IntRange(min=2),
    default=8,
    show_default=True,
    help="Runs per method that --tune spends on a fifth of the training records, which "
    "are held out; the first has the defaults.",
)
@click.option("-o", "--output", type=FolderPath(), default=Path("results"))
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

    PLAN may be a spec, which is solved. Methods with a rule of their own plan the same
    budgets by it, as the column plan shows. Each run has its own folder; finished runs
    are reused and interrupted ones resumed. With --tune each method first gets its own
    clipping norm, learning rate and hyperparameters, chosen on held-out training
    records; all then spend the same epsilon. On own data it says before and after what
    all runs spend together.
    """
    from privplan.errors import InputError
    from simulate.cli import comparison as steps
    from simulate.runs.compare import LATEX, PLOT, TABLE
    from simulate.runs.together import planned, together
    from simulate.runs.tune import same_accountant

    if not tune:
        refuse_options(context, ("trials",), "must be left out without --tune")
    elif recipe is not None:
        rule = "must be left out with --tune, which tunes it"
        raise InputError.one("recipe", rule, recipe)
    elif book is not None:
        rule = "must be left out with --tune, whose trials have no ledger to be added"
        raise InputError.one("book", rule, book)
    base = request_of(plan, "", output, options, own_of(context, options))
    if tune:
        base = replace(base, plan=same_accountant(base.plan))
    requests = steps.chosen_methods(base, algorithms, recipe, one_unit=tune)
    if book is not None and base.key_file is None:
        rule = (
            "must be left out with seeded noise, which runs of one seed share; "
            "--noise secure"
        )
        raise InputError.one("book", rule, book)
    run_seeds = seeds_from(first_seed, seeds)
    tuning_runs = 0
    if tune:
        tuning_runs = trials
    if base.own_data is not None:
        for line in together(planned(requests, run_seeds, tuning_runs)):
            render.warn(f"before the first run: {line}")
    rows, values = steps.trained(base, requests, run_seeds, tuning_runs, jobs)
    steps.show(form, base, run_seeds, rows, values)
    if base.own_data is not None:
        for line in together(steps.all_spent(requests, run_seeds, tuning_runs)):
            render.warn(f"spent: {line}")
    if book is not None:
        steps.add_to_book(book, base, requests, run_seeds)
    if form == "table":
        plot = f"{output / PLOT} (.svg, .pdf)"
        render.text(f"tables {output / TABLE}, {output / LATEX}; plot {plot}")
