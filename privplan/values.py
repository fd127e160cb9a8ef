"""Base classes and field types of all values, and the one mechanism that reports faults.

``parse`` makes a value from plain data. It validates every field and then every rule between
fields (``rule``), also those between the valid fields of a value that has faulty ones, and
raises one ``InputError`` with all faults.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    create_model,
    model_validator,
)

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

from privplan.errors import (
    INSTEAD,
    REPLACE,
    Fault,
    Guided,
    InputError,
    NoSuchNameError,
    did_you_mean,
)


def _not_a_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must be printable text on one line")
    return value


def text_of(pattern: str, what: str) -> AfterValidator:
    """A validator of text that a pattern matches as a whole; ``what`` says so in words."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if compiled.fullmatch(value) is None:
            raise ValueError(f"must be {what}")
        return value

    return AfterValidator(check)


def _printable_or_empty(value: str) -> str:
    return _printable(value) if value else value


LEAST = 1e-30  # least positive number that a field takes
LARGEST = (
    1e40  # largest positive number that a field takes; products of several stay finite
)


def _no_less(value: float) -> float:
    if value < LEAST:
        raise ValueError(f"must be {LEAST:g} or more")
    return value


def _divides(value: float) -> float:
    if 0 < value < 1e-100:
        raise ValueError("must be 0, or 1e-100 or more")
    return value


MOST = 10**15  # largest count: exact as a float, and so are sums and ratios of a few

_NUMBER = BeforeValidator(_not_a_bool)
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
PathName = Annotated[
    str, Field(min_length=1, max_length=4096), AfterValidator(_printable)
]
Label = Annotated[
    str, text_of("[A-Za-z0-9_.+<>-]{1,60}", "up to 60 letters, digits and _ . + < > -")
]
"""A name of code: of a hyperparameter, a task, a version."""
_TITLE = "[A-Za-z0-9_<][A-Za-z0-9_ +.,:;%()/<>-]{0,99}"
_TITLE_IN_WORDS = "up to 100 letters, digits, spaces and _ + . , : ; % ( ) / < > -"
Title = Annotated[str, text_of(_TITLE, _TITLE_IN_WORDS)]
"""A name with few signs: of an algorithm, a metric, an aggregation rule."""
TitleOrNone = Annotated[str, text_of(f"({_TITLE})?", _TITLE_IN_WORDS)]
NameOrNone = Annotated[str, Field(max_length=200), AfterValidator(_printable_or_empty)]
"""The same, and a ``Name``, or empty for what there is none of."""
Hash = Annotated[str, text_of("[0-9a-f]{64}", "64 hexadecimal digits")]
"""SHA-256."""
HashOrNone = Annotated[
    str, text_of("([0-9a-f]{64})?", "64 hexadecimal digits, or empty")
]
Count = Annotated[int, _NUMBER, Field(ge=1, le=MOST)]
Natural = Annotated[int, _NUMBER, Field(ge=0, le=2**64 - 1)]
Positive = Annotated[float, _NUMBER, Field(gt=0, le=LARGEST), AfterValidator(_no_less)]
NonNegative = Annotated[float, _NUMBER, Field(ge=0, le=1e100)]
Real = Annotated[float, _NUMBER, Field(ge=-1e100, le=1e100)]
Scale = Annotated[NonNegative, AfterValidator(_divides)]
Probability = Annotated[float, _NUMBER, Field(gt=0, lt=1), AfterValidator(_no_less)]
Fraction = Annotated[float, _NUMBER, Field(gt=0, le=1), AfterValidator(_no_less)]


def is_none(value: Any) -> bool:
    """For ``exclude_if``: a field that is absent leaves no trace in JSON and in digests."""
    return value is None


def omitted(description: str) -> Any:
    """A field that is None where it is left out, and then absent from JSON and digests."""
    return Field(None, exclude_if=is_none, description=description)


def is_empty(value: Any) -> bool:
    """For ``exclude_if``: the same for text and mappings."""
    return value in ("", {})


Item = TypeVar("Item")


class Named(Guided, tuple[Item, ...]):
    """Parts in order, by index or by the name of their group."""

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [
            str(getattr(one, "name", None) or getattr(one, "group", "")) for one in self
        ]

    def __getitem__(self, key: Any) -> Item:  # type: ignore[override]
        if not isinstance(key, str):
            return super().__getitem__(key)  # type: ignore[no-any-return,unused-ignore]
        named = dict(zip(self.names, self, strict=True))
        if key not in named:
            rule = f"must be one of {', '.join(named)}{did_you_mean(key, named)}"
            raise InputError.one("group", rule, key)
        return named[key]


