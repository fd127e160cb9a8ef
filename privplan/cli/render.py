"""Output of the command line; no other module prints.

Options without effect are refused here, too.
"""

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
from itertools import chain
from typing import Any, TextIO

import click

from privplan.errors import Fault, InputError
from privplan.visible import KEPT_LINES, printable

# Columns of a table in a file or a pipe, without COLUMNS.
PIPE_WIDTH = 160
# A narrower terminal is treated as one of so many columns.
LEAST_WIDTH = 40
# A line between columns, with a space on both sides.
_LINE_WIDTH = 3
SPARE = ("rdp upper", "headroom", "objective", "plan")
"""Columns that a table without room leaves out; --json and report pages have them."""
MINUTE = 60.0
FIRST_LINE = 15.0  # seconds; a pace of fewer says little
_LOGGERS = ("privplan", "simulate")
_LEVELS = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO}
_log = logging.getLogger(__name__)


class _Handler(logging.Handler):
    """Writes log records to the present standard error, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        message = " ".join(printable(record.getMessage(), KEPT_LINES).split())
        if record.levelno >= logging.WARNING:
            source = "warning"
        else:
            source = record.name
        click.echo(f"{source}: {message}", err=True)


_HANDLER = _Handler()


def configure(verbosity: int) -> None:
    """Log to standard error.

    Args:
        verbosity: 0 for warnings, 1 for each step, 2 for details, -1 for errors only.
    """
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.setLevel(_LEVELS.get(verbosity, logging.DEBUG))
        if _HANDLER not in logger.handlers:
            logger.addHandler(_HANDLER)


def text(line: str = "") -> None:
    """Print a line to standard output, wrapped where a terminal would cut it."""
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
    """A line, wrapped between words for a terminal, but not for a file or a pipe."""
    shown = printable(line, KEPT_LINES)
    if stream.isatty():
        return _wrapped(shown)
    return shown


def _wrapped(line: str) -> str:
    if len(line) <= _width() or "\n" in line:
        return line
    lines = textwrap.wrap(
        line,
        _width(),
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


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
    """Print a table to standard output; no word and no number is broken.

    Where the longest words do not fit beside each other, lines between columns go
    first, then the columns ``SPARE``, which the caption names; what is still too wide
    follows in a second table.

    Args:
        title: above the table.
        columns: their names.
        rows: of cells, as text.
        caption: below the table.
        words: whether all columns are aligned to the left, not only the first.
    """
    cells = [_printable_cells(row) for row in rows]
    layout = _Layout([printable(name) for name in columns], cells, _width())
    has_lines = layout.fits_with_lines
    layout.drop_spare_columns()
    number = len(layout.names) if has_lines else layout.number_that_fits
    notes = []
    if number >= len(layout.names):
        notes.append(printable(caption))
        if layout.dropped:
            dropped = ", ".join(layout.dropped)
            notes.append(f"not shown for want of columns: {dropped}")
    _print_table(printable(title), layout, number, has_lines, words, notes)
    if number < len(layout.names):
        remaining_rows = [[*row[:1], *row[number:]] for row in layout.rows]
        remaining_names = [layout.names[0], *layout.names[number:]]
        table("", remaining_names, remaining_rows, caption=caption, words=words)


def _printable_cells(row: Sequence[str]) -> list[str]:
    return [printable(cell, KEPT_LINES) for cell in row]


class _Layout:
    """Columns of a table, and how wide they are on a terminal.

    Attributes:
        names: of the columns.
        rows: of cells.
        dropped: names of columns that were left out for want of room.
        widths: of the columns, without what stands between them.
    """

    def __init__(self, names: list[str], rows: list[list[str]], width: int) -> None:
        """The columns before any is dropped, for a terminal of so many columns."""
        self.names = names
        self.rows = rows
        self.dropped: list[str] = []
        self._width = width
        self.widths = _column_widths(names, rows, width)

    @property
    def fits_with_lines(self) -> bool:
        """Whether all columns fit with lines between them and around."""
        return sum(self.widths) + _LINE_WIDTH * len(self.names) + 1 <= self._width

    @property
    def number_that_fits(self) -> int:
        """How many columns fit with a space between them, and at least two."""
        fits = [
            sum(self.widths[:end]) + end - 1 <= self._width
            for end in range(1, len(self.widths) + 1)
        ]
        return max(2, sum(fits))

    def drop_spare_columns(self) -> None:
        """Leave out spare columns while all do not fit with a space between them."""
        for name in SPARE:
            needed_width = sum(self.widths) + len(self.widths) - 1
            if needed_width <= self._width or name not in self.names:
                continue
            index = self.names.index(name)
            self.dropped.append(self.names.pop(index))
            self.rows = [row[:index] + row[index + 1 :] for row in self.rows]
            self.widths = _column_widths(self.names, self.rows, self._width)


def _print_table(
    title: str,
    layout: _Layout,
    number: int,
    has_lines: bool,
    words: bool,
    notes: list[str],
) -> None:
    """Print the first columns of a layout.

    Args:
        title: above the table.
        layout: the columns.
        number: how many of them.
        has_lines: whether lines stand between columns and around the table.
        words: whether all columns are aligned to the left, not only the first.
        notes: below the table.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    widths = layout.widths[:number]
    style: dict[str, Any] = {}
    if not has_lines:
        # Two spaces between columns where there is room, else one.
        has_room = sum(widths) + 2 * number - 2 <= _width()
        style["box"] = SIMPLE_HEAD
        style["show_edge"] = False
        style["padding"] = (0, int(has_room), 0, 0)
        style["pad_edge"] = False
    caption = "; ".join(filter(None, notes))
    printed = Table(title=title, caption=caption or None, title_justify="left", **style)
    for index, column in enumerate(layout.names[:number]):
        justify: Any = "left" if words or index == 0 else "right"
        printed.add_column(
            column, justify=justify, overflow="fold", width=widths[index]
        )
    for row in layout.rows:
        printed.add_row(*row[:number])
    # Names are text, whatever brackets they hold.
    width = max(_width(), sum(widths) + _LINE_WIDTH * number + 1)
    Console(markup=False, emoji=False, width=width).print(printed)


