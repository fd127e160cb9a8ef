"""Base classes and field types of all values, and how their faults are reported.

``parse`` makes a value from plain data. It validates every field and then every rule
between fields (``rule``), also those between the valid fields of a value that has
faulty ones, and raises one ``InputError`` with all faults.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from types import FunctionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Self,
    SupportsIndex,
    TypeVar,
    get_args,
    get_origin,
    overload,
)

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
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

from pydantic_core import CoreSchema, core_schema

from privplan.errors import Fault, InputError, did_you_mean, one_of
from privplan.guidance import (
    REPLACE,
    CalledFirst,
    Guided,
    GuidedKind,
    part_in_brackets,
    place_in_spec,
)
from privplan.presenter import presenter
from privplan.vocabulary import SURE, call_of, meaning, nearest, number_meant, purpose

# Smallest positive number that a field takes.
SMALLEST = 1e-30
# Largest positive number that a field takes; products of several stay finite.
LARGEST = 1e40
# Smallest number by which something may be divided, above 0.
_SMALLEST_DIVISOR = 1e-100
# Largest count: exact as a float, and so are sums and ratios of a few.
LARGEST_COUNT = 10**15
# A word of 64 bits holds a seed, a position, or a number of bytes.
_LARGEST_WORD = 2**64 - 1


def _not_a_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _not_too_small(value: float) -> float:
    if value < SMALLEST:
        raise ValueError(f"must be {SMALLEST:g} or more")
    return value


def _divisor(value: float) -> float:
    if 0 < value < _SMALLEST_DIVISOR:
        raise ValueError(f"must be 0, or {_SMALLEST_DIVISOR:g} or more")
    return value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must be printable text on one line")
    return value


def _printable_or_empty(value: str) -> str:
    if value:
        return _printable(value)
    return value


def text_of(pattern: str, what: str) -> AfterValidator:
    """A validator of text that a pattern matches as a whole; ``what`` says so."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if compiled.fullmatch(value) is None:
            raise ValueError(f"must be {what}")
        return value

    return AfterValidator(check)


_NUMBER = BeforeValidator(_not_a_bool)
_TITLE = "[A-Za-z0-9_<][A-Za-z0-9_ +.,:;=%()/<>-]{0,99}"
_TITLE_IN_WORDS = "up to 100 letters, digits, spaces and _ + . , : ; = % ( ) / < > -"
_LABEL_IN_WORDS = "up to 60 letters, digits and _ . + < > -"
_HASH = "[0-9a-f]{64}"
_HASH_IN_WORDS = "64 hexadecimal digits"

Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
NameOrNone = Annotated[str, Field(max_length=200), AfterValidator(_printable_or_empty)]
"""A ``Name``, or empty for what there is none of."""
# The longest path of Linux.
PathName = Annotated[
    str, Field(min_length=1, max_length=4096), AfterValidator(_printable)
]
Label = Annotated[str, text_of("[A-Za-z0-9_.+<>-]{1,60}", _LABEL_IN_WORDS)]
"""A name of code: of a hyperparameter, a task, a version."""
PersonWord = Annotated[str, text_of(r"[^\W\d_]{2,40}", "one word")]
"""Whom budgets protect, such as patient."""
Title = Annotated[str, text_of(_TITLE, _TITLE_IN_WORDS)]
"""A name with few signs: of an algorithm, a metric, an aggregation rule."""
TitleOrNone = Annotated[str, text_of(f"({_TITLE})?", _TITLE_IN_WORDS)]
"""A ``Title``, or empty for what there is none of."""
Hash = Annotated[str, text_of(_HASH, _HASH_IN_WORDS)]
"""SHA-256."""
HashOrNone = Annotated[str, text_of(f"({_HASH})?", f"{_HASH_IN_WORDS}, or empty")]
"""A ``Hash``, or empty for what there is none of."""
Count = Annotated[int, _NUMBER, Field(ge=1, le=LARGEST_COUNT)]
Natural = Annotated[int, _NUMBER, Field(ge=0, le=_LARGEST_WORD)]
Positive = Annotated[
    float, _NUMBER, Field(gt=0, le=LARGEST), AfterValidator(_not_too_small)
]
NonNegative = Annotated[float, _NUMBER, Field(ge=0, le=1e100)]
Real = Annotated[float, _NUMBER, Field(ge=-1e100, le=1e100)]
Scale = Annotated[NonNegative, AfterValidator(_divisor)]
Probability = Annotated[
    float, _NUMBER, Field(gt=0, lt=1), AfterValidator(_not_too_small)
]
Fraction = Annotated[float, _NUMBER, Field(gt=0, le=1), AfterValidator(_not_too_small)]


