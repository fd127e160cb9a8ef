"""Fields of specs of earlier versions that no longer exist, and what to use instead.

A spec that names one is refused in one line. A stored plan may hold them in its spec: they are set
aside when it is read, and go with what it is written and hashed as, so that runs and ledgers that
are bound to its digest stay bound to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from privplan.errors import Fault, InputError

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


def refuse_removed(data: dict[str, Any]) -> None:
    """Raise InputError with one fault per field that no longer exists."""
    faults = [
        Fault(where, f"was removed in 0.2; use {REMOVED[path]}", found)
        for path in REMOVED
        for where, found in _found(data, path.split("."))
    ]
    planning = data.get("planning")
    free = planning.get("free") if isinstance(planning, dict) else None
    if isinstance(free, list | tuple) and "local_steps" in free:
        text = f"local_steps was removed in 0.2; use {_STEPS}"
        faults.append(Fault("planning.free", text, "local_steps"))
    if faults:
        raise InputError(faults)


def _found(data: Any, path: list[str], before: str = "") -> Iterator[tuple[str, Any]]:
    """Where a path leads in plain data, and what stands there."""
    head, rest = path[0], path[1:]
    if head == "*":
        for one in data if isinstance(data, list | tuple) else ():
            name = one.get("name") if isinstance(one, dict) else None
            yield from _found(one, rest, f"{before}{name}.")
    elif isinstance(data, dict) and head in data:
        if rest:
            yield from _found(data[head], rest, f"{before}{head}.")
        else:
            yield f"{before}{head}", data[head]


def set_aside(data: Any) -> tuple[Any, dict[str, Any]]:
    """The plain data of a stored spec without fields that no longer exist, and these.

    Items of a list are named by their place. A risk of a kind that no longer exists is set aside
    as a whole: the epsilon and delta beside it say what it implies.
    """
    removed: dict[str, Any] = {}
    for path in REMOVED:
        data = _without(data, path.removesuffix(".reconstruction").split("."), removed, path)
    return data, removed


def _without(data: Any, path: list[str], removed: dict[Any, Any], whole: str) -> Any:
    head, rest = path[0], path[1:]
    if head == "*":
        found = []
        for place, one in enumerate(data if isinstance(data, list | tuple) else ()):
            own: dict[Any, Any] = {}
            found.append(_without(one, rest, own, whole))
            if own:
                removed[place] = {**removed.get(place, {}), **own}
        return found or data
    if not isinstance(data, dict) or head not in data:
        return data
    if rest:
        own = removed.get(head, {})
        changed = _without(data[head], rest, own, whole)
        if own:
            removed[head] = own
        return data if changed is data[head] else {**data, head: changed}
    if head == "risk" and "reconstruction" not in (data[head] or {}):
        return data
    removed[head] = data[head]
    return {key: value for key, value in data.items() if key != head}


def put_back(data: Any, removed: dict[Any, Any]) -> Any:
    """Plain data with the fields that ``set_aside`` took from them."""
    if isinstance(data, list):
        return [put_back(one, removed.get(place, {})) for place, one in enumerate(data)]
    return {
        **data,
        **{
            key: put_back(data[key], value)
            if isinstance(data.get(key), dict | list) and isinstance(value, dict)
            else value
            for key, value in removed.items()
        },
    }
