"""Forecasts of accuracy before training, from a table of runs on proxy data.

May import plans and planning; imports no simulator, so that a forecast needs the table
only.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Chapter(ModuleType):
    """This package, which is called as the function ``privplan.forecast``."""

    def __call__(self, *values: Any, **named: Any) -> Any:
        return import_module("privplan.api").forecast(*values, **named)


sys.modules[__name__].__class__ = _Chapter
