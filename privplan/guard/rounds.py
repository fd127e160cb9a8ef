"""A round of a deployment: its cohort, its release with evidence, and the budgets that admit it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from privplan.accounting.accountant import Interval, accountant
from privplan.accounting.release import GAUSSIAN, History, Relation, Release
from privplan.errors import InfeasibleError, InputError
from privplan.evidence.measurement import measure_noise
from privplan.evidence.noise import NoiseEvidence
from privplan.guard.open_round import GroupTotal
from privplan.guard.storage import keep_largest
from privplan.ledger import history_of
from privplan.plan import GroupPlan, Plan
from privplan.planning.factors import RULES
from privplan.record import GroupShare, ReleaseRecord, Residual
from privplan.streams import KEY_BYTES, SecureStream

if TYPE_CHECKING:
    from privplan.book.composition import Composition

# --- What a guard cannot execute. ----------------------------------------------------------------


def check_settings(plan: Plan, evidence: str, keep: int | None) -> None:
    """Refuse plans and settings that a guard cannot execute."""
    if plan.unit != "client":
        rule = "must be client; noise that clients add for their records is drawn by the clients"
        raise InputError.one("plan.spec.unit", rule, plan.unit)
    if plan.clipping is not None:
        rule = "must be fixed; a clipping norm that follows a private quantile is for simulations"
        raise InputError.one("plan.clipping", rule, plan.clipping.quantile)
    plan.spec.require("a guard", "plan.spec.sampling")
    if evidence not in ("public", "internal"):
        raise InputError.one("evidence", "must be public or internal", evidence)
    if keep is not None and keep < 1:
        raise InputError.one("keep", "must be 1 or more", keep)


# --- The cohort of a round: drawn by the planned law from the registered clients. ----------------

Available = Mapping[str, Iterable[int]]
"""Positions of the clients that are there, by group; positions are 0..clients-1 of the plan."""
Positions = dict[str, tuple[int, ...]]
Streams = dict[str, tuple[int, bytes]]
"""Of groups whose choices last for several rounds: the first of these, and the stream's key."""


@dataclass(frozen=True)
class Cohort:
    """Who takes part in a round."""

    round: int  # training round, from 1
    clients: (
        Positions  # positions of the clients to train, by group: drawn and available
    )
    drawn: (
        Positions  # positions that the law drew from the registered clients, by group
    )
    missing: dict[
        str, int
    ]  # number of registered clients that were not available, by group
    # what missing clients do to the guarantee, one sentence per group that misses some; empty when
    # all are available
    guarantee: tuple[str, ...]

    def __len__(self) -> int:
        """Number of clients to train."""
        return sum(map(len, self.clients.values()))

    @property
    def members(self) -> list[tuple[str, int]]:
        """Group and position of every client to train."""
        return [
            (group, client) for group, found in self.clients.items() for client in found
        ]


def draw_registered(
    plan: Plan, round_: int, known: Streams, begun: int
) -> tuple[Positions, Streams]:
    """Draw each group's cohort by its law from all registered clients.

    Args:
        plan: whose laws draw.
        round_: from 1.
        known: streams that earlier rounds began.
        begun: the last round that drew; a stream that it used must be known.

    Returns:
        The cohorts, and the streams that later rounds go on with.
    """
    drawn, streams = {}, {}
    for group in plan.groups:
        law, (ratio, _) = plan.law_of(group).law, plan.at_round(group, round_)
        first, key = law.stream_round(round_), secrets.token_bytes(KEY_BYTES)
        if first <= begun:
            began, key = known.get(group.name, (0, b""))
            if began != first:
                rule = f"must be kept: it holds the draw that began in round {first}"
                raise InputError.one("guard.draw", rule, "no draw")
        source = cast(
            np.random.Generator, SecureStream(key)
        )  # it has the methods that laws use
        positions = law.draw(source, group.clients, ratio, round_)
        drawn[group.name] = tuple(np.asarray(positions).tolist())
        if law.stream_round(round_ + 1) == first:
            streams[group.name] = first, key
    return drawn, streams


