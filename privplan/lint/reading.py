"""What a framework module reads from a file: mechanisms, claims, alarms, undetermined values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from privplan.accounting.release import Relation, Unit
from privplan.lint.source import Source
from privplan.registry import Registry


@dataclass(frozen=True)
class Options:
    """Values from the command line; they precede those of the file.

    Attributes:
        population: units (clients, or records of record-level mechanisms) that may be drawn.
        rounds: number of noisy releases.
        delta: failure probability, in (0, 1).
    """

    population: int | None = None
    rounds: int | None = None
    delta: float | None = None


@dataclass(frozen=True)
class Alarm:
    """One reason why the configuration does not give what it appears to promise.

    Attributes:
        code: short name of the trap, stable across versions.
        message: what is wrong, with the values found.
        line: line of the file; 0 where the alarm is of the whole file.
    """

    code: str
    message: str
    line: int = 0


@dataclass(frozen=True)
class Claim:
    """An epsilon that the configuration states, or that its own accountant would print.

    Attributes:
        epsilon: the claimed value.
        delta: its failure probability; None where the file does not state it.
        relation: neighbouring relation that the claim names; None where it names none.
        source: where the value is from, for messages.
        releases: number of releases that it covers; None for all.
    """

    epsilon: float
    delta: float | None
    relation: Relation | None
    source: str
    releases: int | None = None


@dataclass(frozen=True)
class Mechanism:
    """One noisy release per round as executed; None for values that are not determined.

    Attributes:
        group: name of the clients or site that the mechanism protects.
        unit: unit of privacy.
        protects: what is protected from whom, one sentence.
        law: sampling law that the code executes: a name of ``laws.LAWS``, ``with_replacement``,
            ``shuffle`` or ``round_robin``.
        noise: least and largest noise multiplier on the sum (standard deviation over the clipping
            norm); equal where it is known exactly.
        cohort: units drawn per round, or their expected number.
        population: units that may be drawn.
        ratio: sampling ratio, where it is stated instead of cohort and population.
        rounds: number of releases.
        local: whether each unit adds noise of its own, so that nothing is amplified.
        known_epsilon: epsilon of one release by another analysis, such as that of Laplace noise.
    """

    group: str
    unit: Unit
    protects: str
    law: str | None
    noise: tuple[float, float] | None
    cohort: float | None = None
    population: int | None = None
    ratio: float | None = None
    rounds: int | None = None
    local: bool = False
    known_epsilon: float | None = None

    @property
    def sampling_ratio(self) -> float | None:
        """The sampling ratio; None where it is not determined."""
        if self.local or self.law == "full":
            return 1.0
        if self.ratio is not None:
            return self.ratio
        if self.cohort is None or not self.population:
            return None
        return min(self.cohort / self.population, 1.0)


@dataclass
class Reading:
    """All that was read from a file.

    Attributes:
        mechanisms: noisy releases, usually one.
        claims: stated epsilons.
        alarms: traps that the file shows.
        conditions: what the bounds assume, because the file does not show it.
        undetermined: values that cannot be read, with the reason.
        delta: failure probability that the file states.
    """

    mechanisms: list[Mechanism] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    undetermined: list[str] = field(default_factory=list)
    delta: float | None = None

    def alarm(self, code: str, message: str, line: int = 0) -> None:
        """Add an alarm, once per code and line."""
        if not any((one.code, one.line) == (code, line) for one in self.alarms):
            self.alarms.append(Alarm(code, message, line))

    def unknown(self, name: str, reason: str) -> None:
        """Add a value that is not determined."""
        line = f"{name}: {reason}"
        if line not in self.undetermined:
            self.undetermined.append(line)


class Framework(Protocol):
    """Reads the files of one framework."""

    def __call__(self, source: Source, options: Options) -> Reading:
        """The mechanisms, claims and traps of a file."""


def _framework(component: object) -> Framework:
    if not callable(component):
        raise TypeError("must be a function of a source and options that returns a Reading")
    found: Callable[..., Any] = component
    return found


FRAMEWORKS: Registry[Framework] = Registry(
    "of", "privplan.frameworks", "privplan.lint.frameworks", _framework
)
"""Framework modules by name."""
