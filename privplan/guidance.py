"""Calls from Python that are wrong, answered with what to write."""

from __future__ import annotations

import dis
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial, wraps
from importlib import import_module
from numbers import Integral, Real
from os import PathLike
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from privplan.errors import InputError, PrivplanError, did_you_mean
from privplan.vocabulary import SURE, call_of, meaning, nearest, purpose, purpose_there

REPLACE = 'write spec.replace(rounds=80, groups={"strict": {"epsilon": 1}})'
_OF_DATA = ("label", "client", "group", "groups", "features", "statistics", "task")
"""Arguments of own data, which some functions take as a whole."""
_LOADED = "simulate.Data.load(path, label=..., client=...), or .from_table(table, ...)"
NUMBERS = {
    "noise_multiplier",
    "sampling_ratio",
    "delta",
    "epsilon",
    "clients",
    "rounds",
    "contributions",
}
"""Arguments that are numbers wherever they are asked for."""
_TAKE_ARRAYS = ("account", "bounds")


def _instead(owner: Any, name: str) -> str:
    """What to write for a name that an owner does not have."""
    answer = _answer(owner, name)
    if answer:
        return f"; write {answer}"
    served = purpose(name, _kind(owner))
    if served:
        return f"; {served}"
    public = public_names(owner)
    return did_you_mean(name, public) or f"; it has {', '.join(public)}"


def _answer(owner: Any, name: str) -> str | None:
    """The call or the part that a name means, as it is written."""
    from importlib.metadata import entry_points

    # Not imported above, as the package imports this module.
    package = import_module("privplan")
    public = public_names(owner)
    of_kind = call_of(name, _kind(owner))
    if of_kind:
        return of_kind
    meant = meaning(name, public)
    if meant is not None:
        return _written(owner, meant)
    kind = owner if isinstance(owner, type) else type(owner)
    as_data = _as_data(kind, name)
    if as_data:
        return as_data
    if "names" in public and owner is not kind and owner:
        if name in owner.names:
            return f"[{name!r}]"
        # What its parts have is asked of one of them.
        of_part = _answer(owner[0], name) or ""
        if of_part.startswith("."):
            return f"[{owner.names[0]!r}]{of_part}"
    # A plan does not repeat what its spec says.
    fields = getattr(type(getattr(owner, "spec", None)), "model_fields", ())
    field = meaning(name, fields)
    if field is not None:
        return f"plan.spec.{field}"
    call = call_of(name)
    if call:
        return call
    stable = meaning(name, package.STABLE)
    if stable is not None:
        return example(getattr(package, stable))
    commands = entry_points(group="privplan.commands").names
    command = meaning(name, commands)
    return command and f"on the command line: privplan {command} --help"


def part_in_brackets(owner: Any, key: object) -> str:
    """What to write for a part of a value that has none in brackets."""
    if key in getattr(type(owner), "model_fields", ()):
        return f"; write .{key}"
    public = public_names(owner)
    if not isinstance(key, str):
        return f"; it has {', '.join(public)}"
    # Groups in a mapping are by client.
    if "groups" in public and "names" in public_names(owner.groups):
        return f"; write .groups[{key!r}]"
    if "spent" in public:
        return f"; write .spent({key!r})"
    return _instead(owner, key)


def _as_data(kind: type, name: str) -> str | None:
    """How a value without a method for it is written as data; None of other names."""
    form = meaning(name, ("plain", "to_json", "save"))
    if hasattr(kind, "to_frame"):
        of_frame = {
            "plain": "to_dict('records')",
            "to_json": "to_json(orient='records')",
            "save": "to_csv(path)",
        }
        return form and f".to_frame().{of_frame[form]}"
    if hasattr(kind, "model_fields"):
        as_dict = "dict(value)"
    elif hasattr(kind, "__dataclass_fields__"):
        as_dict = "dataclasses.asdict(value)"
    else:
        return None
    in_text = f"json.dumps({as_dict}, default=str)"
    return form and {"plain": as_dict}.get(form, in_text)


