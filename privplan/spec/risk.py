"""Budgets stated as a risk: what an attacker may achieve, instead of epsilon and delta."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field, ValidationError

from privplan.accounting.risk import Point, advantage_point, budget_of
from privplan.errors import Fault, InputError
from privplan.values import Probability, Value, is_none

_KINDS = (
    ("advantage",),
    ("true_positives", "false_positives"),
    ("reconstruction", "baseline"),
)


class Risk(Value):
    """What an attacker may achieve: one of an advantage, true positives, or a reconstruction."""

    advantage: Probability | None = Field(
        None,
        exclude_if=is_none,
        description="Largest difference of true- and false-positive rate of a membership attack.",
    )
    true_positives: Probability | None = Field(
        None, exclude_if=is_none, description="Largest true-positive rate at false_positives."
    )
    false_positives: Probability | None = Field(
        None, exclude_if=is_none, description="False-positive rate of the limit true_positives."
    )
    reconstruction: Probability | None = Field(
        None, exclude_if=is_none, description="Largest chance to reconstruct a client's data."
    )
    baseline: Probability | None = Field(
        None, exclude_if=is_none, description="Chance to guess the same data before the release."
    )

    def faults(self) -> Iterator[Fault]:
        """What is missing, too much, or out of range."""
        given = self._given
        if given not in _KINDS:
            text = "must be advantage, true_positives and false_positives, or reconstruction and "
            yield Fault("risk", text + "baseline", ", ".join(given) or "nothing")
            return
        if len(given) == 2 and not getattr(self, given[0]) > getattr(self, given[1]):
            text = f"must be above {given[1]}, {getattr(self, given[1]):g}"
            yield Fault(f"risk.{given[0]}", text, getattr(self, given[0]))

    @property
    def _given(self) -> tuple[str, ...]:
        """Names of the fields that are not left out."""
        return tuple(name for name in type(self).model_fields if getattr(self, name) is not None)

    @property
    def point(self) -> Point:
        """The point that the trade-off curve may not exceed."""
        if self.advantage is not None:
            return advantage_point(self.advantage)
        low = self.baseline if self.false_positives is None else self.false_positives
        high = self.reconstruction if self.true_positives is None else self.true_positives
        return Point(low or 0.0, high or 0.0)

    def __str__(self) -> str:
        """The limit in words; of a faulty one, what is given."""
        if self._given not in _KINDS:
            return ", ".join(f"{name} {getattr(self, name):g}" for name in self._given) or "nothing"
        if self.advantage is not None:
            return f"advantage {self.advantage:g}"
        if self.true_positives is not None:
            return f"{self.true_positives:g} true positives at {self.false_positives:g} false ones"
        return f"reconstruction {self.reconstruction:g} from baseline {self.baseline:g}"


def with_risks(data: dict[str, Any]) -> dict[str, Any]:
    """Plain data of a spec with the epsilon and delta that imply each group's risk.

    Groups that have an epsilon beside their risk are unchanged; so are faulty risks, which the
    spec reports.

    Raises:
        InputError: when a group has a delta of its own beside a risk.
    """
    groups = data.get("groups")
    if not isinstance(groups, list | tuple):
        return data
    return {**data, "groups": [_with_risk(group) for group in groups]}


def _with_risk(group: Any) -> Any:
    if not isinstance(group, dict) or group.get("risk") is None or "epsilon" in group:
        return group
    if group.get("delta") is not None:
        where = f"groups.{group.get('name')}.delta"
        raise InputError.one(where, "must be left out with a risk, which has one", group["delta"])
    filled = {**group, "epsilon": 1.0}
    try:
        risk = Risk.model_validate(group["risk"])
    except ValidationError:
        return filled
    if any(risk.faults()):
        return filled
    epsilon, delta = budget_of(risk.point)
    return {**group, "epsilon": epsilon, "delta": delta}
