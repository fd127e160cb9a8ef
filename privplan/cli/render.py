"""Output of the command line; no other module prints. Options without effect are refused here."""

from __future__ import annotations

import json
import logging
import math
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from privplan.errors import InputError
from privplan.files import printable

PIPE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe, where COLUMNS does not say otherwise."""
LEAST_WIDTH = 40
MINUTE = 60.0
_LOGGERS = ("privplan", "simulate")
_LEVELS = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO}
_log = logging.getLogger(__name__)


class _Handler(logging.Handler):
    """Writes log records to the present standard error, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        message = " ".join(printable(record.getMessage()).split())
        warning = record.levelno >= logging.WARNING
        click.echo(f"{'warning' if warning else record.name}: {message}", err=True)


_HANDLER = _Handler()


def configure(verbosity: int) -> None:
    """Log to standard error: warnings, with 1 each step, with 2 details, with -1 errors only."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.setLevel(_LEVELS.get(verbosity, logging.DEBUG))
        if _HANDLER not in logger.handlers:
            logger.addHandler(_HANDLER)


def text(line: str = "") -> None:
    """Print a line to standard output."""
    click.echo(printable(line))


def ask(question: str, check: Callable[[str], Any], default: str = "") -> Any:
    """What a check makes of an answer; one that it refuses is asked for again."""

    def value_of(text: str) -> Any:
        try:
            return check(text.strip())
        except InputError as error:
            raise click.UsageError(printable(str(error))) from None

    return click.prompt(
        question, default=default, show_default=bool(default), value_proc=value_of, err=True
    )


def error(message: str) -> None:
    """Print an error message to standard error, one fault per line."""
    for line in message.splitlines():
        click.echo(f"privplan: {printable(line)}", err=True)


def warn(message: str) -> None:
    """Print a warning to standard error, unless the command is called with --quiet."""
    if _log.isEnabledFor(logging.WARNING):
        click.echo(f"warning: {printable(message)}", err=True)


def status(line: str) -> None:
    """Print a line on the course of a long command to standard error, wrapped where too long."""
    for part in textwrap.wrap(
        printable(line), _width(), subsequent_indent="  ", break_long_words=False
    ):
        click.echo(part, err=True)


def data(value: Any) -> None:
    """Print plain data to standard output as strict JSON."""
    click.echo(json.dumps(value, indent=1, allow_nan=False))


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    caption: str = "",
    words: bool = False,
) -> None:
    """Print a table to standard output; no word and no number is broken between two lines.

    A table whose longest words do not fit beside each other is wider than the terminal.
    ``words`` aligns all columns to the left, not only the first.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = _column_widths(columns, cells, _width())
    width = max(_width(), sum(widths) + 3 * len(columns) + 1)
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=printable(title), caption=printable(caption) or None, title_justify="left")
    for index, column in enumerate(columns):
        justify: Any = "left" if words or index == 0 else "right"
        shown.add_column(column, justify=justify, overflow="fold", width=widths[index])
    for row in cells:
        shown.add_row(*row)
    # Names are text, whatever brackets they hold.
    Console(markup=False, emoji=False, width=width).print(shown)


def _width() -> int:
    """Columns of standard output: COLUMNS, else those of the terminal, else of a pipe."""
    return max(LEAST_WIDTH, shutil.get_terminal_size((PIPE_WIDTH, 24)).columns)


def _column_widths(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Widths of the columns, the widest narrowed first, as far as words allow."""
    from rich.cells import cell_len

    natural, least = [], []
    for cells in zip(columns, *rows, strict=True):
        natural.append(max(cell_len(line) for cell in cells for line in cell.split("\n")))
        least.append(max((cell_len(word) for cell in cells for word in cell.split()), default=0))
    for _ in range(sum(natural) + 3 * len(columns) + 1 - width):
        slack = [index for index, wide in enumerate(natural) if wide > least[index]]
        if slack:
            natural[max(slack, key=natural.__getitem__)] -= 1
    return natural


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show progress on standard error; yields a function of finished and total items.

    A bar on a terminal; else a line a minute, if the work takes more than a minute.
    """
    if not _log.isEnabledFor(logging.WARNING):
        yield lambda done, total: None
        return
    if not sys.stderr.isatty():
        yield _lines(title)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(title, total=None)

        def report(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield report


def _lines(title: str) -> Callable[[int, int], None]:
    """Reports of progress by lines, the first as soon as the time that is left can be estimated."""
    begun, first, next_line = time.monotonic(), -1, 0.0

    def report(done: int, total: int) -> None:
        nonlocal first, next_line
        passed = time.monotonic() - begun
        first = done if first < 0 else first  # what an earlier command had finished
        left = passed * (total - done) / max(1, done - first)
        if first < done < total and passed + left > MINUTE and passed >= next_line:
            next_line = passed + MINUTE
            minutes = math.ceil(left / MINUTE)
            rest = f"about {minutes} minute{'s' * (minutes > 1)} left"
            status(f"{title}: {done} of {total}, {rest}")

    return report


def on_command_line(context: click.Context, name: str) -> bool:
    """Whether the command line names an option."""
    return context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE


def refuse_options(context: click.Context, names: Iterable[str], rule: str) -> None:
    """Raises for each of the options that the command line names although it has no effect."""
    from privplan.errors import Fault, InputError

    options = {option.name: option.opts[0].lstrip("-") for option in context.command.params}
    faults = []
    for name in names:
        if on_command_line(context, name):
            value = context.params[name]
            shown = " ".join(value) if isinstance(value, tuple) else str(value)
            faults.append(Fault(options[name], rule, shown))
    if faults:
        raise InputError(faults)
