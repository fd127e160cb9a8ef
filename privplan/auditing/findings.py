"""What a run kept of its canaries (``audit.json``).

What canaries say of a run, beside what the ledger says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from privplan.auditing.registry import AUDITORS, Kind
from privplan.errors import InputError
from privplan.io.files import read_text, write_text
from privplan.values import Value, parse
from privplan.verification.statistics import FALSE_ALARM

AUDIT = "audit.json"
Score = Annotated[float, Field(allow_inf_nan=False)]


class GroupTraces(Value):
    """What was seen of one group's canaries; a higher score means more likely in.

    Attributes:
        group: name of the group.
        included: ``1`` for each canary that was in, ``0`` for each that was out.
        rounds: scores of an observer of every release [m].
        final: scores of an observer of the final model alone [m].
    """

    group: str
    included: str = Field(pattern="^[01]+$")
    rounds: tuple[Score, ...]
    final: tuple[Score, ...]

    @model_validator(mode="after")
    def _as_many(self) -> GroupTraces:
        if not len(self.included) == len(self.rounds) == len(self.final):
            rule = "must have a coin and two scores for each canary"
            raise InputError.one(f"audit.{self.group}", rule, len(self.included))
        return self

    @property
    def truth(self) -> np.ndarray:
        """Which canaries were in [m]."""
        return np.array([letter == "1" for letter in self.included])


class AuditEvidence(Value):
    """The canaries of a run.

    Attributes:
        plan_digest: content hash of the executed plan.
        chain: hash of the ledger's last line.
        orthogonal: whether the canaries' directions are orthogonal, or only random.
        groups: what was seen of each group's canaries.
    """

    schema_version: Literal[1] = 1
    plan_digest: str
    chain: str
    orthogonal: bool
    groups: tuple[GroupTraces, ...]

    def to_json(self) -> str:
        """The text of ``audit.json``."""
        return json.dumps(self.model_dump(mode="json"), allow_nan=False) + "\n"

    @property
    def digest(self) -> str:
        """Hash of the text; the run's record repeats it."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def save(self, folder: Path) -> None:
        """Write ``audit.json`` into the run folder."""
        write_text(folder / AUDIT, self.to_json())

    @classmethod
    def load(cls, folder: Path) -> AuditEvidence:
        """Read ``audit.json`` from the run folder.

        Raises:
            InputError: when it is missing or damaged.
        """
        text = read_text(folder / AUDIT, "audit")
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise InputError.one("audit", "must be JSON", str(folder / AUDIT)) from None
        return parse(cls, data)


CONFIDENCE = 0.95
View = Literal["every release", "final model"]
VIEWS: tuple[View, ...] = ("every release", "final model")


class Finding(Value):
    """One empirical epsilon of a group, at the group's delta.

    Attributes:
        method: name in the table of auditors.
        kind: whether it is a lower bound, one if the trade-off curve is a Gaussian's, or an
            estimate.
        view: what the observer saw.
        canaries: how many canaries the group had, in and out.
        confidence: chance that a bound holds; it says nothing of an estimate.
        epsilon: the bound or estimate.
    """

    method: str
    kind: Kind
    view: View
    canaries: int
    confidence: float
    epsilon: float


def scores_of(traces: GroupTraces, view: View) -> np.ndarray:
    """The scores that an observer has [m]."""
    return np.array(traces.rounds if view == "every release" else traces.final)


def findings(
    traces: GroupTraces, delta: float, confidence: float = CONFIDENCE
) -> tuple[Finding, ...]:
    """Every method on both views of a group's canaries."""
    return tuple(
        Finding(
            method=name,
            kind=auditor.kind,
            view=view,
            canaries=len(traces.included),
            confidence=confidence,
            epsilon=auditor.answer(scores_of(traces, view), traces.truth, delta, confidence),
        )
        for view in VIEWS
        for name, auditor in AUDITORS.items()
    )


def exceeded(
    evidence: AuditEvidence,
    uppers: Mapping[str, tuple[float, float]],
    false_alarm: float = FALSE_ALARM,
) -> Iterator[str]:
    """The groups whose canaries lost more than an upper bound, at a rate of false alarms.

    The rate is shared among all groups, views and methods that give bounds. Methods that take
    the trade-off curve for a Gaussian's are among them: many rounds of Gaussian noise have one.

    Args:
        evidence: the canaries of the run.
        uppers: upper bound on epsilon and its delta, by name of the group.
        false_alarm: chance that an honest run has any such group, at most.

    Yields:
        What was found, a line each.
    """
    bounds = [name for name, auditor in AUDITORS.items() if auditor.kind != "estimate"]
    confidence = 1 - false_alarm / (len(evidence.groups) * len(VIEWS) * len(bounds))
    for traces in evidence.groups:
        upper, delta = uppers[traces.group]
        for view in VIEWS:
            scores = scores_of(traces, view)
            for name in bounds:
                found = AUDITORS[name].answer(scores, traces.truth, delta, confidence)
                if found > upper:
                    yield (
                        f"{traces.group}: canaries lost epsilon {found:.4g} at least ({name}, "
                        f"{view}), where {upper:.4g} is the most that was released"
                    )
