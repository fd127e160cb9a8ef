"""The verdict on a run: the epsilon that its ledger implies, against the plan's budgets."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, computed_field

from privplan.accounting.accountant import Interval, accountant, at_most
from privplan.accounting.release import History, Relation, SamplingLaw, Unit, identity
from privplan.auditing import (
    AuditEvidence,
    EmpiricalEpsilon,
    empirical_epsilons,
    exceeded,
)
from privplan.errors import Fault, InputError, PrivplanError, checked_call
from privplan.evidence.replay import ReplayReport
from privplan.files import write_text
from privplan.ledger import history_of, read_ledger, worst_client
from privplan.limits import MOST_CLIENTS
from privplan.plan import GroupPlan, Plan
from privplan.proven import finding_on_run
from privplan.record import ACCURACY, LEDGER, PLAN, VERDICT, RunRecord, run_folder
from privplan.registry import points
from privplan.streams import NoiseKey
from privplan.values import Named, Shown, Value, is_none
from privplan.verification.checks.check import (
    CHECKS,
    FALSE_ALARM,
    LAST,
    Check,
    Level,
    Run,
    failed,
    first,
    not_shown,
    register,
    run_checks,
    unreleased,
)
from privplan.verification.checks.replay import claimed_rounds
from privplan.verification.promise import (
    GUARANTEE,
    GUARANTEES,
    promised,
    require_certified,
)

if TYPE_CHECKING:
    from privplan.proof import Finding

Outcome = Literal["kept", "broken", "unverified", "rehearsal"]
"""A rehearsal is a run on own data whose noise everybody can remove who has its seed."""
Strength = Literal["executed", "recorded", "rehearsal", "unverified", "broken"]
"""An outcome, where a kept run is one of which rounds were executed again, or as recorded."""
_log = logging.getLogger(__name__)


class OneRun(Value):
    """Epsilon of the run alone, where the budget is that of the best of several runs."""

    lower: float | None  # lower bound by the PLD accountant
    upper: float | None  # upper bound by the PLD accountant; None where infinite
    rdp: float | None  # upper bound by Renyi divergences; None where infinite


class GroupVerdict(Value):
    """Realised epsilon of one group's clients, with budget and planned epsilon.

    Epsilon is None where it is infinite. ``realised_lower`` and ``realised_upper`` are computed
    by ``accountant`` from the ledger only, this project's PLD accountant; ``realised_rdp`` is an
    independent upper bound. Where a plan guarantees the best of several
    runs, nothing is known from below, and the upper bounds are one.

    Attributes:
        budget: epsilon that the group must not exceed at ``delta``.
        planned: upper bound on epsilon that the plan certified.
        realised_lower: lower bound on the epsilon of the group's worst-off client.
        headroom: budget minus realised upper bound.
        kept: whether that is within the budget; the verdict's outcome says whether it is shown.
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
    """The client with the largest ratio of realised epsilon to budget; None where infinite."""

    group: str  # the client's group
    # its position in the group, where clients of a group differ; None where all have the same
    # history
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


