"""What a check is: a function of a run that returns one line of a verdict, in a registry.

A check has passed, failed, or is not shown because evidence that it needs is missing. It never
passes on absent evidence: use ``first``, whose argument ``missing`` names what is absent.

A module of this package registers its checks with ``register``; other distributions declare an
entry point of the group ``privplan.checks``, whose value is a function of a ``Run`` that returns
a ``Check``, or a ``RunCheck`` when its place in the verdict matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from privplan.auditing import AuditEvidence
from privplan.evidence.replay import ReplayReport
from privplan.evidence.rounds import (
    EVIDENCE,
    EarlierHeader,
    EvidenceHeader,
    read_evidence,
)
from privplan.laws.law import Clients
from privplan.ledger import LedgerText
from privplan.plan import GroupPlan, Plan
from privplan.record import GroupShare, ReleaseRecord, RunRecord
from privplan.registry import Registry
from privplan.releases import stored_fault
from privplan.streams import NoiseKey, Purpose, private_seed, stream
from privplan.values import Shown, Value

Shares = list[tuple[ReleaseRecord, GroupShare]]
T = TypeVar("T")
FALSE_ALARM = 1e-6  # largest false-alarm rate of a check of the ledger, per honest run
EVIDENCE_FALSE_ALARM = 1e-4  # of measured noise or of cohorts: power needs more there

Outcome = Literal["passed", "failed", "not shown"]
Level = Literal["declared", "replayed", "attested"]
"""Levels of evidence: a ledger; a simulation executed again; releases signed before use."""


class Check(Value):
    """One line of a verdict.

    Attributes:
        name: name of the check.
        outcome: ``not shown`` when evidence is missing and what there is shows no fault.
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
    """A check whose evidence is missing, one text per kind; ``required`` of every run or not."""
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
    """A check that fails with the first problem, is not shown, or passes with the given reason.

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
    return (
        not_shown(name, absent, required=required) if absent else passed(name, reason)
    )


@dataclass(frozen=True, repr=False)
class Run(Shown):
    """A run to verify: the executed plan, the ledger, the record, and optional evidence.

    Attributes:
        audit: the canaries; None in a run without canaries.
        folder: the run folder; None for a run that is in memory only.
        trusted: what the reader trusts and gives to checks; each takes what it knows.
        executed: what executing rounds again found for this verdict; None when none was.
    """

    plan: Plan
    ledger: LedgerText
    record: RunRecord
    audit: AuditEvidence | None = None
    folder: Path | None = None
    trusted: tuple[object, ...] = ()
    executed: ReplayReport | None = None
    _known: dict[Any, Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def metrics(self) -> Any:
        """Score and loss by round, as a ``pandas.DataFrame``."""
        return self.to_frame()

    def once(self, compute: Callable[[Run], T]) -> T:
        """The result of a function of the run, which several checks need."""
        if compute not in self._known:
            self._known[compute] = compute(self)
        found: T = self._known[compute]
        return found

    def shares(self, group: str) -> Shares:
        """Releases that a group took part in, each with the group's share."""
        return self._shares.get(group, [])

    @cached_property
    def evidence(self) -> tuple[EvidenceHeader | EarlierHeader | None, str | None]:
        """Header of the evidence for a replay, None without it, and the first fault of the files.

        The last line of an unfinished run may be torn; resuming the run writes it again. A finished
        run has the evidence of each release of its ledger, and no byte beside its vectors.
        """
        if self.folder is None:
            return None, None
        found = read_evidence(self.folder, self.plan.digest)
        if found is None:
            return None, None
        if self.record.status == "running":
            return found.header, None if found.torn else found.fault
        if found.fault is not None or not isinstance(found.header, EvidenceHeader):
            return found.header, found.fault
        rounds = tuple(found.of_releases.values())
        given = self.folder, found.header, rounds, self.ledger, self.plan
        return found.header, stored_fault(*given)

    @cached_property
    def numbered(self) -> list[tuple[int, ReleaseRecord]]:
        """The releases, each with its position among those of its round, from 0."""
        seen: dict[int, int] = {}
        found = []
        for release in self.ledger.records:
            index = seen.get(release.round, 0)
            seen[release.round] = index + 1
            found.append((index, release))
        return found

    @cached_property
    def keyed(self) -> bool:
        """Whether a secret key determines cohorts and noise, not the seed."""
        given = self.record.configuration.get("noise")
        return self.record.noise == "secure" or given not in (None, "seeded")

    @cached_property
    def writes_evidence(self) -> bool:
        """Whether the program that wrote the folder always leaves measured evidence in it."""
        given = self.record.versions.get("privplan", "0.1")
        return (
            self.folder is not None
            and self.record.seed is not None
            and given[:3] != "0.1"
        )

    @cached_property
    def key(self) -> NoiseKey | None:
        """The secret key of cohorts and noise, where the reader has it."""
        return next((one for one in self.trusted if isinstance(one, NoiseKey)), None)

    def source(self, purpose: Purpose, *at: int, group: str = "") -> Any:
        """The stream of the run's cohorts or noise, from its start: of its key, or of its seed."""
        if self.key is not None:
            return self.key.stream(purpose, *at)
        seed, scheme = (
            self.record.simulation_seed,
            self.record.configuration.get("streams", 1),
        )
        own = seed if scheme == 1 else private_seed(seed, self.plan.spec_digest, group)
        return stream(own, purpose, *at)

    @cached_property
    def clients(self) -> dict[str, int]:
        """Clients of each group, with its parts that take turns; the record's where data name them.

        Where the record does not tell them nobody has a turn, so participants are out of turn.
        """
        found = {
            one.name: self.plan.law_of(one).law.seated(one.name, range(one.clients))[0]
            for one in self.plan.groups
        }
        if self.record.partition == "clients":
            known = [
                name for name, clients in found.items() if isinstance(clients, Clients)
            ]
            found |= {name: Clients(self.record.parts.get(name, ())) for name in known}
        return found

    @property
    def other_streams(self) -> str | None:
        """Why streams of the seed cannot be generated here; None if they can, or of the key."""
        if self.key is not None:
            return None
        recorded, here = self.record.versions.get("numpy"), np.__version__
        if recorded is None:
            return "the version of numpy in the record"
        if recorded.split(".")[:2] != here.split(".")[:2]:
            return f"streams of numpy {recorded}, here is {here}"
        return "the seed" if self.record.seed is None else None

    @cached_property
    def _shares(self) -> dict[str, Shares]:
        """Releases with shares of all groups, by group."""
        by_group: dict[str, Shares] = {}
        for release in self.ledger.records:
            for share in release.shares:
                by_group.setdefault(share.group, []).append((release, share))
        return by_group


