"""Changes to a spec's plain data, by dotted names (``groups.strict.epsilon``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privplan.errors import InputError, did_you_mean

# A group states its budget once: a change of one field removes those that it replaces.
_REPLACED_BY = {"risk": ("epsilon", "delta"), "epsilon": ("risk",)}


def with_changes(data: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a spec's plain data with changed values.

    Args:
        data: plain data of a spec.
        changes: values by dotted name; groups are found by their names. A mapping
            changes the parts that it names, any other value replaces the old one. A
            group that is changed to 0 clients is left out.

    Raises:
        InputError: for a group that the data do not have, or that is no mapping.
    """
    data = {**data}
    for name, value in changes.items():
        field, *inner_names = name.split(".")
        for inner_name in reversed(inner_names):
            value = {inner_name: value}
        data[field] = _changed(data.get(field), value, field)
    return data


def _changed(old: Any, new: Any, field: str) -> Any:
    """The value of a field after a change; ``old`` stays as it is."""
    if isinstance(old, dict) and isinstance(new, dict):
        changed = {name: _changed(old.get(name), new[name], name) for name in new}
        return old | changed
    if isinstance(old, list) and isinstance(new, dict):
        return _changed_groups(old, new, field)
    return new


def _changed_groups(
    groups: list[dict[str, Any]], changes: dict[str, Any], field: str
) -> list[dict[str, Any]]:
    """The items of a list after changes by their names, in the list's order."""
    groups_by_name = {group["name"]: group for group in groups}
    for name, change in changes.items():
        if name not in groups_by_name:
            rule = f"must be one of {', '.join(groups_by_name)}"
            near = did_you_mean(name, groups_by_name)
            raise InputError.one(field, rule + near, name)
        if not isinstance(change, dict):
            rule = 'must be such as {"epsilon": 1}'
            raise InputError.one(f"{field}.{name}", rule, change)
        if change.get("clients") == 0:
            del groups_by_name[name]
            continue
        group = dict(groups_by_name[name])
        for changed_field in change:
            for replaced_part in _REPLACED_BY.get(changed_field, ()):
                group.pop(replaced_part, None)
        groups_by_name[name] = group | change
    return list(groups_by_name.values())


def stated_number(data: Mapping[str, Any], name: str) -> float | None:
    """The number of a dotted name in a spec's plain data; None where it has none."""
    field, *inner_names = name.split(".")
    value = data.get(field)
    for inner_name in inner_names:
        if isinstance(value, list):
            groups_by_name = {group["name"]: group for group in value}
            value = groups_by_name.get(inner_name)
        elif isinstance(value, dict):
            value = value.get(inner_name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)
