"""``privplan publish``: what may be published of a run, each value computed anew."""

from __future__ import annotations

from pathlib import Path

import click

from privplan.cli import TRUSTED, render
from privplan.cli.folders import FolderPath
from privplan.cli.judging import (
    APPROVED_PLAN,
    NOISE_KEY,
    takes_options_of_verify,
)


@click.command("publish", epilog="Example: privplan publish run -o bundle")
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=FolderPath(),
    required=True,
    metavar="BUNDLE",
    help="New folder: plan.json, certificate.json, verdict.json, model.safetensors.",
)
@APPROVED_PLAN
@click.option(
    "--rounds",
    metavar="all|N|0",
    default="all",
    show_default=True,
    help="Rounds to execute again first; 0 publishes a run that is kept as recorded.",
)
@NOISE_KEY
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.pass_context
def publish_command(
    ctx: click.Context,
    run: Path,
    output: Path,
    plan: Path | None,
    rounds: str,
    noise_key: Path | None,
    form: str,
) -> None:
    """Write what may be published of RUN (a run folder) into a new folder.

    Plan, certificate, verdict and model are computed anew from the run's releases;
    nothing else leaves the run folder, which is the trainer's workplace. Exit code 4:
    the run is broken. 5: it is unverified, or a rehearsal. In both nothing is written.
    """
    from privplan.publishing import publish

    trusted = ctx.meta.get(TRUSTED, ())
    published = publish(
        run,
        output,
        rounds=rounds,
        plan=plan,
        options=ctx.meta,
        trusted=trusted,
        noise_key=noise_key,
    )
    for note in published.notes:
        render.warn(note)
    if form == "json":
        render.data(published.bundle.verdict.model_dump(mode="json"))
        return
    render.text(published.bundle.verdict.line)
    render.text(f"wrote {output}: {', '.join(sorted(published.bundle.contents()))}")


takes_options_of_verify(publish_command)
