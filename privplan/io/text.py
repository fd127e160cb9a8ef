"""Plain data from JSON and YAML text, loaded safely and strictly."""

from __future__ import annotations

import json
from typing import Any


def load_json(text: str) -> Any:
    """Plain data from JSON text.

    Raises:
        ValueError: when the text is not JSON, is nested too deeply, or contains a number that
            JSON cannot express, such as NaN.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


def load_yaml(text: str, what: str) -> Any:
    """Plain data from YAML text.

    Args:
        text: the document.
        what: the field that error messages name, for example ``spec``.

    Raises:
        InputError: when the text is not YAML, or would need too much memory.
    """
    from privplan.io.yaml_text import plain_data  # most commands read JSON only

    return plain_data(text, what)


def printable(text: str) -> str:
    """The text with escapes for control characters, which could change what a terminal shows."""
    return "".join(
        letter
        if letter.isprintable() or letter in "\n\t"
        else letter.encode("unicode_escape").decode()
        for letter in text
    )


def csv_cell(value: Any) -> Any:
    """A cell of a CSV file that no spreadsheet reads as a formula.

    Text that begins as a formula gets an apostrophe, which spreadsheets do not show.
    """
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
