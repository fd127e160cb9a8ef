"""A run in the book: its groups, and the number and parameters of their releases."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from privplan import values
from privplan.accounting.accountant import accountant, checked_relation
from privplan.accounting.calibrate import PLD
from privplan.accounting.release import (
    GAUSSIAN,
    History,
    Relation,
    Release,
    SamplingLaw,
    Unit,
)
from privplan.errors import BrokenRunError, Fault, InputError
from privplan.ledger import LINK, history_of
from privplan.names import name_faults, refuse_names
from privplan.plan import Plan
from privplan.record import LEDGER, run_folder
from privplan.verification.checks.check import Run
from privplan.verification.checks.ledger import same_plan, unbroken
from privplan.verification.verify import Outcome, Strength, Verdict, judge, load_run

DECLARED = "declared"  # the algorithm of releases that no run has
STATE = 32  # bytes of the hash of one generator state; zeros for a release without one
Cost = Literal["recorded", "full participation", "infinite"]
_OF_COHORTS = frozenset({"cohorts", "participation"})


class Releases(values.Value):
    """Equal releases of a group, as seen by one client."""

    # standard deviation of the noise over the clipping norm; 0 for no noise
    noise_multiplier: values.NonNegative
    # probability that a given client takes part
    sampling_ratio: Annotated[values.NonNegative, Field(le=1)]
    sampling: SamplingLaw  # sampling law of the cohort
    count: values.Count  # number of releases
    # the noise; left out of JSON for Gaussian noise
    family: str = Field(GAUSSIAN, exclude_if=lambda family: family == GAUSSIAN)


class Share(values.Value):
    """One group's part in a run."""

    group: str
    unit: Unit  # unit of privacy of the releases
    relation: Relation  # neighbouring relation of the run's plan
    clients: values.Count  # number of clients of the group
    # the plan's budget of the group; None when the plan does not have the group
    epsilon: values.Positive | None
    delta: (
        values.Probability | None
    )  # the plan's failure probability for the group; None likewise
    releases: tuple[Releases, ...]  # releases of the group, equal ones merged

    @property
    def history(self) -> History:
        """The releases as an accounting history."""
        return History(
            (
                Release(
                    one.noise_multiplier, one.sampling_ratio, one.sampling, one.family
                ),
                one.count,
            )
            for one in self.releases
        )


class BookedRun(values.Value):
    """A run as stored in the book."""

    # hash of the ledger's last line, which depends on all lines and on the plan; it identifies the
    # run
    chain: str
    plan: str  # content hash of the plan
    lines: values.Count  # number of releases in the ledger
    population: str  # name of the population; equal group names in two populations are two groups
    source: str  # the folder that the run was added from
    algorithm: str
    dataset: str
    seed: (
        values.Natural | None
    )  # seed of a simulation; None for a deployment, which has none
    # ``running`` when more releases may follow; ``reserved`` for what a guard that trains may still
    # release, which counts as spent until it says what was
    status: Literal["running", "complete", "reserved"]
    shares: tuple[Share, ...]
    # outcome of the verdict with which the run was added; None in a book of version 0.1.0
    verdict: Outcome | None = Field(None, exclude_if=values.is_none)
    # how strongly that verdict was checked; None in books before schema version 3
    level: Strength | None = Field(None, exclude_if=values.is_none)
    # Runs at recorded cost have the digest of version 0.1.0.
    # how its releases are booked: as recorded; as if all clients took part, where the cohorts are
    # not shown; or at infinite epsilon
    cost: Cost = Field("recorded", exclude_if=lambda cost: cost == "recorded")

    @property
    def checked(self) -> str:
        """How strongly the run was checked when it was added, in words.

        Books before schema version 3 did not say; they executed nothing again.
        """
        if self.algorithm == DECLARED:
            return "declared"
        if self.status == "reserved":
            return "reserved"
        before_levels = (
            "recorded" if self.verdict == "kept" else self.verdict or "unknown"
        )
        level = self.level or before_levels
        return {"executed": "executed again", "recorded": "as recorded"}.get(
            level, level
        )

    @property
    def digest(self) -> str:
        """Content hash, which detects edited rows of the book."""
        return values.digest(self.model_dump(mode="json"))