def _written(owner: Any, name: str) -> str:
    """A name that an owner has, as a user writes it: a call by its example."""
    place = getattr(owner, "__name__", "")
    if inspect.ismodule(owner):
        return example(getattr(owner, name)) or f"{place}.{name}"
    member = inspect.getattr_static(owner, name)
    is_routine = inspect.isroutine(member) or isinstance(member, CalledFirst)
    is_method = is_routine and not isinstance(member, cached_property)
    if not is_method:
        return f"{place}.{name}"
    called = getattr(owner, name)
    required_names = [
        parameter.name
        for parameter in inspect.signature(called).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    if isinstance(owner, type) and inspect.isfunction(called):
        # Called on a value, it is given ``self``.
        required_names = required_names[1:]
    return f"{place}.{name}({', '.join(required_names)})"


def place_in_spec(name: str, *, of_number: bool = False) -> str | None:
    """The field of a spec, of a part of it or of its groups, of a name; else None.

    Args:
        name: a word of the project, or of another tool.
        of_number: whether the field must take a number, and no mapping.
    """
    fields: dict[str, Any] = import_module("privplan").Spec.model_fields
    group = import_module("privplan.spec.groups").Group
    parts: dict[str, list[Any]] = {"groups.GROUP": [group]}
    for part in ("local", "planning", "model", "server"):
        # Of a part that may be left out, what it is else.
        parts[part] = [fields[part].annotation, *get_args(fields[part].annotation)]
    # A name in several parts is that of the first.
    places = {field: field for field in fields}
    for part, kinds in parts.items():
        for kind in kinds:
            for inner, field in getattr(kind, "model_fields", {}).items():
                choices = get_args(field.annotation)
                takes_mapping = any(
                    hasattr(choice, "model_fields") for choice in choices
                )
                if not (of_number and takes_mapping):
                    places.setdefault(inner, f"{part}.{inner}")
    meant = meaning(name, places)
    return None if meant is None else places[meant]


def public_names(owner: Any) -> list[str]:
    """The public names of an owner, without those that its library gives all values."""
    if inspect.ismodule(owner):
        return list(getattr(owner, "__all__", dir(owner)))
    names = {name for name in dir(owner) if not name.startswith("_")}
    names.difference_update(dir(import_module("pydantic").BaseModel), dir(tuple))
    kind = owner if isinstance(owner, type) else type(owner)
    if issubclass(kind, str):
        names.difference_update(dir(str))
    return sorted(names)


def _kind(owner: Any) -> str:
    kind = str(getattr(owner, "__name__", type(owner).__name__))
    # Users know the groups of a plan, and no class of them.
    return "groups" if kind == "Named" else kind


def example(function: Callable[..., Any]) -> str | None:
    """The call of a function in the first example of its docstring, on one line.

    What it returns may be called in turn.
    """
    call = rf">>> .*?(\w+\.{function.__name__}(?:\((?:[^()]|\([^()]*\))*\))+)"
    match = re.search(call, function.__doc__ or "")
    if match is None:
        return None
    return re.sub(r"\n *\.\.\. *", "", match[1])


class NoSuchNameError(AttributeError):
    """A value, class or module lacks a name.

    What to write instead is found when the error is read.
    """

    def __str__(self) -> str:
        owner, name = self.args
        return f"{_kind(owner)} has no attribute {name!r}{_instead(owner, name)}"


def no_such_name(module: ModuleType, name: str) -> Exception:
    """The error of a module's ``__getattr__``, whose caller raises it.

    Python says nothing of an AttributeError where a name is imported from a package.
    """
    error = NoSuchNameError(module, name)
    caller = sys._getframe(2)
    operation = dis.opname[caller.f_code.co_code[caller.f_lasti]]
    return ImportError(str(error)) if operation == "IMPORT_FROM" else error


class Chapter(ModuleType):
    """A module that is named like something that users call."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Say what to write where somebody calls it as a function.

        Raises:
            NoSuchNameError: always.
        """
        package, _, name = self.__name__.rpartition(".")
        raise NoSuchNameError(sys.modules[package], name)


class GuidedKind(type):
    """Of a class whose missing names say what to write."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            try:
                # Members of enumerations, private attributes of pydantic.
                return super().__getattr__(name)
            except AttributeError:
                raise NoSuchNameError(cls, name) from None


class GuidedName:
    """A name as a value, whose own missing names say what to write."""

    __slots__ = ()

    # A type checker would take every name to be there.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise NoSuchNameError(self, name)


def _ordered(owner: Any, other: Any, compare: Callable[[Any], Any]) -> Any:
    """The order of a value and another; it has none with a number."""
    if isinstance(other, Real):
        raise TypeError(f"{_kind(owner)} is no number{_numbers(owner)}")
    return compare(other)


def _numbers(owner: Any) -> str:
    """The numbers that a value without an order has, as the end of a rule."""
    kind = type(owner)
    fields = getattr(kind, "model_fields", getattr(kind, "__dataclass_fields__", {}))
    numbers = []
    for name in public_names(owner):
        member = getattr(inspect.getattr_static(kind, name, None), "fget", None)
        returned = getattr(member, "__annotations__", {}).get("return")
        field = fields.get(name)
        declared = getattr(field, "annotation", getattr(field, "type", returned))
        if declared in (float, "float", int, "int"):
            numbers.append(f".{name}")
    has_method = "epsilon" in public_names(owner) and ".epsilon" not in numbers
    if has_method or call_of("epsilon", _kind(owner)):
        return f"; write {_answer(owner, 'epsilon')}"
    if numbers:
        return f"; its numbers are {', '.join(numbers)}"
    return f"; it has {', '.join(public_names(owner))}"


class Guided(metaclass=GuidedKind):
    """A value whose missing names say what to write."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, member in list(vars(cls).items()):
            if isinstance(member, FunctionType) and not name.startswith("_"):
                setattr(cls, name, explained_call(member))
            if isinstance(member, classmethod) and not name.startswith("_"):
                setattr(cls, name, classmethod(explained_call(member.__func__)))

    # A type checker would take every name to be there.
    if not TYPE_CHECKING:

        def __getitem__(self, key: Any) -> Any:
            if hasattr(super(), "__getitem__"):
                return super().__getitem__(key)
            hint = part_in_brackets(self, key)
            raise TypeError(f"{_kind(self)} has no parts in brackets{hint}")

        def __call__(self, *values: Any, **named: Any) -> Any:
            """Say that it is no function."""
            kind = _kind(self)
            raise TypeError(f"{kind} is a value and is not called; leave out its ()")

        def __lt__(self, other: Any) -> Any:
            return _ordered(self, other, super().__lt__)

        def __le__(self, other: Any) -> Any:
            return _ordered(self, other, super().__le__)

        def __gt__(self, other: Any) -> Any:
            return _ordered(self, other, super().__gt__)

        def __ge__(self, other: Any) -> Any:
            return _ordered(self, other, super().__ge__)

        def __float__(self) -> float:
            raise TypeError(f"{_kind(self)} is no number{_numbers(self)}")

        def __round__(self, digits: int = 0) -> float:
            raise TypeError(f"{_kind(self)} is no number{_numbers(self)}")

        def __format__(self, form: str) -> str:
            try:
                return format(str(self), form)
            except ValueError:
                # A form of numbers, such as .2f.
                rule = f"{_kind(self)} is no number{_numbers(self)}"
                raise TypeError(rule) from None

        def __getattr__(self, name: str) -> Any:
            try:
                # Private attributes of pydantic.
                return super().__getattr__(name)
            except AttributeError:
                # A property that failed.
                if hasattr(type(self), name):
                    return object.__getattribute__(self, name)
                raise NoSuchNameError(self, name) from None


F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def checked_call(function: F) -> F:
    """The function or method, whose wrong calls are answered in a sentence."""
    signature = inspect.signature(function)
    parameters = signature.parameters
    called_as = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    # ``**releases`` takes every name, and its own name is none of an argument.
    named_parameters = {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    }
    takes_any = len(named_parameters) < len(parameters)

    @wraps(function)
    def called(*values: Any, **named: Any) -> Any:
        # Comparisons in float32 overflow at the limits of numbers, and JSON has no
        # whole numbers of NumPy.
        values = tuple(map(_plain_number, values))
        for name, value in named.items():
            named[name] = _plain_number(value)
            if name in named_parameters:
                continue
            if takes_any and not meaning(name, named_parameters):
                continue
            hint = instead_of_argument(function, name, parameters)
            # Records and their clients are not repeated.
            is_short = isinstance(value, str) or not hasattr(value, "__len__")
            shown = value if is_short else type(value).__name__
            raise InputError.one(name, f"is not an argument{hint}", shown)
        try:
            arguments = signature.bind(*values, **named).arguments
        except TypeError as error:
            raise _wrong_call(function, called_as, error, {}) from None
        takes_arrays = function.__name__ in _TAKE_ARRAYS
        for name, value in {**arguments, **named}.items():
            if name in NUMBERS and not _can_be(value, parameters, name, takes_arrays):
                raise InputError.one(name, "must be a number", value)
        try:
            return function(*values, **named)
        except (InputError, OSError):
            _refuse_texts(arguments, parameters)
            _refuse_other_files(function, arguments)
            raise
        except _OF_A_KIND:
            _refuse_other_kinds(arguments, parameters)
            raise

    return called  # type: ignore[return-value]


_FROM_TEXT = {
    "spec": "privplan.Spec.parse(yaml.safe_load(text))",
    "plan": "privplan.Plan.parse(json.loads(text))",
}
"""What is made of the text of a file, by an argument that takes its path."""
_MOST_OF_NAME = 255
"""Bytes that a part of a path has at most on usual file systems."""


def _refuse_texts(
    arguments: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]
) -> None:
    """Raise InputError for the text of a file where its path is taken."""
    for name, value in arguments.items():
        is_of_path = "Path" in str(parameters[name].annotation)
        takes_path = is_of_path or name in ("path", "folder", "run")
        if not takes_path or not isinstance(value, str):
            continue
        longest = max(len(part.encode()) for part in value.split("/"))
        if "\n" in value or longest > _MOST_OF_NAME:
            call = _FROM_TEXT.get(name)
            hint = f"; of its text write {call}" if call else ""
            raise InputError.one(name, f"must be the path of a file{hint}", value)


