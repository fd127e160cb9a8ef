"""``privplan simulate``: train an algorithm under a plan."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.io.processes import uncollected
from simulate.cli.options import (
    SEED_OPTION,
    data_options,
    refuse_unused_aggregation,
    report_options,
    request_of,
)
from simulate.cli.own_options import own_of, own_options, with_own

if TYPE_CHECKING:
    from simulate.parallel.distributed import Ranks
    from simulate.runs.request import Request


@click.command("simulate", short_help="Train an algorithm under a plan.")
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--algorithm", required=True, help="FedAvg, DP-FedAvg, GDPFed, GDPFed-op, ...")
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
@click.option(
    "--noise",
    type=click.Choice(["seeded", "secure", "secure-discrete"]),
    default="seeded",
    show_default=True,
    help="Source of cohorts and noise: the seed; a secret key; or a secret key, on a grid.",
)
@click.option(
    "--noise-key-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the secret key is written (mode 600), to resume and to replay the run.",
)
@click.option(
    "--signing-key",
    "signing_key_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Secret key (privplan keys new) of a server in the plan's signers.",
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
    track: tuple[str, ...],
    precision: str,
    form: str,
    noise: str,
    noise_key_file: Path | None,
    signing_key_file: Path | None,
    **options: Any,
) -> None:
    """Train under PLAN (a plan.json) and keep the run in a folder.

    The folder holds the executed plan, the ledger of all releases, the record and a plot. An
    interrupted run resumes with the same command, to the same result. Code of --data and --model
    is imported only from this command line, never from a plan or a run folder.

    torchrun --nproc-per-node K -m simulate PLAN ... spreads one run over K processes.
    """
    with uncollected():
        from simulate.parallel.distributed import process_group
        from simulate.runs.run import execute_nonzero_rank

    own = own_of(context, options)
    request = request_of(plan, algorithm, output, options)
    refuse_unused_aggregation(request.plan, [algorithm])
    request = replace(request, seed=seed, canaries=canaries, track=track, precision=precision)
    request = replace(request, noise=noise, noise_key_file=noise_key_file)
    request = with_own(replace(request, signing_key_file=signing_key_file), own)
    with process_group(cuda=request.device != "cpu") as ranks:
        if ranks.is_main:
            _execute_main_rank(request, ranks, form)
        else:
            execute_nonzero_rank(request, ranks)


def _execute_main_rank(request: Request, ranks: Ranks, form: str) -> None:
    from privplan.cli import render
    from privplan.record import ACCURACY
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
    found = f"{100 * (record.accuracy or 0.0):.2f}%"
    if record.metric != ACCURACY:
        found = "not finite" if record.accuracy is None else f"{record.accuracy:.4g}"
    render.text(
        f"{record.algorithm} on {record.dataset}: test {record.metric} {found} after "
        f"{record.rounds_done} rounds, {record.wall_seconds:.1f} s"
    )
    render.text(f"plot: {output / PLOT}")
    render.text(f"what was spent: privplan verify {shlex.quote(str(output))}")