def cohort_of(
    plan: Plan, round_: int, drawn: Positions, available: Available | None
) -> Cohort:
    """The clients of a draw that are there: of those available, or of all when None."""
    if available is None:
        none = dict.fromkeys(drawn, 0)
        return Cohort(
            round=round_, clients=dict(drawn), drawn=drawn, missing=none, guarantee=()
        )
    for name in available:
        plan.group(name)
    there: dict[str, frozenset[int]] = {}
    for group in plan.groups:
        found = frozenset(int(one) for one in available.get(group.name, ()))
        outside = [one for one in found if not 0 <= one < group.clients]
        if outside:
            rule = f"must be positions of registered clients, 0 to {group.clients - 1}"
            raise InputError.one(f"available.{group.name}", rule, min(outside))
        there[group.name] = found
    missing = {
        group.name: group.clients - len(there[group.name]) for group in plan.groups
    }
    return Cohort(
        round=round_,
        clients={
            name: tuple(one for one in found if one in there[name])
            for name, found in drawn.items()
        },
        drawn=drawn,
        missing=missing,
        guarantee=tuple(
            _guarantee(plan, group, round_, missing[group.name])
            for group in plan.groups
            if missing[group.name]
        ),
    )


def _guarantee(plan: Plan, group: GroupPlan, round_: int, missing: int) -> str:
    """What missing clients do to the guarantee of a group."""
    ratio, drawn = plan.at_round(group, round_)[0], plan.law_of(group).law.drawable
    left, all_ = (
        ratio * drawn(clients) for clients in (group.clients - missing, group.clients)
    )
    return (
        f"{group.name}: {missing} of {group.clients} registered clients are missing; the law drew "
        f"from all of them, so the ratio stays {ratio:.6g} and the guarantee is the planned one, "
        "if who is missing does not depend on who was drawn or on data; the expected cohort is "
        f"{left:.6g} instead of {all_:.6g}"
    )


# --- The lines of a round: releases with their evidence, and rounds never released. ---------------

Evidence = Literal["public", "internal"]
Sums = Mapping[str, np.ndarray | GroupTotal]
"""By group: a round's total, or a bare sum [d] of clipped and scaled updates of unknown clients."""
SILENT = "silent"


@dataclass(frozen=True)
class Released:
    """What a round released; safe to use in any way."""

    round: int  # training round, from 1
    sums: tuple[
        np.ndarray, ...
    ]  # noisy sums [d], float64, one per group or one of all groups
    weights: tuple[float, ...]  # factor on each sum in the mean update
    groups: tuple[tuple[str, ...], ...]  # names of the groups in each sum
    # fraction of each sum's coordinates that the mean update keeps
    kept_fractions: tuple[float, ...]

    @property
    def mean(self) -> np.ndarray:
        """The mean update [d] with the plan's weights, of the sums' largest coordinates."""
        total = np.zeros_like(self.sums[0])
        for one, weight, kept in zip(
            self.sums, self.weights, self.kept_fractions, strict=True
        ):
            total += weight * keep_largest(one, kept)
        return total


def released_of(
    plan: Plan, records: Sequence[ReleaseRecord], vectors: Sequence[np.ndarray]
) -> Released:
    """The release of a round from its lines and their noisy sums [d]."""
    return Released(
        records[0].round,
        tuple(vectors),
        tuple(record.shares[0].factor for record in records),
        tuple(tuple(share.group for share in record.shares) for record in records),
        tuple(plan.group(record.shares[0].group).kept_fraction for record in records),
    )


def sums_of(plan: Plan) -> list[tuple[GroupPlan, ...]]:
    """The groups of each sum that a round releases: one sum of all groups, or one per group."""
    return (
        [plan.groups]
        if plan.release == "joint"
        else [(group,) for group in plan.groups]
    )


def planned_noise_std(plan: Plan, round_: int, group: str | None) -> float:
    """Standard deviation of the noise on a group's sum, or on that of all groups (None)."""
    joint = plan.release == "joint"
    if joint != (group is None):
        rule = "must be left out, since the plan has one sum of all groups"
        raise InputError.one(
            "group", rule if joint else "must name the sum's group", group
        )
    groups = plan.groups if group is None else (plan.group(group),)
    return max(plan.at_round(one, round_)[1] * plan.clip_bound(one) for one in groups)


def planned_shares(
    plan: Plan, round_: int, groups: Sequence[GroupPlan]
) -> tuple[GroupShare, ...]:
    """The groups' shares in a release of a round, without evidence."""
    rule = RULES["mean" if plan.release == "joint" else "normalised"]
    shares = []
    for group in groups:
        ratio, _ = plan.at_round(group, round_)
        cohort = ratio * plan.law_of(group).law.drawable(group.clients)
        now = group.model_copy(update={"expected_cohort": cohort})
        shares.append(
            GroupShare(
                group=group.name,
                clients=group.clients,
                sampling=plan.law_of(group),
                sampling_ratio=ratio,
                clip_bound=plan.clip_bound(group),
                factor=rule(now, plan),
            )
        )
    return tuple(shares)


