"""Field types shared by the values, and the words for what is wrong with a field.

What is sound of a value that has faults, so that rules between its fields still apply.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    create_model,
)

from privplan.errors import Fault, InputError


def _not_a_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must be printable text on one line")
    return value


LEAST = 1e-30
"""Least positive number that a field takes."""
LARGEST = 1e40
"""Largest positive number that a field takes; products of several stay finite."""


def _no_less(value: float) -> float:
    if value < LEAST:
        raise ValueError(f"must be {LEAST:g} or more")
    return value


def _divides(value: float) -> float:
    if 0 < value < 1e-100:
        raise ValueError("must be 0, or 1e-100 or more")
    return value


MOST = 10**15
"""Largest count: exact as a floating-point number, and so are sums and ratios of a few."""

_NUMBER = BeforeValidator(_not_a_bool)
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
Count = Annotated[int, _NUMBER, Field(ge=1, le=MOST)]
Natural = Annotated[int, _NUMBER, Field(ge=0, le=2**64 - 1)]
Positive = Annotated[float, _NUMBER, Field(gt=0, le=LARGEST), AfterValidator(_no_less)]
NonNegative = Annotated[float, _NUMBER, Field(ge=0, le=1e100)]
Scale = Annotated[NonNegative, AfterValidator(_divides)]
Probability = Annotated[float, _NUMBER, Field(gt=0, lt=1), AfterValidator(_no_less)]
Fraction = Annotated[float, _NUMBER, Field(gt=0, le=1), AfterValidator(_no_less)]


def is_none(value: Any) -> bool:
    """For ``exclude_if``: a field that is absent leaves no trace in JSON and in digests."""
    return value is None


def is_empty(value: Any) -> bool:
    """For ``exclude_if``: the same for text."""
    return bool(value == "")


class Value(BaseModel):
    """A frozen value that refuses unknown fields, and numbers that JSON cannot hold."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False
    )


_RULES = {
    "extra_forbidden": "is not a known field",
    "missing": "is required",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be text",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "model_type": "must be a mapping of fields",
    "model_attributes_type": "must be a mapping of fields",
    "dict_type": "must be a mapping of fields",
}


def _rule(error: dict[str, Any]) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "greater_than":
            return f"must be greater than {context['gt']:g}"
        case "greater_than_equal":
            return f"must be {context['ge']:g} or more"
        case "less_than":
            return f"must be less than {context['lt']:g}"
        case "less_than_equal":
            return f"must be {context['le']:g} or less"
        case "enum" | "literal_error":
            return f"must be one of {context['expected']}"
        case "value_error":
            return str(context["error"])
        case kind:
            return _RULES.get(kind) or str(error["msg"])


def _where(location: tuple[int | str, ...], data: Any) -> str:
    """``groups.strict.epsilon`` rather than ``groups.0.epsilon`` where the item has a name."""
    words: list[str] = []
    for part in location:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            data = None
        named = isinstance(part, int) and isinstance(data, dict) and data.get("name")
        words.append(str(named or part))
    return ".".join(words)


def faults_of(error: ValidationError, data: Any) -> list[Fault]:
    """Every fault that pydantic found, in the project's words."""
    faults = []
    for item in error.errors(include_url=False):
        found = "nothing" if item["type"] == "missing" else item["input"]
        where = _where(item["loc"], data) or "document"
        faults.append(Fault(where, _rule(dict(item)), found))
    return faults


T = TypeVar("T", bound="Value")


def parse(kind: type[T], data: Any) -> T:
    """Make a value from plain data.

    Raises:
        InputError: with all the faults at once.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise InputError(faults_of(error, data)) from None


def digest(data: Any) -> str:
    """SHA-256 of plain data in canonical JSON (sorted keys, no spaces)."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sound_part(kind: type[T], data: dict[str, Any]) -> T:
    """A value of the fields without fault; to read one of the others is an AttributeError.

    Args:
        kind: the kind of value.
        data: plain data of one.
    """
    made = cast(T, kind.model_construct())
    for name, field in kind.model_fields.items():
        if name in data or field.is_required():
            made.__dict__.pop(name, None)
        if name in data:
            with suppress(ValidationError):
                made.__dict__[name] = _field(kind, name, data[name])
    return made


def _field(kind: type[Value], name: str, found: Any) -> Any:
    """The value of a field; of values inside it, what is sound of each.

    Raises:
        ValidationError: when the field has a fault itself.
    """
    annotation: Any = kind.model_fields[name].annotation
    inner = (get_args(annotation) or (annotation,))[0]
    if isinstance(inner, type) and issubclass(inner, Value):
        several = get_origin(annotation) is tuple
        if several and isinstance(found, list) and all(isinstance(one, dict) for one in found):
            return tuple(sound_part(inner, one) for one in found)
        if not several and isinstance(found, dict):
            return sound_part(inner, found)
    return getattr(_alone(kind, name).model_validate({name: found}), name)


@lru_cache(maxsize=1000)
def _alone(kind: type[Value], name: str) -> type[Value]:
    """A kind of value with that field only."""
    field = kind.model_fields[name]
    fields: dict[str, Any] = {name: (field.annotation, field)}
    return create_model(kind.__name__, __base__=Value, **fields)
