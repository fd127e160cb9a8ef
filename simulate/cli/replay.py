"""``privplan replay``: execute rounds of a finished run again, and compare."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli import in_section, render
from privplan.cli.judging import NOISE_KEY, keep
from privplan.cli.render import on_command_line
from simulate.cli.options import DATA_DIR, SEED
from simulate.cli.own_options import OWN_NAMES, own_of, own_options

if TYPE_CHECKING:
    from privplan.evidence.replay import ReplayReport
    from simulate.own_parts import OwnParts
    from simulate.runs.request import Request

OPTIONS = "simulate.replay"
"""Key of ``click.Context.meta``: the data folder and own parts of ``verify``."""
MAX_DIFFERENCES = 10  # that are printed; replay.json has all


def execute(
    folder: Path, rounds: int | None, seconds: float | None, meta: Mapping[str, Any]
) -> ReplayReport:
    """Execute rounds of a run again for a verdict; the result is kept in its folder.

    Args:
        folder: the run folder.
        rounds: how many rounds are trained again; all when None.
        seconds: after which no further round begins; None for no limit.
        meta: has under ``OPTIONS`` the data folder, and the options of own data and
            models or, from Python, the ``OwnParts`` themselves (``own``).

    Raises:
        MissingDataError: where what a comparison needs is missing.
    """
    from privplan.errors import InputError, MissingDataError
    from privplan.verification.verify import SELECTION, STATE
    from simulate.replay.replay import Replay

    try:
        own_parts, data_dir = given_parts(meta)
        replay = Replay(folder, data_dir, own_parts, meta.get("noise_key"))
    except InputError as error:
        # No reason to judge without replay, but a mistake of who names data or a model.
        if _names_own_parts(meta.get(OPTIONS, {})):
            raise click.UsageError(str(error)) from None
        raise
    limited = seconds is not None
    with render.progress("rounds executed again", limited=limited) as progress:
        report = replay.run(rounds, meta.get(SELECTION), progress, seconds)
    if report.rounds or report.outcome != "not shown":
        keep(report.save, folder)
    all_executed = len(report.rounds) == report.rounds_of_run
    # Where rounding alone keeps a run from being shown, the model is the verifier's all
    # the same: whether there is one must not follow from the records.
    if STATE in meta and report.outcome != "failed" and all_executed:
        with render.progress("rounds trained for the published model") as progress:
            meta[STATE]["final"] = replay.retrained(progress)
    if report.outcome == "not shown":
        raise MissingDataError(report.reason.removeprefix("missing: "))
    return report


def _names_own_parts(options: Mapping[str, Any]) -> bool:
    """Whether the command line names own data, a model or how they are read."""
    context = click.get_current_context(silent=True)
    if context is None or "data" not in options:
        return False
    return any(on_command_line(context, name) for name in OWN_NAMES)


def given_again(request: Request) -> dict[str, Any]:
    """What executing a request's run again needs: its data folder and own parts."""
    from simulate.own_parts import OwnParts

    own_parts = OwnParts(
        request.own_data, request.own_model, request.loss, request.metric
    )
    return {"data_dir": request.data_dir, "own": own_parts}


def given_parts(meta: Mapping[str, Any]) -> tuple[OwnParts, Path | None]:
    """Own data, model, loss and metric that ``verify`` was given, and the data folder.

    Python gives the parts themselves, as ``given_again`` does.
    """
    from simulate.own_parts import OwnParts

    options = dict(meta.get(OPTIONS, {}))
    data_dir = options.pop("data_dir", None)
    own_parts = options.pop("own", None)
    if own_parts is None and _names_own_parts(options):
        own_parts = own_of(click.get_current_context(), options)
    return own_parts or OwnParts(), data_dir


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
    """Execute rounds of RUN (a run folder) again with a second implementation; compare.

    Cohorts, noise states and constants are compared in all rounds; models, releases and
    all other ledger evidence in rounds selected at random. The result is kept in
    replay.json: a difference stays until the run itself changes, or all rounds agree.

    Exit code 0: all agree. 4: something differs; the round is named. 5: the algorithm
    is not supported, or evidence is missing. For a run on own data or of an own model
    repeat its options.
    """
    from privplan.record import run_folder
    from privplan.verification.verify import number_of_rounds
    from simulate.replay.replay import Replay

    run_folder(run)
    own_parts = own_of(ctx, options)
    trained = number_of_rounds(rounds)
    with render.progress("rounds") as progress:
        replay = Replay(run, data_dir, own_parts, noise_key)
        report = replay.run(trained, selection_seed, progress)
    stored = report.save(run)
    if form == "json":
        render.data(report.model_dump(mode="json"))
    else:
        _show(report)
    earlier_failed = stored.outcome == "failed"
    if earlier_failed and report.outcome != "failed":
        render.text(
            f"NOT the same: an earlier replay of this run failed: {stored.reason}"
        )
    elif len(stored.rounds) > len(report.rounds):
        render.text(
            "replay.json keeps an earlier one: "
            f"{len(stored.rounds)} of {stored.rounds_of_run} rounds"
        )
    ctx.exit(max(report.exit_code, stored.exit_code if earlier_failed else 0))


def _show(report: ReplayReport) -> None:
    """Print what was compared, and the first differences."""
    columns = ("comparison", "compared", "differ", "largest deviation")
    rows = [
        (
            comparison.name,
            str(comparison.compared),
            str(comparison.differ),
            f"{comparison.largest:.2g}",
        )
        for comparison in report.comparisons
    ]
    caption = f"rounds trained again: {', '.join(map(str, report.rounds)) or 'none'}"
    if report.selection_seed is not None:
        caption += f"; selection {report.selection_seed}"
    render.table("replay", columns, rows, caption)
    for difference in report.differences[:MAX_DIFFERENCES]:
        render.text(f"round {difference.round}: {difference.name}: {difference.detail}")
    render.text(f"{report.outcome.replace('_', ' ')}: {report.reason}")


def _passed_on(option: click.Parameter) -> click.Parameter:
    """The option for ``privplan verify``: its value goes to ``execute``."""
    passed_on = copy(option)
    check = option.callback

    def store(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        value = value if check is None else check(ctx, param, value)
        ctx.meta.setdefault(OPTIONS, {})[str(param.name)] = value

    passed_on.expose_value = False
    passed_on.callback = store
    return passed_on


# What ``privplan verify`` has by itself, and what it has no use for.
_NOT_PASSED_ON = ("rounds", "selection_seed", "noise_key", "form", "run", "help")
OF_VERIFY = [
    _passed_on(option) for option in command.params if option.name not in _NOT_PASSED_ON
]
"""Options of data and own parts, which ``privplan verify`` takes too."""
