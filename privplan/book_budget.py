"""A group's budget over all runs, as a plan stores it that starts from a budget book."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from privplan.values import NonNegative, Positive, Value, is_none


class BookBudget(Value):
    """A group's budget over all runs, in a plan that starts from a budget book.

    Attributes:
        rule: how past runs and this one are composed: ``renyi`` or ``gaussian``, filters that
            hold when runs are chosen after seeing earlier ones; ``exact``, for runs that were
            fixed before the first result.
        phrase: the rule as text, with the order of the Rényi filter.
        budget: epsilon over all runs.
        spent: epsilon of the past runs under the rule.
        total: epsilon of the past runs and this one under the rule, if it executes its plan.
        noise_multiplier: of the group in this run.
        exact_total: ``total`` under exact composition, as if all runs had been fixed in advance;
            absent where that is the rule, or only the cost of past runs is known.
        exact_noise_multiplier: the noise multiplier that this run would need at its sampling
            ratio and rounds under exact composition; absent likewise.
    """

    group: str
    rule: Literal["renyi", "gaussian", "exact"]
    phrase: str
    budget: Positive
    spent: NonNegative
    total: NonNegative
    noise_multiplier: Positive
    exact_total: NonNegative | None = Field(None, exclude_if=is_none)
    exact_noise_multiplier: Positive | None = Field(None, exclude_if=is_none)

    @property
    def adaptivity(self) -> str | None:
        """What it costs that this run is chosen after seeing earlier ones, one line."""
        if self.exact_total is None or self.exact_noise_multiplier is None:
            return None
        more = self.noise_multiplier / self.exact_noise_multiplier - 1
        return (
            f"{self.group}: adaptivity costs {max(more, 0.0):.1%} more noise: exact composition, "
            f"valid only for runs that were all fixed before the first result, counts "
            f"{self.exact_total:.6g} instead of {self.total:.6g} and would need noise multiplier "
            f"{self.exact_noise_multiplier:.6g} instead of {self.noise_multiplier:.6g}"
        )


def book_lines(budgets: Iterable[BookBudget] | None) -> list[str]:
    """Budgets over all runs and what adaptivity costs, as lines of text."""
    lines = []
    for one in budgets or ():
        lines.append(
            f"{one.group}: {one.total:.6g} of {one.budget:g} over all runs, {one.spent:.6g} "
            f"before this one ({one.phrase})"
        )
        lines += [one.adaptivity] if one.adaptivity else []
    return lines
