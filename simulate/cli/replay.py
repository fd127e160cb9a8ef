"""``privplan replay``: execute rounds of a finished run again, and compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from privplan.cli import in_section
from simulate.cli.options import DATA_DIR, SEED, own_of, own_options


class _Rounds(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A number of rounds from 1, or ``all``."""

    name = "K|all"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The number of rounds; 0 for all."""
        text = str(value)
        if text == "all":
            return 0
        if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text)):
            self.fail(f"must be a number from 1 or all, found {text!r}", param, ctx)
        return int(text)


@in_section("verify")
@click.command(
    "replay",
    short_help="Execute rounds of a finished run again, and compare.",
    epilog="Example: privplan replay run --rounds 3",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--rounds", type=_Rounds(), default="5", show_default=True, help="Rounds to train.")
@DATA_DIR
@own_options
@click.option(
    "--selection-seed",
    type=SEED,
    help="Repeat an earlier selection of rounds; fresh randomness otherwise.",
)
@click.option(
    "--noise-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Key of a run with secure noise; without it cohorts and noise are not shown.",
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    run: Path,
    rounds: int,
    data_dir: Path | None,
    selection_seed: int | None,
    noise_key: Path | None,
    form: str,
    **options: Any,
) -> None:
    """Execute rounds of RUN (a run folder) again with a second implementation, and compare.

    Cohorts, noise states and constants are compared in all rounds; models, releases and all other
    ledger evidence in rounds selected at random. The result is written to replay.json.

    Exit code 0: all agree. 4: something differs; the round is named. 5: the algorithm is not
    supported, or evidence is missing. For a run on own data or of an own model repeat its options.
    """
    from privplan.cli import render
    from privplan.record import REPLAY, refuse_other_folder
    from simulate.replay.replay import Replay

    refuse_other_folder(run)
    own = own_of(ctx, options)
    with render.progress("rounds") as progress:
        report = Replay(run, data_dir, own, noise_key).run(rounds or None, selection_seed, progress)
    saved = report.save(run)
    if form == "json":
        render.data(report.model_dump(mode="json"))
    else:
        columns = ("comparison", "compared", "differ", "largest deviation")
        rows = [
            (one.name, str(one.compared), str(one.differ), f"{one.largest:.2g}")
            for one in report.comparisons
        ]
        trained = ", ".join(map(str, report.rounds))
        chosen = "" if report.selection_seed is None else f"; selection {report.selection_seed}"
        render.table("replay", columns, rows, f"rounds trained again: {trained or 'none'}{chosen}")
        for one in report.differences[:10]:
            render.text(f"round {one.round}: {one.name}: {one.detail}")
        render.text(f"{report.outcome.replace('_', ' ')}: {report.reason}")
    if not saved:
        render.warn(f"{run / REPLAY} keeps an earlier replay of this run, which passed")
    ctx.exit(report.exit_code)
