"""Empirical bounds on epsilon from canaries: their evidence, a registry of methods, and methods.

Other distributions declare an entry point of the group ``privplan.auditors``, whose value is an
``Auditor``.
"""

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
from scipy.special import bdtrc, betaincinv, ndtr, ndtri

from privplan.accounting.accountant import at_most, outwards
from privplan.errors import InputError
from privplan.files import read_json, write_text
from privplan.laws.participation import binomial_log_mass
from privplan.registry import Registry, instance_of
from privplan.values import Value, parse

Kind = Literal["bound", "bound if Gaussian"]
Answer = Callable[[np.ndarray, np.ndarray, float, float], float]
"""Epsilon of (scores [m], inclusion of canaries [m], delta, confidence)."""
LAST = (
    1_000  # order of an auditor that declares none: after all auditors of this project
)


@dataclass(frozen=True)
class Auditor:
    """A lower bound on epsilon by the scores of canaries; more confidence never raises it."""

    answer: Answer  # the method
    # whether the result is a lower bound for any mechanism, or if the mechanism's trade-off curve
    # is that of a Gaussian
    kind: Kind
    order: int = LAST  # verdicts list auditors by increasing order


AUDITORS: Registry[Auditor] = Registry(
    "auditor", "privplan.auditors", check=instance_of(Auditor)
)


def auditors() -> dict[str, Auditor]:
    """All auditors by name, in their order."""
    return dict(sorted(AUDITORS.items(), key=lambda item: item[1].order))


# --- The canaries of a run (``audit.json``), and the empirical epsilons of their scores. ---------

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
    return tuple(
        EmpiricalEpsilon(
            method=name,
            kind=auditor.kind,
            view=view,
            canaries=len(traces.included),
            confidence=confidence,
            epsilon=auditor.answer(
                scores_of(traces, view), traces.truth, delta, confidence
            ),
        )
        for view in VIEWS
        for name, auditor in auditors().items()
    )


def exceeded(
    evidence: AuditEvidence,
    uppers: Mapping[str, tuple[float, float]],
    false_alarm: float,
    computed: Mapping[str, Sequence[EmpiricalEpsilon]] = MappingProxyType({}),
) -> Iterator[str]:
    """One line per group, view and auditor whose bound exceeds the realised upper bound.

    ``uppers`` are bounds and deltas by group. The false-alarm rate is that of all lines together.
    A ``computed`` bound of less confidence that does not exceed makes its auditor's answer
    superfluous. Bounds that assume a Gaussian trade-off curve are included, because the
    composition of many rounds of Gaussian noise has one.
    """
    confidence = 1 - false_alarm / (len(evidence.groups) * len(VIEWS) * len(auditors()))
    for traces in evidence.groups:
        upper, delta = uppers[traces.group]
        within = {
            (one.view, one.method)
            for one in computed.get(traces.group, ())
            if one.confidence <= confidence and one.epsilon <= upper
        }
        for view in VIEWS:
            scores = scores_of(traces, view)
            for name, auditor in auditors().items():
                if (view, name) in within:
                    continue
                lower = auditor.answer(scores, traces.truth, delta, confidence)
                if lower > upper:
                    yield (
                        f"{traces.group}: canaries lost epsilon {outwards(lower, False):.12g} at "
                        f"least ({name}, {view}), where {at_most(upper)} is the most released"
                    )


# --- The one-run audit: guesses about many canaries of one run. ----------------------------------
# The canaries with the highest and lowest scores are guessed to be included or not; the others are
# not guessed. T. Steinke, M. Nasr, M. Jagielski, Privacy Auditing with One (1) Training Run,
# NeurIPS 2023.

FEWEST = 16  # smallest number of guesses, where there are as many canaries
LARGEST_BY_GUESSES = 60.0  # upper end of the search for a bound on epsilon


@dataclass(frozen=True)
class Guesses:
    """The number of guessed canaries and of correct guesses."""

    guesses: int
    correct: int


