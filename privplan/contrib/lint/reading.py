"""What is read from a file: alarms, values, and what is not understood."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from privplan.accounting.release import SamplingLaw
from privplan.contrib.lint.script import number
from privplan.contrib.lint.source import Source
from privplan.registry import Registry, function_of

ALARMS = 6
"""Exit code of a file with alarms."""


@dataclass(frozen=True)
class Options:
    """Values from the command line, for what the file leaves open."""

    # units (clients, or records of record-level mechanisms) that may be drawn
    population: int | None = None
    rounds: int | None = None  # number of noisy releases
    delta: float | None = None  # failure probability, in (0, 1)


@dataclass(frozen=True)
class Alarm:
    """One thing that is wrong."""

    code: str  # short name of the trap, stable across versions
    message: str  # what is wrong, with the values that were read
    cost: str  # what it costs
    line: int = 0  # line of the file; 0 where the alarm is of the whole file


@dataclass(frozen=True)
class Line:
    """Something in the file, or about it."""

    text: str  # what it is
    line: int = 0  # line of the file; 0 where it is of the whole file

    def __str__(self) -> str:
        if self.line:
            return f"line {self.line}: {self.text}"
        return self.text


@dataclass(frozen=True)
class Mechanism:
    """Noisy releases that are alike, with all their values."""

    unit: str  # whom it protects: ``record`` or ``client``
    noise: float  # noise multiplier on the sum of the clipped contributions
    law: SamplingLaw  # how units are drawn
    ratio: float  # sampling ratio
    rounds: int  # number of releases
    delta: float  # failure probability


@dataclass
class Findings:
    """All that was read from a file."""

    alarms: list[Alarm] = field(default_factory=list)  # what is wrong
    # what is wrong, unless something that the file does not show makes it right
    look_at: list[Alarm] = field(default_factory=list)
    read: list[Line] = field(
        default_factory=list
    )  # values and conditions of an epsilon
    undetermined: list[Line] = field(default_factory=list)  # why there is no epsilon
    not_understood: list[Line] = field(
        default_factory=list
    )  # calls, keywords, keys, names
    shown: bool = False  # whether the file shows anything of the framework
    mechanism: Mechanism | None = None  # releases whose values are all determined
    # upper bound on epsilon by neighbouring relation, rounded up; empty where not
    # determined
    epsilon: dict[str, str] = field(default_factory=dict)
    accountant: str = "pld"  # the accountant that computes the bounds

    @property
    def exit_code(self) -> int:
        """``ALARMS``, or 0."""
        if not self.alarms:
            return 0
        return ALARMS

    def plain(self) -> dict[str, Any]:
        """Plain data for strict JSON."""
        outcome = "alarm" if self.alarms else "no alarm"
        return {"format": "privplan.contrib.lint/2", "outcome": outcome, **asdict(self)}

    def alarm(
        self, code: str, message: str, cost: str, line: int, *, certain: bool = True
    ) -> None:
        """Add an alarm, or something to look at where it is not certain."""
        lines = self.alarms if certain else self.look_at
        lines.append(Alarm(code, message, cost, line))

    def unknown(self, text: str, line: int = 0) -> None:
        """Add a reason why no epsilon is determined."""
        self.undetermined.append(Line(f"not determined: {text}", line))

    def condition(self, text: str, line: int = 0) -> None:
        """Add something that must be so, for an epsilon to be right."""
        self.read.append(Line(text, line))

    def literal(
        self, name: str, value: Any, line: int, option: float | None = None
    ) -> float:
        """Read a number of the file, else of the command line.

        Returns:
            The number; 0 where it is not determined, which the reading then says.
        """
        size = number(value)
        if size is None and option is not None:
            self.condition(f"{name} {option:g}, as the command line says")
            return option
        if size is None or option not in (None, size):
            if size is None:
                stated = "no constant in the file"
            else:
                stated = f"{size:g} in the file"
            self.unknown(
                f"{name}: {stated}, {option or 'nothing'} on the command line", line
            )
            return 0.0
        self.condition(f"{name} {size:g}", line)
        return size


class Framework(Protocol):
    """Reads the files of one framework."""

    def __call__(self, source: Source, options: Options) -> Findings:
        """The alarms and values of a file."""


_PACKAGE = "privplan.contrib.lint.frameworks"
FRAMEWORKS: Registry[Framework] = Registry(
    "of",
    "privplan.frameworks",
    _PACKAGE,
    function_of("a source and options that returns a Findings"),
)
"""Framework modules by name."""
