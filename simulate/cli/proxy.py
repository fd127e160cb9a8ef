"""``privplan proxy``: what public or proxy data tell of the private ones before a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli import SuggestingGroup, in_section, render
from simulate.cli.options import (
    DATA_DIR,
    DOWNLOAD,
    FORMAT,
    JOBS,
    PROXY_HELP,
    SEED_OPTION,
    FiniteRange,
    own_of,
    own_options,
    proxy_options,
    together,
)

if TYPE_CHECKING:
    from simulate.proxy.search import Setting


@in_section("data")
@click.group(name="proxy", cls=SuggestingGroup)
def command() -> None:
    """Constants, recipes, initial parameters and forecasts from public or proxy data."""


@command.command(
    "pilot",
    short_help="Measure the constants of planning on public or proxy data.",
    epilog="Example: privplan proxy pilot spec.yaml --dataset digits -o measured.yaml",
)
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--dataset", help=PROXY_HELP)
@own_options
@DATA_DIR
@DOWNLOAD
@click.option(
    "--partition",
    default="iid",
    show_default=True,
    help="Who holds what, as in simulate: how much groups differ decides h.",
)
@click.option("--rounds", type=click.IntRange(min=1), default=10, show_default=True)
@click.option(
    "--clients",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Clients per round, at most all of own data that name their clients.",
)
@SEED_OPTION
@FORMAT
@click.option(
    "-o", "--output", metavar="SPEC", help="Spec to write; standard output if left out."
)
@click.pass_context
def pilot(
    context: click.Context,
    /,
    spec: Path,
    dataset: str | None,
    form: str,
    output: str | None,
    **options: Any,
) -> None:
    """Train SPEC's model for a few rounds WITHOUT privacy, and write what planning needs to know.

    Norms of updates, how much groups differ, curvatures, the loss to gain, variance and
    dissimilarity of gradients go under planning, each with its interval. The same seed gives
    the same file.
    """
    from privplan.errors import InputError
    from privplan.files import load_yaml, read_text, refuse_overwriting, write_text
    from privplan.spec.measured import provisional, written
    from privplan.spec.spec import Spec
    from simulate.proxy.pilot import Pilot, run

    own = own_of(context, options)
    name = dataset if own.data is None else own.data.name
    if name is None:
        raise InputError.one("dataset", "is required without --data", "none")
    if own.metric is not None:
        raise InputError.one(
            "metric", "must be left out: a pilot computes none", str(own.metric)
        )
    before = read_text(spec, "spec")
    known = provisional(before, spec.parent)
    refuse_overwriting(known.sources(spec), [output])
    pilot = Pilot(
        known, name, own_data=own.data, own_model=own.model, loss=own.loss, **options
    )
    render.warn(
        "pilot: nothing here is private. Clients' updates are looked at one by one, without "
        "noise, and what is measured is written down: the data must be public, or stand in for "
        "the private ones (proxy data)"
    )
    with render.progress(f"pilot on {name}") as report:
        measured = run(pilot, report)
    text = written(before, measured)
    folder = spec.parent if output is None else Path(output).parent
    Spec.parse(load_yaml(text, "spec"), folder)  # what solve will read
    if output is not None:
        write_text(output, text)
    if form == "json":
        render.data(measured.model_dump(mode="json"))
        return
    if output is None:
        render.text(text.rstrip("\n"))
        return
    rows = [
        [name, f"{number.value:.4g}", f"{number.low:.4g}", f"{number.high:.4g}"]
        for name, number in measured.numbers.items()
    ]
    title = f"Pilot: {measured.source}"
    render.table(
        title, ["constant", "value", "at least", "at most"], rows, "intervals of 95%"
    )
    render.text(f"wrote {output}")


_TRAINED = together(
    click.argument("spec", type=click.Path(path_type=Path)),
    proxy_options,
    click.option(
        "--partition", default="iid", show_default=True, help="Who holds what."
    ),
    click.option(
        "--algorithm",
        default="planned",
        show_default=True,
        help="The algorithm to train.",
    ),
)
"""The spec, and what its runs on proxy data need."""


@command.command(
    "tune",
    short_help="Choose the training recipe by runs on public or proxy data.",
    epilog="Example: privplan proxy tune spec.yaml --dataset digits -o tuned.yaml",
)
@_TRAINED
@click.option(
    "--trials",
    type=click.IntRange(min=4),
    default=24,
    show_default=True,
    help="Recipes to try; the better third so far goes on to the next rung.",
)
@JOBS
@SEED_OPTION
@click.option(
    "-o", "--output", metavar="SPEC", required=True,
    help="Spec to write; the trials are kept in SPEC.trials/study.db, to resume and for "
    "optuna-dashboard, and what the recipe rests on in SPEC.evidence.json.",
)  # fmt: skip
def tune(trials: int, jobs: int, seed: int, output: str, **options: Any) -> None:
    """Train SPEC's model on proxy data with the plan's noise; write the best recipe into a copy.

    Many recipes train with small cohorts, the best of them with the plan's. The same command
    resumes an interrupted search. For another algorithm than planned the recipe stands in the spec
    as given. Where none is better than before, that is kept: as planned's fields, for another
    algorithm in the spec as it is.
    """
    from privplan.files import write_text
    from simulate.proxy.search import search_recipe, tuned_text

    evidence = Path(output).with_suffix(".evidence.json")
    text, setting = _setting([output, str(evidence)], **options)
    render.warn(
        "tune: the noise of all runs is of seeds and the choice is by accuracy, so that whoever is "
        "in the data is not protected (together epsilon infinite in every group): they must be "
        "public, or stand in for the private ones (proxy data)"
    )
    folder = Path(f"{output}.trials")
    with render.progress(f"tune on {setting.dataset}") as report:
        found = search_recipe(setting, trials, folder, seed, jobs, report)
    write_text(evidence, found.evidence.model_dump_json(indent=1) + "\n")
    write_text(output, tuned_text(text, found, evidence.name))
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
    text = f"{found.evidence.runs} runs, which spent epsilon infinite of all who are in the data; "
    text += f"{found.evidence.seeds} seeds of the last rung"
    render.table(
        f"Recipes on {setting.dataset} ({setting.partition})", columns, rows, text
    )
    for line in found.warnings:
        render.warn(line)
    render.text(f"wrote {output}, {evidence}")


@command.command(
    "forecast",
    short_help="Train plans on proxy data, to forecast accuracy.",
    epilog="Example: privplan proxy forecast spec.yaml --dataset digits -o proxy.json",
)
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--dataset", default="digits", show_default=True, help=PROXY_HELP)
@DATA_DIR
@own_options
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
    type=click.IntRange(min=12),  # ``privplan.forecast.features.LEAST_RUNS``
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
@click.pass_context
def forecast(
    context: click.Context,
    /,
    spec: Path,
    dataset: str,
    data_dir: Path | None,
    partitions: tuple[str, ...],
    runs: int,
    share: float,
    jobs: int,
    seed: int,
    output: str,
    **options: Any,
) -> None:
    """Train plans around SPEC's on proxy data; write the table that solve --forecast reads.

    The proxy may be data of your own (--data), under the spec's model or your own (--model).

    The same command resumes an interrupted sweep; with more --runs it goes on.
    """
    from privplan.errors import InputError
    from privplan.files import refuse_overwriting
    from privplan.forecast.model import Forecaster
    from privplan.spec.spec import Spec
    from simulate.data.partition.schemes import scheme
    from simulate.data.registry import load
    from simulate.proxy.search import DRAWN, Setting, proxy_table, variations
    from simulate.tasks import MULTI_CLASS

    known = Spec.load(spec)
    if known.unit != "client":
        raise InputError.one("unit", "must be client for a forecast", known.unit)
    refuse_overwriting(known.sources(spec), [output])
    own, classes = own_of(context, options), 0
    if own.data is not None or own.model is not None:
        rule = "must be data for classification, with --data, where a model or a loss is given"
        if own.data is None or own.data.task != MULTI_CLASS or own.loss or own.metric:
            raise InputError.one(
                "data", rule, None if own.data is None else own.data.task
            )
        dataset, classes = own.data.name, len(own.data.class_names())
    for text in partitions:
        if text != DRAWN:
            scheme(text)
    if DRAWN in partitions and own.data is None:
        classes = len(load(dataset, data_dir).classes)
    setting = Setting(
        spec=known.model_dump(mode="json", exclude={"groups_from"}),
        algorithm="planned",
        dataset=dataset,
        partition=",".join(partitions),
        data_dir=None if data_dir is None else str(data_dir),
        own=None if own.data is None else own,
    )
    render.warn(
        f"forecast: the noise of {runs} runs is of seeds and the table has their accuracies, so "
        "that whoever is in the data is not protected (together epsilon infinite in every group): "
        "they must be public, or stand in for the private ones (proxy data)"
    )
    todo = variations(known, partitions, runs, seed, share, classes)
    with render.progress(f"forecast on {dataset}") as report:
        table = proxy_table(setting, todo, Path(f"{output}.runs"), jobs, report)
    table.save(output)
    scores = [run.accuracy for run in table.runs]
    held_out = [100 * abs(one) for one in Forecaster(table).held_out()]
    render.text(
        f"{len(scores)} plans on {dataset}, accuracy {min(scores):.1%} to {max(scores):.1%}; "
        f"forecast when held out: mean error {sum(held_out) / len(held_out):.2f} points"
    )
    render.text(f"wrote {output}")


def _setting(
    outputs: Sequence[str],
    spec: Path,
    algorithm: str,
    dataset: str,
    partition: str,
    data_dir: Path | None,
) -> tuple[str, Setting]:
    """The text of a spec and the setting of its runs on public or proxy data."""
    from privplan.files import load_yaml, read_text, refuse_overwriting
    from privplan.spec.spec import Spec
    from simulate.algorithms.registry import ALGORITHMS
    from simulate.proxy.search import Setting

    known = Spec.load(spec)
    refuse_overwriting(known.sources(spec), outputs)
    text = read_text(spec, "spec")
    data = load_yaml(text, "spec")
    if known.groups_from is not None:
        data["groups_from"] = str(known.sources(spec)[1].resolve())
    return text, Setting(
        spec=data,
        algorithm=ALGORITHMS.name_of(algorithm),
        dataset=dataset,
        partition=partition,
        data_dir=None if data_dir is None else str(data_dir),
    )