def is_none(value: Any) -> bool:
    """For ``exclude_if``: an absent field leaves no trace in JSON and in digests."""
    return value is None


def omitted(description: str) -> Any:
    """A field that is None and absent from JSON and digests where it is left out."""
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
            str(getattr(item, "name", None) or getattr(item, "group", ""))
            for item in self
        ]

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """A field of this type is checked as a tuple of the items."""
        # A class of named parts says in its base what they are.
        typed = source if get_args(source) else cls.__orig_bases__[-1]  # type: ignore[attr-defined]
        [item] = get_args(typed)
        items = handler.generate_schema(tuple[item, ...])  # type: ignore[valid-type]
        return core_schema.no_info_after_validator_function(cls, items)

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> Item: ...

    @overload
    def __getitem__(self, key: slice) -> tuple[Item, ...]: ...

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        named = dict(zip(self.names, self, strict=True))
        if key not in named:
            raise InputError.one("group", one_of(named, key), key)
        return named[key]

    def __contains__(self, key: object) -> bool:
        """Whether it has a part, which may be given by its name."""
        if not isinstance(key, str):
            return super().__contains__(key)
        try:
            self[key]
        except InputError:
            return False
        return True


class Shown(Guided):
    """What Python and notebooks show of a value; the presenter knows how."""

    __slots__ = ()

    def __repr__(self) -> str:
        return presenter().text(self)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return presenter().page(self)

    def to_frame(self) -> Any:
        """The same as a ``pandas.DataFrame``.

        It has a row per group, accountant, release or round.
        """
        return presenter().frame(self)

    def plot(self) -> Any:
        """The same as a picture.

        Notebooks show it, ``save`` writes .png, .svg or .pdf.
        """
        return presenter().picture(self)


class ValueKind(GuidedKind, ModelMetaclass):
    """Classes of values, which say what to write instead of a wrong call or name."""

    def __call__(cls, *values: Any, **fields: Any) -> Any:  # noqa: N805
        """A value of named fields; a plan or spec is made otherwise, which is said."""
        if values or cls.__name__ == "Spec":
            rule = f"must be {call_of(cls.__name__) or 'given its fields by name'}"
            passed = values or ", ".join(fields)
            raise InputError.one(f"{cls.__name__}(...)", rule, passed)
        return super().__call__(**fields)


class Value(Guided, BaseModel, metaclass=ValueKind):
    """A frozen value that refuses unknown fields, and numbers that JSON cannot hold."""

    def __getitem__(self, key: Any) -> Any:
        kind = type(self).__name__
        raise TypeError(f"{kind} has no parts in brackets{part_in_brackets(self, key)}")

    def __contains__(self, key: Any) -> bool:
        # Pydantic iterates over pairs of names and values, among which it never is.
        kind = type(self).__name__
        raise TypeError(f"{kind} is no list of parts{part_in_brackets(self, key)}")

    # A type checker would let every field be set.
    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            try:
                super().__setattr__(name, value)
            except ValidationError:
                rule = f"cannot be changed; {REPLACE}"
                raise InputError.one(name, rule, value) from None

    def __dir__(self) -> list[str]:
        """The names of the project without those of pydantic."""
        names = set(type(self).model_fields)
        for kind in type(self).__mro__:
            if kind not in (BaseModel, object):
                names.update(vars(kind))
        of_pydantic = ("model_", "__pydantic")
        return sorted(name for name in names if not name.startswith(of_pydantic))

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        protected_namespaces=(),
        ignored_types=(CalledFirst,),
        allow_inf_nan=False,
        # Validators are built on first use: a command uses few of all values.
        defer_build=True,
    )


R = TypeVar("R", bound=Callable[[Any], Iterator[Fault]])


def rule(check: R) -> R:
    """Mark a method of a ``Checked`` value as a rule between its fields.

    It yields the faults.
    """
    check.__dict__["is_rule"] = True
    return check


