"""``privplan compare``: several algorithms under one plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli.given import refuse_given
from privplan.io.processes import uncollected
from privplan.io.resume import sweeps_in
from simulate.cli.options import (
    SEED,
    data_options,
    refuse_unused_aggregation,
    report_options,
    request_of,
    seeds_from,
)
from simulate.cli.own_options import own_of, own_options, with_own

if TYPE_CHECKING:
    from simulate.runs.comparison import ComparisonRow


@click.command(
    "compare", short_help="Train several algorithms under a plan and show them side by side."
)
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--algorithms", required=True, help="Names with commas between, or all.")
@data_options
@own_options
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--first-seed", type=SEED, default=0, show_default=True)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Runs at a time: 1 if left out; as many as a cluster has cores for.",
)
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Spread the runs over a Ray cluster: auto, local, or its address. The output and the "
    "data must be on storage that all its machines see.",
)
@click.option(
    "--against",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A run folder or a comparison's folder whose noise must differ from this comparison's; "
    "may be repeated.",
)
@report_options
@click.option(
    "--tune/--same-hyperparameters",
    default=False,
    help="Tune each method by itself, with equal numbers of runs and one accountant, or train all "
    "with the plan's clipping norm and learning rate and with default hyperparameters (default).",
)
@click.option(
    "--trials",
    type=click.IntRange(min=2),
    default=8,
    show_default=True,
    help="Runs per method "
    "that --tune spends on validation records, of which the first has the defaults.",
)
@click.option(
    "--validation-share",
    type=float,
    default=0.2,
    show_default=True,
    help="Share of the training records that --tune holds out for validation.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("results"))
@click.pass_context
@sweeps_in(lambda options: options["output"])
def command(
    context: click.Context,
    /,
    plan: Path,
    algorithms: str,
    seeds: int,
    first_seed: int,
    jobs: int | None,
    cluster: str | None,
    against: tuple[Path, ...],
    track: tuple[str, ...],
    precision: str,
    form: str,
    tune: bool,
    trials: int,
    validation_share: float,
    output: Path,
    **options: Any,
) -> None:
    """Train ALGORITHMS under PLAN with several seeds: a table, a CSV file and a plot.

    Each run has its own folder; finished runs are reused and interrupted ones resumed. Runs that
    repeat noise, other than those of one seed under several algorithms, are reported. With --tune
    each method first gets its own clipping norm, learning rate and hyperparameters, chosen on
    training records that are held out; all then spend the same epsilon.
    """
    from privplan.cli import render
    from privplan.forecast.lines import reached_line
    from privplan.record import ACCURACY

    with uncollected():
        from simulate.runs.compare import PLOT, TABLE, compare, select
        from simulate.runs.comparison import counted, finished_line, printed_table
    from simulate.runs.repeated_noise import repeated_noise, run_folders
    from simulate.runs.tuned_comparison import TUNED_TABLE, tuned_comparison, tuned_plan
    from simulate.runs.tuned_table import tuned_plain, tuned_table

    if not tune:
        refuse_given(context, ("trials", "validation_share"), "must be left out without --tune")
    others = [run for folder in against for run in run_folders(folder)]
    own = own_of(context, options)
    base = with_own(request_of(plan, "", output, options), own)
    base = replace(base, track=track, precision=precision)
    base = tuned_plan(base) if tune else base
    names, omitted = select(algorithms, base, one_unit=tune)
    refuse_unused_aggregation(base.plan, names)
    for line in omitted:
        render.warn(line)
    chosen = seeds_from(first_seed, seeds)
    where = f"{base.plan.spec.name} on {base.dataset}, {base.partition_name}"

    def status(row: ComparisonRow) -> None:
        render.status(finished_line(row))

    runs_each = counted(seeds, "seed")
    title = f"{counted(len(names), 'algorithm')}, {runs_each}"
    if tune:
        with render.progress(f"{title}, {trials} runs each to tune") as progress:
            found = tuned_comparison(
                base, names, chosen, trials, validation_share, jobs, progress, cluster, status
            )
        if form == "json":
            render.data(tuned_plain(found))
        else:
            render.table(*tuned_table(f"{where}: tuned, {runs_each}", found))
    else:
        with render.progress(title) as progress:
            rows = compare(base, names, chosen, jobs, progress, cluster, finished=status)
        if form == "json":
            render.data([line for row in rows for line in row.plain()])
        else:
            metric = rows[0].metric
            render.table(*printed_table(f"{where}: test {metric}, {runs_each}", rows))
            for row in rows:
                reached = reached_line(base.plan, row.mean)
                if row.algorithm == "planned" and metric == ACCURACY and reached is not None:
                    render.text(f"planned: {reached}")
    runs = [output / name / f"seed-{seed}" for name in names for seed in chosen]
    for line in repeated_noise(runs, others):
        render.warn(line)
    table = TUNED_TABLE if tune else TABLE
    if form == "table":
        render.text(f"table {output / table}, plot {output / PLOT}")
