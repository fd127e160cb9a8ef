"""What can go wrong, said in one line each: field, rule, found value."""

from __future__ import annotations

import inspect
import re
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from privplan.visible import printable


class PrivplanError(Exception):
    """Base of every error that the project raises on purpose.

    Attributes:
        exit_code: what the command line returns when the error reaches it.
    """

    exit_code = 2


MOST_LETTERS = 1000  # half of the letters that a line has at most
MOST_FOUND = 80  # longest word for a value that was found; the middle of a longer one is left out
MOST_TEXT = 180  # the same for text, such as a path or what a parser had to say


class _Short(reprlib.Repr):
    """``repr`` of a value that may be of any size, or refer to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxstring = self.maxother = MOST_LETTERS // 2
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = (
            self.maxfrozenset
        ) = 20

    def repr_int(self, x: int, level: int) -> str:
        """A whole number; one with more digits than Python writes by its length."""
        try:
            return super().repr_int(x, level)
        except ValueError:
            return f"a whole number of {x.bit_length()} bits"


def _cut(text: str, most: int) -> str:
    """Both ends of a text that is longer than ``most``."""
    return (
        text if len(text) <= most else f"{text[: most // 2]} ... {text[-(most // 2) :]}"
    )


def _one_line(text: str) -> str:
    """The same with escapes for what would break the line or hide in it, and not too long."""
    return printable(_cut(text, 2 * MOST_LETTERS))


def did_you_mean(text: object, known: Iterable[str]) -> str:
    """`` (did you mean NAME?)`` with the known name that is nearest to a text; empty without."""
    from difflib import get_close_matches

    names = {name.casefold(): name for name in known}
    near = get_close_matches(str(text)[:MOST_FOUND].casefold(), names, n=1, cutoff=0.65)
    return f" (did you mean {names[near[0]]}?)" if near else ""


@dataclass(frozen=True)
class Fault:
    """One thing wrong with an input: where, which rule it breaks, what was found."""

    field: str
    rule: str
    found: object

    def __str__(self) -> str:
        most = MOST_TEXT if isinstance(self.found, str) else MOST_FOUND
        found = _cut(_Short().repr(self.found), most)
        return _one_line(f"{self.field}: {self.rule}, found {found}")


class InputError(PrivplanError):
    """Bad input. Carries every fault that was found, not only the first."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (
            self.faults,
        )  # so that it comes out of another process whole

    @classmethod
    def one(cls, field: str, rule: str, found: object) -> InputError:
        """An error with a single fault."""
        return cls([Fault(field, rule, found)])


class InfeasibleError(PrivplanError):
    """A well-formed problem that has no solution; names the constraint that cannot hold."""

    exit_code = 3


class BrokenRunError(PrivplanError):
    """A run whose verdict is broken was given where a sound one is needed; names the checks."""

    exit_code = 4


class UnverifiedRunError(PrivplanError):
    """A run of which nothing can be published: unverified, a rehearsal, or without a model."""

    exit_code = 5


class UnsupportedError(PrivplanError):
    """An accountant was asked for a cell (law, relation) that it cannot answer."""


class TooLittleNoiseError(UnsupportedError):
    """An accountant was asked for a release with less noise than it can compose."""


class MissingDataError(PrivplanError):
    """Data that are not on disk; says what to do."""


# --- Calls from Python that are wrong, answered with what to write. -------------------------------

SYNONYMS = {
    "sample_rate": "sampling_ratio", "q": "sampling_ratio", "sigma": "noise_multiplier",
    "noise": "noise_multiplier", "get_noise_multiplier": "noise_multiplier", "steps": "rounds",
    "eps": "epsilon", "target_epsilon": "epsilon", "compute_epsilon": "epsilon",
    "get_epsilon": "epsilon", "target_delta": "delta", "n": "clients", "unknown": "solve_for",
    "summary": "explain", "table": "to_frame", "to_pandas": "to_frame", "to_csv": "to_frame",
    "show": "plot", "ok": "kept", "passed": "kept", "accuracy": "score", "parameters": "model",
    "from_dict": "parse", "from_yaml": "load", "read": "load", "open": "load", "load_plan": "load",
    "load_spec": "load", "to_dict": "plain", "to_yaml": "save", "plan": "solve", "run": "train",
    "simulate": "train", "verdict": "verify", "init": "preset",
}  # fmt: skip
"""What other libraries call an argument, or a part of a value or of the package."""
REPLACE = 'write spec.replace(rounds=80, groups={"strict": {"epsilon": 1}})'
_REALISED = "privplan.verify('run').groups['strict'].realised_upper"
INSTEAD = {
    "Spec": 'privplan.Spec.parse({"name": ..., "groups": [...]}), or privplan.Spec.load(path)',
    "Plan": "privplan.solve(spec), or privplan.Plan.load(path)",
    "load": "privplan.Plan.load(path), privplan.Spec.load(path) or privplan.load_run(folder)",
    "Group": '{"name": "strict", "clients": 100, "epsilon": 2} in Spec.parse',
    "train": "simulate.train(plan, dataset='digits')",
    "compare": "simulate.compare(plan, ['planned', 'FedAvg'])",
    "explain": "plan.explain()",
    "plot": "plan.plot()",
    "plain": ".to_json()",
    "verify": "privplan.verify('run')",
    "to_json": "json.dumps(spec.plain())",
    "history": "plan.history('strict')",
    "epsilon": "privplan.account(history, delta=1e-5).epsilon",
    "noise_multiplier": "privplan.calibrate(1, delta=1e-5, sampling_ratio=0.02, rounds=50)",
    "score": "run.record.accuracy",
    "predict": "run.model()(records)",
    "Spec.save": "yaml.safe_dump(spec.plain())",
    "Plan.epsilon": "plan.certificate['strict'].epsilon",
    "Plan.noise_multiplier": "plan.groups['strict'].noise_multiplier",
    "GroupVerdict.epsilon": ".budget, .planned or .realised_upper",
    "TrainedRun.save": "torch.save(run.model().state_dict(), 'model.pt')",
    **{f"{kind}.epsilon": _REALISED for kind in ("Run", "TrainedRun", "Verdict")},
}
"""What to write for a name that does not exist, of a kind of value or of all."""
_COUNTS = {"clients", "rounds", "contributions"}
NUMBERS = {"noise_multiplier", "sampling_ratio", "delta", "epsilon", *_COUNTS}


