"""Text that came from a file, as every output shows it: nothing hides in it or acts.

A name in a record, ledger, book or table may hold what moves a terminal's cursor (ESC),
reverses the order of what follows (bidi overrides), takes no room (zero-width
characters), or is markup to what reads the output. Terminal, HTML, Markdown, CSV and
LaTeX all take it from here.
"""

from __future__ import annotations

import html
import re
from typing import Any

KEPT_LINES = "\n\t"
"""What a text of several lines keeps as it is."""

# Letters and marks without a glyph, which ``str.isprintable`` lets pass: the default
# ignorable code points of Unicode (DerivedCoreProperties.txt) outside its categories C,
# and the blank of Braille.
_BLANK = (
    range(0x034F, 0x0350),  # combining grapheme joiner
    range(0x115F, 0x1161),  # Hangul fillers
    range(0x17B4, 0x17B6),  # inherent vowels of Khmer
    range(0x180B, 0x1810),  # variation selectors of Mongolian
    range(0x2800, 0x2801),  # blank of Braille
    range(0x3164, 0x3165),  # Hangul filler
    range(0xFE00, 0xFE10),  # variation selectors
    range(0xFFA0, 0xFFA1),  # half-width Hangul filler
    range(0xE0100, 0xE01F0),  # more variation selectors
)

# What Markdown reads as a link, code, emphasis or the border of a cell. A hyphen or a
# number at the start of a line is none of them: text from files never begins a line.
_MARKDOWN = re.compile(r"([\\`*_\[\]|~])")

# What LaTeX reads as more than the letter itself, and how each is written.
_LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
}

# What spreadsheets take for the start of a formula.
_FORMULA = ("=", "+", "-", "@")


def printable(text: str, unescaped: str = "") -> str:
    """The text on one line, with escapes for every character that cannot be seen.

    Args:
        text: any text.
        unescaped: such characters that stay, ``KEPT_LINES`` for several lines.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter if letter in unescaped or _is_seen(letter) else _escaped(letter)
        for letter in text
    )


def _is_seen(letter: str) -> bool:
    return letter.isprintable() and not any(ord(letter) in span for span in _BLANK)


def _escaped(letter: str) -> str:
    """The escape of a character, as Python and JSON write it."""
    return letter.encode("unicode_escape").decode()


def printable_data(value: Any) -> Any:
    """Plain data of JSON in which every text is printable; keys stay as they are."""
    if isinstance(value, str):
        return printable(value, KEPT_LINES)
    if isinstance(value, dict):
        return {key: printable_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [printable_data(item) for item in value]
    return value


def in_html(text: str) -> str:
    """The text as an element or a quoted attribute of HTML shows it literally."""
    return html.escape(printable(text, KEPT_LINES), quote=True)


def in_markdown(text: str) -> str:
    """The text as Markdown shows it literally, within a line or a cell of a table."""
    shown = html.escape(printable(text), quote=False)
    return _MARKDOWN.sub(r"\\\1", shown)


def in_latex(text: str) -> str:
    """The text as LaTeX prints it literally."""
    return "".join(_LATEX.get(letter, letter) for letter in printable(text))


def csv_cell(value: Any) -> Any:
    """A cell of a CSV file; what spreadsheets read as a formula gets an apostrophe."""
    if not isinstance(value, str):
        return value
    shown = printable(value)
    # Some spreadsheets cut off a tab before a formula; here it is an escape.
    if shown.startswith(_FORMULA):
        return f"'{shown}"
    return shown
