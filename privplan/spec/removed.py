"""Fields of specs of earlier versions that no longer exist, and what to use instead.

A spec that names one is refused in one line. A stored plan may hold them in its spec:
they are set aside when it is read, and go with what it is written and hashed as, so
that runs and ledgers that are bound to its digest stay bound to it.
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
_GROUPS = "groups in planning.free, which makes as many as are worth it"
REMOVED = {
    "groups_precision": "groups_from alone, which makes the groups",
    "epsilon_distribution": "groups_from with a file of the budgets that were drawn",
    "horizon": "privplan solve --from-book, for each next model on the same people",
    "tuning": "privplan proxy tuning-cost, which says what budgets are left for a run",
    "recipe.evidence": "the file beside the spec, which privplan proxy tune writes",
    "planning.group_count": _GROUPS,
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
    faults = []
    for path, use in REMOVED.items():
        rule = f"was removed in 0.2; use {use}"
        for location, value in _matches(data, path.split(".")):
            faults.append(Fault(where(location, data), rule, value))
    if faults:
        raise InputError(faults)


def _matches(
    data: Any, path: list[str], prefix: Location = ()
) -> Iterator[tuple[Location, Any]]:
    """Where a path leads in plain data, and what stands there.

    Args:
        data: plain data, valid or not.
        path: keys; ``*`` leads to each item of a list.
        prefix: location of the data in those that the caller searches.
    """
    key, *remaining_path = path
    if key == "*":
        if isinstance(data, list | tuple):
            for place, item in enumerate(data):
                yield from _matches(item, remaining_path, (*prefix, place))
    elif isinstance(data, dict) and key in data:
        if remaining_path:
            yield from _matches(data[key], remaining_path, (*prefix, key))
        else:
            yield (*prefix, key), data[key]


def set_aside(data: Any) -> tuple[Any, dict[Location, Any]]:
    """A stored spec without removed fields, and these by their locations."""
    data = deepcopy(data)
    removed: dict[Location, Any] = {}
    for path in REMOVED:
        for location, _ in list(_matches(data, path.split("."))):
            # A removed kind of risk goes as a whole: what is left of it states no
            # limit.
            if "risk" in location:
                location = location[:-1]
            *parents, field = location
            removed[location] = reduce(getitem, parents, data).pop(field)
    return data, removed


def put_back(data: Any, removed: dict[Location, Any]) -> Any:
    """Plain data with the fields that ``set_aside`` took from them."""
    data = deepcopy(data)
    for location, value in removed.items():
        reduce(getitem, location[:-1], data)[location[-1]] = value
    return data
