"""What a user passes from Python, checked against type hints before it is used.

Python calls what it is given. So a ``None`` where a function belongs, or a function of
too few arguments, would fail deep inside a run, in words that do not name it.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from torch import nn

from privplan.errors import Fault, InputError
from privplan.plan import Plan

F = TypeVar("F", bound=Callable[..., Any])
Check = Callable[[Any, Any], bool]
"""(value, type hint) to whether the value is of the hint."""

_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    Path: "a path",
    nn.Module: "a torch.nn.Module",
    type(None): "None",
    Plan: "a plan, such as privplan.solve(spec)",
}
"""How a message names a class; any other one by its own name."""


def require_types(
    values: Mapping[str, Any],
    hints: Mapping[str, Any],
    place: str = "",
    verb: str = "be",
) -> None:
    """Raise for values that are not of their type hints, all at once.

    Args:
        values: by field.
        hints: by field; a field without one may have any value.
        place: what stands before the name of a field, such as ``algorithm.``.
        verb: what the field must do, such as ``return``.
    """
    faults = []
    for field, value in values.items():
        hint = hints.get(field, Any)
        if _is_of(value, hint):
            continue
        rule = f"must {verb} {_words(hint)}"
        is_of_numbers = _is_sequence(value, Sequence[int]) and len(value) > 0
        if verb == "be" and hint in (int, float) and is_of_numbers:
            rule += "; each of several takes a call of its own"
        if inspect.isroutine(value) or inspect.isclass(value):
            if _is_component(hint):
                rule += "; call the function that makes it"
            value = _call(value)
        faults.append(Fault(place + field, rule, value))
    if faults:
        raise InputError(faults)


def typed(place: str = "", unchecked: Sequence[str] = ()) -> Callable[[F], F]:
    """Checks each argument of a function, or of a class, against its type hint.

    Args:
        place: what stands before the name of an argument in a message.
        unchecked: arguments that the function itself judges.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)

        @wraps(function)
        def called(*values: Any, **named: Any) -> Any:
            arguments = signature.bind(*values, **named).arguments
            for name in unchecked:
                arguments.pop(name, None)
            require_types(arguments, hints_of(function), place)
            return function(*values, **named)

        return called  # type: ignore[return-value]

    return decorate


@cache
def hints_of(function: Any) -> dict[str, Any]:
    """The type hints of a function's arguments or a class's fields, by name."""
    return get_type_hints(function)


def _is_of(value: Any, hint: Any) -> bool:
    """Whether a value is of a type hint; what is no class is not looked into."""
    if hint is Any:
        return True
    origin = get_origin(hint) or hint
    check = _CHECKS.get(origin)
    if check is not None:
        return check(value, hint)
    return not inspect.isclass(origin) or isinstance(value, origin)


def _is_of_any(value: Any, hint: Any) -> bool:
    return any(_is_of(value, kind) for kind in get_args(hint))


def _is_sequence(value: Any, hint: Any) -> bool:
    """Whether a value is a list or tuple of a hint's items; text is none."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return all(_is_of(item, get_args(hint)[0]) for item in value)


def _is_mapping(value: Any, hint: Any) -> bool:
    """Whether a value is a mapping of a hint's keys and values."""
    if not isinstance(value, Mapping):
        return False
    kind_of_key, kind_of_value = get_args(hint)
    for key, item in value.items():
        if not (_is_of(key, kind_of_key) and _is_of(item, kind_of_value)):
            return False
    return True


def _is_function(value: Any, hint: Any) -> bool:
    """Whether a value can be called with as many arguments as a hint names."""
    if not callable(value):
        return False
    kinds = get_args(hint)[0]
    if kinds is Ellipsis:
        return True
    try:
        inspect.signature(value).bind(*kinds)
    except TypeError:
        return False
    except ValueError:
        # A function written in C may not say what it takes.
        return True
    return True


def _is_number(value: Any, hint: Any) -> bool:
    """Whether a value is a number of a hint's kind; True and False are none."""
    kind = Integral if hint is int else Real
    return isinstance(value, kind) and not isinstance(value, bool)


_CHECKS: dict[Any, Check] = {
    Union: _is_of_any,
    types.UnionType: _is_of_any,
    Literal: lambda value, hint: value in get_args(hint),
    Sequence: _is_sequence,
    tuple: _is_sequence,
    Mapping: _is_mapping,
    Callable: _is_function,
    int: _is_number,
    float: _is_number,
}
"""By a hint's origin, where it is more than a class."""


def _words(hint: Any) -> str:
    """A type hint in words."""
    origin = get_origin(hint)
    arguments = get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(map(_words, arguments))
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if origin in (Sequence, tuple):
        return f"a list, each item {_words(arguments[0])}"
    if origin is Mapping:
        return f"a mapping from {_words(arguments[0])} to {_words(arguments[1])}"
    if origin is Callable and arguments[0] is not Ellipsis:
        return f"a function of ({', '.join(map(_name, arguments[0]))})"
    if origin is Callable:
        return "a function"
    if hint in _WORDS:
        return _WORDS[hint]
    name = _name(hint)
    if name == "Hyperparameter":
        name = f"{hint.__module__}.{name}"
    if name[0] in "AEIOU":
        return f"an {name}"
    return f"a {name}"


def _name(hint: Any) -> str:
    return str(getattr(hint, "__name__", hint))


def _is_component(hint: Any) -> bool:
    """Whether a hint is a class of this package, or one of several kinds is."""
    is_union = get_origin(hint) in (Union, types.UnionType)
    kinds = get_args(hint) if is_union else (hint,)
    modules = [getattr(kind, "__module__", "") for kind in kinds]
    package = __name__.partition(".")[0]
    return any(module.partition(".")[0] == package for module in modules)


def _call(function: Callable[..., Any]) -> str:
    """A function's name with those of its arguments; the name alone of a class."""
    if inspect.isclass(function):
        return _name(function)
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        return _name(function)
    return f"{_name(function)}({', '.join(parameters)})"