class Checked(Value):
    """A value with rules between its fields."""

    def model_copy(
        self, *, update: Mapping[str, Any] | None = None, deep: bool = False
    ) -> Self:
        """A copy with some fields changed.

        Each is checked, the rules between them are not.
        """
        kind = type(self)
        fields: dict[str, Any] = {}
        for name, value in (update or {}).items():
            if name not in kind.model_fields:
                near = did_you_mean(name, kind.model_fields)
                what = f"is not a field of {kind.__name__}{near}"
                rule = f"{what}; Spec.replace changes parts"
                raise InputError.one(name, rule, value)
            data = {name: value}
            try:
                part = _with_field(kind, name).model_validate(data, context=_PARSING)
            except ValidationError as error:
                raise InputError(faults_of(error, data)) from None
            fields[name] = getattr(part, name)
        return super().model_copy(update=fields, deep=deep)

    @model_validator(mode="wrap")
    @classmethod
    def _check(
        cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        value = handler(data)
        if info.context is not _PARSING:
            faults = list(_rule_faults(value))
            if faults:
                raise InputError(faults)
        return value


# Context of ``parse``, which evaluates the rules after all fields.
_PARSING = {"parse": True}


_RULES = {
    "extra_forbidden": "is not a known field",
    "missing": "is required",
    "finite_number": "must be a finite number",
    "int": "must be a whole number",
    "float": "must be a number",
    "string_type": "must be text",
    "list": "must be a list",
    "tuple": "must be a list",
    "model": "must be a mapping of fields, such as {name: value}",
    "dict": "must be a mapping of fields, such as {name: value}",
    "invalid_key": "is no name of a field; a decimal has a point, 2.5, and no comma",
}
"""The rule for an error type of pydantic, or for its first word."""
_EXAMPLES = {
    "Group": "{name: strict, clients: 100, epsilon: 2}",
    "LocalTraining": "{steps: 5, batch_size: 5, learning_rate: 0.1}",
    "Model": "{name: mlp-digits, parameters: 2410}",
    "Planning": "{ratios: noise}",
    "ServerOptimiser": "{optimizer: adam, learning_rate: 0.1}",
}
"""Mappings of a spec that people write as one word."""


def _rule(error: dict[str, Any]) -> str:
    """What a field must be, by an error of pydantic."""
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
            # Of one value pydantic writes no ``or``.
            several = "one of " if " or " in expected else ""
            choices = re.findall("'(.*?)'", expected)
            near = ""
            # A sampling law says itself which one is near.
            if several and "did you mean" not in expected:
                near = did_you_mean(error["input"], choices)
            return f"must be {several}{expected}{near}"
        case "value_error":
            return str(context["error"])
        case "model_type" if context["class_name"] in _EXAMPLES:
            return f"must be a mapping, such as {_EXAMPLES[context['class_name']]}"
        case kind:
            first_word = kind.partition("_")[0]
            message = str(error["msg"])
            return _RULES.get(kind) or _RULES.get(first_word) or message


def where(location: tuple[int | str, ...], data: Any) -> str:
    """Where a value stands, as fields with dots; an item of a list by its name.

    So ``groups.strict.epsilon`` rather than ``groups.0.epsilon``.
    """
    words: list[str] = []
    for step in location:
        siblings = data
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            data = None
        words.append(_word(step, data, siblings))
    return ".".join(words)


def _word(step: int | str, item: Any, siblings: Any) -> str:
    """A part of a location: its name, where it is an item that alone has that name."""
    if not isinstance(step, int) or not isinstance(item, dict):
        return str(step)
    name = item.get("name")
    names = [sibling.get("name") for sibling in siblings if isinstance(sibling, dict)]
    if name and names.count(name) == 1:
        return str(name)
    return str(step)


def faults_of(
    error: ValidationError, data: Any, kind: type[Value] | None = None
) -> list[Fault]:
    """The errors of pydantic as faults, worded as all messages of the project."""
    faults = []
    for item in error.errors(include_url=False):
        location = item["loc"]
        value = "nothing" if item["type"] == "missing" else item["input"]
        rule = _rule(dict(item))
        kind_of_error = item["type"].partition("_")[0]
        # People write the groups under their names.
        is_of_groups = kind_of_error == "tuple" and location[-1:] == ("groups",)
        if is_of_groups and isinstance(value, dict):
            rule += f", each group a line such as - {_EXAMPLES['Group']}"
            value = f"a mapping of {', '.join(map(str, value))}"
        if kind_of_error in ("int", "float", "finite"):
            rule += number_meant(value)
        if item["type"] == "extra_forbidden" and kind is not None:
            rule += _meant_by(str(location[-1]), kind, location, data, value)
        faults.append(Fault(where(location, data) or "document", rule, value))
    return faults


def _meant_by(
    name: str,
    kind: type[Value],
    location: tuple[int | str, ...],
    data: Any,
    value: Any,
) -> str:
    """What was meant by a field that there is not, as the end of a rule."""
    fields = _absent_fields(kind, location, data)
    # What is surely a field, or has another name; then what serves its purpose.
    if meaning(name, fields) or nearest(name, fields, SURE):
        return did_you_mean(name, fields)
    served = purpose(name, kind.__name__)
    if served:
        return f"; {served}"
    meant = did_you_mean(name, fields)
    if meant:
        return meant
    place = None
    if kind.__name__ == "Spec":
        place = place_in_spec(name, of_number=isinstance(value, int | float))
    if place is not None:
        return f"; write {place}"
    return f"; it may have {', '.join(fields)}" if fields else ""


def _absent_fields(
    kind: type[Value], location: tuple[int | str, ...], data: Any
) -> list[str]:
    """Fields of the value around a location, without those that the data give."""
    for step in location[:-1]:
        # An item of a list has the class that the list's field names.
        if isinstance(step, int):
            data = data[step]
            continue
        field = kind.model_fields.get(step)
        if field is None:
            return []
        annotation: Any = field.annotation
        candidates = (*get_args(annotation), annotation)
        inner = next(filter(_is_value, candidates), None)
        if inner is None:
            return []
        kind = inner
        data = data[step]
    return [name for name in kind.model_fields if name not in data]


def _is_value(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Value)


def _is_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple)


