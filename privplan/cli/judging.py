"""How a command judges a run: the options of ``privplan verify`` for all that do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from privplan.cli import TRUSTED, render
from privplan.errors import InputError

if TYPE_CHECKING:
    from privplan.verification.run import Run
    from privplan.verification.verdict import Verdict

C = TypeVar("C", bound=Callable[..., Any])

APPROVED_PLAN = click.option(
    "--plan",
    type=click.Path(path_type=Path),
    metavar="PLAN",
    help="The plan that was approved; a run of another plan is broken.",
)
NOISE_KEY = click.option(
    "--noise-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Key of a run with secure noise, RUN.key if left out; without it cohorts and "
    "noise are not drawn again.",
)
_OPTIONS = (
    APPROVED_PLAN,
    click.option(
        "--rounds",
        metavar="all|N|0",
        help="Rounds to execute again, drawn at random; as many as fit into 10 s when "
        "left out.",
    ),
    NOISE_KEY,
)


def judging_options(function: C) -> C:
    """Adds the options of ``privplan verify`` that decide how a run is judged.

    The command made of the function takes the options of optional parts, too, once
    ``takes_options_of_verify`` has marked it.
    """
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def takes_options_of_verify(command: click.Command) -> click.Command:
    """Lets a command take the options that optional parts declare for ``verify``."""
    command.options_of = "verify"  # type: ignore[attr-defined]
    return command


def judging(
    context: click.Context,
    plan: Path | None,
    rounds: str | None,
    noise_key: Path | None,
) -> Callable[[Run], Verdict]:
    """How the reader who called a command judges a run."""
    from privplan.verification.verify import approved_plan, judge

    def judged(run: Run) -> Verdict:
        approved = () if plan is None else (approved_plan(plan, run.folder),)
        trusted = (*approved, *context.meta.get(TRUSTED, ()))
        return judge(
            run, rounds, options=context.meta, trusted=trusted, noise_key=noise_key
        )

    return judged


def keep(save: Callable[[Path], object], folder: Path) -> None:
    """Write what was found into a run folder; a warning where nobody can write.

    In an archive a verdict counts all the same.

    Args:
        save: writes into a folder.
        folder: of the run.

    Raises:
        InputError: where the folder can be written, and yet the file cannot.
    """
    try:
        save(folder)
    except InputError as error:
        if os.access(folder, os.W_OK):
            raise
        render.warn(f"the result is not kept: {error}")
