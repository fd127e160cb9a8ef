"""Result of the sensitivity tests of one algorithm."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """A difference between two executions that the claims of the algorithm exclude.

    Attributes:
        rule: the claim: ``sensitivity``, ``noise``, ``coordinates``, ``model``, ``metrics``,
            ``ledger``, ``personal state`` or ``other releases``.
        case: the neighbouring data sets.
        found: what differs, and by how much.
    """

    rule: str
    case: str
    found: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.case}: {self.found}"


@dataclass(frozen=True)
class SensitivityReport:
    """Result of the sensitivity tests of one algorithm under one plan.

    Attributes:
        algorithm: name of the algorithm.
        plan: name of the plan.
        unit: unit of privacy of the releases; ``none`` where no bound is claimed.
        executions: number of executed rounds.
        compared: number of pairs of executions whose releases were compared with the bound.
        largest_ratio: largest difference of releases over its claimed bound; None where no bound
            is claimed.
        violations: claims that do not hold, one per rule, in the order in which they were found.
    """

    algorithm: str
    plan: str
    unit: str
    executions: int
    compared: int
    largest_ratio: float | None
    violations: tuple[Violation, ...]

    @property
    def passed(self) -> bool:
        """Whether every claim holds."""
        return not self.violations


class Findings:
    """Collects comparisons and the first violation of each rule."""

    def __init__(self) -> None:
        self.compared = 0
        self.largest_ratio: float | None = None
        self._violations: dict[str, Violation] = {}

    def bounded(self, case: str, difference: float, bound: float, slack: float) -> None:
        """Compare the norm of a difference with a claimed bound.

        Args:
            case: the neighbouring data sets.
            difference: norm of the difference of two releases.
            bound: claimed bound on it.
            slack: rounding error of the difference.
        """
        self.compared += 1
        ratio = difference / bound if bound > 0 else (0.0 if difference <= slack else float("inf"))
        self.largest_ratio = max(ratio, self.largest_ratio or 0.0)
        if not difference <= bound + slack:  # a difference that is not a number is no bound either
            found = f"releases differ by {difference:.6g}, claimed {bound:.6g}"
            self.broken("sensitivity", case, found)

    def equal(self, rule: str, case: str, same: bool, found: str) -> None:
        """Record a violation of a rule unless two outputs are the same."""
        if not same:
            self.broken(rule, case, found)

    def broken(self, rule: str, case: str, found: str) -> None:
        """Record a violation; only the first of each rule is reported."""
        self._violations.setdefault(rule, Violation(rule, case, found))

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The first violation of each rule."""
        return tuple(self._violations.values())
