"""A run in the book: its groups, and the number and parameters of their releases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from privplan.accounting.release import GAUSSIAN, History, Relation, Release, SamplingLaw, Unit
from privplan.errors import InputError
from privplan.plan import Plan
from privplan.record import LEDGER, ReleaseRecord, chained, history_of
from privplan.values import Count, Natural, NonNegative, Positive, Probability, Value, digest
from privplan.verification.checks.integrity import same_plan, unbroken
from privplan.verification.verify import load_run

LINK = 32
"""Bytes of one hash of a ledger's hash chain."""


def _is_gaussian(family: str) -> bool:
    return family == GAUSSIAN


class Releases(Value):
    """Equal releases of a group, as seen by one client.

    Attributes:
        noise_multiplier: standard deviation of the noise over the clipping norm; 0 for no noise.
        sampling_ratio: probability that a given client takes part.
        sampling: sampling law of the cohort.
        count: number of releases.
        family: the noise; left out of JSON for Gaussian noise.
    """

    noise_multiplier: NonNegative
    sampling_ratio: Annotated[NonNegative, Field(le=1)]
    sampling: SamplingLaw
    count: Count
    family: str = Field(GAUSSIAN, exclude_if=_is_gaussian)


class Share(Value):
    """One group's part in a run.

    Attributes:
        unit: unit of privacy of the releases.
        relation: neighbouring relation of the run's plan.
        clients: number of clients of the group.
        epsilon: the plan's budget of the group; None when the plan does not have the group.
        delta: the plan's failure probability for the group; None likewise.
        releases: releases of the group, equal ones merged.
    """

    group: str
    unit: Unit
    relation: Relation
    clients: Count
    epsilon: Positive | None
    delta: Probability | None
    releases: tuple[Releases, ...]

    @property
    def history(self) -> History:
        """The releases as an accounting history."""
        return History(
            (
                Release(one.noise_multiplier, one.sampling_ratio, one.sampling, one.family),
                one.count,
            )
            for one in self.releases
        )


class BookedRun(Value):
    """A run as stored in the book.

    Attributes:
        chain: hash of the ledger's last line, which depends on all lines and on the plan; it
            identifies the run.
        plan: content hash of the plan.
        lines: number of releases in the ledger.
        population: name of the population; equal group names in two populations are two groups.
        source: the folder that the run was added from.
        status: ``running`` when more releases may follow.
    """

    chain: str
    plan: str
    lines: Count
    population: str
    source: str
    algorithm: str
    dataset: str
    seed: Natural
    status: Literal["running", "complete"]
    shares: tuple[Share, ...]

    @property
    def digest(self) -> str:
        """Content hash, which detects edited rows of the book."""
        return digest(self.model_dump(mode="json"))


@dataclass(frozen=True)
class Booking:
    """A run to add, with the hashes that identify its earlier states.

    Attributes:
        links: the hash after each line of the ledger, 32 bytes per line.
    """

    run: BookedRun
    links: bytes

    def continues(self, chain: str, lines: int) -> bool:
        """Whether the ledger had the hash ``chain`` after ``lines`` lines."""
        return self.links[(lines - 1) * LINK : lines * LINK].hex() == chain


def booking_of(folder: Path, population: str) -> Booking:
    """Read a run folder for the book.

    Raises:
        InputError: when it is not a run folder, has no release, its record is of another plan,
            or its ledger is incomplete or was edited.
    """
    run = load_run(folder)
    where = str(folder / LEDGER)
    for check in (unbroken(run), same_plan(run)):
        if not check.passed:
            raise InputError.one(check.name, f"must be sound, but {check.reason}", where)
    if not run.ledger.records:
        raise InputError.one("ledger", "must hold a release", where)
    links, chain = [], run.plan.digest
    for record in run.ledger.records:
        chain = chained(record, chain)[1]
        links.append(bytes.fromhex(chain))
    booked = BookedRun(
        chain=chain,
        plan=run.plan.digest,
        lines=len(links),
        population=population,
        source=str(folder).encode(errors="replace").decode(),
        algorithm=run.record.algorithm,
        dataset=run.record.dataset,
        seed=run.record.seed,
        status=run.record.status,
        shares=_shares(run.plan, run.ledger.records),
    )
    return Booking(booked, b"".join(links))


def _shares(plan: Plan, records: tuple[ReleaseRecord, ...]) -> tuple[Share, ...]:
    """Shares of all groups in the ledger, one per group and unit of privacy."""
    clients: dict[tuple[str, Unit], int] = {}
    for record in records:
        for share in record.shares:
            key = (share.group, record.unit)
            clients[key] = max(share.clients, clients.get(key, 0))
    budgets = {group.name: (group.epsilon, group.delta) for group in plan.groups}
    shares = []
    for (group, unit), size in sorted(clients.items()):
        history = history_of((record for record in records if record.unit == unit), group)
        epsilon, delta = budgets.get(group, (None, None))
        shares.append(
            Share(
                group=group,
                unit=unit,
                relation=Relation(plan.spec.relation),
                clients=size,
                epsilon=epsilon,
                delta=delta,
                releases=_merged(history),
            )
        )
    return tuple(shares)


def _merged(history: History) -> tuple[Releases, ...]:
    """Equal releases merged; those with infinite noise, which cost nothing, are omitted."""
    return tuple(
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
