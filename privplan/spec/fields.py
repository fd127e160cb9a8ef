"""Field types that only a spec has: a delta or its law, kept fractions or their rule."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainValidator, WithJsonSchema
from pydantic_core import PydanticKnownError

from privplan.accounting.accountant import ACCOUNTANTS, accountant
from privplan.values import LEAST

DELTA_LAW = re.compile(r"n\^-(\d+(?:\.\d+)?)")


def _delta(value: Any) -> Any:
    """A number in (0, 1), or the law ``n^-1.1`` of the number of clients n."""
    if isinstance(value, str) and DELTA_LAW.fullmatch(value.replace(" ", "")):
        return value.replace(" ", "")
    if isinstance(value, bool):
        raise ValueError("must be a number in (0, 1) or a law such as n^-1.1")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("must be a number in (0, 1) or a law such as n^-1.1") from None
    if not LEAST <= number < 1:
        least = f", {LEAST:g} or more" if 0 < number < LEAST else ""
        raise ValueError(f"must be in (0, 1){least}")
    return number


def _kept_fractions(value: Any) -> Any:
    """``none``, ``closed_form``, or one kept fraction in (0, 1] a group."""
    if value is None or value in ("none", "closed_form"):
        return value or "none"
    rule = "must be none, closed_form, or a list of kept fractions in (0, 1]"
    if not isinstance(value, list | tuple):
        raise ValueError(rule)
    numeric = all(isinstance(kept, int | float) and not isinstance(kept, bool) for kept in value)
    if not numeric or not all(LEAST <= kept <= 1 for kept in value):
        raise ValueError(rule)
    return tuple(float(kept) for kept in value)


Delta = Annotated[float | str, BeforeValidator(_delta)]
KeptFractions = Annotated[str | tuple[float, ...], BeforeValidator(_kept_fractions)]


_CALIBRATING = ("closed_form", "rdp", "prv", "pld")


def _calibrating(value: object) -> str:
    if value in _CALIBRATING:
        return str(value)
    known = isinstance(value, str) and value in ACCOUNTANTS
    if known and accountant(str(value)).kind in ("two-sided bound", "upper bound"):
        return str(value)
    *most, last = map(repr, _CALIBRATING)
    raise PydanticKnownError("literal_error", {"expected": f"{', '.join(most)} or {last}"})


CalibratingAccountant = Annotated[
    str,
    PlainValidator(_calibrating),
    WithJsonSchema({"enum": list(_CALIBRATING), "type": "string"}),
]
"""Name of an accountant that noise is calibrated with: one of the project's, or another bound."""
