"""The canaries of a run (``audit.json``) and the empirical epsilons of their scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from privplan.accounting.accountant import at_most, outwards
from privplan.auditing.auditors import Kind, auditors
from privplan.errors import InputError
from privplan.files import read_json, write_text
from privplan.values import Value, parse

AUDIT = "audit.json"
CONFIDENCE = 0.95
View = Literal["every release", "final model"]
VIEWS: tuple[View, ...] = ("every release", "final model")
Score = Annotated[float, Field(allow_inf_nan=False)]


class GroupTraces(Value):
    """Scores of one group's canaries; a higher score means more likely included."""

    group: str  # name of the group
    # ``1`` for each canary that was included, ``0`` for each that was not
    included: str = Field(pattern="^[01]+$")
    rounds: tuple[Score, ...]  # scores by an observer of every release [m]
    final: tuple[Score, ...]  # scores by an observer of the final model only [m]

    @model_validator(mode="after")
    def _equal_lengths(self) -> GroupTraces:
        if not len(self.included) == len(self.rounds) == len(self.final):
            rule = "must have a coin and two scores for each canary"
            raise InputError.one(f"audit.{self.group}", rule, len(self.included))
        return self

    @property
    def truth(self) -> np.ndarray:
        """Whether each canary was included [m]."""
        return np.array([letter == "1" for letter in self.included])


class AuditEvidence(Value):
    """The canaries of a run."""

    schema_version: Literal[1] = 1
    plan_digest: str  # content hash of the executed plan
    chain: str  # hash of the ledger's last line
    orthogonal: bool  # whether the canaries' directions are orthogonal, not only random
    groups: tuple[GroupTraces, ...]  # scores of each group's canaries

    def to_json(self) -> str:
        """The text of ``audit.json``."""
        return json.dumps(self.model_dump(mode="json"), allow_nan=False) + "\n"

    @property
    def digest(self) -> str:
        """Hash of the text; the run's record stores it too."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def save(self, folder: Path) -> None:
        """Write ``audit.json`` into the run folder."""
        write_text(folder / AUDIT, self.to_json())

    @classmethod
    def load(cls, folder: Path) -> AuditEvidence:
        """Read ``audit.json`` from the run folder."""
        return parse(cls, read_json(folder / AUDIT, "audit"))


class EmpiricalEpsilon(Value):
    """One empirical epsilon of a group, at the group's delta."""

    method: str  # name of the auditor
    kind: Kind  # as in ``Auditor``
    view: View  # what the observer sees
    canaries: int  # number of the group's canaries, included and excluded
    confidence: float  # probability that the bound holds
    epsilon: float  # the bound


def scores_of(traces: GroupTraces, view: View) -> np.ndarray:
    """The scores by an observer [m]."""
    return np.array(traces.rounds if view == "every release" else traces.final)


def empirical_epsilons(
    traces: GroupTraces, delta: float, confidence: float = CONFIDENCE
) -> tuple[EmpiricalEpsilon, ...]:
    """Epsilon of a group at delta by every auditor and view."""
    bounds: list[EmpiricalEpsilon] = []
    for view in VIEWS:
        scores = scores_of(traces, view)
        for name, auditor in auditors().items():
            bound = EmpiricalEpsilon(
                method=name,
                kind=auditor.kind,
                view=view,
                canaries=len(traces.included),
                confidence=confidence,
                epsilon=auditor.answer(scores, traces.truth, delta, confidence),
            )
            bounds.append(bound)
    return tuple(bounds)


def exceeded(
    evidence: AuditEvidence,
    uppers: Mapping[str, tuple[float, float]],
    false_alarm: float,
    computed: Mapping[str, Sequence[EmpiricalEpsilon]] = MappingProxyType({}),
) -> Iterator[str]:
    """A line per group, view and auditor whose bound exceeds the realised upper bound.

    Bounds that assume a Gaussian trade-off curve are included, because the composition
    of many rounds of Gaussian noise has one.

    Args:
        evidence: the canaries of a run.
        uppers: realised upper bound on epsilon and its delta, by group.
        false_alarm: probability of any line of an honest run.
        computed: bounds that were computed before, by group. One of less confidence
            that does not exceed makes its auditor's answer superfluous.
    """
    confidence = 1 - false_alarm / (len(evidence.groups) * len(VIEWS) * len(auditors()))
    for traces in evidence.groups:
        upper, delta = uppers[traces.group]
        within = {
            (bound.view, bound.method)
            for bound in computed.get(traces.group, ())
            if bound.confidence <= confidence and bound.epsilon <= upper
        }
        for view in VIEWS:
            scores = scores_of(traces, view)
            for name, auditor in auditors().items():
                if (view, name) in within:
                    continue
                lower = auditor.answer(scores, traces.truth, delta, confidence)
                if lower > upper:
                    yield (
                        f"{traces.group}: canaries lost epsilon "
                        f"{outwards(lower, False):.12g} at least ({name}, {view}), "
                        f"where {at_most(upper)} is the most released"
                    )
