"""Tables, text lines and pictures of plans, verdicts and sweeps; nothing here prints.

May import all packages of ``privplan`` except the command line.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from privplan.guidance import NoSuchNameError


class _Chapter(ModuleType):
    """This package, whose name in ``privplan`` is that of a command."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Say what to write where somebody calls it as a function.

        Raises:
            NoSuchNameError: always.
        """
        raise NoSuchNameError(sys.modules["privplan"], "report")


sys.modules[__name__].__class__ = _Chapter