def _instead(owner: Any, asked: str) -> str:
    from importlib.metadata import entry_points

    import privplan

    name = SYNONYMS.get(asked, asked)
    own = [one for one in dir(owner) if not one.startswith("_")]
    named = owner.names if "names" in own else ()
    found = (
        INSTEAD.get(f"{_kind(owner)}.{name}")
        or (f"{getattr(owner, '__name__', '')}.{name}" if name in own else None)
        or (f"[{asked!r}]" if asked in named else None)
        or INSTEAD.get(name)
        or (example(getattr(privplan, name)) if name in privplan.STABLE else None)
    )
    if found is None and name in entry_points(group="privplan.commands").names:
        found = f"on the command line: privplan {name} --help"
    known = did_you_mean(asked, own) or "; docs/api.md lists all names"
    return f"; write {found}" if found else known


def _kind(owner: Any) -> str:
    return str(getattr(owner, "__name__", type(owner).__name__))


def example(function: Callable[..., Any]) -> str | None:
    """The call of a function in the first example of its docstring."""
    call = rf">>> .*?(\w+\.{function.__name__}\((?:[^()]|\([^()]*\))*\))"
    found = re.search(call, function.__doc__ or "")
    return found[1] if found else None


class NoSuchNameError(AttributeError):
    """A value, class or module lacks a name; what to write instead is found when it is read."""

    def __str__(self) -> str:
        owner, name = self.args
        return f"{_kind(owner)} has no attribute {name!r}{_instead(owner, name)}"


class Guided:
    """A value whose missing names say what to write."""

    __slots__ = ()

    if not TYPE_CHECKING:  # or every name would seem to be there

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)  # private attributes of pydantic
            except AttributeError:
                if hasattr(type(self), name):  # a property that failed
                    return object.__getattribute__(self, name)
                raise NoSuchNameError(self, name) from None


F = TypeVar("F", bound=Callable[..., Any])


def checked_call(function: F) -> F:
    """The function or method, with a wrong call answered by what to write, in a sentence."""
    signature = inspect.signature(function)
    known = signature.parameters
    takes_more = any(one.kind is one.VAR_KEYWORD for one in known.values())

    @wraps(function)
    def called(*values: Any, **named: Any) -> Any:
        for one, value in named.items():
            other = SYNONYMS.get(one)
            if one not in known and (other in known or not takes_more):
                hint = (
                    f"; write {other}" if other in known else did_you_mean(one, known)
                )
                raise InputError.one(one, f"is not an argument{hint}", value)
        try:
            given = signature.bind(*values, **named).arguments
        except TypeError as error:
            call = example(function)
            hint = f"; write {call}" if call else ""
            raise PrivplanError(f"{function.__name__}: {error}{hint}") from None
        for one, value in {**given, **named}.items():
            sized = hasattr(value, "__len__")
            array = sized and function.__name__ not in ("account", "bounds")
            none = (
                value is None
                and one in known
                and known[one].default is known[one].empty
            )
            bare = not (sized or value is None or hasattr(value, "__float__"))
            odd = (
                array or none or bare or isinstance(value, bool | str | bytes | complex)
            )
            if (
                one in known
                and isinstance(value, str)
                and "str" in str(known[one].annotation)
            ):
                continue  # such as rounds="all"
            if one in NUMBERS and odd:
                raise InputError.one(one, "must be a number", value)
        return function(*values, **named)

    return called  # type: ignore[return-value]
