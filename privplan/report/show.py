"""Values in Python and notebooks: text, a page of HTML, a table, a picture.

A ``View`` says what is shown of a value; ``text``, ``page``, ``frame`` and ``picture``
turn it into what is asked for. pandas and matplotlib are imported only for the last
two.
"""

from __future__ import annotations

import textwrap
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from privplan.errors import InputError, did_you_mean
from privplan.files import write_bytes
from privplan.presenter import PRESENTERS, Presenter
from privplan.report.style import can_draw, picture_name, shortened
from privplan.report.style import picture as drawn
from privplan.report.tables import explanation
from privplan.report.views import MOST_ROWS, Panels, Rows, View, view_of
from privplan.visible import KEPT_LINES, in_html, printable

WIDTH = 100  # letters of a line of text
_TITLE_LETTERS = 90  # of a picture's title


class Picture:
    """Panels as a picture: notebooks show it as PNG, ``save`` writes a file.

    Args:
        panels: makes the panels when the picture is drawn.
        title: above them where they are several.
    """

    def __init__(self, panels: Panels, title: str = "") -> None:
        self._panels = panels
        self._title = title

    def __repr__(self) -> str:
        return 'Picture: shown in a notebook; written by .save("picture.png"), .svg or .pdf'

    def draw(self, form: str = "svg") -> bytes:
        """The picture in an image format."""
        panels = self._panels()
        if len(panels) > 1:
            title = shortened(self._title, _TITLE_LETTERS)
        else:
            title = ""
        return drawn(panels, form, title=title, columns=2)

    def _repr_png_(self) -> bytes:
        return self.draw("png")

    def save(self, path: Path | str) -> None:
        """Write the picture; the name's ending is its format."""
        write_bytes(path, self.draw(picture_name(str(path))))


def text(value: Any) -> str:
    """One screen of text."""
    view = view_of(value)
    grid = [view.table.columns, *view.table.rows[:MOST_ROWS]]
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    lines = textwrap.wrap(view.title, WIDTH)
    if view.table.columns:
        for row in grid:
            words = map(str.ljust, row, widths)
            lines.append(f"  {'  '.join(words).rstrip()}")
    for note in _notes(view):
        lines += textwrap.wrap(note, WIDTH)
    return printable("\n".join(lines), KEPT_LINES)


def _notes(view: View) -> list[str]:
    """What follows the rows that are shown."""
    hidden = len(view.table.rows) - MOST_ROWS
    notes = []
    if hidden > 0:
        notes.append(f"... and {hidden} more rows: to_frame() has them all")
    if view.table.caption:
        notes.append(view.table.caption)
    return [*notes, *view.lines]


def page(value: Any) -> str:
    """A table below the picture, as HTML without scripts or a style sheet."""
    view = view_of(value)
    rows = view.table.rows[:MOST_ROWS]
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in rows)
    notes = "".join(f"<p>{in_html(note)}</p>" for note in _notes(view))
    title = in_html(view.title)
    image = ""
    if can_draw():
        encoded = b64encode(picture(value).draw()).decode()
        source = f"data:image/svg+xml;base64,{encoded}"
        image = f'<img width="420" alt="{title}" src="{source}">'
    return (
        f"<div><p><b>{title}</b></p>{image}"
        f"<table><thead><tr>{_cells(view.table.columns, 'th')}</tr></thead>"
        f"<tbody>{body}</tbody></table>{notes}</div>"
    )


def _cells(words: Sequence[str], tag: str) -> str:
    style = "text-align:left;padding:0.15em 0.8em 0.15em 0"
    return "".join(f'<{tag} style="{style}">{in_html(word)}</{tag}>' for word in words)


def picture(value: Any) -> Picture:
    """The value's picture."""
    view = view_of(value)
    return Picture(view.panels, view.title)


def frame(value: Any) -> Any:
    """The rows of a value as a data frame whose ``plot()`` draws the value."""
    return frame_of(list(view_of(value).rows), lambda: picture(value))


def frame_of(rows: Rows, draw: Callable[[], Picture]) -> Any:
    """Rows as a data frame whose ``plot()`` without arguments is ``draw()``.

    Args:
        rows: of the frame.
        draw: makes the picture.

    Raises:
        InputError: when pandas is not installed.
    """
    try:
        import pandas
    except ImportError:
        rule = "needs pandas: pip install 'privplan[tables]'"
        raise InputError.one("to_frame", rule, "no pandas") from None

    class Plot(pandas.DataFrame.plot):  # type: ignore[misc]
        def __call__(self, *arguments: Any, **named: Any) -> Any:
            if arguments or named:
                return super().__call__(*arguments, **named)
            return draw()

    class Frame(pandas.DataFrame):  # type: ignore[misc]
        @property
        def _constructor(self) -> Any:
            return pandas.DataFrame

        def __getitem__(self, key: Any) -> Any:
            self._require(key)
            return super().__getitem__(key)

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                if name.startswith("_"):
                    raise
                columns = [*map(str, self.columns)]
                near = did_you_mean(name, columns)
                rule = f"is no column{near} of {', '.join(columns)}, and no method"
                raise AttributeError(f"{name}: {rule} of a data frame") from None

        def groupby(self, *arguments: Any, **named: Any) -> Any:
            self._require(arguments[0] if arguments else named.get("by"))
            return super().groupby(*arguments, **named)

        def _require(self, key: Any) -> None:
            """Raise for the name of a column that there is not, and say which are."""
            if isinstance(key, str) and key not in self.columns:
                raise NoSuchColumnError(key, [*map(str, self.columns)])

    data = Frame(rows)
    object.__setattr__(data, "plot", Plot(data))
    return data


class NoSuchColumnError(KeyError):
    """A frame lacks a column; says which one may be meant, and all."""

    def __str__(self) -> str:
        name, columns = self.args
        rule = f"must be a column{did_you_mean(name, columns)} of {', '.join(columns)}"
        if name == "group" and "group" not in columns:
            rule += "; run.by_group and run.verdict.to_frame() are by group"
        return f"{rule}, found {name!r}"


class PlainRows(list[Mapping[str, Any]]):
    """Rows where pandas is not installed: a list that draws what a frame would."""

    def __init__(self, rows: Rows, draw: Callable[[], Picture]) -> None:
        super().__init__(rows)
        self.plot = draw


def frame_or_rows(rows: Rows, draw: Callable[[], Picture]) -> Any:
    """Rows as ``frame_of`` makes them, else as ``PlainRows``."""
    if find_spec("pandas") is None:
        return PlainRows(rows, draw)
    return frame_of(rows, draw)


PRESENTERS.register("show", Presenter(text, page, frame, picture, explanation))
