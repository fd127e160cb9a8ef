"""Tuning on private data: how many runs are made, of which the best is released."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from privplan.errors import Fault, InputError
from privplan.values import Checked, Positive, is_none, rule

TuningLaw = Literal["poisson", "geometric", "truncated_negative_binomial"]


class PrivateTuning(Checked):
    """Training is repeated a random number of times, and the best run is released."""

    runs: Annotated[Positive, Field(ge=1, le=1e6)] = Field(
        description="Mean number of runs over all recipes that are tried (K)."
    )
    law: TuningLaw = Field("poisson", description="Law of the number of runs.")
    shape: Positive | None = Field(
        None,
        exclude_if=is_none,
        description="Shape eta of truncated_negative_binomial; 0.5 when left out.",
    )

    @rule
    def _numbers(self) -> Iterator[Fault]:
        if self.shape is not None and self.law != "truncated_negative_binomial":
            yield Fault("shape", "is only for law: truncated_negative_binomial", self.shape)
        if self.runs == 1 and self.law != "poisson":
            yield Fault("runs", f"must be greater than 1 for law: {self.law}", self.runs)


def refuse_in_book(tuning: PrivateTuning | None) -> None:
    """Raise InputError for private tuning, which costs more than the releases that a book counts.

    Args:
        tuning: of a spec; None without.
    """
    if tuning is not None:
        rule = (
            "cannot go with a book, which counts the releases of single runs: to choose the best "
            "of several costs more"
        )
        raise InputError.one("tuning", rule, tuning.law)