class Shown(Guided):
    """What Python and notebooks show of a value; ``privplan.report.show`` knows how."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(_shown("text", self))

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return str(_shown("page", self))

    def to_frame(self) -> Any:
        """The same as a ``pandas.DataFrame``, a row per group, accountant, release or round."""
        return _shown("frame", self)

    def plot(self) -> Any:
        """The same as a picture: notebooks show it, ``save`` writes .png, .svg or .pdf."""
        return _shown("picture", self)


def _shown(what: str, value: object) -> Any:
    return getattr(import_module("privplan.report.show"), what)(value)


class _Kind(ModelMetaclass):
    """Classes of values, which say what to write where they are called or read wrongly."""

    def __call__(cls, *values: Any, **fields: Any) -> Any:  # noqa: N805
        if values or cls.__name__ == "Spec":
            rule = f"must be {INSTEAD.get(cls.__name__, 'given its fields by name')}"
            raise InputError.one(
                f"{cls.__name__}(...)", rule, values or ", ".join(fields)
            )
        return super().__call__(**fields)

    def __getattr__(cls, name: str) -> Any:  # noqa: N805
        try:
            return super().__getattr__(name)  # type: ignore[misc]
        except AttributeError:
            raise NoSuchNameError(cls, name) from None


class Value(Guided, BaseModel, metaclass=_Kind):
    """A frozen value that refuses unknown fields, and numbers that JSON cannot hold."""

    def __getitem__(self, key: Any) -> Any:
        part = f".{key}" if key in type(self).model_fields else f".groups[{key!r}]"
        raise TypeError(f"{type(self).__name__} has no parts in brackets; write {part}")

    if not TYPE_CHECKING:  # or every field could be set

        def __setattr__(self, name: str, value: Any) -> None:
            try:
                super().__setattr__(name, value)
            except ValidationError:
                raise InputError.one(
                    name, f"cannot be changed; {REPLACE}", value
                ) from None

    def __dir__(self) -> list[str]:
        """The names of the project without those of pydantic."""
        kinds = [kind for kind in type(self).__mro__ if kind not in (BaseModel, object)]
        names = {
            *type(self).model_fields,
            *(name for kind in kinds for name in vars(kind)),
        }
        return sorted(
            name for name in names if not name.startswith(("model_", "__pydantic"))
        )

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        protected_namespaces=(),
        allow_inf_nan=False,
        defer_build=True,  # validators are built on first use: a command uses few of all values
    )


R = TypeVar("R", bound=Callable[[Any], Iterator[Fault]])


def rule(check: R) -> R:
    """Mark a method of a ``Checked`` value as a rule between its fields; it yields the faults."""
    check.__dict__["is_rule"] = True
    return check


class Checked(Value):
    """A value with rules between its fields."""

    def model_copy(
        self, *, update: Mapping[str, Any] | None = None, deep: bool = False
    ) -> Self:
        """A copy with some fields changed; each is checked, the rules between them are not."""
        kind, fields = type(self), dict[str, Any]()
        for name, value in (update or {}).items():
            if name not in kind.model_fields:
                near = did_you_mean(name, kind.model_fields)
                rule = f"is not a field of {kind.__name__}{near}; Spec.replace changes parts"
                raise InputError.one(name, rule, value)
            try:
                part = _with_field(kind, name).model_validate(
                    {name: value}, context=_PARSING
                )
            except ValidationError as error:
                raise InputError(faults_of(error, {name: value})) from None
            fields[name] = getattr(part, name)
        return super().model_copy(update=fields, deep=deep)

    @model_validator(mode="wrap")
    @classmethod
    def _check(
        cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        value = handler(data)
        if info.context is not _PARSING and (faults := list(_rule_faults(value))):
            raise InputError(faults)
        return value


_PARSING = {
    "parse": True
}  # context of ``parse``, which evaluates the rules after all fields


_RULES = {
    "extra_forbidden": "is not a known field",
    "missing": "is required",
    "finite_number": "must be a finite number",
    "int": "must be a whole number",
    "float": "must be a number",
    "string_type": "must be text",
    "list": "must be a list",
    "tuple": "must be a list",
    "model": "must be a mapping of fields",
    "dict": "must be a mapping of fields",
}
"""The rule for an error type of pydantic, or for its first word."""


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
        case "string_too_short":
            return "must not be empty"
        case "string_too_long":
            return f"must have {context['max_length']} characters or fewer"
        case "enum" | "literal_error":
            expected = re.sub(r"<[\w.]+: ('.*?')>", r"\1", context["expected"])
            return f"must be {'one of ' if ' or ' in expected else ''}{expected}"
        case "value_error":
            return str(context["error"])
        case kind:
            return (
                _RULES.get(kind)
                or _RULES.get(kind.partition("_")[0])
                or str(error["msg"])
            )


def where(location: tuple[int | str, ...], data: Any) -> str:
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


def faults_of(
    error: ValidationError, data: Any, kind: type[Value] | None = None
) -> list[Fault]:
    """The errors of pydantic as faults, worded as all messages of the project."""
    faults = []
    for item in error.errors(include_url=False):
        found = "nothing" if item["type"] == "missing" else item["input"]
        rule = _rule(dict(item))
        if item["type"] == "extra_forbidden" and kind is not None:
            rule += did_you_mean(
                item["loc"][-1], _fields_beside(kind, item["loc"], data)
            )
        faults.append(Fault(where(item["loc"], data) or "document", rule, found))
    return faults


def _fields_beside(
    kind: type[Value], location: tuple[int | str, ...], data: Any
) -> list[str]:
    """Fields of the value that contains the location, without those that the data give."""
    for part in location[:-1]:
        if isinstance(
            part, int
        ):  # an item of a list has the class that the list's field names
            data = data[part]
            continue
        field = kind.model_fields.get(part)
        if field is None:
            return []
        annotation: Any = field.annotation
        inner = next(
            (one for one in (*get_args(annotation), annotation) if _is_value(one)), None
        )
        if inner is None:
            return []
        kind, data = inner, data[part]
    return [name for name in kind.model_fields if name not in data]


def _is_value(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Value)


T = TypeVar("T", bound="Value")


def parse(
    kind: type[T], data: Any, known: Iterable[Fault] = (), hidden: Iterable[str] = ()
) -> T:
    """Make a value from plain data."""
    faults = [*known]
    silent = {*hidden, *(fault.field for fault in faults)}
    try:
        value = kind.model_validate(data, context=_PARSING)
        found = list(_rule_faults(value))
    except ValidationError as error:
        found = faults_of(error, data, kind)
        if isinstance(data, dict):
            found += _rule_faults(_valid_part(kind, data), AttributeError)
    faults += [fault for fault in found if fault.field not in silent]
    if faults:
        raise InputError(faults)
    return value


def digest(data: Any) -> str:
    """SHA-256 of plain data in canonical JSON (sorted keys, no spaces)."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _rule_faults(
    value: Value, *unknown: type[Exception], prefix: str = ""
) -> Iterator[Fault]:
    """The faults of the rules of a value and of its fields, up to a field that is ``unknown``."""
    for check in _rules(type(value)):
        with suppress(*unknown):
            for fault in check(value):
                yield Fault(prefix + fault.field, fault.rule, fault.found)
    for name, inner in value.__dict__.items():
        if isinstance(inner, Checked):
            yield from _rule_faults(inner, *unknown, prefix=f"{prefix}{name}.")


