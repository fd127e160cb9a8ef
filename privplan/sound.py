"""What is sound of a value that has faults, so that rules between its fields still apply."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar, cast, get_args, get_origin

from pydantic import ValidationError, create_model

from privplan.fields import Value

T = TypeVar("T", bound=Value)


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
