"""What a check is: a function of a run that returns one line of a verdict.

A check has passed, failed, or is not shown because evidence that it needs is missing.
It never passes on absent evidence: use ``first``, whose argument ``missing`` names what
is absent.

A module of this package registers its checks with ``register``; other distributions
declare an entry point of the group ``privplan.checks``, whose value is a function of a
``Run`` that returns a ``Check``, or a ``RunCheck`` when its place in the verdict
matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from privplan.evidence.rounds import EVIDENCE
from privplan.plan import GroupPlan
from privplan.record import ReleaseRecord
from privplan.registry import Registry
from privplan.values import Value
from privplan.verification.run import Run, Shares

# Largest false-alarm rate of a check of the ledger, per honest run.
FALSE_ALARM = 1e-6
# The same of measured noise or of cohorts: power needs more there. Thousands of honest
# verdicts in a row raise none, most likely: four such checks make 4 in 100,000.
EVIDENCE_FALSE_ALARM = 1e-5

Outcome = Literal["passed", "failed", "not shown"]
Level = Literal["declared", "replayed", "attested"]
"""Levels of evidence: a ledger; a simulation executed again; releases signed before
use."""


class Check(Value):
    """One line of a verdict.

    Attributes:
        name: name of the check.
        outcome: ``not shown`` when evidence is missing and what there is shows no
            fault.
        reason: what was found, or what is missing.
        missing: the missing evidence, one text per kind; empty unless not shown.
        required: whether a verdict is ``unverified`` while the check is not shown.
        level: level of evidence of the run when the check has passed.
    """

    name: str
    outcome: Outcome
    reason: str
    missing: tuple[str, ...] = ()
    required: bool = True
    level: Level = "declared"

    @property
    def passed(self) -> bool:
        """Whether the evidence is there and shows no fault."""
        return self.outcome == "passed"

    @property
    def failed(self) -> bool:
        """Whether the evidence shows a fault."""
        return self.outcome == "failed"


def passed(name: str, reason: str, level: Level = "declared") -> Check:
    """A check that has passed."""
    return Check(name=name, outcome="passed", reason=reason, level=level)


def failed(name: str, reason: str) -> Check:
    """A check that has failed."""
    return Check(name=name, outcome="failed", reason=reason)


def not_shown(name: str, missing: Iterable[str], *, required: bool = True) -> Check:
    """A check whose evidence is missing.

    Args:
        name: name of the check.
        missing: the missing evidence, one text per kind.
        required: whether a run can be expected to have this evidence.
    """
    kinds = tuple(missing)
    reason = f"missing: {', '.join(kinds)}"
    return Check(
        name=name, outcome="not shown", reason=reason, missing=kinds, required=required
    )


def first(
    problems: Iterable[str],
    name: str,
    reason: str,
    missing: Iterable[str] = (),
    *,
    required: bool = True,
) -> Check:
    """A check that fails with the first problem, is not shown, or passes.

    Args:
        problems: faults that the evidence shows.
        name: name of the check.
        reason: what was found when it passes.
        missing: evidence that the check needs and the run does not have.
        required: whether a run can be expected to have this evidence.
    """
    problem = next(iter(problems), None)
    if problem is not None:
        return failed(name, problem)
    absent = tuple(missing)
    if absent:
        return not_shown(name, absent, required=required)
    return passed(name, reason)


Inspect = Callable[[Run], Check]
NOTHING_LEFT = "nothing left the clients: epsilon is 0"
# Of a check that declares no order: before audit and budget only.
LAST = 1_000


def _always(run: Run) -> bool:
    """Applies to every run."""
    return True


@dataclass(frozen=True)
class RunCheck:
    """A check and its place in a verdict.

    Attributes:
        inspect: the check.
        order: verdicts list checks by increasing order.
        applies: whether a verdict on a run lists the check.
        false_alarm: largest rate at which it fails on an honest run; 0 without a random
            test.
        files: names in a run folder that no other part writes.
        of_signers: whether it verifies what the plan's signers signed.
    """

    inspect: Inspect
    order: int = LAST
    applies: Callable[[Run], bool] = _always
    false_alarm: float = 0.0
    files: frozenset[str] = frozenset()
    of_signers: bool = False


def _as_check(component: object) -> RunCheck:
    """The check that an entry point names.

    Raises:
        TypeError: when it is neither a check nor a function.
    """
    if isinstance(component, RunCheck):
        return component
    if not callable(component):
        kind = type(component).__name__
        raise TypeError(f"must be a function of a run, found {kind}")
    return RunCheck(component)


CHECKS: Registry[RunCheck] = Registry(
    "check", "privplan.checks", "privplan.verification.checks", _as_check
)


def register(
    name: str, order: int, false_alarm: float = 0.0
) -> Callable[[Inspect], Inspect]:
    """A decorator that registers a check under its name in verdicts.

    Args:
        name: name of the check.
        order: verdicts list checks by increasing order.
        false_alarm: largest rate at which it fails on an honest run.
    """

    def decorate(inspect: Inspect) -> Inspect:
        """Register the function, and leave it as it is."""
        CHECKS.register(name, RunCheck(inspect, order, false_alarm=false_alarm))
        return inspect

    return decorate


def run_checks(run: Run) -> list[Check]:
    """The lines of all registered checks, in their order.

    On an empty ledger only the check of the plan can pass: the others have nothing to
    show.
    """
    checks = [check for _, check in CHECKS.items()]
    # Signatures that no installed check reads must not look verified.
    if run.plan.spec.signers and not any(check.of_signers for check in checks):
        missing = ["a check of signatures (group privplan.checks)"]
        checks.append(RunCheck(lambda run: not_shown("signers", missing)))
    checks.sort(key=lambda check: check.order)
    lines = [run.once(check.inspect) for check in checks if check.applies(run)]
    if run.ledger.records:
        return lines

    shown = []
    for line in lines:
        if line.passed and line.name != "plan":
            line = not_shown(line.name, ["releases"], required=False)
        shown.append(line)
    return shown


def lacking(what: str, lacks: Iterable[bool]) -> Iterator[str]:
    """The missing evidence of one kind, counted.

    Args:
        what: the kind of evidence.
        lacks: of each item that needs it, whether it lacks it.

    Yields:
        Nothing when none does.
    """
    flags = list(lacks)
    if any(flags):
        yield f"{what} ({sum(flags)} of {len(flags)})"


def unreleased(run: Run) -> Iterator[str]:
    """Missing evidence: groups of the plan without any release in the ledger."""
    names = [group.name for group in run.plan.groups if not run.shares(group.name)]
    if names:
        yield f"releases of {', '.join(names)}"


def evidence_fault(run: Run) -> Iterator[str]:
    """What is wrong with the evidence for a replay, where the run folder has it."""
    _, fault = run.evidence
    if fault is not None:
        yield fault


def without_evidence(run: Run, what: str) -> Iterator[str]:
    """Missing evidence: an item of its header that a simulation in a folder lacks."""
    is_simulation = run.folder is not None and run.record.seed is not None
    if is_simulation and run.evidence == (None, None):
        yield f"{what} ({EVIDENCE})"


def at_round(run: Run, group: GroupPlan, release: ReleaseRecord) -> tuple[float, float]:
    """Planned sampling ratio and noise multiplier of a release.

    Releases after the last planned round have its values. The ratio is that of records
    where the plan protects records.
    """
    round_ = min(release.round, run.plan.spec.rounds)
    ratio, noise_multiplier = run.plan.at_round(group, round_)
    if group.record_sampling_ratio is not None:
        ratio = group.record_sampling_ratio
    return ratio, noise_multiplier


def stretches(run: Run, group: GroupPlan) -> dict[float, Shares]:
    """A group's releases by the sampling ratio that was planned for their round."""
    by_ratio: dict[float, Shares] = {}
    for release, share in run.shares(group.name):
        ratio, _ = at_round(run, group, release)
        by_ratio.setdefault(ratio, []).append((release, share))
    return by_ratio
