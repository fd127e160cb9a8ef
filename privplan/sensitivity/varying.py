"""The numbers of a spec that a what-if sweep varies: their ranges, and the specs of its points."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from privplan.errors import InputError

SECTIONS = ("planning", "local", "constants")
"""Sections that a spec may omit although their numbers can be varied."""
LARGEST = 1e100
"""Largest absolute value of the ends of a range."""
MOST_POINTS = 1_000_000


@dataclass(frozen=True)
class Vary:
    """One number of the spec and its values.

    Attributes:
        path: its place in the spec, for example ``groups.strict.epsilon``.
        values: the values, in the order of the sweep.
    """

    path: str
    values: tuple[float, ...]


def parse_vary(text: str) -> Vary:
    """Values of ``PATH=FROM:TO:COUNT`` (equal steps) or ``PATH=FROM:TO:COUNT:log`` (equal factors).

    Raises:
        InputError: when the text is not of this form, or an end is out of range.
    """
    rule = "must be PATH=FROM:TO:COUNT or PATH=FROM:TO:COUNT:log"
    path, _, span = text.partition("=")
    parts = span.split(":")
    log = len(parts) == 4 and parts[3] == "log"
    if not path or len(parts) != 3 + log:
        raise InputError.one("vary", rule, text)
    try:
        first, last, count = float(parts[0]), float(parts[1]), int(parts[2])
    except ValueError:
        raise InputError.one("vary", rule, text) from None
    if not (math.isfinite(first) and math.isfinite(last) and 1 <= count <= 10_000):
        raise InputError.one("vary", "must have finite ends and 1 to 10000 values", text)
    if log and not (first > 0 and last > 0):
        raise InputError.one("vary", "must have positive ends with log", text)
    if max(abs(first), abs(last)) > LARGEST or (log and min(first, last) < 1 / LARGEST):
        raise InputError.one("vary", f"must have ends of a size up to {LARGEST:g}", text)
    steps = [i / max(count - 1, 1) for i in range(count)]
    if log:
        values = [float(f"{first * (last / first) ** s:.12g}") for s in steps]
    else:
        values = [float(f"{first + (last - first) * s:.12g}") for s in steps]
    return Vary(path, tuple(dict.fromkeys(values)))


def points(varies: Sequence[Vary]) -> list[dict[str, float]]:
    """All combinations of the varied values, the last number varying fastest.

    Raises:
        InputError: when there are more than ``MOST_POINTS``, or a path is varied twice.
    """
    paths = [vary.path for vary in varies]
    for path in paths:
        if paths.count(path) > 1:
            raise InputError.one("vary", "must name each path once", path)
    total = math.prod(len(vary.values) for vary in varies)
    if total > MOST_POINTS:
        raise InputError.one("vary", f"must make {MOST_POINTS} points or fewer", total)
    axes = [[(vary.path, value) for value in vary.values] for vary in varies]
    return [dict(combination) for combination in itertools.product(*axes)]


def with_point(data: dict[str, Any], point: dict[str, float]) -> dict[str, Any]:
    """A copy of the spec's plain data with the numbers of a point; integers stay integers.

    Raises:
        InputError: when a path is not a place of the spec.
    """
    data = deepcopy(data)
    for path, value in point.items():
        *parents, last = path.split(".")
        place: Any = data
        for part in parents:
            place = _descend(place, part, path)
        if not isinstance(place, dict) or isinstance(place.get(last), dict | list):
            raise InputError.one("vary", "must name a number of the spec", path)
        place[last] = int(value) if value == int(value) else value
    return data


def _descend(place: Any, part: str, path: str) -> Any:
    """The item of a mapping, or the group of that name in a list of groups."""
    if isinstance(place, list):
        named = [item for item in place if isinstance(item, dict) and item.get("name") == part]
        if named:
            return named[0]
    elif isinstance(place, dict) and isinstance(place.get(part), dict | list):
        return place[part]
    elif isinstance(place, dict) and place.get(part) is None and part in SECTIONS:
        place[part] = {}
        return place[part]
    raise InputError.one("vary", "must name a place of the spec", path)