class Verdict(Shown, Value):
    """Whether a run kept its plan's budgets, and the checks that decide it.

    Attributes:
        noise: source of the noise; seeded noise protects nobody outside a simulation.
        checks: lines of the verdict; they decide ``outcome`` and ``evidence``.
        metric: what the accuracies of the verdict are; records of other tasks name another.
        not_finite: whether the score was measured and is not a finite number.
        own_data: whether the run says that its data are no registered public ones.
        own_model: whether it says that its model is a module of the user.
        tuned: whether it says that numbers were chosen by training on its people before.
        plan_digest: of the plan that the run executed; compare it with the approved one.
        unit: whom the budgets protect.
        rounds: of the plan.
        executed: how many of them were executed again for this verdict, and agree.
        earlier: how many ``replay.json`` claims were executed before, by whoever wrote it; never
            added to those executed now, and 0 beside them.
        not_executed: why none was executed again now.
        claimed: scores that no replay can compute; empty where all were computed.
    """

    schema_version: Literal[3] = 3
    algorithm: str
    dataset: str
    noise: Literal["seeded", "secure"]
    groups: Annotated[tuple[GroupVerdict, ...], AfterValidator(Named)]
    worst: WorstOff
    checks: tuple[Check, ...]
    accuracy: float | None
    accuracy_by_class: dict[str, float]
    metric: str = Field(ACCURACY, exclude_if=lambda metric: metric == ACCURACY)
    not_finite: bool = Field(False, exclude_if=lambda found: not found)
    own_data: bool = Field(False, exclude_if=lambda own: not own)
    own_model: bool = Field(False, exclude_if=lambda own: not own)
    tuned: bool = Field(False, exclude_if=lambda tuned: not tuned)
    plan_digest: str
    unit: Unit
    rounds: int
    executed: int = 0
    earlier: int = 0
    not_executed: str = ""
    claimed: str = Field("", exclude_if=lambda claimed: not claimed)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def outcome(self) -> Outcome:
        """Broken when a check failed, a rehearsal when whoever has the seed removes the noise.

        Else unverified when a required check is not shown, and kept when all are.
        """
        if self.failed:
            return "broken"
        if self.own_data and self.simulation_only:
            return "rehearsal"
        return "unverified" if self.not_shown else "kept"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def level(self) -> Strength:
        """How strongly a kept run was checked: rounds executed again, or what it recorded."""
        if self.outcome != "kept":
            return self.outcome
        return "executed" if self.executed else "recorded"

    @property
    def chance_of_detection(self) -> float:
        """That a fault in one of five rounds would have been seen, by rounds drawn at random."""
        faulty, missed = math.ceil(self.rounds / 5), 1.0
        for turn in range(self.executed):
            missed *= max(0.0, self.rounds - faulty - turn) / (self.rounds - turn)
        return 1 - missed

    @property
    def fell_away(self) -> tuple[Check, ...]:
        """Checks that are not required and could not be made here, besides replay and canaries."""
        optional = ("replay", "audit")
        return tuple(
            check
            for check in self.checks
            if check.outcome == "not shown"
            and not check.required
            and check.name not in optional
        )

    def __bool__(self) -> bool:
        raise TypeError("a verdict is neither true nor false; write verdict.kept")

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
        return tuple(
            level for level in get_args(Level) if level in {"declared", *reached}
        )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def simulation_only(self) -> bool:
        """Whether the noise can be drawn again from the run's record."""
        return self.noise == "seeded"

    @property
    def identity(self) -> str:
        """Which plan, whom it protects and under which relation, as tables state it."""
        return identity(self.plan_digest, self.unit, self.worst.relation)

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
        return tuple(c for c in self.checks if c.required and c.outcome == "not shown")

    @property
    def exit_code(self) -> int:
        """Exit code of the command line: 0 kept, 4 broken, 5 unverified or a rehearsal."""
        return {"kept": 0, "broken": 4, "unverified": 5, "rehearsal": 5}[self.outcome]

    def to_json(self) -> str:
        """The text of ``verdict.json``."""
        return (
            json.dumps(self.model_dump(mode="json"), indent=1, allow_nan=False) + "\n"
        )

    def save(self, folder: Path | str) -> None:
        """Write ``verdict.json`` into the run folder."""
        write_text(Path(folder) / VERDICT, self.to_json())


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _is_sound(run: Run) -> bool:
    """Whether epsilon follows from the ledger: all lines are read, of known groups, and count.

    A release that claims to protect the records of one client counts for that client alone, so
    one in a plan that protects clients would make epsilon smaller.
    """
    known = {group.name for group in run.plan.groups}
    units = {"client", run.plan.spec.unit}
    return run.ledger.fault is None and all(
        release.unit in units and all(share.group in known for share in release.shares)
        for release in run.ledger.records
    )


Realised = tuple[list[GroupVerdict], list[WorstOff], list[PrivplanError]]