@dataclass(frozen=True)
class Booking:
    """A run to add, with the hashes that identify its earlier states."""

    run: BookedRun
    links: bytes  # the hash after each line of the ledger, 32 bytes per line
    states: bytes  # hash of the generator's state before each line's noise, 32 bytes per line

    def continues(self, chain: str, lines: int) -> bool:
        """Whether the ledger had the hash ``chain`` after ``lines`` lines."""
        return self.links[(lines - 1) * LINK : lines * LINK].hex() == chain


def booking_of(
    given: Any,
    population: str,
    *,
    infinite: bool = False,
    judged: Callable[[Run], Verdict] = judge,
) -> Booking:
    """Judge a run, or its folder, and read it for the book.

    Args:
        given: the run or its folder.
        population: whose groups these are.
        infinite: whether a run that is broken or a rehearsal is booked at infinite epsilon.
        judged: how the run is judged; by default as ``privplan verify`` does.
    """
    folder = run_folder(given)
    run = load_run(folder)
    run.plan.refuse_in_book()
    where = str(folder / LEDGER)
    if not run.ledger.records and run.ledger.fault is None:
        raise InputError.one("ledger", "must hold a release", where)
    for check in (unbroken(run), same_plan(run)):
        if check.failed:
            raise InputError.one(
                check.name, f"must be sound, but {check.reason}", where
            )
    verdict = judged(run)
    if verdict.outcome == "rehearsal" and not infinite:
        rule = (
            "must protect somebody; this one is a rehearsal, whose noise whoever has the seed "
            "removes (--infinite books one that was published)"
        )
        raise InputError.one("run", rule, str(folder))
    if verdict.failed and not infinite:
        first = verdict.failed[0]
        found = f"{folder}: {first.name}: {first.reason}"
        raise BrokenRunError(str(Fault("run", "must not be broken", found)))
    cost = supported_cost(verdict)
    return booking(run, folder, population, verdict.outcome, cost, verdict.level)


def supported_cost(verdict: Verdict) -> Cost:
    """The least cost that the evidence of a run supports.

    A run that is not finished costs what it has recorded. Without participants there is no
    evidence that anybody was left out, so that sampling amplifies nothing. Without the other
    evidence it is not shown that noise protects the releases.
    """
    if verdict.outcome in ("broken", "rehearsal"):
        return "infinite"
    missing = {check.name for check in verdict.not_shown} - {"rounds"}
    if not missing:
        return "recorded"
    return "full participation" if missing <= _OF_COHORTS else "infinite"


def booking(
    run: Run,
    folder: Path,
    population: str,
    outcome: Outcome,
    cost: Cost,
    level: Strength | None = None,
) -> Booking:
    """A run with a sound ledger as the book stores it."""
    refuse_names({"population": population})
    states = [
        hashlib.sha256(record.noise_state.encode()).digest()
        if record.noise_state
        else bytes(STATE)
        for record in run.ledger.records
    ]
    booked = BookedRun(
        chain=run.ledger.chain, plan=run.plan.digest, lines=len(states), population=population,
        source=str(folder).encode(errors="replace").decode(), algorithm=run.record.algorithm,
        dataset=run.record.dataset, seed=run.record.seed,
        status="running" if run.record.status == "running" else "complete",
        shares=_infinite(run) if cost == "infinite" else _shares(run, cost), verdict=outcome,
        cost=cost, level=level,
    )  # fmt: skip
    return Booking(booked, run.ledger.links, b"".join(states))


def reservation(
    plan: Plan, name: str, folder: Path, population: str, rest: Mapping[str, History]
) -> Booking:
    """What a run may still release, by group, as the book stores it under a name of its own."""
    sizes = {group.name: group.clients for group in plan.groups}
    shares = (
        _share(plan, group, plan.unit, sizes[group], one) for group, one in rest.items()
    )
    booked = BookedRun(
        chain=name, plan=plan.digest, lines=max(one.rounds for one in rest.values()),
        population=population, source=str(folder).encode(errors="replace").decode(),
        algorithm="guard", dataset="", seed=None, status="reserved", shares=tuple(shares),
        verdict="unverified",
    )  # fmt: skip
    return Booking(booked, b"", b"")