def _width() -> int:
    """Columns of standard output: COLUMNS, else the terminal's, else a pipe's."""
    return max(LEAST_WIDTH, shutil.get_terminal_size((PIPE_WIDTH, 24)).columns)


def _column_widths(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> list[int]:
    """Widths of the columns, the widest narrowed first, as far as words allow."""
    from rich.cells import cell_len

    widths = []
    smallest_widths = []
    for cells in zip(columns, *rows, strict=True):
        lines = chain.from_iterable(cell.split("\n") for cell in cells)
        widths.append(max(map(cell_len, lines)))
        words = chain.from_iterable(cell.split() for cell in cells)
        smallest_widths.append(max(map(cell_len, words), default=0))
    for _ in range(sum(widths) + _LINE_WIDTH * len(columns) + 1 - width):
        narrowable = [
            index
            for index, column_width in enumerate(widths)
            if column_width > smallest_widths[index]
        ]
        if narrowable:
            widths[max(narrowable, key=widths.__getitem__)] -= 1
    return widths


@contextmanager
def progress(
    title: str, *, limited: bool = False
) -> Iterator[Callable[[int, int], None]]:
    """Show progress on standard error; yields a function of finished and total items.

    A bar on a terminal; else a line a minute, if the work takes more than a minute.

    Args:
        title: of the work.
        limited: whether it ends after some seconds, with whatever is done by then: the
            time for all items then says nothing, and nothing is shown.
    """
    if limited or not _log.isEnabledFor(logging.WARNING):
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


@contextmanager
def watched() -> Iterator[None]:
    """Show the progress of what the accountants compute."""
    from privplan.accounting.progress import WATCH

    token = WATCH.set(progress)
    try:
        yield
    finally:
        WATCH.reset(token)


def _lines(title: str) -> Callable[[int, int], None]:
    """Reports of progress by lines.

    The first comes when the time that is left can be estimated.
    """
    # The first report: when it came, and what an earlier command had finished by then.
    begin: float | None = None
    done_before = 0
    next_line = FIRST_LINE

    def report(done: int, total: int) -> None:
        nonlocal begin, done_before, next_line
        now = time.monotonic()
        if begin is None:
            # What was loaded before is no part of the pace.
            begin = now
            done_before = done
            return
        passed = now - begin
        left = passed * (total - done) / max(1, done - done_before)
        is_between = done_before < done < total
        if is_between and passed + left > MINUTE and passed >= next_line:
            next_line = passed + MINUTE
            minutes = math.ceil(left / MINUTE)
            unit = "minutes" if minutes > 1 else "minute"
            status(f"{title}: {done} of {total}, about {minutes} {unit} left")

    return report


def on_command_line(context: click.Context, name: str) -> bool:
    """Whether the command line names an option."""
    return context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE


def refuse_options(context: click.Context, names: Iterable[str], rule: str) -> None:
    """Refuse options that the command line names although they have no effect.

    Raises:
        InputError: with each of them.
    """
    options = {
        option.name: option.opts[0].lstrip("-") for option in context.command.params
    }
    faults = []
    for name in names:
        if on_command_line(context, name):
            # An option that is passed on has no value here.
            value = context.params.get(name, "no --data")
            if isinstance(value, tuple):
                shown = " ".join(value)
            else:
                shown = str(value)
            faults.append(Fault(options[name], rule, shown))
    if faults:
        raise InputError(faults)