T = TypeVar("T", bound="Value")


def parse(
    kind: type[T],
    data: Any,
    reported: Iterable[Fault] = (),
    hidden: Iterable[str] = (),
) -> T:
    """Make a value from plain data.

    Args:
        kind: class of the value.
        data: plain data.
        reported: faults of the data that are known before; they come first.
        hidden: fields whose faults are left out, as those of reported faults.

    Raises:
        InputError: with all faults, of fields and of rules between them.
    """
    faults = [*reported]
    silent = {*hidden, *(fault.field for fault in faults)}
    try:
        value = kind.model_validate(data, context=_PARSING)
        new_faults = list(_rule_faults(value))
    except ValidationError as error:
        new_faults = faults_of(error, data, kind)
        if isinstance(data, dict):
            new_faults += _rule_faults(_valid_part(kind, data), AttributeError)
    faults += [fault for fault in new_faults if fault.field not in silent]
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
    """The faults of the rules of a value and of its fields.

    Args:
        value: whose fields are valid.
        unknown: errors that end a rule, because it reads a field that is not valid.
        prefix: of the fields that the faults name.
    """
    for check in _rules(type(value)):
        with suppress(*unknown):
            for fault in check(value):
                yield Fault(prefix + fault.field, fault.rule, fault.found)
    for name, inner in value.__dict__.items():
        if isinstance(inner, Checked):
            yield from _rule_faults(inner, *unknown, prefix=f"{prefix}{name}.")


@lru_cache(maxsize=1000)
def _rules(kind: type[Value]) -> tuple[Callable[[Value], Iterator[Fault]], ...]:
    """The rules of a class, those of its bases first."""
    rules = []
    for base in reversed(kind.__mro__):
        for member in vars(base).values():
            if isinstance(member, FunctionType) and hasattr(member, "is_rule"):
                rules.append(member)
    return tuple(rules)


def _valid_part(kind: type[Value], data: dict[str, Any]) -> Value:
    """A value of the valid fields; reading another one raises AttributeError."""
    valid = kind.model_construct()
    for name, field in kind.model_fields.items():
        if name in data or field.is_required():
            valid.__dict__.pop(name, None)
        if name in data:
            with suppress(ValidationError):
                valid.__dict__[name] = _valid_field(kind, name, data[name])
    return valid


def _valid_field(kind: type[Value], name: str, data: Any) -> Any:
    """The value of a field; of values inside it, their valid parts."""
    annotation: Any = kind.model_fields[name].annotation
    inner = (get_args(annotation) or (annotation,))[0]
    if _is_value(inner):
        if not _is_tuple(get_origin(annotation)):
            if isinstance(data, dict):
                return _valid_part(inner, data)
        elif isinstance(data, list) and all(isinstance(item, dict) for item in data):
            return tuple(_valid_part(inner, item) for item in data)
    return getattr(_with_field(kind, name).model_validate({name: data}), name)


@lru_cache(maxsize=1000)
def _with_field(kind: type[Value], name: str) -> type[Value]:
    """A class with that field only."""
    field = kind.model_fields[name]
    fields: dict[str, Any] = {name: (field.annotation, field)}
    return create_model(kind.__name__, __base__=Value, **fields)