def declared(
    name: str,
    history: History,
    *,
    group: str,
    clients: int,
    population: str = "",
    relation: str = "add_remove",
    delta: float | None = None,
) -> Booking:
    """Releases that no run has, such as published counts, as somebody declares them.

    The same declaration counts once, since its content identifies it; another one counts as well.
    """
    under = checked_relation(relation)
    if not isinstance(history, History):
        raise InputError.one("history", "must be a History", type(history).__name__)
    faults = [
        fault
        for field, text in (
            ("name", name),
            ("group", group),
            ("population", population),
        )
        for fault in name_faults(field, text, empty=field == "population")
    ]
    odd = any(not one.noise_multiplier or one.sampling_ratio != 1 for one, _ in history)
    reason = "no noise, or sampling" if odd else accountant(PLD).why_not(history, under)
    if reason or not history.rounds:
        faults.append(Fault("noise", "must have a bound", reason or "no release"))
    if faults:
        raise InputError(faults)
    share = values.parse(Share, {
        "group": group, "unit": "client", "relation": under, "clients": clients, "epsilon": None,
        "delta": delta, "releases": [{**asdict(one), "count": count} for one, count in history],
    })  # fmt: skip
    chain = values.digest(
        {"name": name, "population": population, "share": share.model_dump(mode="json")}
    )
    booked = BookedRun(
        chain=chain, plan=chain, lines=1, population=population, source=name, algorithm=DECLARED,
        dataset="", seed=None, status="complete", shares=(share,), verdict="unverified",
    )  # fmt: skip
    return Booking(booked, bytes.fromhex(chain), bytes(STATE))


def _infinite(run: Run) -> tuple[Share, ...]:
    """Every group of the plan and of the ledger, with one release without noise."""
    sizes = {group.name: group.clients for group in run.plan.groups}
    for record in run.ledger.records:
        sizes.update({share.group: share.clients for share in record.shares})
    bare = History([(Release(0.0, 1.0, SamplingLaw.FULL), 1)])
    unit = run.plan.spec.unit
    return tuple(
        _share(run.plan, group, unit, size, bare)
        for group, size in sorted(sizes.items())
    )


def _shares(run: Run, cost: Cost) -> tuple[Share, ...]:
    """Shares of all groups in the ledger, one per group and unit of privacy."""
    clients: dict[tuple[str, Unit], int] = {}
    records = run.ledger.records
    for record in records:
        for share in record.shares:
            key = (share.group, record.unit)
            clients[key] = max(share.clients, clients.get(key, 0))
    shares = []
    for (group, unit), size in sorted(clients.items()):
        history = history_of(
            (record for record in records if record.unit == unit), group
        )
        if cost == "full participation":
            history = History(
                (
                    Release(
                        release.noise_multiplier, 1.0, SamplingLaw.FULL, release.family
                    ),
                    count,
                )
                for release, count in history
            )
        shares.append(_share(run.plan, group, unit, size, history))
    return tuple(shares)


def _share(plan: Plan, group: str, unit: Unit, clients: int, history: History) -> Share:
    """Equal releases are merged; those with infinite noise, which cost nothing, are omitted."""
    budgets = {known.name: (known.epsilon, known.delta) for known in plan.groups}
    epsilon, delta = budgets.get(group, (None, None))
    releases = tuple(
        Releases(
            noise_multiplier=release.noise_multiplier,
            sampling_ratio=release.sampling_ratio,
            sampling=release.sampling,
            count=count,
            family=release.family,
        )
        for release, count in history
        if math.isfinite(release.noise_multiplier)
    )
    return Share(
        group=group, unit=unit, relation=Relation(plan.spec.relation), clients=clients,
        epsilon=epsilon, delta=delta, releases=releases,
    )  # fmt: skip
