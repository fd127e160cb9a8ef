"""A table: a title, the heads of its columns, its rows, and a caption."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from privplan.visible import in_markdown

if TYPE_CHECKING:
    from privplan.proof import Finding

    Findings = Mapping[str, Finding]
    """What was proven, by the name of a group."""

Cell = Callable[[Any], object] | str
"""What a column says of an item: a function of it, or the name of an attribute."""


class Table(NamedTuple):
    """A table of text."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    caption: str = ""

    def in_markdown(self) -> list[str]:
        """The table as lines of Markdown."""
        lines = [self.columns, *self.rows]
        rows = [f"| {' | '.join(map(in_markdown, cells))} |" for cells in lines]
        rows.insert(1, f"|{'---|' * len(self.columns)}")
        return [*rows, "", in_markdown(self.caption)]


def table_of(
    title: str, items: Iterable[Any], cells: Mapping[str, Cell], caption: str = ""
) -> Table:
    """A table with a row for each item.

    Args:
        title: of the table.
        items: one for each row.
        cells: by the head of a column.
        caption: of the table.
    """
    table = Table(title, [*cells], [], caption)
    columns = [
        attrgetter(cell) if isinstance(cell, str) else cell for cell in cells.values()
    ]
    for item in items:
        table.rows.append([str(column(item)) for column in columns])
    return table