def _refuse_other_files(
    function: Callable[..., Any], arguments: Mapping[str, Any]
) -> None:
    """Raise InputError for a file of a kind that a function does not take.

    Functions take what they read first; a later path is mostly one that is written.
    """
    # Not imported above, as it is only asked after a fault.
    from privplan.file_kinds import refuse_other_file

    names = [name for name in arguments if name not in ("self", "cls")]
    for name in names[:1]:
        for taker in (function.__name__, function.__qualname__):
            refuse_other_file(arguments[name], taker, name)


_OF_A_KIND = (TypeError, ValueError, AttributeError)
"""What Python raises where a value is of another kind than a function uses."""
_IS_OF_KIND: dict[str, Callable[[Any], bool]] = {
    "float": lambda value: isinstance(value, Real) and not isinstance(value, bool),
    "int": lambda value: isinstance(value, Integral) and not isinstance(value, bool),
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str),
    "None": lambda value: value is None,
    "Path": lambda value: isinstance(value, PathLike),
    "Mapping": lambda value: isinstance(value, Mapping),
    "Sequence": lambda value: isinstance(value, Sequence),
}
"""Whether a value is of a kind that a type hint names."""
_OWN_KINDS = (
    "Spec",
    "Plan",
    "GroupPlan",
    "History",
    "Release",
    "Relation",
    "Run",
    "Data",
)


