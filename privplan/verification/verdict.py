"""What a verdict on a run says: its groups, its worst-off client, and the checks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field, computed_field

from privplan.accounting.release import (
    Relation,
    SamplingLaw,
    Unit,
    identity,
    named_unit,
)
from privplan.auditing import EmpiricalEpsilon
from privplan.files import write_text
from privplan.public_data import has_known_records
from privplan.record import ACCURACY, VERDICT
from privplan.values import Named, Shown, Value, is_none, omitted
from privplan.verification.checks.check import Check, Level

OF_PERSON = " of one person)"  # in the name of a law that protects persons

Outcome = Literal["kept", "broken", "unverified", "rehearsal"]
"""A rehearsal is a run on own data whose noise everybody can remove who has its seed."""
Strength = Literal["executed", "recorded", "rehearsal", "unverified", "broken"]
"""An outcome, where a kept run is one of which rounds were executed again, or as
recorded."""
_EXIT_CODES = {"kept": 0, "broken": 4, "unverified": 5, "rehearsal": 5}
DEPLOYED = "a deployment cannot be executed again"
"""Why no round of a deployment is: nobody has the key of its noise."""
# Checks that are not required and that a run need not have; see ``fell_away``.
_OPTIONAL = ("replay", "audit")
# A fault in every so many rounds is what ``chance_of_detection`` is the chance for.
_ROUNDS_PER_FAULT = 5


class OneRun(Value):
    """Epsilon of the run alone, where the budget is that of the best of several runs.

    Attributes:
        lower: lower bound by the PLD accountant.
        upper: upper bound by the PLD accountant; None where infinite.
        rdp: upper bound by Renyi divergences; None where infinite.
    """

    lower: float | None
    upper: float | None
    rdp: float | None


class GroupVerdict(Value):
    """Realised epsilon of one group's clients, with budget and planned epsilon.

    Epsilon is None where it is infinite. ``realised_lower`` and ``realised_upper`` are
    computed by ``accountant`` from the ledger only, this project's PLD accountant;
    ``realised_rdp`` is an independent upper bound. Where a plan guarantees the best of
    several runs, nothing is known from below, and the upper bounds are one.

    Attributes:
        budget: epsilon that the group must not exceed at ``delta``.
        planned: upper bound on epsilon that the plan certified.
        realised_lower: lower bound on the epsilon of the group's worst-off client.
        headroom: budget minus realised upper bound.
        kept: whether that is within the budget; the verdict's outcome says whether it
            is shown.
        one_run: epsilon of this run alone; None where the others are of it.
        audit: empirical epsilons from canaries; empty in a run without canaries.
    """

    group: str
    clients: int
    budget: float
    planned: float | None
    realised_lower: float | None
    realised_upper: float | None
    realised_rdp: float | None
    delta: float
    headroom: float | None
    sampling: SamplingLaw
    relation: Relation
    accountant: str
    kept: bool
    accuracy: float | None
    audit: tuple[EmpiricalEpsilon, ...] = ()
    one_run: OneRun | None = Field(None, exclude_if=is_none)


class WorstOff(Value):
    """The client with the largest ratio of realised epsilon to budget.

    Epsilon is None where it is infinite.

    Attributes:
        group: the client's group.
        client: its position in the group, where clients of a group differ; None where
            all have the same history.
    """

    group: str
    client: int | None
    budget: float
    planned: float | None
    realised_lower: float | None
    realised_upper: float | None
    delta: float
    headroom: float | None
    sampling: SamplingLaw
    relation: Relation
    accountant: str


def _is_false(value: object) -> bool:
    """For ``exclude_if``: an item that is False or empty is not written."""
    return not value


class Verdict(Shown, Value):
    """Whether a run kept its plan's budgets, and the checks that decide it.

    Attributes:
        noise: source of the noise; seeded noise protects nobody outside a simulation.
        checks: lines of the verdict; they decide ``outcome`` and ``evidence``.
        metric: what the accuracies of the verdict are; records of other tasks name
            another.
        not_finite: whether the score was measured and is not a finite number.
        own_data: whether the run says that its data are no registered public ones.
        own_model: whether it says that its model is a module of the user.
        own_loss: whether it says that its loss is a function of the user.
        tuned: whether it says that numbers were chosen by training on its people
            before.
        tested_on_others: whether it says that its test records are of people who are no
            clients.
        plan_digest: of the plan that the run executed; compare it with the approved
            one.
        unit: whom the budgets protect.
        person: the word of the plan's spec for them.
        rounds: of the plan.
        executed: how many of them were executed again for this verdict, and agree.
        earlier: how many ``replay.json`` claims were executed before, by whoever wrote
            it; never added to those executed now, and 0 beside them.
        not_executed: why none was executed again now.
        claimed: scores that no replay can compute; empty where all were computed.
    """

    schema_version: Literal[3] = 3
    algorithm: str
    dataset: str
    noise: Literal["seeded", "secure"]
    groups: Named[GroupVerdict]
    worst: WorstOff
    checks: tuple[Check, ...]
    accuracy: float | None
    accuracy_by_class: dict[str, float]
    metric: str = Field(ACCURACY, exclude_if=lambda metric: metric == ACCURACY)
    not_finite: bool = Field(False, exclude_if=_is_false)
    own_data: bool = Field(False, exclude_if=_is_false)
    own_model: bool = Field(False, exclude_if=_is_false)
    own_loss: bool = Field(False, exclude_if=_is_false)
    tuned: bool = Field(False, exclude_if=_is_false)
    tested_on_others: bool = Field(False, exclude_if=_is_false)
    plan_digest: str
    unit: Unit
    person: str | None = omitted("The word for whom the budgets protect.")
    rounds: int
    executed: int = 0
    earlier: int = 0
    not_executed: str = ""
    claimed: str = Field("", exclude_if=_is_false)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def outcome(self) -> Outcome:
        """Broken when a check failed; a rehearsal when the seed removes the noise.

        Else unverified when a required check is not shown, and kept when all are.
        """
        if self.failed:
            return "broken"
        if self.own_data and self.simulation_only:
            return "rehearsal"
        if self.not_shown:
            return "unverified"
        return "kept"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def level(self) -> Strength:
        """How strongly a kept run was checked: by executing rounds, or its record."""
        if self.outcome != "kept":
            return self.outcome
        if self.executed:
            return "executed"
        return "recorded"

    @property
    def is_unseen_simulation(self) -> bool:
        """Whether its seed removes the noise, and no execution showed public data.

        That the data are public is then the run's word alone: not even an execution
        shows it of a data set whose published records are not known here.
        """
        if not (self.kept and self.simulation_only):
            return False
        return self.level == "recorded" or not has_known_records(self.dataset)

    @property
    def why_unseen(self) -> str:
        """Why nothing showed that the data of a simulation are public, for messages."""
        if not has_known_records(self.dataset):
            return f"no digest of {self.dataset or 'its data'} is published"
        return self.not_executed or "no round was executed again"

    @property
    def chance_of_detection(self) -> float:
        """That a fault in one of five rounds would have been seen.

        The rounds executed again are drawn at random, without replacement.
        """
        faulty = math.ceil(self.rounds / _ROUNDS_PER_FAULT)
        missed = 1.0
        for executed in range(self.executed):
            honest_left = max(0.0, self.rounds - faulty - executed)
            missed *= honest_left / (self.rounds - executed)
        return 1 - missed

    @property
    def fell_away(self) -> tuple[Check, ...]:
        """Optional checks that could not be made here, besides replay and canaries."""
        return tuple(
            check
            for check in self.checks
            if check.outcome == "not shown"
            and not check.required
            and check.name not in _OPTIONAL
        )

    def __bool__(self) -> bool:
        """Refuse to be true or false: ``broken`` and ``unverified`` differ."""
        raise TypeError("a verdict is neither true nor false; write verdict.kept")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            raise TypeError(f"a verdict is no text; write verdict.outcome == {other!r}")
        return super().__eq__(other)

    __hash__ = Value.__hash__

    @computed_field  # type: ignore[prop-decorator]
    @property
    def kept(self) -> bool:
        """Whether every required check has passed, and none failed."""
        return self.outcome == "kept"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def evidence(self) -> tuple[Level, ...]:
        """Levels of evidence for which a check has passed, weakest first."""
        reached = {check.level for check in self.checks if check.passed}
        reached.add("declared")
        return tuple(level for level in get_args(Level) if level in reached)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def simulation_only(self) -> bool:
        """Whether the noise can be drawn again from the run's record."""
        return self.noise == "seeded"

    @property
    def identity(self) -> str:
        """Which plan, whom it protects and under which relation, as tables state it."""
        relation = self.worst.relation
        return identity(self.plan_digest, self.unit, relation, self.person)

    def whom(self, law: str = "") -> str:
        """Whom the budgets protect, as a word.

        Args:
            law: under which somebody's epsilon holds; it may count several units.
        """
        contributions = 2 if OF_PERSON in law else 1
        return named_unit(self.unit, self.person, contributions)

    @property
    def laws(self) -> str:
        """The sampling laws of the groups, with the persons that they protect."""
        return "+".join(dict.fromkeys(group.sampling for group in self.groups))

    @property
    def failed(self) -> tuple[Check, ...]:
        """Checks that failed."""
        return tuple(check for check in self.checks if check.failed)

    @property
    def not_shown(self) -> tuple[Check, ...]:
        """Required checks whose evidence is missing."""
        required = [check for check in self.checks if check.required]
        return tuple(check for check in required if check.outcome == "not shown")

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 0 kept, 4 broken, 5 unverified or a rehearsal."""
        return _EXIT_CODES[self.outcome]

    def to_json(self) -> str:
        """The text of ``verdict.json``."""
        data = self.model_dump(mode="json")
        return json.dumps(data, indent=1, allow_nan=False) + "\n"

    def save(self, folder: Path | str) -> None:
        """Write ``verdict.json`` into the run folder."""
        write_text(Path(folder) / VERDICT, self.to_json())