Inspect = Callable[[Run], Check]
NOTHING_LEFT = "nothing left the clients: epsilon is 0"
LAST = 1_000  # of a check that declares no order: before audit and budget only


@dataclass(frozen=True)
class RunCheck:
    """A check and its place in a verdict."""

    inspect: Inspect  # the check
    order: int = LAST  # verdicts list checks by increasing order
    applies: Callable[[Run], bool] = lambda run: (
        True
    )  # whether a verdict on a run lists the check
    # largest rate at which it fails on an honest run; 0 without a random test
    false_alarm: float = 0.0
    files: frozenset[str] = frozenset()  # of a run folder, which no other part writes
    of_signers: bool = False  # whether it verifies what the plan's signers signed


def _as_check(component: object) -> RunCheck:
    """The check that an entry point names.

    Raises:
        TypeError: when it is neither a check nor a function.
    """
    if isinstance(component, RunCheck):
        return component
    if not callable(component):
        raise TypeError(
            f"must be a function of a run, found {type(component).__name__}"
        )
    return RunCheck(component)


CHECKS: Registry[RunCheck] = Registry(
    "check", "privplan.checks", "privplan.verification.checks", _as_check
)


def register(
    name: str, order: int, false_alarm: float = 0.0
) -> Callable[[Inspect], Inspect]:
    """A decorator that registers a check under its name in verdicts; arguments of ``RunCheck``."""

    def decorate(inspect: Inspect) -> Inspect:
        CHECKS.register(name, RunCheck(inspect, order, false_alarm=false_alarm))
        return inspect

    return decorate


def run_checks(run: Run) -> list[Check]:
    """The lines of all registered checks, in their order.

    On an empty ledger only the check of the plan can pass: the others have nothing to show.
    """
    ordered = sorted(
        (check for _, check in CHECKS.items()), key=lambda check: check.order
    )
    if run.plan.spec.signers and not any(check.of_signers for check in ordered):
        what = ["a check of signatures (group privplan.checks)"]
        unread = RunCheck(lambda run: not_shown("signers", what))
        ordered = sorted([*ordered, unread], key=lambda check: check.order)
    lines = [run.once(check.inspect) for check in ordered if check.applies(run)]
    if run.ledger.records:
        return lines
    return [
        not_shown(line.name, ["releases"], required=False)
        if line.passed and line.name != "plan"
        else line
        for line in lines
    ]


def lacking(what: str, lacks: Iterable[bool]) -> Iterator[str]:
    """The missing evidence of one kind, counted: nothing when no item that needs it lacks it."""
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
    """Missing evidence: an item of its header, where a simulation in a folder lacks it."""
    if (
        run.folder is not None
        and run.record.seed is not None
        and run.evidence == (None, None)
    ):
        yield f"{what} ({EVIDENCE})"


def at_round(run: Run, group: GroupPlan, release: ReleaseRecord) -> tuple[float, float]:
    """Planned sampling ratio and noise multiplier of a release.

    Releases after the last planned round have its values. The ratio is that of records where the
    plan protects records.
    """
    ratio, sigma = run.plan.at_round(group, min(release.round, run.plan.spec.rounds))
    of_records = group.record_sampling_ratio
    return (ratio if of_records is None else of_records), sigma


def stretches(run: Run, group: GroupPlan) -> dict[float, Shares]:
    """A group's releases by the sampling ratio that was planned for their round."""
    by_ratio: dict[float, Shares] = {}
    for release, share in run.shares(group.name):
        by_ratio.setdefault(at_round(run, group, release)[0], []).append(
            (release, share)
        )
    return by_ratio
