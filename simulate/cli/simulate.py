"""``privplan simulate``: train an algorithm under a plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulate.cli.options import (
    OWN_DATA_NAMES,
    SEED,
    data_options,
    own_data_of,
    own_data_options,
    own_model_of,
    request_of,
)

if TYPE_CHECKING:
    from simulate.parallel.distributed import Ranks
    from simulate.runs.run import Request


@click.command("simulate", short_help="Train an algorithm under a plan.")
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--algorithm", required=True, help="FedAvg, DP-FedAvg, GDPFed, GDPFed-op, ...")
@data_options
@click.option(
    "--data",
    metavar="SOURCE",
    help="Own data instead of --dataset: FILE.npz, FILE.csv, a folder of images, or "
    "package.module:function; docs/own-data.md explains each.",
)
@own_data_options
@click.option(
    "--model", metavar="MODULE:CLASS", help="Own torch.nn.Module, under the plan's model name."
)
@click.option("--model-args", metavar="JSON", help="Keyword arguments of the model's class.")
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option(
    "--canaries",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Canaries in each group, beyond its clients: their evidence lets verify bound epsilon "
    "from below.",
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
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("run"))
@click.pass_context
def command(
    context: click.Context,
    /,
    plan: Path,
    algorithm: str,
    seed: int,
    canaries: int,
    output: Path,
    data: str | None,
    model: str | None,
    model_args: str | None,
    track: tuple[str, ...],
    precision: str,
    form: str,
    **options: Any,
) -> None:
    """Train under PLAN (a plan.json) and keep the run in a folder.

    The folder holds the executed plan, the ledger of all releases, the record and a plot. An
    interrupted run resumes with the same command, to the same result. Code of --data and --model
    is imported only from this command line, never from a plan or a run folder.

    torchrun --nproc-per-node K -m simulate PLAN ... spreads one run over K processes.
    """
    from simulate.parallel.distributed import process_group
    from simulate.runs.run import execute_nonzero_rank

    reading = {name: options.pop(name) for name in OWN_DATA_NAMES}
    request = request_of(plan, algorithm, output, options)
    request = replace(request, seed=seed, canaries=canaries, track=track, precision=precision)
    request = replace(request, own_model=own_model_of(model, model_args))
    if data is not None:
        _refuse_given(context, ["dataset"], "must be left out with --data")
        own = own_data_of(data, reading)
        request = replace(request, own_data=own, dataset=own.name)
    else:
        _refuse_given(context, OWN_DATA_NAMES, "is only for --data")
    with process_group(cuda=request.device != "cpu") as ranks:
        if ranks.is_main:
            _execute_main_rank(request, ranks, form)
        else:
            execute_nonzero_rank(request, ranks)


def _refuse_given(context: click.Context, names: Iterable[str], rule: str) -> None:
    """Raises for each of the options that the command line names."""
    from privplan.errors import Fault, InputError

    given = [
        Fault(name.replace("_", "-"), rule, str(context.params[name]))
        for name in names
        if context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise InputError(given)


def _execute_main_rank(request: Request, ranks: Ranks, form: str) -> None:
    from privplan.cli import render
    from simulate.runs.record import PLOT
    from simulate.runs.run import execute

    with render.progress(f"{request.algorithm} on {request.dataset}") as report:
        outcome = execute(request, report, ranks)
    record, output = outcome.record, request.folder
    if outcome.reused:
        render.warn(f"{output} holds this very run, finished; nothing was trained")
    if form == "json":
        shown = {"folder": str(output), "reused": outcome.reused, "plot": str(output / PLOT)}
        render.data({**shown, **record.model_dump(mode="json")})
        return
    accuracy = 100 * (record.accuracy or 0.0)
    render.text(
        f"{record.algorithm} on {record.dataset}: test accuracy {accuracy:.2f}% after "
        f"{record.rounds_done} rounds, {record.wall_seconds:.1f} s; plot {output / PLOT}"
    )
    render.text(f"what was spent: privplan verify {output}")