def _realised(run: Run) -> Realised:
    """The verdict on each group and its worst-off client; what accountants refused to compute."""
    refused: list[PrivplanError] = []
    pairs = [_group_verdict(run, group, refused) for group in run.plan.groups]
    return [group for group, _ in pairs], [worst for _, worst in pairs], refused


def _group_verdict(
    run: Run, group: GroupPlan, refused: list[PrivplanError]
) -> tuple[GroupVerdict, WorstOff]:
    """The verdict on a group, and on its worst-off client."""
    relation = Relation(run.plan.spec.relation)

    def bounds(compute: Callable[[], Interval]) -> Interval:
        try:
            return compute()
        except PrivplanError as error:  # of a broken run the check that failed says why
            refused.append(error)
            return Interval(0.0, math.inf)

    def epsilon(of: History, by: str = GUARANTEE) -> Interval:
        return bounds(lambda: accountant(by).epsilon(of, group.delta, relation))

    history = history_of(run.ledger.records, group.name)
    of_group = run.ledger.records, group.name, run.clients[group.name]
    client, own = worst_client(*of_group)
    spent = epsilon(history)
    worst_off = spent if own == history else epsilon(own)
    _, released = worst_client(*of_group, complete=True)
    if released != own:
        worst_off = Interval(epsilon(released).lower, worst_off.upper)
    rdp, sound = accountant("rdp"), _is_sound(run)
    covered = sound and not rdp.why_not(history, relation)
    renyi = epsilon(history, "rdp").upper if covered else math.inf
    by, one_run = run.plan.guarantee, None
    if (
        by != GUARANTEE
    ):  # the budget is of more than this run, such as the best of several
        bound = GUARANTEES.get(by)
        upper = spent.upper if sound else math.inf
        one_run = OneRun(
            lower=_finite(spent.lower), upper=_finite(upper), rdp=_finite(renyi)
        )
        spent = bounds(lambda: Interval(0.0, bound(run.plan, history, group.delta)))
        worst_off = bounds(lambda: Interval(0.0, bound(run.plan, own, group.delta)))
        renyi = spent.upper if sound else math.inf
    if not sound:  # what was released after the sound lines is unknown
        spent, worst_off = (Interval(one.lower, math.inf) for one in (spent, worst_off))
    traces = () if run.audit is None else run.audit.groups
    audits = [
        empirical_epsilons(one, group.delta)
        for one in traces
        if one.group == group.name
    ]
    audit = audits[0] if audits else ()
    certified = any(row.group == group.name for row in run.plan.certificate)
    planned = bounds(lambda: promised(run.plan, group)).upper if certified else None
    shared = {
        "group": group.name,
        "budget": group.epsilon,
        "planned": None if planned is None else _finite(planned),
        "realised_lower": _finite(worst_off.lower),
        "delta": group.delta,
        "sampling": run.plan.law_of(group),
        "relation": relation,
        "accountant": by,
    }
    verdict = GroupVerdict(
        **shared,
        clients=group.clients,
        realised_upper=_finite(spent.upper),
        realised_rdp=_finite(renyi),
        headroom=_finite(group.epsilon - spent.upper),
        kept=spent.upper <= group.epsilon,
        accuracy=run.record.accuracy_by_group.get(group.name),
        audit=audit,
        one_run=one_run,
    )
    return verdict, WorstOff(
        **shared,
        client=client,
        realised_upper=_finite(worst_off.upper),
        headroom=_finite(group.epsilon - worst_off.upper),
    )


@register("audit", order=LAST + 1, false_alarm=FALSE_ALARM)
def audit(run: Run) -> Check:
    """The canaries are the run's, and no empirical bound exceeds the realised epsilon."""
    name, evidence = "audit", run.audit
    if evidence is None:
        return not_shown(name, ["canaries"], required=False)
    groups, _, _ = run.once(_realised)
    uppers = {
        group.group: (_or_infinite(group.realised_upper), group.delta)
        for group in groups
    }
    if evidence.digest != run.record.audit:
        return failed(name, "the canaries' evidence is not what the run wrote")
    if sorted(traces.group for traces in evidence.groups) != sorted(uppers):
        return failed(name, "the canaries are not of each of the plan's groups once")
    canaries = sum(len(traces.included) for traces in evidence.groups)
    found = f"{canaries} canaries lost no more, false alarms at most {FALSE_ALARM:g}"
    computed = {group.group: group.audit for group in groups}
    return first(exceeded(evidence, uppers, FALSE_ALARM, computed), name, found)


