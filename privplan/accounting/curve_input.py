"""What ``privplan.compose`` takes: releases, numbers and saved states, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field

from privplan.accounting.release import GAUSSIAN, History, Relation, Release, SamplingLaw
from privplan.errors import InputError
from privplan.values import MOST, Count, Value

LEAST_TOLERANCE = 1e-6

Releases = History | Release | Iterable[Release | tuple[Release, int]]


class Segment(Value):
    """A release in ``State``, with how often it happened."""

    noise_multiplier: float | Literal["inf"]
    sampling_ratio: float
    sampling: str
    family: str = GAUSSIAN
    rounds: Count


class State(Value):
    """The JSON document of ``state_dict``."""

    format: Literal["privplan.compose/1"]
    accountant: Literal["pld"]
    relation: str
    tolerance: float = Field(ge=LEAST_TOLERANCE, le=0.5)
    history: tuple[Segment, ...]


def counted(release: Releases | None) -> list[tuple[Release, int]]:
    """Releases with their counts."""
    if isinstance(release, Release):
        return [(release, 1)]
    if isinstance(release, History):
        return list(release)
    rule = "must be a history, a release, or releases with or without counts"
    if release is None or isinstance(release, str | bytes | Mapping):
        raise InputError.one("history", rule, release)
    try:
        items = list(release)
    except TypeError:
        raise InputError.one("history", rule, release) from None
    counted = []
    for item in items:
        one, count = (item, 1) if isinstance(item, Release) else _pair(item, rule)
        counted.append((one, checked_rounds(count)))
    return counted


def _pair(item: object, rule: str) -> tuple[Release, int]:
    if isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[0], Release):
        return item[0], item[1]
    raise InputError.one("history", rule, item)


def checked_rounds(rounds: Any) -> int:
    """A whole number of rounds, 0 or more."""
    rule = f"must be a whole number from 0 to {MOST:g}"
    try:
        whole = not isinstance(rounds, bool) and int(rounds) == rounds
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole or not 0 <= rounds <= MOST:
        raise InputError.one("rounds", rule, rounds)
    return int(rounds)


def checked_number(field: str, value: Any) -> float:
    """A number, not text."""
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise InputError.one(field, "must be a number", value) from None


def checked_relation(relation: Any) -> Relation:
    """A neighbouring relation from its name."""
    try:
        return Relation(relation)
    except ValueError:
        rule = f"must be one of {', '.join(Relation)}"
        raise InputError.one("relation", rule, relation) from None


def checked_law(name: str) -> SamplingLaw:
    """A sampling law from its name."""
    try:
        return SamplingLaw(name)
    except ValueError:
        raise InputError.one("sampling", f"must be one of {', '.join(SamplingLaw)}", name) from None


def checked_tolerance(tolerance: Any) -> float:
    """A relative tolerance that can be met."""
    value = checked_number("tolerance", tolerance)
    if not LEAST_TOLERANCE <= value <= 0.5:
        raise InputError.one("tolerance", f"must be in [{LEAST_TOLERANCE:g}, 0.5]", tolerance)
    return value