def noisy_sum(
    plan: Plan,
    round_: int,
    index: int,
    groups: Sequence[GroupPlan],
    given: Sums,
    drawn: Mapping[str, Sequence[int]],
    std: float,
    size: int,
    evidence: Evidence,
    generator: SecureStream,
) -> tuple[ReleaseRecord, np.ndarray, NoiseEvidence | None]:
    """One release of groups, some without updates: line, noisy sum [d], measured noise."""
    total = np.zeros(size)
    for group in groups:
        one = given.get(group.name)
        part = one.total if isinstance(one, GroupTotal) else one
        if part is not None:
            total += np.asarray(part, dtype=np.float64).ravel()
    state = generator.fingerprint()
    noise = generator.standard_normal(size) * std
    vector = total + noise
    record = ReleaseRecord(
        round=round_, family=GAUSSIAN, noise_std=std, dimension=size, noise_state=state,
        shares=planned_shares(plan, round_, groups),
    )  # fmt: skip
    if evidence == "public":
        return record, vector, None
    rest = vector - total
    return (
        evidenced(record, given, drawn, total, noise, rest),
        vector,
        measured_noise(record, index, total, rest),
    )


def measured_noise(
    record: ReleaseRecord, index: int, total: np.ndarray, rest: np.ndarray
) -> NoiseEvidence:
    """What ``noise.jsonl`` holds of a release: functions of its noise [d], none of its values."""
    norm = float(np.linalg.norm(total))
    return measure_noise(
        rest, record.noise_std, round_=record.round, index=index, sum_norm=norm
    )


def evidenced(
    record: ReleaseRecord,
    given: Sums,
    drawn: Mapping[str, Sequence[int]],
    total: np.ndarray,
    noise: np.ndarray,
    rest: np.ndarray,
) -> ReleaseRecord:
    """The line with what was seen: cohorts, norms, the noise [d], and what it left [d]."""
    length = float(np.linalg.norm(total))
    along = float(rest @ total) / length if length > 0 else None
    changes = {
        "noise_sum_squares": float(np.square(noise).sum()),
        "residual": Residual(sum_squares=float(np.square(rest).sum()), along_sum=along),
        "shares": tuple(
            _measured(s, given.get(s.group), drawn[s.group]) for s in record.shares
        ),
    }
    return record.model_copy(update=changes)


def noised_line(
    plan: Plan, round_: int, dimension: int, noise_std: float, state: str
) -> ReleaseRecord:
    """The line of a release whose noise somebody else drew and added to the only sum."""
    if len(sums_of(plan)) > 1:
        raise InputError.one("plan.release", "must be joint", plan.release)
    joint = plan.release == "joint"
    planned = planned_noise_std(plan, round_, None if joint else plan.groups[0].name)
    if noise_std < planned * (1 - 1e-9):
        raise InputError.one("noise_std", f"must be {planned:.9g} or more", noise_std)
    return ReleaseRecord(
        round=round_, family=GAUSSIAN, noise_std=noise_std, dimension=dimension, noise_state=state,
        shares=planned_shares(plan, round_, plan.groups),
    )  # fmt: skip


def length_of(plan: Plan, given: Sums, known: int | None) -> int:
    """Length of a round's sums (d): that of earlier rounds, else the plan's parameters."""
    sizes = set() if known is None else {known}
    for name, one in given.items():
        plan.group(name)
        total = one.total if isinstance(one, GroupTotal) else one
        if total is not None:
            sizes.add(np.asarray(total).size)
    if not sizes:  # an empty cohort, whose noise is released all the same
        return plan.spec.model.parameters
    if len(sizes) != 1:
        raise InputError.one(
            "sums", "must be of one and the same length", sorted(sizes)
        )
    return int(sizes.pop())


def check_sums(sums: Mapping[str, np.ndarray], added: Mapping[str, GroupTotal]) -> None:
    """Refuse sums beside updates that were added with their clients, and what is no sum."""
    if added:
        rule = "must be left out in a round whose updates were added"
        raise InputError.one("sums", rule, list(sums))
    for name, total in sums.items():
        if isinstance(total, GroupTotal):
            rule = (
                "must be an array; updates whose clients are known are added one by one"
            )
            raise InputError.one(f"sums.{name}", rule, "GroupTotal")


