"""``privplan tune``: choose the training recipe by runs on public or proxy data."""

from __future__ import annotations

from pathlib import Path

import click

from privplan.sweeps import sweeps_in
from simulate.cli.options import JOBS, SEED_OPTION, FiniteRange, proxy_options

WARNING = (
    "tune: what is chosen by accuracy reveals something of the data: they must be public, or "
    "stand in for the private ones (proxy data)"
)


@click.command("tune", short_help="Choose the training recipe by runs on public or proxy data.")
@click.argument("spec", type=click.Path(path_type=Path))
@proxy_options
@click.option("--partition", default="iid", show_default=True, help="Who holds what.")
@click.option("--algorithm", default="planned", show_default=True, help="The algorithm to tune.")
@click.option(
    "--trials",
    type=click.IntRange(min=4),
    default=24,
    show_default=True,
    help="Recipes of the first rung, a third of which go on to the next.",
)
@click.option(
    "--budget", type=FiniteRange(min=0, min_open=True), metavar="MINUTES",
    help="Begin the last rungs in time to end after about so many minutes.",
)  # fmt: skip
@click.option(
    "--shifts", is_flag=True,
    help="Try random shifts of images, too: only where the private images differ in position as "
    "those of the proxy data do.",
)  # fmt: skip
@JOBS
@SEED_OPTION
@click.option(
    "-o", "--output", metavar="SPEC", required=True,
    help="Spec to write; the trials are kept in the folder SPEC.trials, to resume.",
)  # fmt: skip
@sweeps_in(lambda options: Path(f"{options['output']}.trials"))
def command(
    spec: Path,
    dataset: str,
    data_dir: Path | None,
    partition: str,
    algorithm: str,
    trials: int,
    budget: float | None,
    shifts: bool,
    jobs: int,
    seed: int,
    output: str,
) -> None:
    """Train SPEC's model on proxy data with the plan's noise; write the best recipe into a copy.

    Many recipes train with small cohorts, the best of them with the plan's. The same command
    resumes an interrupted search. A plan of the result says how the recipe was found, and warns
    where its noise or its rounds are far from those that it was tuned for. For another algorithm
    than planned the recipe stands in the spec as given. Where none is better than before, that is
    kept: planned's with its evidence, for another algorithm the spec as it is.
    """
    from privplan.cli import render
    from privplan.cli.plan import warn_replaced
    from privplan.files import write_text
    from simulate.cli.proxy_setting import proxy_setting
    from simulate.proxy.search import Search, tuned_text

    text, setting = proxy_setting(
        spec,
        [output],
        algorithm=algorithm,
        dataset=dataset,
        partition=partition,
        data_dir=data_dir,
    )
    render.warn(WARNING)
    folder = Path(f"{output}.trials")
    search = Search(setting, trials, seed, jobs, folder, budget, shifts=shifts)
    with render.progress(f"tune on {dataset}") as report:
        found = search.run(report)
    write_text(output, tuned_text(text, found, setting.algorithm))
    names = dict.fromkeys(name for one in found.ranked for name in one.recipe.numbers())
    rows = [
        [
            f"{100 * one.mean:.2f} ± {100 * one.sd:.2f}",
            *(f"{one.recipe.numbers().get(name, 0):g}" for name in names),
            "before" if one is found.default else "",
        ]
        for one in found.ranked
    ]
    columns = ["accuracy %", *names, ""]
    render.table(
        f"Recipes on {dataset} ({partition})", columns, rows,
        f"{found.evidence.runs} runs; {found.evidence.seeds} seeds of the last rung",
    )  # fmt: skip
    for line in found.warnings:
        render.warn(line)
    render.text(f"wrote {output}")
    warn_replaced(spec)
