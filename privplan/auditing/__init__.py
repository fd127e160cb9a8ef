"""Empirical bounds on epsilon from canaries, one module per method, found through a registry."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from privplan.errors import InputError
from privplan.files import read_text, write_text
from privplan.registry import Registry
from privplan.values import Value, parse
from privplan.verification.statistics import FALSE_ALARM

# --- Auditors: methods that bound or estimate epsilon from the scores of canaries. ---------------
#
# A module of this package registers its methods with ``register``; other distributions declare an
# entry point of the group ``privplan.auditors``, whose value is an ``Auditor``.

Kind = Literal["bound", "bound if Gaussian", "estimate"]
Answer = Callable[[np.ndarray, np.ndarray, float, float], float]
"""Epsilon of (scores [m], inclusion of canaries [m], delta, confidence)."""
LAST = 1_000
"""Order of an auditor that declares none: after all auditors of this project."""


@dataclass(frozen=True)
class Auditor:
    """A method that computes an empirical epsilon.

    More confidence must never raise a bound.

    Attributes:
        answer: the method.
        kind: whether the result is a lower bound for any mechanism, a lower bound if the
            mechanism's trade-off curve is that of a Gaussian, or an estimate.
        order: verdicts list auditors by increasing order.
    """

    answer: Answer
    kind: Kind
    order: int = LAST


def _as_auditor(component: object) -> Auditor:
    """The auditor that an entry point names.

    Raises:
        TypeError: when it is not an auditor.
    """
    if not isinstance(component, Auditor):
        raise TypeError(f"must be an Auditor, found {type(component).__name__}")
    return component


AUDITORS: Registry[Auditor] = Registry(
    "auditor", "privplan.auditors", "privplan.auditing", _as_auditor
)


def register(name: str, kind: Kind, order: int) -> Callable[[Answer], Answer]:
    """A decorator that registers a method under a name."""

    def decorate(answer: Answer) -> Answer:
        AUDITORS.register(name, Auditor(answer, kind, order))
        return answer

    return decorate


def auditors() -> dict[str, Auditor]:
    """All auditors by name, in their order."""
    return dict(sorted(AUDITORS.items(), key=lambda item: item[1].order))


# -------------------------------------------------------------------------------------------------
# The canaries of a run (``audit.json``), and the empirical epsilons computed from their scores.

AUDIT = "audit.json"
CONFIDENCE = 0.95
View = Literal["every release", "final model"]
VIEWS: tuple[View, ...] = ("every release", "final model")
Score = Annotated[float, Field(allow_inf_nan=False)]


class GroupTraces(Value):
    """Scores of one group's canaries; a higher score means more likely included.

    Attributes:
        group: name of the group.
        included: ``1`` for each canary that was included, ``0`` for each that was not.
        rounds: scores by an observer of every release [m].
        final: scores by an observer of the final model only [m].
    """

    group: str
    included: str = Field(pattern="^[01]+$")
    rounds: tuple[Score, ...]
    final: tuple[Score, ...]

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
    """The canaries of a run.

    Attributes:
        plan_digest: content hash of the executed plan.
        chain: hash of the ledger's last line.
        orthogonal: whether the canaries' directions are orthogonal, not only random.
        groups: scores of each group's canaries.
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
        """Hash of the text; the run's record stores it too."""
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


class EmpiricalEpsilon(Value):
    """One empirical epsilon of a group, at the group's delta.

    Attributes:
        method: name of the auditor.
        kind: a lower bound, a lower bound if the trade-off curve is that of a Gaussian, or an
            estimate.
        view: what the observer sees.
        canaries: number of the group's canaries, included and excluded.
        confidence: probability that a bound holds; has no meaning for an estimate.
        epsilon: the bound or estimate.
    """

    method: str
    kind: Kind
    view: View
    canaries: int
    confidence: float
    epsilon: float


def scores_of(traces: GroupTraces, view: View) -> np.ndarray:
    """The scores by an observer [m]."""
    return np.array(traces.rounds if view == "every release" else traces.final)


def empirical_epsilons(
    traces: GroupTraces, delta: float, confidence: float = CONFIDENCE
) -> tuple[EmpiricalEpsilon, ...]:
    """Epsilon at delta by every auditor and view.

    Args:
        traces: the group's canaries.
        delta: failure probability.
        confidence: probability that a bound holds.
    """
    return tuple(
        EmpiricalEpsilon(
            method=name,
            kind=auditor.kind,
            view=view,
            canaries=len(traces.included),
            confidence=confidence,
            epsilon=auditor.answer(scores_of(traces, view), traces.truth, delta, confidence),
        )
        for view in VIEWS
        for name, auditor in auditors().items()
    )


def exceeded(
    evidence: AuditEvidence,
    uppers: Mapping[str, tuple[float, float]],
    false_alarm: float = FALSE_ALARM,
    computed: Mapping[str, Sequence[EmpiricalEpsilon]] = MappingProxyType({}),
) -> Iterator[str]:
    """Groups whose empirical lower bound exceeds the realised upper bound.

    The false-alarm rate is shared by all groups, views and auditors that compute bounds. Bounds
    that assume a Gaussian trade-off curve are included, because the composition of many rounds of
    Gaussian noise has one.

    Args:
        evidence: the canaries of the run.
        uppers: upper bound on epsilon and its delta, by name of the group.
        false_alarm: largest probability that an honest run has any such group.
        computed: empirical epsilons at the same deltas, by name of the group. A bound of less
            confidence that does not exceed makes its auditor's answer superfluous, since more
            confidence never raises a bound.

    Yields:
        One line per group, view and auditor.
    """
    bounds = [(name, one) for name, one in auditors().items() if one.kind != "estimate"]
    confidence = 1 - false_alarm / (len(evidence.groups) * len(VIEWS) * len(bounds))
    for traces in evidence.groups:
        upper, delta = uppers[traces.group]
        within = {
            (one.view, one.method)
            for one in computed.get(traces.group, ())
            if one.confidence <= confidence and one.epsilon <= upper
        }
        for view in VIEWS:
            scores = scores_of(traces, view)
            for name, auditor in bounds:
                if (view, name) in within:
                    continue
                lower = auditor.answer(scores, traces.truth, delta, confidence)
                if lower > upper:
                    yield (
                        f"{traces.group}: canaries lost epsilon {lower:.4g} at least ({name}, "
                        f"{view}), where {upper:.4g} is the most that was released"
                    )
