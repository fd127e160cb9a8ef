"""What can go wrong, said in one line each: field, rule, found value."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from privplan.visible import printable
from privplan.vocabulary import meaning, nearest


class PrivplanError(Exception):
    """Base of every error that the project raises on purpose.

    Attributes:
        exit_code: what the command line returns when the error reaches it.
    """

    exit_code = 2


# Half of the letters that a line has at most.
MOST_LETTERS = 1000
# Longest word for a value that was found; the middle of a longer one is left out.
MOST_FOUND = 80
# The same for text, such as a path or what a parser had to say.
MOST_TEXT = 180
# Items that are shown of a list and its kind, and how deep they are shown.
_MOST_ITEMS = 20
_MOST_LEVELS = 4


class _Short(reprlib.Repr):
    """``repr`` of a value that may be of any size, or refer to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = _MOST_LEVELS
        self.maxstring = MOST_LETTERS // 2
        self.maxother = MOST_LETTERS // 2
        self.maxlist = _MOST_ITEMS
        self.maxtuple = _MOST_ITEMS
        self.maxdict = _MOST_ITEMS
        self.maxset = _MOST_ITEMS
        self.maxfrozenset = _MOST_ITEMS

    def repr_int(self, x: int, level: int) -> str:
        """A whole number; one with more digits than Python writes by its length."""
        try:
            return super().repr_int(x, level)
        except ValueError:
            return f"a whole number of {x.bit_length()} bits"


def _cut(text: str, limit: int) -> str:
    """Both ends of a text that is longer than a limit."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} ... {text[-half:]}"


def _one_line(text: str) -> str:
    """A text of limited length on one line.

    Escapes stand for what would break the line or hide in it.
    """
    return printable(_cut(text, 2 * MOST_LETTERS))


def did_you_mean(text: object, names: Iterable[str]) -> str:
    """`` (did you mean NAME?)`` with the name that a text means; empty without one."""
    listed = tuple(names)
    short = str(text)[:MOST_FOUND]
    meant = meaning(short, listed) or nearest(short, listed)
    return f" (did you mean {meant}?)" if meant else ""


def one_of(names: Iterable[str], text: object) -> str:
    """The rule of a name among others, which begins with the one that was meant."""
    listed = tuple(names)
    rule = f"must be one of {', '.join(listed)}"
    near = did_you_mean(text, listed)
    return f"is not known{near}; {rule}" if near else rule


@dataclass(frozen=True)
class Fault:
    """What is wrong with an input: where, which rule it breaks, what was found."""

    field: str
    rule: str
    found: object
    place: str = ""  # file and line, where these are known

    def __str__(self) -> str:
        limit = MOST_TEXT if isinstance(self.found, str) else MOST_FOUND
        value = _cut(_Short().repr(self.found), limit)
        place = f" ({self.place})" if self.place else ""
        return _one_line(f"{self.field}: {self.rule}, found {value}{place}")


class InputError(PrivplanError):
    """Bad input. Carries every fault that was found, not only the first."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def __reduce__(self) -> tuple[Any, ...]:
        # So that it comes out of another process whole.
        return type(self), (self.faults,)

    @classmethod
    def one(cls, field: str, rule: str, value: object) -> InputError:
        """An error with a single fault."""
        return cls([Fault(field, rule, value)])


class NotGivenError(InputError):
    """Own data or an own module, which the caller has and did not give."""


class InfeasibleError(PrivplanError):
    """A well-formed problem without a solution; names what cannot hold."""

    exit_code = 3


class BrokenRunError(PrivplanError):
    """A broken run where a sound one is needed; names the checks that failed."""

    exit_code = 4


class UnverifiedRunError(PrivplanError):
    """A run of which nothing can be published.

    It is unverified, a rehearsal, or without a model.
    """

    exit_code = 5


class UnsupportedError(PrivplanError):
    """An accountant was asked for a cell (law, relation) that it cannot answer."""


class TooLittleNoiseError(UnsupportedError):
    """An accountant was asked for a release with less noise than it can compose."""


class MissingDataError(PrivplanError):
    """Data that are not on disk; says what to do."""
