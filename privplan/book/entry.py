"""A run in the book: its groups, and the number and parameters of their releases."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
from privplan.files import read_text
from privplan.ledger import LINK, history_of
from privplan.names import name_faults, refuse_names
from privplan.plan import Plan
from privplan.record import LEDGER, RESERVED, ReleaseRecord, run_folder
from privplan.verification.checks.ledger import same_plan, unbroken
from privplan.verification.run import Run
from privplan.verification.verdict import Outcome, Strength, Verdict
from privplan.verification.verify import judge, load_run

DECLARED = "declared"  # the algorithm of releases that no run has
STATE = 32  # bytes of the hash of one generator state
NO_STATE = bytes(STATE)  # of a release without one

Cost = Literal["recorded", "full participation", "infinite", "infinite for good"]
"""How releases are booked: as recorded, or without noise.

A cost that is infinite for want of evidence falls once the evidence is there. One that
somebody chose, or that a broken run has, is infinite for good, whatever is shown later.
Before 0.3 a run without participants was booked as one of full participation. That
forgot the distance of its law, and its persons: ``BookedRun.history`` counts it as
infinite.
"""

FOR_GOOD: Cost = "infinite for good"

_IN_WORDS = {"executed": "executed again", "recorded": "as recorded"}


class Releases(values.Value):
    """Equal releases of a group, as seen by one client.

    Attributes:
        noise_multiplier: standard deviation of the noise over the clipping norm; 0 for
            no noise.
        sampling_ratio: probability that a given client takes part.
        sampling: sampling law of the cohort.
        count: number of releases.
        family: the noise; left out of JSON for Gaussian noise.
    """

    noise_multiplier: values.NonNegative
    sampling_ratio: Annotated[values.NonNegative, Field(le=1)]
    sampling: SamplingLaw
    count: values.Count
    family: str = Field(GAUSSIAN, exclude_if=lambda family: family == GAUSSIAN)


class Share(values.Value):
    """One group's part in a run.

    Attributes:
        unit: unit of privacy of the releases.
        relation: neighbouring relation of the run's plan.
        clients: number of clients of the group.
        epsilon: the plan's budget of the group; None when the plan does not have the
            group.
        delta: the plan's failure probability for the group; None likewise.
        releases: releases of the group, equal ones merged.
    """

    group: str
    unit: Unit
    relation: Relation
    clients: values.Count
    epsilon: values.Positive | None
    delta: values.Probability | None
    releases: tuple[Releases, ...]

    @property
    def history(self) -> History:
        """The releases as an accounting history."""
        counts = []
        for equal in self.releases:
            release = Release(
                equal.noise_multiplier,
                equal.sampling_ratio,
                equal.sampling,
                equal.family,
            )
            counts.append((release, equal.count))
        return History(counts)


_WITHOUT_NOISE = History([(Release(0.0, 1.0, SamplingLaw.FULL), 1)])


class BookedRun(values.Value):
    """A run as stored in the book.

    Attributes:
        chain: hash of the ledger's last line, which depends on all lines and on the
            plan; it identifies the run.
        plan: content hash of the plan.
        lines: number of releases in the ledger.
        population: name of the population; equal group names in two populations are two
            groups.
        source: the folder that the run was added from.
        seed: seed of a simulation; None for a deployment, which has none.
        status: ``running`` when more releases may follow; ``reserved`` for what a guard
            that trains may still release, which counts as spent until it says what was.
        verdict: outcome of the verdict with which the run was added; None in a book of
            version 0.1.0.
        level: how strongly that verdict was checked; None in books before schema
            version 3.
        cost: how its releases are booked: as recorded, or at infinite epsilon. Runs at
            recorded cost leave it out of JSON, and so have the digest of version 0.1.0.
        person: the word of its plan for whom it protects; None where it has none.
    """

    chain: str
    plan: str
    lines: values.Count
    population: str
    source: str
    algorithm: str
    dataset: str
    seed: values.Natural | None
    status: Literal["running", "complete", "reserved"]
    shares: tuple[Share, ...]
    verdict: Outcome | None = Field(None, exclude_if=values.is_none)
    level: Strength | None = Field(None, exclude_if=values.is_none)
    cost: Cost = Field("recorded", exclude_if=lambda cost: cost == "recorded")
    person: values.PersonWord | None = Field(None, exclude_if=values.is_none)

    @property
    def checked(self) -> str:
        """How strongly the run was checked when it was added, in words.

        Books before schema version 3 did not say; they executed nothing again.
        """
        if self.algorithm == DECLARED:
            return "declared"
        if self.status == "reserved":
            return "reserved"
        level: str | None = self.level
        if not level:
            if self.verdict == "kept":
                level = "recorded"
            else:
                level = self.verdict
        return _IN_WORDS.get(level or "unknown", level or "unknown")

    @property
    def digest(self) -> str:
        """Content hash, which detects edited rows of the book."""
        return values.digest(self.model_dump(mode="json"))

    def history(self, share: Share) -> History:
        """What a share of this run counts as."""
        if self.cost == "full participation":
            return _WITHOUT_NOISE
        return share.history


@dataclass(frozen=True)
class Booking:
    """A run to add, with the hashes that identify its earlier states.

    Attributes:
        links: the hash after each line of the ledger, ``LINK`` bytes per line.
        states: hash of the generator's state before each line's noise, ``STATE`` bytes
            per line.
        shares_without_noise: the shares at infinite epsilon.
        reserved: the name of what a guard reserved for the run, in this or another
            book; empty for none.
    """

    run: BookedRun
    links: bytes
    states: bytes
    shares_without_noise: tuple[Share, ...] = ()
    reserved: str = ""

    def for_good(self) -> Booking:
        """The run at infinite epsilon, whatever its evidence shows."""
        changes = {"cost": FOR_GOOD, "shares": self.shares_without_noise}
        return replace(self, run=self.run.model_copy(update=changes))

    def continues(self, chain: str, lines: int) -> bool:
        """Whether the ledger had the hash ``chain`` after ``lines`` lines."""
        return link_after(self.links, lines) == chain


def link_after(links: bytes, lines: int) -> str:
    """The hash of a ledger after so many lines; empty where it is shorter."""
    return links[(lines - 1) * LINK : lines * LINK].hex()


def booking_of(
    run: Any,
    population: str,
    *,
    infinite: bool = False,
    judged: Callable[[Run], Verdict] = judge,
) -> Booking:
    """Judge a run, or its folder, and read it for the book.

    Args:
        run: the run or its folder.
        population: whose groups these are.
        infinite: whether the run is booked at infinite epsilon, also one that is broken
            or a rehearsal.
        judged: how the run is judged; by default as ``privplan verify`` does.

    Raises:
        InputError: when there is nothing to book, the ledger is not sound, or the run
            is a rehearsal.
        BrokenRunError: when the run is broken.
    """
    folder = run_folder(run)
    recorded = load_run(folder)
    recorded.plan.refuse_in_book()
    where = str(folder / LEDGER)
    if not recorded.ledger.records and recorded.ledger.fault is None:
        raise InputError.one("ledger", "must hold a release", where)

    # Not even at infinite epsilon: it is not known which run, and how many releases.
    for check in (unbroken(recorded), same_plan(recorded)):
        if check.failed:
            rule = f"must be sound, but {check.reason}"
            raise InputError.one(check.name, rule, where)

    verdict = judged(recorded)
    if verdict.outcome == "rehearsal" and not infinite:
        rule = (
            "must protect somebody; this one is a rehearsal, whose noise whoever has "
            "the seed removes (--infinite books one that was published)"
        )
        raise InputError.one("run", rule, str(folder))
    if verdict.failed and not infinite:
        failed_check = verdict.failed[0]
        reason = f"{folder}: {failed_check.name}: {failed_check.reason}"
        rule = "must not be broken (--infinite books one that was published)"
        raise BrokenRunError(str(Fault("run", rule, reason)))
    cost = FOR_GOOD if infinite else supported_cost(verdict)
    return booking(
        recorded, folder, population, verdict.outcome, cost, level=verdict.level
    )


def supported_cost(verdict: Verdict) -> Cost:
    """The least cost that the evidence of a run supports.

    A run that is not finished costs what it has recorded. Without other evidence it is
    not shown that noise protects the releases, or how often a client is in them.
    """
    if verdict.outcome in ("broken", "rehearsal"):
        return "infinite"
    missing = {check.name for check in verdict.not_shown} - {"rounds"}
    if not missing:
        return "recorded"
    return "infinite"


def booking(
    run: Run,
    folder: Path,
    population: str,
    outcome: Outcome,
    cost: Cost,
    level: Strength | None = None,
) -> Booking:
    """A run with a sound ledger as the book stores it.

    Args:
        run: the run.
        folder: where it lies.
        population: whose groups these are.
        outcome: of its verdict.
        cost: how its releases are booked.
        level: how strongly the verdict was checked.

    Raises:
        InputError: when the population has no name that a book takes.
    """
    refuse_names({"population": population})
    shares_without_noise = _shares_without_noise(run)
    shares = _shares(run) if cost == "recorded" else shares_without_noise
    booked = BookedRun(
        chain=run.ledger.chain,
        plan=run.plan.digest,
        lines=len(run.ledger.records),
        population=population,
        source=_encodable(folder),
        algorithm=run.record.algorithm,
        dataset=run.record.dataset,
        seed=run.record.seed,
        status="running" if run.record.status == "running" else "complete",
        shares=shares,
        verdict=outcome,
        cost=cost,
        level=level,
        person=run.plan.spec.person,
    )
    states = b"".join(map(_hashed_state, run.ledger.records))
    path = folder / RESERVED
    reserved = read_text(path, "guard.reserved") if path.exists() else ""
    return Booking(booked, run.ledger.links, states, shares_without_noise, reserved)


def _hashed_state(record: ReleaseRecord) -> bytes:
    """The hash of the state before a release's noise, which the book compares."""
    if not record.noise_state:
        return NO_STATE
    return hashlib.sha256(record.noise_state.encode()).digest()


