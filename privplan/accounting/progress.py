"""Where computations that take long say how far they are; silent unless watched."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

Report = Callable[[int, int], None]
"""Called with finished and total items."""
Watch = Callable[[str], AbstractContextManager[Report]]
"""Shows the progress of a work with this title."""


def _silent(title: str) -> AbstractContextManager[Report]:
    return nullcontext(lambda done, total: None)


WATCH: ContextVar[Watch] = ContextVar("watch", default=_silent)
"""How progress is shown, which a command sets."""
