"""Output of the command line; no other module prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from privplan.io.text import printable


def text(line: str = "") -> None:
    """Print a line to standard output."""
    click.echo(printable(line))


def error(message: str) -> None:
    """Print an error message to standard error, one fault per line."""
    for line in message.splitlines():
        click.echo(f"privplan: {printable(line)}", err=True)


def warn(message: str) -> None:
    """Print a warning to standard error."""
    click.echo(f"warning: {printable(message)}", err=True)


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
    """Print a table to standard output.

    Args:
        title: above the table; may be empty.
        columns: column heads.
        rows: cells of each row.
        caption: below the table.
        words: whether all columns are left-aligned, not only the first.
    """
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=printable(title), caption=printable(caption) or None, title_justify="left")
    for index, column in enumerate(columns):
        shown.add_column(
            column, justify="left" if words or index == 0 else "right", overflow="fold"
        )
    for row in rows:
        shown.add_row(*map(printable, row))
    console = Console(markup=False, emoji=False)  # names are text, whatever brackets they hold
    if not console.is_terminal:  # piped: do not cut the table to a default width
        console = Console(markup=False, emoji=False, width=160)
    console.print(shown)


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on standard error; yields a function of finished and total items."""
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