@lru_cache(maxsize=1000)
def _rules(kind: type[Value]) -> tuple[Callable[[Value], Iterator[Fault]], ...]:
    members = [
        member for base in reversed(kind.__mro__) for member in vars(base).values()
    ]
    methods = [member for member in members if isinstance(member, FunctionType)]
    return tuple(method for method in methods if hasattr(method, "is_rule"))


def _valid_part(kind: type[Value], data: dict[str, Any]) -> Value:
    """A value of the valid fields; reading one of the others raises AttributeError."""
    part = kind.model_construct()
    for name, field in kind.model_fields.items():
        if name in data or field.is_required():
            part.__dict__.pop(name, None)
        if name in data:
            with suppress(ValidationError):
                part.__dict__[name] = _valid_field(kind, name, data[name])
    return part


def _valid_field(kind: type[Value], name: str, data: Any) -> Any:
    """The value of a field; of values inside it, their valid parts."""
    annotation: Any = kind.model_fields[name].annotation
    inner = (get_args(annotation) or (annotation,))[0]
    if _is_value(inner):
        several = get_origin(annotation) is tuple
        if (
            several
            and isinstance(data, list)
            and all(isinstance(item, dict) for item in data)
        ):
            return tuple(_valid_part(inner, item) for item in data)
        if not several and isinstance(data, dict):
            return _valid_part(inner, data)
    return getattr(_with_field(kind, name).model_validate({name: data}), name)


@lru_cache(maxsize=1000)
def _with_field(kind: type[Value], name: str) -> type[Value]:
    """A class with that field only."""
    fields: dict[str, Any] = {
        name: (kind.model_fields[name].annotation, kind.model_fields[name])
    }
    return create_model(kind.__name__, __base__=Value, **fields)
