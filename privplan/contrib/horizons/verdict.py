"""The verdict on the runs of a horizon: what all of them spent, as one composition."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import computed_field

from privplan.accounting.accountant import accountant
from privplan.accounting.release import History, Relation
from privplan.contrib.horizons.plans import HorizonPlan
from privplan.ledger import history_of
from privplan.values import Value
from privplan.verification.checks.check import Run
from privplan.verification.verify import GUARANTEE, judge


class HorizonRun(Value):
    """One run of a horizon.

    Attributes:
        model: name of its model's spec; empty when its plan is none of the horizon's.
        outcome: outcome of its own verdict.
    """

    run: str
    model: str
    outcome: Literal["kept", "broken", "unverified"]


class HorizonGroup(Value):
    """What a group's clients spent in all runs; None where infinite.

    Attributes:
        budget: epsilon over the horizon.
        planned: upper bound on epsilon that the horizon certified for all its runs.
    """

    group: str
    budget: float
    planned: float | None
    realised_upper: float | None
    delta: float
    kept: bool


class HorizonVerdict(Value):
    """Whether runs kept the budgets of their horizon.

    Attributes:
        runs: the runs that were judged.
        missing: names of the horizon's runs that were not among them; they have spent nothing.
        faults: what breaks the horizon, one line each.
    """

    schema_version: Literal[1] = 1
    runs: tuple[HorizonRun, ...]
    missing: tuple[str, ...]
    groups: tuple[HorizonGroup, ...]
    faults: tuple[str, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def outcome(self) -> Literal["kept", "broken", "unverified"]:
        """Broken with a fault, unverified when a run is, else kept."""
        if self.faults:
            return "broken"
        unverified = any(run.outcome == "unverified" for run in self.runs)
        return "unverified" if unverified else "kept"

    @property
    def exit_code(self) -> int:
        """Exit code of the command line: 0 kept, 4 broken, 5 unverified."""
        return {"kept": 0, "broken": 4, "unverified": 5}[self.outcome]


def judge_horizon(planned: HorizonPlan, runs: Sequence[Run]) -> HorizonVerdict:
    """The verdict on runs of a horizon.

    Every run counts as often as it is given, also one whose plan was executed twice.
    """
    names = {plan.digest: plan.spec.name for plan in planned.plans}
    judged = tuple(
        HorizonRun(
            run=str(run.folder), model=names.get(run.plan.digest, ""), outcome=judge(run).outcome
        )
        for run in runs
    )
    groups = tuple(_groups(planned, runs))
    executed = {run.model for run in judged}
    return HorizonVerdict(
        runs=judged,
        missing=tuple(name for name in names.values() if name not in executed),
        groups=groups,
        faults=tuple(_faults(judged, groups, runs)),
    )


def _groups(planned: HorizonPlan, runs: Sequence[Run]) -> Iterator[HorizonGroup]:
    """The composition of all releases of a group in all runs, against its budget."""
    relation = Relation(planned.spec.relation)
    for group in planned.spec.groups:
        parts = [part for run in runs for part in history_of(run.ledger.records, group.name)]
        delta = planned.spec.delta_of(group)
        spent = accountant(GUARANTEE).epsilon(History(parts), delta, relation).upper
        certified = [
            row.epsilon_upper
            for row in planned.certificate
            if row.guarantee and row.group == group.name
        ]
        yield HorizonGroup(
            group=group.name,
            budget=group.epsilon,
            planned=certified[0] if certified else None,
            realised_upper=spent if math.isfinite(spent) else None,
            delta=delta,
            kept=spent <= group.epsilon,
        )


def _faults(
    judged: Sequence[HorizonRun], groups: Sequence[HorizonGroup], runs: Sequence[Run]
) -> Iterator[str]:
    for one in judged:
        if not one.model:
            yield f"{one.run}: its plan is not of this horizon"
        if one.outcome == "broken":
            yield f"{one.run}: its verdict is broken"
    seen: dict[str, str] = {}
    for run in runs:
        states = {record.noise_state for record in run.ledger.records} - {""}
        # equal noise cancels in the difference of two releases; see privplan.book.store
        others = {seen[state] for state in states if state in seen}
        if others:
            yield f"{run.folder}: has the noise of {', '.join(sorted(others))} (the same seed?)"
        seen.update(dict.fromkeys(states, str(run.folder)))
    for group in groups:
        if not group.kept:
            upper = "infinite" if group.realised_upper is None else f"{group.realised_upper:.4g}"
            yield (
                f"{group.group}: epsilon {upper} at delta {group.delta:.3g} over all runs exceeds "
                f"the budget {group.budget:g}"
            )
