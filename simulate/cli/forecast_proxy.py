"""``privplan forecast-proxy``: runs on proxy data from which accuracy is forecast."""

from __future__ import annotations

from pathlib import Path

import click

from privplan.sweeps import sweeps_in
from simulate.cli.options import JOBS, SEED_OPTION, FiniteRange, proxy_options

WARNING = (
    "forecast-proxy: the table reveals accuracies on the data: they must be public, or stand in "
    "for the private ones (proxy data)"
)


def _enough(context: click.Context, parameter: click.Parameter, value: int) -> int:
    """The number of runs, if it is enough for a table; the import is slow, so it is made here."""
    from privplan.forecast.features import LEAST_RUNS

    if value < LEAST_RUNS:
        raise click.BadParameter(f"must be {LEAST_RUNS} or more, found {value}")
    return value


@click.command("forecast-proxy", short_help="Train plans on proxy data, to forecast accuracy.")
@click.argument("spec", type=click.Path(path_type=Path))
@proxy_options
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    default=("iid",),
    show_default=True,
    help="Who holds what; may be repeated, the runs take turns. random: each run draws IID, "
    "Dirichlet, or classes that one group alone holds.",
)
@click.option(
    "--runs",
    type=int,
    callback=_enough,
    default=36,
    show_default=True,
    help="Plans around the spec's to train: budgets, rounds and recipe vary.",
)
@click.option(
    "--share",
    type=FiniteRange(min=0, max=1, min_open=True),
    default=1.0,
    show_default=True,
    help="Share of the plans' cohorts that takes part, to save time; the noise stays.",
)
@JOBS
@SEED_OPTION
@click.option(
    "-o", "--output", metavar="PROXY", required=True,
    help="Table to write (JSON); the runs are kept in the folder PROXY.runs, to resume.",
)  # fmt: skip
@sweeps_in(lambda options: Path(f"{options['output']}.runs"))
def command(
    spec: Path,
    dataset: str,
    data_dir: Path | None,
    partitions: tuple[str, ...],
    runs: int,
    share: float,
    jobs: int,
    seed: int,
    output: str,
) -> None:
    """Train plans around SPEC's on proxy data; write the table that ``solve --forecast`` reads.

    The same command resumes an interrupted sweep; with more ``--runs`` it goes on.
    """
    from privplan.cli import render
    from privplan.cli.plan import warn_replaced
    from privplan.errors import InputError
    from privplan.files import refuse_overwriting
    from privplan.forecast.model import Forecaster
    from privplan.spec.horizon import refuse_horizon
    from privplan.spec.spec import Spec
    from simulate.data.partition.schemes import scheme
    from simulate.data.registry import load
    from simulate.proxy.search import DRAWN, proxy_table, variations
    from simulate.proxy.trials import Setting

    known = Spec.load(spec)
    if known.unit != "client":
        raise InputError.one("unit", "must be client for a forecast", known.unit)
    refuse_horizon(known.horizon)
    if known.tuning is not None:
        rule = "must be left out for a forecast: one run is forecast"
        raise InputError.one("tuning", rule, f"runs: {known.tuning.runs:g}")
    refuse_overwriting(known.sources(spec), [output])
    for text in partitions:
        if text != DRAWN:
            scheme(text)
    classes = len(load(dataset, data_dir).classes) if DRAWN in partitions else 0
    data = known.model_dump(mode="json", exclude={"groups_from"})
    setting = Setting(
        spec=data,
        algorithm="planned",
        dataset=dataset,
        partition=",".join(partitions),
        data_dir=None if data_dir is None else str(data_dir),
    )
    render.warn(WARNING)
    todo = variations(known, partitions, runs, seed, share, classes)
    with render.progress(f"forecast-proxy on {dataset}") as report:
        table = proxy_table(setting, todo, Path(f"{output}.runs"), jobs, report)
    table.save(output)
    scores = [run.accuracy for run in table.runs]
    held_out = [100 * abs(one) for one in Forecaster(table).held_out()]
    render.text(
        f"{len(scores)} plans on {dataset}, accuracy {min(scores):.1%} to {max(scores):.1%}; "
        f"forecast when held out: mean error {sum(held_out) / len(held_out):.2f} points"
    )
    render.text(f"wrote {output}")
    warn_replaced(spec)
