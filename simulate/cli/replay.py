"""``privplan replay``: execute rounds of a finished run again, and compare."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
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


GIVEN = "simulate.replay"
"""Key of ``click.Context.meta``: data folder and own parts that ``verify`` was given."""


def execute(
    folder: Path, rounds: int | None, seconds: float | None, meta: Mapping[str, Any]
) -> int:
    """Execute rounds of a run again for ``privplan verify``; the result is added to its folder.

    Returns:
        How many rounds were executed.
    """
    from privplan.cli import render
    from privplan.errors import InputError, MissingDataError
    from privplan.record import RunRecord
    from privplan.streams import NoiseKey
    from simulate.replay.replay import Replay

    given = dict(meta.get(GIVEN, {}))
    data_dir, key = given.pop("data_dir", None), given.pop("noise_key", None)
    if key is not None:
        committed = RunRecord.load(folder).configuration.get("noise_commitment")
        try:
            NoiseKey.load_committed(key, committed, "noise-key")
        except InputError as error:  # bad input, which is no reason for a weaker verdict
            raise click.UsageError(str(error)) from None
    named = any(given.get(one) is not None for one in ("data", "model"))
    own = own_of(click.get_current_context(), given) if named else None
    with render.progress("rounds executed again") as progress:
        replay = Replay(folder, data_dir, own, key)
        report = replay.run(rounds, None, progress, seconds)
    if report.rounds or report.outcome != "not shown":
        report.save(folder)
    if report.outcome == "not shown":
        raise MissingDataError(report.reason.removeprefix("missing: "))
    return len(report.rounds)


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
    ledger evidence in rounds selected at random. The result is added to replay.json:
    a difference stays until the run itself changes.

    Exit code 0: all agree. 4: something differs; the round is named. 5: the algorithm is not
    supported, or evidence is missing. For a run on own data or of an own model repeat its options.
    """
    from privplan.cli import render
    from privplan.record import run_folder
    from simulate.replay.replay import Replay

    run_folder(run)
    own = own_of(ctx, options)
    with render.progress("rounds") as progress:
        report = Replay(run, data_dir, own, noise_key).run(rounds or None, selection_seed, progress)
    known = report.save(run)
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
    if known.outcome == "failed" and report.outcome != "failed":
        render.text(f"NOT the same: an earlier replay of this run failed: {known.reason}")
    elif len(known.rounds) > len(report.rounds):
        render.text(f"with earlier replays: {len(known.rounds)} of {known.of} rounds")
    ctx.exit(max(report.exit_code, known.exit_code if known.outcome == "failed" else 0))


def _passed_on(option: click.Parameter) -> click.Parameter:
    """The option for ``privplan verify``: its value goes to ``execute``."""
    found, check = copy(option), option.callback

    def store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        value = value if check is None else check(ctx, param, value)
        ctx.meta.setdefault(GIVEN, {})[str(param.name)] = value

    found.expose_value, found.callback = False, store
    return found


_OWN = ("rounds", "selection_seed", "form", "run", "help")
OF_VERIFY = [_passed_on(one) for one in command.params if one.name not in _OWN]
"""Options of data, own parts and the key, which ``privplan verify`` takes too."""