def _refuse_other_kinds(
    arguments: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]
) -> None:
    """Raise InputError for an argument that is not of the kinds of its type hint.

    It is asked after a fault only, and passes a hint with a kind that it cannot judge.
    """
    for name, value in arguments.items():
        hint = str(parameters[name].annotation)
        # What is in brackets are kinds of parts.
        while "[" in hint:
            hint = re.sub(r"\[[^\[\]]*\]", "", hint)
        kinds = [kind.strip() for kind in hint.split("|")]
        classes = {kind.__name__ for kind in type(value).__mro__}
        fits = [
            kind in classes if kind in _OWN_KINDS else _IS_OF_KIND[kind](value)
            for kind in kinds
            if kind in _OWN_KINDS or kind in _IS_OF_KIND
        ]
        if len(fits) == len(kinds) and not any(fits):
            rule = f"must be of type {' or '.join(kinds)}"
            raise InputError.one(name, rule, type(value).__name__)


def explained_call(function: F) -> F:
    """The function, which says what to write where its arguments do not fit.

    Unlike ``checked_call`` it costs nothing where they fit.
    """

    @wraps(function)
    def called(*values: Any, **named: Any) -> Any:
        try:
            return function(*values, **named)
        except (*_OF_A_KIND, OSError) as error:
            parameters = inspect.signature(function).parameters
            # Raised inside of the function, it may be no fault of the call.
            if _fits(function, values, named):
                passed_values = (
                    inspect.signature(function).bind(*values, **named).arguments
                )
                _refuse_texts(passed_values, parameters)
                _refuse_other_kinds(passed_values, parameters)
                raise
            if not isinstance(error, TypeError):
                raise
            called_as = function.__qualname__.removesuffix(".__init__")
            raise _wrong_call(function, called_as, error, named) from None

    return called  # type: ignore[return-value]


def _fits(
    function: Callable[..., Any], values: tuple[Any, ...], named: Mapping[str, Any]
) -> bool:
    """Whether a function takes these arguments, whatever it makes of them."""
    try:
        inspect.signature(function).bind(*values, **named)
    except TypeError:
        return False
    return True


