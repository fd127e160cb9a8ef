"""How values are shown: ``privplan.report`` registers it, as values know no report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from privplan.registry import Registry


@dataclass(frozen=True)
class Presenter:
    """Functions of a value that show it.

    Attributes:
        text: on a terminal.
        page: as HTML, in a notebook.
        frame: as a ``pandas.DataFrame``.
        picture: as a picture.
        explanation: of a plan, its sentences.
    """

    text: Callable[[Any], str]
    page: Callable[[Any], str]
    frame: Callable[[Any], Any]
    picture: Callable[[Any], Any]
    explanation: Callable[[Any], list[str]]


PRESENTERS: Registry[Presenter] = Registry(
    "presenter", "privplan.presenters", "privplan.report"
)


def presenter() -> Presenter:
    """The presenter of the project; its module is imported when it is asked for."""
    return PRESENTERS.get("show")
