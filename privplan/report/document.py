"""HTML documents of the report: their layout, and how values stand in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from privplan.distribution import own_version
from privplan.report.numbers import rounded_up
from privplan.report.style import DARK, LIGHT, Panel
from privplan.visible import KEPT_LINES, printable


def document(template: str, **values: Any) -> str:
    """A page of one file, which requests nothing.

    Args:
        template: name of the file beside this one.
        **values: what the template says.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printed,
    )
    environment.filters |= {
        "up": rounded_up,
        "sentence": _sentence,
        "drawn": _drawn,
    }
    environment.globals |= {
        "light": LIGHT,
        "dark": DARK,
        "version": own_version(),
    }
    return environment.get_template(template).render(values).lstrip()


def _printed(value: Any) -> Any:
    """What a template prints, with escapes for letters that cannot be seen."""
    if type(value) is str:
        return printable(value, KEPT_LINES)
    return value


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _drawn(panel: Panel) -> Markup:
    """The picture of a panel as an element."""
    return Markup(panel.inline())