@register("budget", order=LAST + 2)
def budget(run: Run) -> Check:
    """The realised epsilon of every group is within its budget."""
    if run.ledger.fault is not None:
        return not_shown("budget", ["the releases after the sound lines of the ledger"])

    def problems() -> Iterator[str]:
        for group in run.once(_realised)[0]:
            if not group.kept:
                upper = group.realised_upper
                yield (
                    f"{group.group}: epsilon {'infinite' if upper is None else at_most(upper)} at "
                    f"delta {group.delta:.3g} ({group.sampling}, {group.relation}, "
                    f"{group.accountant}) exceeds the budget {group.budget:g}"
                )

    return first(
        problems(), "budget", "every group is within its budget", unreleased(run)
    )


def false_alarm_rate() -> float:
    """Largest rate at which a verdict on an honest run is broken: the sum over its checks."""
    return sum(check.false_alarm for _, check in CHECKS.items())


def _or_infinite(value: float | None) -> float:
    return math.inf if value is None else value


def _verdict_of(run: Run, not_executed: str) -> Verdict:
    """The verdict on a run by all checks; epsilon is recomputed from the ledger only.

    Args:
        run: what was read, with what was executed again just now.
        not_executed: why nothing was.
    """
    checks = run_checks(run)
    groups, worst, refused = run.once(_realised)
    if refused and not any(check.failed for check in checks if check.name != "budget"):
        raise refused[0]
    for check in checks:
        _log.info("check %s: %s: %s", check.name, check.outcome, check.reason)
    last = run.record.metrics[-1:]  # a run that goes on has none
    agrees = any(one.name == "replay" and one.passed for one in checks)
    executed = (
        len(set(run.executed.rounds)) if agrees and run.executed is not None else 0
    )
    return Verdict(
        algorithm=run.record.algorithm, dataset=run.record.dataset, noise=run.record.noise,
        groups=tuple(groups),
        worst=max(worst, key=lambda one: _or_infinite(one.realised_upper) / one.budget),
        checks=tuple(checks), accuracy=run.record.accuracy,
        accuracy_by_class=run.record.accuracy_by_class, metric=run.record.metric,
        not_finite=run.record.accuracy is None and bool(last) and last[0].accuracy is None,
        own_data=bool(run.record.configuration.get("own_data")),
        own_model="own_model" in run.record.configuration,
        tuned=bool(run.record.configuration.get("tuned")),
        plan_digest=run.plan.digest,
        unit=run.plan.unit, rounds=run.plan.spec.rounds, executed=executed,
        earlier=0 if executed else claimed_rounds(run), not_executed=not_executed,
        claimed=run.executed.claimed if executed and run.executed is not None else "",
    )  # fmt: skip


@checked_call
def load_run(folder: Any) -> Run:
    """Read a run folder, whose ledger must not end in an incomplete line.

    >>> privplan.load_run("run").record.status
    'complete'
    """
    folder = run_folder(folder)
    try:
        plan = Plan.load(folder / PLAN)
    except InputError as error:
        where, ends = (
            f"{folder / PLAN}: ",
            "; without the plan that it executed a run has no verdict",
        )
        faults = (
            Fault(where + one.field, one.rule + ends, one.found) for one in error.faults
        )
        raise InputError(faults) from None
    if plan.spec.population > MOST_CLIENTS:
        rule = f"must have at most {MOST_CLIENTS} clients to be verified"
        raise InputError.one("plan.groups", rule, plan.spec.population)
    require_certified(plan)
    record = RunRecord.load(folder)
    if (
        record.status == "running"
        and record.seed is None
        and not (folder / LEDGER).exists()
    ):
        rule = f"must have a release; 0 of {plan.spec.rounds} rounds are booked"
        raise InputError.one("ledger", rule, str(folder))
    ledger = read_ledger(folder, plan.digest)
    if ledger.torn:
        cure = "the run was finished, so what is lost cannot be recovered; run it in another folder"
        if record.status == "running":
            cure = "resume the run"
        rule = f"{ledger.fault}; {len(ledger.records)} releases before it are sound; {cure}"
        raise InputError.one("ledger", rule, str(folder / LEDGER))
    evidence = AuditEvidence.load(folder) if record.audit else None
    return Run(plan=plan, ledger=ledger, record=record, audit=evidence, folder=folder)


