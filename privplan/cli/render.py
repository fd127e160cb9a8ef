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
from typing import Any, TextIO

import click

from privplan.errors import InputError
from privplan.visible import KEPT_LINES, printable

PIPE_WIDTH = 160  # columns of a table in a file or a pipe, without COLUMNS
LEAST_WIDTH = 40
SPARE = ("rdp upper", "headroom", "objective", "plan")
"""Columns that a table without room leaves out; --json and report pages have them."""
MINUTE = 60.0
_LOGGERS = ("privplan", "simulate")
_LEVELS = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO}
_log = logging.getLogger(__name__)


class _Handler(logging.Handler):
    """Writes log records to the present standard error, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        message = " ".join(printable(record.getMessage(), KEPT_LINES).split())
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
    """Print a line to standard output, wrapped between words where a terminal would cut it."""
    click.echo(_shown(line, sys.stdout))


def ask(question: str, check: Callable[[str], Any], default: str = "") -> Any:
    """What a check makes of an answer; one that it refuses is asked for again."""

    def value_of(text: str) -> Any:
        try:
            return check(text.strip())
        except InputError as error:
            raise click.UsageError(printable(str(error), KEPT_LINES)) from None

    return click.prompt(
        question,
        default=default,
        show_default=bool(default),
        value_proc=value_of,
        err=True,
    )


def error(message: str) -> None:
    """Print an error message to standard error, one fault per line."""
    for line in message.splitlines():
        click.echo(_shown(f"privplan: {line}", sys.stderr), err=True)


def warn(message: str) -> None:
    """Print a warning to standard error, unless the command is called with --quiet."""
    if _log.isEnabledFor(logging.WARNING):
        click.echo(_shown(f"warning: {message}", sys.stderr), err=True)


def status(line: str) -> None:
    """Print a line on the course of a long command, wrapped, as ``warn`` does."""
    if _log.isEnabledFor(logging.WARNING):
        click.echo(_wrapped(printable(line, KEPT_LINES)), err=True)


def _shown(line: str, stream: TextIO) -> str:
    """A line, wrapped between words for a terminal; for a file or a pipe it stays as it is."""
    shown = printable(line, KEPT_LINES)
    return _wrapped(shown) if stream.isatty() else shown


def _wrapped(line: str) -> str:
    if len(line) <= _width() or "\n" in line:
        return line
    indent, width = "  ", _width()
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return "\n".join(textwrap.wrap(line, width, subsequent_indent=indent, **options))


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

    Where the longest words do not fit beside each other, lines between columns go first, then the
    columns ``SPARE``, which the caption names; what is still too wide follows in a second table.
    ``words`` aligns all columns to the left, not only the first.
    """
    cells = [[printable(cell, KEPT_LINES) for cell in row] for row in rows]
    names, gone = [printable(name) for name in columns], list[str]()
    widths = _column_widths(names, cells, _width())
    lined = sum(widths) + 3 * len(names) + 1 <= _width()
    for name in SPARE:
        if sum(widths) + len(widths) - 1 > _width() and name in names:
            at = names.index(name)
            gone.append(names.pop(at))
            cells = [row[:at] + row[at + 1 :] for row in cells]
            widths = _column_widths(names, cells, _width())
    fits = [
        sum(widths[:end]) + end - 1 <= _width() for end in range(1, len(widths) + 1)
    ]
    first = len(names) if lined else max(2, sum(fits))
    left = f"not shown for want of columns: {', '.join(gone)}" if gone else ""
    said = (
        ""
        if first < len(names)
        else "; ".join(filter(None, (printable(caption), left)))
    )
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    loose = sum(widths[:first]) + 2 * first - 2 <= _width()
    bare: Any = {
        "box": SIMPLE_HEAD,
        "show_edge": False,
        "padding": (0, int(loose), 0, 0),
    }
    style: Any = {} if lined else {**bare, "pad_edge": False}
    shown = Table(
        title=printable(title), caption=said or None, title_justify="left", **style
    )
    for index, column in enumerate(names[:first]):
        justify: Any = "left" if words or index == 0 else "right"
        shown.add_column(column, justify=justify, overflow="fold", width=widths[index])
    for row in cells:
        shown.add_row(*row[:first])
    # Names are text, whatever brackets they hold.
    width = max(_width(), sum(widths[:first]) + 3 * first + 1)
    Console(markup=False, emoji=False, width=width).print(shown)
    if first < len(names):
        rest = [[*row[:1], *row[first:]] for row in cells]
        table("", [names[0], *names[first:]], rows=rest, caption=caption, words=words)


def _width() -> int:
    """Columns of standard output: COLUMNS, else those of the terminal, else of a pipe."""
    return max(LEAST_WIDTH, shutil.get_terminal_size((PIPE_WIDTH, 24)).columns)


def _column_widths(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> list[int]:
    """Widths of the columns, the widest narrowed first, as far as words allow."""
    from rich.cells import cell_len

    natural, least = [], []
    for cells in zip(columns, *rows, strict=True):
        natural.append(
            max(cell_len(line) for cell in cells for line in cell.split("\n"))
        )
        least.append(
            max((cell_len(word) for cell in cells for word in cell.split()), default=0)
        )
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
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(printable(title), total=None)

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
            next_line, minutes = passed + MINUTE, math.ceil(left / MINUTE)
            rest = f"about {minutes} minute{'s' * (minutes > 1)} left"
            status(f"{title}: {done} of {total}, {rest}")

    return report


def on_command_line(context: click.Context, name: str) -> bool:
    """Whether the command line names an option."""
    return context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE


def refuse_options(context: click.Context, names: Iterable[str], rule: str) -> None:
    """Raises for each of the options that the command line names although it has no effect."""
    from privplan.errors import Fault, InputError

    options = {
        option.name: option.opts[0].lstrip("-") for option in context.command.params
    }
    faults = []
    for name in names:
        if on_command_line(context, name):
            value = context.params.get(
                name, "no --data"
            )  # of an option that is passed on
            shown = " ".join(value) if isinstance(value, tuple) else str(value)
            faults.append(Fault(options[name], rule, shown))
    if faults:
        raise InputError(faults)
