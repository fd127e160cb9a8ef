"""Fields of specs of earlier versions that no longer exist, and what to use instead.

A spec that names one is refused in one line. A stored plan may hold them in its spec: they are set
aside when it is read, and go with what it is written and hashed as, so that runs and ledgers that
are bound to its digest stay bound to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import reduce
from operator import getitem
from typing import Any

from privplan.errors import Fault, InputError
from privplan.values import where

_STEPS = "local.steps with planning.max_uploads, which is rounds times cohort"
_ADAM = "server.optimizer alone: it has Adam's defaults, 0.9 and 0.99"
_POINT = "true_positives at false_positives, the same point of a trade-off curve"
REMOVED = {
    "groups_precision": "groups_from alone, which makes the groups",
    "epsilon_distribution": "groups_from with a file of the budgets that were drawn",
    "horizon": "privplan solve --from-book, for each next model on the same people",
    "tuning": "privplan proxy tuning-cost, which says what budgets are left for a run",
    "recipe.evidence": "the file beside the spec, which privplan proxy tune writes",
    "planning.group_count": "groups in planning.free, which makes as many as are worth it",
    "planning.max_cohort": "planning.max_uploads, which is rounds times cohort",
    "planning.max_local_steps": _STEPS,
    "planning.max_device_seconds": _STEPS,
    "planning.step_seconds": _STEPS,
    "planning.median_clipping": "planning.clipping, which pays for its quantile",
    "planning.update_coherence": "planning.update_norms alone",
    "server.beta1": _ADAM,
    "server.beta2": _ADAM,
    "groups.*.risk.reconstruction": _POINT,
    "groups.*.risk.baseline": _POINT,
}
"""Paths of fields, and what to use instead."""


Location = tuple[int | str, ...]  # keys and places that lead to a value in plain data


def refuse_removed(data: dict[str, Any]) -> None:
    """Raise InputError with one fault per field that no longer exists."""
    faults = [
        Fault(where(location, data), f"was removed in 0.2; use {use}", found)
        for path, use in REMOVED.items()
        for location, found in _found(data, path.split("."))
    ]
    if faults:
        raise InputError(faults)


def _found(
    data: Any, path: list[str], way: Location = ()
) -> Iterator[tuple[Location, Any]]:
    """Where a path leads in plain data, and what stands there."""
    head, *rest = path
    if head == "*":
        for place, one in enumerate(data if isinstance(data, list | tuple) else ()):
            yield from _found(one, rest, (*way, place))
    elif isinstance(data, dict) and head in data:
        if rest:
            yield from _found(data[head], rest, (*way, head))
        else:
            yield (*way, head), data[head]


def set_aside(data: Any) -> tuple[Any, dict[Location, Any]]:
    """A stored spec without removed fields, and these; a removed kind of risk goes as a whole."""
    kept, removed = deepcopy(data), dict[Location, Any]()
    for path in REMOVED:
        for location, _ in list(_found(kept, path.split("."))):
            way = location[:-1] if "risk" in location else location
            removed[way] = reduce(getitem, way[:-1], kept).pop(way[-1])
    return kept, removed


def put_back(data: Any, removed: dict[Location, Any]) -> Any:
    """Plain data with the fields that ``set_aside`` took from them."""
    data = deepcopy(data)
    for location, value in removed.items():
        reduce(getitem, location[:-1], data)[location[-1]] = value
    return data