def check_reports(total: GroupTotal, drawn: Sequence[int]) -> None:
    """Refuse what a framework summed itself where it has more updates than drawn clients."""
    if total.reported > len(drawn):
        rule = f"must have at most one update of each of {len(drawn)} drawn clients"
        raise InputError.one("total", rule, total.reported)


def _measured(
    share: GroupShare, given: np.ndarray | GroupTotal | None, drawn: Sequence[int]
) -> GroupShare:
    """The share with what was seen of the cohort; of a bare sum only whether it is zero."""
    seen: dict[str, object] = {"participants": tuple(drawn), "drawn": len(drawn)}
    empty = given is None or (isinstance(given, np.ndarray) and not given.any())
    total = GroupTotal() if empty else given
    if isinstance(total, GroupTotal):
        seen |= {
            "cohort": total.reported,
            "largest_norm": total.largest_norm,
            "clipped": total.clipped,
            "excluded": total.excluded,
        }
    return share.model_copy(update=seen)


def failed_lines(
    plan: Plan, round_: int, reason: str, drawn: Mapping[str, Sequence[int]] | None
) -> list[ReleaseRecord]:
    """The lines of a round that was never released; ``drawn`` is recorded where it is given."""

    def share_of(share: GroupShare) -> GroupShare:
        return share if drawn is None else _measured(share, None, drawn[share.group])

    return [
        ReleaseRecord(
            round=round_,
            family=SILENT,
            noise_std=0.0,
            dimension=0,
            noise_sum_squares=0.0,
            failure=reason,
            shares=tuple(map(share_of, planned_shares(plan, round_, groups))),
        )
        for groups in sums_of(plan)
    ]


# --- Whether the next release fits: into the plan, and with it every group into its budget. ------

GUARANTEE = "pld"


class BudgetExceededError(InfeasibleError):
    """A release that would exceed the plan or the budget of a group was refused."""


class GroupBudget:
    """The releases that a group's budget admits, with its other runs in the book (``past``)."""

    def __init__(
        self, plan: Plan, group: GroupPlan, past: Composition | None = None
    ) -> None:
        self._plan, self.group, self._past = plan, group, past

    def planned(self, round_: int) -> Release:
        """The release of a round as a client of the group sees it."""
        ratio, sigma = self._plan.at_round(self.group, round_)
        return Release(sigma, ratio, self._plan.law_of(self.group))

    def epsilon(self, releases: History) -> Interval:
        """Bounds for releases of this run and the others; the upper one by their rule."""
        if self._past is None:
            return self._composed(releases)
        lower = self._composed(self._past.past + releases).lower
        return Interval(lower, self._past.epsilon(releases))

    def refusal(self, releases: History) -> tuple[str, float] | None:
        """The budget that releases of this run exceed, and the epsilon found; None if they fit."""
        own = self._composed(releases).upper
        if own > self.group.epsilon:
            law, relation = self._plan.law_of(self.group), self._plan.spec.relation
            cell = f"({law} sampling, {relation}, accountant {GUARANTEE})"
            return f"{self.group.epsilon:g} at delta {self.group.delta:.4g} {cell}", own
        past = self._past
        if past is not None and not past.fits(releases):
            return (
                f"{past.budget:g} over all runs ({past.cell(releases)})",
                past.epsilon(releases),
            )
        return None

    def _composed(self, releases: History) -> Interval:
        relation = Relation(self._plan.spec.relation)
        return accountant(GUARANTEE).epsilon(releases, self.group.delta, relation)

    @cached_property
    def affordable_rounds(self) -> int:
        """The largest number of first rounds whose releases fit; fewer releases fit as well."""
        low, high = 0, self._plan.spec.rounds
        if self.refusal(self._first(high)) is None:
            return high
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (
                (low, middle) if self.refusal(self._first(middle)) else (middle, high)
            )
        return low

    def _first(self, rounds: int) -> History:
        return history_of((), self.group.name, self.to_come(1, rounds))

    def to_come(self, first: int, last: int) -> Iterator[tuple[int, Release]]:
        """The planned rounds of a stretch with their releases."""
        return ((round_, self.planned(round_)) for round_ in range(first, last + 1))