def _encodable(folder: Path) -> str:
    """A folder as text; letters that no database can store become question marks."""
    return str(folder).encode(errors="replace").decode()


def reservation(
    plan: Plan,
    name: str,
    folder: Path,
    population: str,
    releases_to_come: Mapping[str, History],
) -> Booking:
    """What a run may still release, as the book stores it under a name of its own.

    Args:
        plan: of the run.
        name: of the reservation, in the place of the ledger's hash.
        folder: where the run lies.
        population: whose groups these are.
        releases_to_come: by group.
    """
    sizes = {group.name: group.clients for group in plan.groups}
    shares = tuple(
        _share(plan, group, plan.unit, sizes[group], history)
        for group, history in releases_to_come.items()
    )
    booked = BookedRun(
        chain=name,
        plan=plan.digest,
        lines=max(history.rounds for history in releases_to_come.values()),
        population=population,
        source=_encodable(folder),
        algorithm="guard",
        dataset="",
        seed=None,
        status="reserved",
        shares=shares,
        verdict="unverified",
        person=plan.spec.person,
    )
    return Booking(booked, links=b"", states=b"")


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

    The same declaration counts once, since its content identifies it; another one
    counts as well.

    Args:
        name: of the declaration.
        history: the releases, with noise and without sampling.
        group: whose releases they are.
        clients: number of clients of the group.
        population: of the group.
        relation: neighbouring relation.
        delta: failure probability; None for none.

    Raises:
        InputError: when a name is none, or no accountant bounds the releases.
    """
    checked = checked_relation(relation)
    if not isinstance(history, History):
        raise InputError.one("history", "must be a History", type(history).__name__)
    faults = [
        *name_faults("name", name),
        *name_faults("group", group),
        *name_faults("population", population, empty=True),
    ]
    reason = _why_not_declared(history, checked)
    if reason:
        faults.append(Fault("noise", "must have a bound", reason))
    if faults:
        raise InputError(faults)

    releases = [{**asdict(release), "count": count} for release, count in history]
    fields = {
        "group": group,
        "unit": "client",
        "relation": checked,
        "clients": clients,
        "epsilon": None,
        "delta": delta,
        "releases": releases,
    }
    share = values.parse(Share, fields)
    content = {
        "name": name,
        "population": population,
        "share": share.model_dump(mode="json"),
    }
    chain = values.digest(content)
    booked = BookedRun(
        chain=chain,
        plan=chain,
        lines=1,
        population=population,
        source=name,
        algorithm=DECLARED,
        dataset="",
        seed=None,
        status="complete",
        shares=(share,),
        verdict="unverified",
    )
    return Booking(booked, links=bytes.fromhex(chain), states=NO_STATE)


def _why_not_declared(history: History, relation: Relation) -> str | None:
    """Why releases cannot be declared; nobody shows that their cohort was drawn."""
    for release, _ in history:
        if release.noise_multiplier < values.SMALLEST or release.sampling_ratio != 1:
            return "no noise, or sampling"
    reason = accountant(PLD).why_not(history, relation)
    if reason or history.rounds:
        return reason
    return "no release"


def _shares_without_noise(run: Run) -> tuple[Share, ...]:
    """Every group of the plan and of the ledger, with one release without noise."""
    sizes = {group.name: group.clients for group in run.plan.groups}
    for record in run.ledger.records:
        sizes.update({share.group: share.clients for share in record.shares})
    unit = run.plan.spec.unit
    return tuple(
        _share(run.plan, group, unit, size, _WITHOUT_NOISE)
        for group, size in sorted(sizes.items())
    )


def _shares(run: Run) -> tuple[Share, ...]:
    """Shares of all groups in the ledger, one per group and unit of privacy."""
    records: Sequence[ReleaseRecord] = run.ledger.records
    clients: dict[tuple[str, Unit], int] = {}
    for record in records:
        for share in record.shares:
            key = (share.group, record.unit)
            clients[key] = max(share.clients, clients.get(key, 0))

    shares = []
    for (group, unit), size in sorted(clients.items()):
        records_of_unit = (record for record in records if record.unit == unit)
        history = history_of(records_of_unit, group)
        shares.append(_share(run.plan, group, unit, size, history))
    return tuple(shares)


def _share(plan: Plan, group: str, unit: Unit, clients: int, history: History) -> Share:
    """A group's part; releases with infinite noise, which cost nothing, are omitted."""
    planned = {group_plan.name: group_plan for group_plan in plan.groups}.get(group)
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
        group=group,
        unit=unit,
        relation=Relation(plan.spec.relation),
        clients=clients,
        epsilon=planned.epsilon if planned else None,
        delta=planned.delta if planned else None,
        releases=releases,
    )
