"""``privplan replay``: execute rounds of a finished run again, and compare."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli import in_section
from privplan.cli.judging import NOISE_KEY
from simulate.cli.options import DATA_DIR, SEED, own_of, own_options

if TYPE_CHECKING:
    from privplan.evidence.replay import ReplayReport
    from simulate.own_parts import OwnParts
    from simulate.runs.request import Request

GIVEN = "simulate.replay"
"""Key of ``click.Context.meta``: data folder and own parts that ``verify`` was given."""


def execute(
    folder: Path, rounds: int | None, seconds: float | None, meta: Mapping[str, Any]
) -> ReplayReport:
    """Execute rounds of a run again for a verdict; the result is kept in its folder.

    ``meta`` has under ``GIVEN`` the data folder, and the options of own data and models or, from
    Python, the ``OwnParts`` themselves (``own``).

    Raises:
        MissingDataError: where what a comparison needs is missing.
    """
    from privplan.cli import render
    from privplan.errors import InputError, MissingDataError
    from privplan.verification.verify import SELECTION, STATE
    from simulate.replay.replay import Replay

    given = meta.get(GIVEN, {})
    named = any(given.get(one) is not None for one in ("data", "model"))
    try:
        own, data_dir = given_parts(meta)
        replay = Replay(folder, data_dir, own, meta.get("noise_key"))
    except InputError as error:
        if named:  # no reason to judge without, but a mistake of who asks
            raise click.UsageError(str(error)) from None
        raise
    with render.progress("rounds executed again") as progress:
        report = replay.run(rounds, meta.get(SELECTION), progress, seconds)
    if report.rounds or report.outcome != "not shown":
        report.save(folder)
    if report.outcome == "passed" and replay.final is not None and STATE in meta:
        meta[STATE]["final"] = replay.final
    if report.outcome == "not shown":
        raise MissingDataError(report.reason.removeprefix("missing: "))
    return report


def given_again(request: Request) -> dict[str, Any]:
    """What executing the run of a request again is given: its data folder and own parts."""
    from simulate.own_parts import OwnParts

    own = OwnParts(request.own_data, request.own_model, request.loss, request.metric)
    return {"data_dir": request.data_dir, "own": own}


def given_parts(meta: Mapping[str, Any]) -> tuple[OwnParts, Path | None]:
    """Own data, model, loss and metric that options of ``verify`` name, and the data folder.

    Python gives the parts themselves, as ``given_again`` does.
    """
    from simulate.own_parts import OwnParts

    given = dict(meta.get(GIVEN, {}))
    data_dir = given.pop("data_dir", None)
    parts = given.pop("own", None)
    if parts is not None:
        return parts, data_dir
    if any(given.get(one) is not None for one in ("data", "model")):
        return own_of(click.get_current_context(), given), data_dir
    return OwnParts(), data_dir


@in_section("verify")
@click.command(
    "replay",
    short_help="Execute rounds of a finished run again, and compare.",
    epilog="Example: privplan replay run --rounds 3",
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--rounds", metavar="K|all", default="5", show_default=True, help="To train."
)
@DATA_DIR
@own_options
@click.option(
    "--selection-seed",
    type=SEED,
    help="Repeat an earlier selection of rounds; fresh randomness otherwise.",
)
@NOISE_KEY
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    run: Path,
    rounds: str,
    data_dir: Path | None,
    selection_seed: int | None,
    noise_key: Path | None,
    form: str,
    **options: Any,
) -> None:
    """Execute rounds of RUN (a run folder) again with a second implementation, and compare.

    Cohorts, noise states and constants are compared in all rounds; models, releases and all other
    ledger evidence in rounds selected at random. The result is kept in replay.json:
    a difference stays until the run itself changes, or all rounds agree.

    Exit code 0: all agree. 4: something differs; the round is named. 5: the algorithm is not
    supported, or evidence is missing. For a run on own data or of an own model repeat its options.
    """
    from privplan.cli import render
    from privplan.record import run_folder
    from privplan.verification.verify import number_of_rounds
    from simulate.replay.replay import Replay

    run_folder(run)
    own, most = own_of(ctx, options), number_of_rounds(rounds)
    with render.progress("rounds") as progress:
        report = Replay(run, data_dir, own, noise_key).run(
            most, selection_seed, progress
        )
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
        chosen = (
            ""
            if report.selection_seed is None
            else f"; selection {report.selection_seed}"
        )
        render.table(
            "replay",
            columns,
            rows,
            f"rounds trained again: {trained or 'none'}{chosen}",
        )
        for one in report.differences[:10]:
            render.text(f"round {one.round}: {one.name}: {one.detail}")
        render.text(f"{report.outcome.replace('_', ' ')}: {report.reason}")
    if known.outcome == "failed" and report.outcome != "failed":
        render.text(
            f"NOT the same: an earlier replay of this run failed: {known.reason}"
        )
    elif len(known.rounds) > len(report.rounds):
        render.text(
            f"replay.json keeps an earlier one: {len(known.rounds)} of {known.rounds_of_run} rounds"
        )
    ctx.exit(max(report.exit_code, known.exit_code if known.outcome == "failed" else 0))


def _passed_on(option: click.Parameter) -> click.Parameter:
    """The option for ``privplan verify``: its value goes to ``execute``."""
    found, check = copy(option), option.callback

    def store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        value = value if check is None else check(ctx, param, value)
        ctx.meta.setdefault(GIVEN, {})[str(param.name)] = value

    found.expose_value, found.callback = False, store
    return found


_OWN = ("rounds", "selection_seed", "noise_key", "form", "run", "help")
OF_VERIFY = [_passed_on(one) for one in command.params if one.name not in _OWN]
"""Options of data and own parts, which ``privplan verify`` takes too."""