def count_guesses(scores: np.ndarray, included: np.ndarray) -> list[Guesses]:
    """Guesses at both ends of the scores and at the upper end only, for decreasing numbers.

    Each number of guesses is a quarter of the one before, and depends only on the number of
    canaries, so that the choice is independent of the scores.
    """
    ranked = included[np.argsort(-scores, kind="stable")].astype(bool)
    counts, size = [], len(ranked) - len(ranked) % 2
    while size >= min(FEWEST, len(ranked) - len(ranked) % 2) > 0:
        top, bottom = ranked[: size // 2], ranked[len(ranked) - size // 2 :]
        counts.append(Guesses(size, int(top.sum() + (~bottom).sum())))
        counts.append(Guesses(size // 2, int(top.sum())))
        size = size // 8 * 2
    return counts


def guesses_p_value(
    canaries: int, guesses: int, correct: int, epsilon: float, delta: float
) -> float:
    """Upper bound on the probability of ``correct`` guesses under (epsilon, delta)-DP.

    Main theorem of the paper: each guess is correct with the probability of randomised response at
    epsilon, and delta adds at most 2 m delta times the largest mean over i of the probabilities of
    falling short of the number of correct guesses by 1 to i.
    """
    rate = 1 / (1 + np.exp(-epsilon))
    if not correct:
        return 1.0
    reached = float(bdtrc(correct - 1, guesses, rate))
    mass = np.exp(binomial_log_mass(np.arange(correct - 1, -1, -1), guesses, rate))
    worst = float((np.cumsum(mass) / np.arange(1, correct + 1)).max())
    return min(1.0, reached + 2 * canaries * delta * worst)


def one_run(
    scores: np.ndarray, included: np.ndarray, delta: float, confidence: float
) -> float:
    """Lower bound for any mechanism; numbers of guesses share the error rate (union bound)."""
    counts, largest = count_guesses(scores, included), 0.0
    level = (1 - confidence) / max(1, len(counts))
    for one in counts:

        def rejected(epsilon: float, one: Guesses = one) -> bool:
            return (
                guesses_p_value(len(scores), one.guesses, one.correct, epsilon, delta)
                < level
            )

        low, high = 0.0, LARGEST_BY_GUESSES if rejected(0.0) else 0.0
        while high - low > 1e-4:
            middle = (low + high) / 2
            low, high = (middle, high) if rejected(middle) else (low, middle)
        largest = max(largest, low)
    return largest


# --- The one-run audit of a family of trade-off curves. ------------------------------------------
# S. Mahloujifar, L. Melis, K. Chaudhuri, Auditing f-Differential Privacy in One Run, ICML 2025
# (arXiv 2410.22235). Let P_i be the probability of at least i correct guesses of c' on m canaries.
# For a mechanism with trade-off curve f, and F = 1 - f,
#
#     sum_{j > i} (j / m) (P_j - P_{j+1}) <= F( sum_{j >= i} ((c' - j) / m) (P_j - P_{j+1}) ),
#
# because flipping one canary makes its correct guess wrong and does not change the others. After
# summation by parts, P_i is at least an increasing function of P_{i+1}, P_{i+2}, ...: so P_c = tau
# implies a lower bound on P_0, and if that exceeds 1, the probability of c correct guesses under f
# is below tau.

Inverse = Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]]
"""Parameters of the family to a function of y: the x with 1 - f(x) = y, elementwise."""
LARGEST_EPSILON, LARGEST_MU = 40.0, 20.0
GRID = 40


def curves_rejected(
    canaries: int,
    counts: list[Guesses],
    level: float,
    parameters: np.ndarray,
    inverse: Inverse,
) -> np.ndarray:
    """Whether each trade-off curve makes each number of correct guesses less likely than level."""
    correct = np.array([one.correct for one in counts])
    # Rows in decreasing order of correct guesses, so that those still in the recursion come first.
    order = np.argsort(-correct, kind="stable")
    indices = np.arange(correct.max())
    # rows with index < correct, by index
    active_rows = np.searchsorted(-correct[order], -indices).tolist()
    guesses = np.array([one.guesses for one in counts])[order]
    remaining = np.maximum(guesses[:, None] - indices[:, None, None], 1).astype(float)
    # All divided by m: P_{i + 1} and the sum of P_j over j > i.
    chance = np.full((len(counts), len(parameters)), level / canaries)
    beyond = chance.copy()
    most = 2.0 / canaries  # rejected already
    curve = inverse(parameters[None, :])
    for index in range(len(active_rows) - 1, -1, -1):
        active = active_rows[index]
        current, sums = chance[:active], beyond[:active]
        right = index * current
        right += sums
        least = curve(np.minimum(right, 1.0, out=right))
        least += sums
        least /= remaining[index, :active]
        np.maximum(current, least, out=current)
        np.minimum(current, most, out=current)
        sums += current
    rejections = np.empty(chance.shape, dtype=bool)
    rejections[order] = chance * canaries > 1
    return rejections


def family(delta: float) -> Inverse:
    """The trade-off curves of (epsilon, delta)-DP, by epsilon."""

    def inverse(epsilon: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        falling, rising = np.exp(-epsilon), np.exp(epsilon)

        def curve(y: np.ndarray) -> np.ndarray:
            steep, flat = (y - delta) * falling, 1 - y
            flat *= -rising
            flat += 1 - delta
            np.maximum(steep, flat, out=steep)
            trade_off: np.ndarray = np.maximum(steep, 0.0, out=steep)
            return trade_off

        return curve

    return inverse


def gaussian_family(mu: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The trade-off curves of mu-GDP, by mu."""
    return lambda y: np.asarray(ndtr(ndtri(y) - mu))


def f_dp(
    scores: np.ndarray, included: np.ndarray, delta: float, confidence: float
) -> float:
    """Lower bound on epsilon at delta for any mechanism."""
    return _largest_rejected(
        scores, included, confidence, LARGEST_EPSILON, family(delta)
    )


def f_dp_gaussian(
    scores: np.ndarray, included: np.ndarray, delta: float, confidence: float
) -> float:
    """Lower bound on epsilon at delta if the trade-off curve is that of a Gaussian mechanism."""
    mu = _largest_rejected(scores, included, confidence, LARGEST_MU, gaussian_family)
    return _epsilon_of_mu(mu, delta)


def _largest_rejected(
    scores: np.ndarray,
    included: np.ndarray,
    confidence: float,
    top: float,
    inverse: Inverse,
) -> float:
    """The largest parameter rejected by any number of guesses, rounded down, on refined grids."""
    counts = count_guesses(scores, included)
    if not counts:
        return 0.0
    level, low = (1 - confidence) / len(counts), 0.0
    step = top / GRID
    for _ in range(3):
        parameters = low + step * np.arange(GRID)
        rejections = curves_rejected(len(scores), counts, level, parameters, inverse)
        hits: np.ndarray = np.logical_or.reduce(rejections, axis=0)
        if not hits[0]:
            return low
        low, step = float(parameters[np.flatnonzero(hits)[-1]]), step / GRID
    return low


def _epsilon_of_mu(mu: float, delta: float) -> float:
    from privplan.accounting.gdp import epsilon_of  # only runs with canaries need it

    return epsilon_of(mu, delta) if mu > 0 else 0.0


# --- The audit by error rates. -------------------------------------------------------------------
# Upper bounds on the false-positive and false-negative rates are converted to mu of Gaussian DP:
# M. Nasr, J. Hayes, T. Steinke, B. Balle, F. Tramer, M. Jagielski, N. Carlini, A. Terzis, Tight
# Auditing of Differentially Private Machine Learning, USENIX Security 2023.

PILOT = 5  # every fifth canary is only used to choose thresholds, which the others then test
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.85, 0.95)


def upper_rate(hits: int, trials: int, level: float) -> float:
    """Upper bound on a rate, at confidence 1 - ``level`` (Clopper and Pearson, 1934)."""
    return (
        1.0 if hits >= trials else float(betaincinv(hits + 1, trials - hits, 1 - level))
    )


def mu_lower_bound(
    scores: np.ndarray, included: np.ndarray, confidence: float
) -> float:
    """Lower bound on mu of a Gaussian trade-off curve, for independent scores of canaries."""
    pilot = np.arange(len(scores)) % PILOT == 0
    tested, truth = scores[~pilot], included[~pilot].astype(bool)
    if len(tested) == 0 or truth.all() or not truth.any():
        return 0.0
    level = (1 - confidence) / (2 * len(QUANTILES))
    best = 0.0
    for threshold in np.quantile(scores[pilot], QUANTILES):
        positive = tested > threshold
        false_positive = upper_rate(
            int(positive[~truth].sum()), int((~truth).sum()), level
        )
        false_negative = upper_rate(
            int((~positive[truth]).sum()), int(truth.sum()), level
        )
        if false_positive < 1 and false_negative < 1:
            best = max(best, float(-ndtri(false_positive) - ndtri(false_negative)))
    return best


def gaussian(
    scores: np.ndarray, included: np.ndarray, delta: float, confidence: float
) -> float:
    """Lower bound on epsilon at delta if the trade-off curve is that of a Gaussian mechanism."""
    return _epsilon_of_mu(mu_lower_bound(scores, included, confidence), delta)


AUDITORS.register("one run", Auditor(one_run, "bound", order=10))
AUDITORS.register("f-DP", Auditor(f_dp, "bound", order=20))
AUDITORS.register(
    "f-DP, Gaussian", Auditor(f_dp_gaussian, "bound if Gaussian", order=30)
)
AUDITORS.register("Gaussian", Auditor(gaussian, "bound if Gaussian", order=40))