def _wrong_call(
    function: Callable[..., Any],
    called_as: str,
    error: TypeError,
    named: Mapping[str, Any],
) -> PrivplanError:
    """What to write for arguments that do not fit a function."""
    parameters = inspect.signature(function).parameters
    for name, value in named.items():
        if name not in parameters:
            hint = instead_of_argument(function, name, parameters)
            return InputError.one(name, f"is not an argument{hint}", value)
    call = example(function)
    names = ", ".join(name for name in parameters if name != "self")
    hint = f"; write {call}" if call else f"; it takes {names or 'nothing'}"
    return PrivplanError(f"{called_as}: {error}{hint}")


class _Uncalled(partial[Any]):
    """A method that was not called yet."""

    def __getattr__(self, name: str) -> Any:
        method = self.func.__name__
        hint = purpose(name) or f"write .{method}().{name}"
        raise AttributeError(f"{method} is a method and has no {name!r}; {hint}")

    def __getitem__(self, key: object) -> Any:
        method = self.func.__name__
        raise TypeError(f"{method} is a method; write .{method}({key!r})")


class CalledFirst:
    """A method whose value users expect where they leave out its brackets."""

    def __init__(self, method: Callable[..., Any]) -> None:
        # As class methods call what they wrap.
        self.__func__ = method

    def __get__(self, owner: object, kind: type | None = None) -> Any:
        return self.__func__ if owner is None else _Uncalled(self.__func__, owner)


def called_first(method: F) -> F:
    """The method, which says that it is called where a part of its value is asked."""
    return CalledFirst(explained_call(method))  # type: ignore[return-value]


def _plain_number(value: Any) -> Any:
    """A single number of NumPy as one of Python; all else as it is."""
    is_of_numpy = type(value).__module__ == "numpy" and hasattr(value, "item")
    if is_of_numpy and not hasattr(value, "__len__"):
        return value.item()
    return value


def checked_init(kind: type[T]) -> type[T]:
    """The class, whose wrong arguments are answered in a sentence."""
    kind.__init__ = checked_call(kind.__init__)  # type: ignore[method-assign]
    return kind


def explained_init(kind: type[T]) -> type[T]:
    """The class, which says what to write where its arguments do not fit."""
    kind.__init__ = explained_call(kind.__init__)  # type: ignore[method-assign]
    return kind


def instead_of_argument(
    function: Callable[..., Any], name: str, parameters: Mapping[str, object]
) -> str:
    """What to write for an argument that a function does not take."""
    # A column is said with its data, whatever else its name may mean.
    if "data" in parameters and name in _OF_DATA:
        return f"; write data={_LOADED}"
    meant = meaning(name, parameters)
    if meant is not None:
        return f"; write {meant}"
    if meaning(name, _OF_DATA) is not None:
        if "data" in parameters:
            return f"; write data={_LOADED}"
        if function.__qualname__ == "Data.__init__":
            return f"; write {_LOADED}"
    served = purpose_there(name, function.__name__)
    if served is not None:
        return f"; {served}"
    near = nearest(name, parameters, SURE)
    if near is not None:
        return f" (did you mean {near}?)"
    place = place_in_spec(name)
    if place is not None and "plan" in parameters:
        return f'; the plan says it: write spec.replace({{"{place}": ...}}) and solve'
    if place is not None and "spec" in parameters:
        return (
            f'; the spec says it: write spec.replace({{"{place}": ...}}) for the spec'
        )
    call = example(function)
    if call is None:
        names = ", ".join(parameter for parameter in parameters if parameter != "self")
        return did_you_mean(name, parameters) or f"; it takes {names or 'nothing'}"
    served = purpose(name, function.__name__)
    if served is not None:
        return f"; {served}"
    return did_you_mean(name, parameters) or f"; write {call}"


def _can_be(
    value: Any,
    parameters: Mapping[str, inspect.Parameter],
    name: str,
    takes_arrays: bool,
) -> bool:
    """Whether a value can be that of an argument that is a number.

    Args:
        value: that was passed.
        parameters: of the function.
        name: of the argument, which may be none of the parameters.
        takes_arrays: whether the function takes arrays of numbers.
    """
    parameter = parameters.get(name)
    if parameter is not None:
        # Such as rounds="all".
        if isinstance(value, str) and "str" in str(parameter.annotation):
            return True
        if value is None and parameter.default is parameter.empty:
            return False
    if isinstance(value, bool | str | bytes | complex):
        return False
    if hasattr(value, "__len__"):
        return takes_arrays
    is_number = hasattr(type(value), "__float__") and not isinstance(value, Guided)
    return value is None or is_number