SELECTION = "privplan.selection_seed"
"""Key among the options of an executor: the seed of its selection of rounds; fresh if absent."""
STATE = "privplan.state"
"""Key of a mapping into which an executor of all rounds puts the state that they end in, where the
run stores no releases from which it can be computed."""


def proven_of(run: Run, verdict: Verdict) -> dict[str, Finding]:
    """What is proven of the realised upper bounds of a verdict, by group."""
    findings = {}
    for group in verdict.groups:
        history = history_of(run.ledger.records, group.group)
        findings[group.group] = finding_on_run(
            group.accountant, history, group.relation, group.realised_upper, group.delta
        )
    return findings


SECONDS = 10.0  # time for executing rounds again where their number is left out
EXECUTORS = "privplan.executors"
"""Entry points of functions that execute rounds of a run again and store what they found.

Each takes the run folder, how many rounds (None for as many as fit into the seconds), the seconds
(None without a limit), and what options of ``verify`` set in ``click.Context.meta``; it returns
the ``ReplayReport`` of the rounds that it executed.
"""


def number_of_rounds(given: int | str) -> int | None:
    """A number of rounds as it is typed; None for ``all``."""
    text = str(given)
    if text != "all" and not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InputError.one("rounds", "must be all or a whole number", text)
    return None if text == "all" else int(text)


def _executed_again(
    run: Run, rounds: int | str | None, options: Mapping[str, Any]
) -> tuple[ReplayReport | None, str]:
    """What executing rounds of a run again found now, or why none was executed."""
    most, executors = (
        number_of_rounds("all" if rounds is None else rounds),
        list(points(EXECUTORS)),
    )
    for reason, holds in (
        ("--rounds 0", most == 0),
        ("the run has no folder", run.folder is None),
        ("a deployment cannot be executed again", run.record.seed is None),
        ("the run is not finished", run.record.status != "complete"),
        ("the simulator is not installed", not executors),
    ):
        if holds:
            return None, reason
    seconds = SECONDS if rounds is None else None
    try:
        return executors[0].load()(run.folder, most, seconds, options), ""
    except (PrivplanError, ImportError) as error:
        return None, str(error).splitlines()[0]


@checked_call
def judge(
    run: Run,
    rounds: int | str | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    trusted: Iterable[object] = (),
    noise_key: Path | None = None,
) -> Verdict:
    """The verdict on a run, after rounds of it were executed again; every verdict is this one.

    >>> privplan.judge(privplan.load_run("run"), rounds=0).outcome
    'kept'

    Args:
        run: what ``load_run`` read.
        rounds: how many are executed again where simulator and data are found: a number, ``all``,
            or as many as fit into 10 s when None.
        options: what else the executor is given, such as data and model of a run on own ones.
        trusted: what the reader trusts, such as the plan that was approved.
        noise_key: file with the key of cohorts and noise; the one beside the folder when None.
    """
    folder = run.folder or Path()
    key = NoiseKey.of_run(
        folder, run.record.configuration.get("noise_commitment"), noise_key
    )
    executed, reason = _executed_again(
        run, rounds, {**(options or {}), "noise_key": noise_key}
    )
    with_all = (*run.trusted, *trusted, *filter(None, [key]))
    return _verdict_of(replace(run, trusted=with_all, executed=executed), reason)
