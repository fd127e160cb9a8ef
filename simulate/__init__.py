"""Federated training under a plan, in PyTorch: one engine, many algorithms.

The public names load on first use, so that importing the package does not import
PyTorch.
"""

from __future__ import annotations

import sys
from importlib import import_module

_WHERE = {
    "Callback": "simulate.tracking",
    "Comparison": "simulate.training",
    "Data": "simulate.data.own",
    "TrainedRun": "simulate.training",
    "compare": "simulate.training",
    "train": "simulate.training",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        from privplan.guidance import no_such_name

        raise no_such_name(sys.modules[__name__], name)
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
