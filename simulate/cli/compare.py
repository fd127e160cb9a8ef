"""``privplan compare``: several algorithms under one plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from simulate.cli.options import (
    SEED,
    data_options,
    own_of,
    own_options,
    request_of,
    seeds_from,
    with_own,
)


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
@click.option(
    "--precision",
    type=click.Choice(["float32", "tf32"]),
    default="float32",
    show_default=True,
    help="Products of local training on a GPU, before clipping; the rest is always float32.",
)
@click.option(
    "--track",
    multiple=True,
    metavar="NAME",
    help="Write metrics for tensorboard, mlflow or wandb, offline; may be repeated.",
)
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("results"))
@click.pass_context
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
    output: Path,
    **options: Any,
) -> None:
    """Train ALGORITHMS under PLAN with several seeds: a table, a CSV file and a plot.

    Each run has its own folder; finished runs are reused and interrupted ones resumed. Runs that
    repeat noise, other than those of one seed under several algorithms, are reported.
    """
    from privplan.cli import render
    from simulate.runs.compare import PLOT, TABLE, compare, select
    from simulate.runs.comparison import printed_table
    from simulate.runs.repeated_noise import repeated_noise, run_folders

    others = [run for folder in against for run in run_folders(folder)]
    own = own_of(context, options)
    base = with_own(request_of(plan, "", output, options), own)
    base = replace(base, track=track, precision=precision)
    names, omitted = select(algorithms, base)
    for line in omitted:
        render.warn(line)
    chosen = seeds_from(first_seed, seeds)
    with render.progress(f"{len(names)} algorithms, {seeds} seeds") as progress:
        rows = compare(base, names, chosen, jobs, progress, cluster)
    if form == "json":
        render.data([line for row in rows for line in row.plain()])
    else:
        where = f"{base.plan.spec.name} on {base.dataset}, {base.partition_name}"
        metric = rows[0].metric
        render.table(*printed_table(f"{where}: test {metric}, {seeds} seeds", rows))
    runs = [output / name / f"seed-{seed}" for name in names for seed in chosen]
    for line in repeated_noise(runs, others):
        render.warn(line)
    if form == "table":
        render.text(f"table {output / TABLE}, plot {output / PLOT}")
