"""``privplan proxy``: what public or proxy data tell of private ones before a run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli import ON, SuggestingGroup, in_section, render
from privplan.errors import InputError
from simulate.cli.options import (
    DATA_DIR,
    DOWNLOAD,
    FORMAT,
    JOBS,
    PROXY_HELP,
    SEED_OPTION,
    FiniteRange,
    proxy_options,
    together,
)
from simulate.cli.own_options import own_of, own_options

if TYPE_CHECKING:
    from simulate.proxy.search import SearchResult
    from simulate.proxy.training import Setting


@in_section("data")
@click.group(name="proxy", cls=SuggestingGroup)
def command() -> None:
    """Constants, recipes, initial values and forecasts from public or proxy data."""


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
    """Train SPEC's model for some rounds WITHOUT privacy; write what planning needs.

    Norms of updates, how much groups differ, curvatures, the loss to gain, variance and
    dissimilarity of gradients go under planning, each with its interval. The same seed
    gives the same file.
    """
    from privplan.files import read_text, refuse_overwriting, write_text
    from privplan.spec.measured import provisional, written
    from privplan.spec.spec import Spec
    from privplan.yaml_text import load_yaml
    from simulate.proxy.pilot import Pilot, run

    own_parts = own_of(context, options)
    name = dataset if own_parts.data is None else own_parts.data.name
    if name is None:
        raise InputError.one("dataset", "is required without --data", "none")
    if own_parts.metric is not None:
        rule = "must be left out: a pilot computes none"
        raise InputError.one("metric", rule, str(own_parts.metric))
    before = read_text(spec, "spec")
    before_pilot = provisional(before, spec)
    refuse_overwriting(before_pilot.sources(spec), [output])
    pilot = Pilot(
        before_pilot,
        name,
        own_data=own_parts.data,
        own_model=own_parts.model,
        loss=own_parts.loss,
        **options,
    )
    render.warn(
        "pilot: nothing here is private. Clients' updates are looked at one by one, "
        "without noise, and what is measured is written down: the data must be public, or "
        "stand in for the private ones (proxy data)"
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
    columns = ["constant", "value", "at least", "at most"]
    render.table(f"Pilot: {measured.source}", columns, rows, "intervals of 95%")
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
@ON
@SEED_OPTION
@click.option(
    "-o",
    "--output",
    metavar="SPEC",
    required=True,
    help="Spec to write; the trials are kept in SPEC.trials/study.db, to resume and for "
    "optuna-dashboard, and what the recipe rests on in SPEC.evidence.json.",
)
def tune(trials: int, jobs: int, seed: int, output: str, **options: Any) -> None:
    """Train SPEC's model on proxy data with the plan's noise; write the best recipe.

    Many recipes train with small cohorts, the best of them with the plan's. The same
    command resumes an interrupted search. For another algorithm than planned the recipe
    stands in the spec as given. Where none is better than before, that is kept: as
    planned's fields, for another algorithm in the spec as it is.
    """
    from privplan.files import write_text
    from simulate.proxy.search import search_recipe
    from simulate.proxy.tuned_spec import tuned_text

    evidence_file = Path(output).with_suffix(".evidence.json")
    text, setting = _setting([output, str(evidence_file)], **options)
    render.warn(
        "tune: the noise of all runs is of seeds and the choice is by accuracy, so that "
        "whoever is in the data is not protected (together epsilon infinite in every "
        "group): they must be public, or stand in for the private ones (proxy data)"
    )
    folder = Path(f"{output}.trials")
    with render.progress(f"tune on {setting.dataset}") as report:
        result = search_recipe(setting, trials, folder, seed, jobs, report)
    write_text(evidence_file, result.evidence.model_dump_json(indent=1) + "\n")
    write_text(output, tuned_text(text, result, evidence_file.name))
    _show_recipes(setting, result)
    for line in result.warnings:
        render.warn(line)
    render.text(f"wrote {output}, {evidence_file}")


def _show_recipes(setting: Setting, result: SearchResult) -> None:
    """Print the recipes of the last rung, best first."""
    numbers = [scored.recipe.numbers() for scored in result.ranked]
    names = list(dict.fromkeys(chain.from_iterable(numbers)))
    rows = []
    for scored, values in zip(result.ranked, numbers, strict=True):
        score = f"{100 * scored.mean:.2f} ± {100 * scored.sd:.2f}"
        remark = ""
        if scored is result.default:
            remark = "before"
        rows.append([score, *(f"{values.get(name, 0):g}" for name in names), remark])
    evidence = result.evidence
    caption = (
        f"{evidence.runs} runs, which spent epsilon infinite of all who are in the data; "
        f"{evidence.seeds} seeds of the last rung"
    )
    title = f"Recipes on {setting.dataset} ({setting.partition})"
    render.table(title, ["accuracy %", *names, ""], rows, caption)


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
    help="Who holds what; may be repeated, the runs take turns. random: each run draws "
    "IID, Dirichlet, or classes that one group alone holds.",
)
@click.option(
    "--runs",
    type=click.IntRange(min=12),  # ``privplan.forecast.proxy_table.LEAST_RUNS``
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
@ON
@SEED_OPTION
@click.option(
    "-o",
    "--output",
    metavar="PROXY",
    required=True,
    help="Table to write (JSON); the runs are kept in the folder PROXY.runs, to resume.",
)
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
    """Train plans around SPEC's on proxy data; write the table for solve --forecast.

    The proxy may be data of your own (--data), under the spec's model or your own
    (--model).

    The same command resumes an interrupted sweep; with more --runs it goes on.
    """
    from privplan.files import refuse_overwriting
    from privplan.forecast.model import Forecaster
    from privplan.spec.spec import Spec
    from simulate.data.partition.schemes import scheme
    from simulate.data.registry import load
    from simulate.proxy.table import proxy_table
    from simulate.proxy.training import Setting
    from simulate.proxy.variations import DRAWN, variations
    from simulate.tasks import MULTI_CLASS

    base = Spec.load(spec)
    if base.unit != "client":
        raise InputError.one("unit", "must be client for a forecast", base.unit)
    refuse_overwriting(base.sources(spec), [output])
    own_parts = own_of(context, options)
    data = own_parts.data
    classes = 0
    if data is not None or own_parts.model is not None:
        is_classified = data is not None and data.task == MULTI_CLASS
        if not is_classified or own_parts.loss or own_parts.metric:
            raise InputError.one(
                "data",
                "must be data for classification, with --data, where a model or a loss "
                "is given",
                None if data is None else data.task,
            )
        assert data is not None
        dataset = data.name
        classes = len(data.class_names())
    for text in partitions:
        if text != DRAWN:
            scheme(text)
    if DRAWN in partitions and data is None:
        classes = len(load(dataset, data_dir).classes)
    setting = Setting(
        spec=base.model_dump(mode="json", exclude={"groups_from"}),
        algorithm="planned",
        dataset=dataset,
        partition=",".join(partitions),
        data_dir=None if data_dir is None else str(data_dir),
        own_parts=None if data is None else own_parts,
    )
    render.warn(
        f"forecast: the noise of {runs} runs is of seeds and the table has their "
        "accuracies, so that whoever is in the data is not protected (together epsilon "
        "infinite in every group): they must be public, or stand in for the private ones "
        "(proxy data)"
    )
    variants = variations(base, partitions, runs, seed, share, classes)
    with render.progress(f"forecast on {dataset}") as report:
        table = proxy_table(setting, variants, Path(f"{output}.runs"), jobs, report)
    table.save(output)
    scores = [run.accuracy for run in table.runs]
    errors = [100 * abs(error) for error in Forecaster(table).held_out()]
    render.text(
        f"{len(scores)} plans on {dataset}, accuracy {min(scores):.1%} to "
        f"{max(scores):.1%}; forecast when held out: mean error "
        f"{sum(errors) / len(errors):.2f} points"
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
    from privplan.files import read_text, refuse_overwriting
    from privplan.spec.spec import Spec
    from privplan.yaml_text import load_yaml
    from simulate.algorithms.registry import ALGORITHMS
    from simulate.proxy.training import Setting

    loaded = Spec.load(spec)
    refuse_overwriting(loaded.sources(spec), outputs)
    text = read_text(spec, "spec")
    data = load_yaml(text, "spec")
    if loaded.groups_from is not None:
        data["groups_from"] = str(loaded.sources(spec)[1].resolve())
    return text, Setting(
        spec=data,
        algorithm=ALGORITHMS.name_of(algorithm),
        dataset=dataset,
        partition=partition,
        data_dir=None if data_dir is None else str(data_dir),
    )
