"""A round of a deployment: its noisy sums, and the lines that book them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Literal, NamedTuple

import numpy as np

from privplan.accounting.release import GAUSSIAN
from privplan.errors import InputError
from privplan.evidence.measurement import along_sum, measure_noise
from privplan.evidence.noise import NoiseEvidence
from privplan.guard.open_round import GroupTotal
from privplan.guard.vectors import keep_largest
from privplan.guidance import Guided
from privplan.plan import GroupPlan, Plan
from privplan.planning.factors import RULES
from privplan.planning.problem import noise_provision
from privplan.record import GroupShare, ReleaseRecord, Residual
from privplan.secure_stream import SecureStream

Evidence = Literal["public", "internal"]
Update = np.ndarray | GroupTotal
"""A round's total, or a bare sum [d] of clipped, scaled updates of unknown clients."""
Updates = Mapping[str, Update]
"""By group."""
Drawn = Mapping[str, Sequence[int]]
"""Positions that the law drew, by group."""

SILENT = "silent"  # the family of noise of a round that was never released
_ROUNDING = 1e-9  # relative, of a standard deviation that a framework computed itself


@dataclass(frozen=True)
class Released(Guided):
    """What a round released; safe to use in any way.

    Attributes:
        round: training round, from 1.
        sums: noisy sums [d], float64, one per group or one of all groups.
        weights: factor on each sum in the mean update.
        groups: names of the groups in each sum.
        kept_fractions: fraction of each sum's coordinates that the mean update keeps.
    """

    round: int
    sums: tuple[np.ndarray, ...]
    weights: tuple[float, ...]
    groups: tuple[tuple[str, ...], ...]
    kept_fractions: tuple[float, ...]

    @property
    def mean(self) -> np.ndarray:
        """The mean update [d], by the plan's weights, of the largest coordinates."""
        mean = np.zeros_like(self.sums[0])
        weighted_sums = zip(self.sums, self.weights, self.kept_fractions, strict=True)
        for noisy_sum, weight, fraction in weighted_sums:
            mean += weight * keep_largest(noisy_sum, fraction)
        return mean


def released_of(
    plan: Plan, records: Sequence[ReleaseRecord], vectors: Sequence[np.ndarray]
) -> Released:
    """The release of a round.

    Args:
        plan: of the run.
        records: the round's lines.
        vectors: noisy sums [d] of the lines.
    """
    first_shares = [record.shares[0] for record in records]
    return Released(
        round=records[0].round,
        # The caller's own: the stored bits stay as they are.
        sums=tuple(vector.copy() for vector in vectors),
        weights=tuple(share.factor for share in first_shares),
        groups=tuple(map(_groups_of, records)),
        kept_fractions=tuple(
            plan.group(share.group).kept_fraction for share in first_shares
        ),
    )


def _groups_of(record: ReleaseRecord) -> tuple[str, ...]:
    return tuple(share.group for share in record.shares)


def planned_noise_std(plan: Plan, round_: int, group: str | None) -> float:
    """Standard deviation of the noise on a sum, per coordinate.

    Args:
        plan: of the run.
        round_: training round, from 1.
        group: the group of the sum; None for the sum of all groups.

    Raises:
        InputError: when the plan has sums of the other kind.
    """
    if plan.release == "joint":
        if group is not None:
            rule = "must be left out, since the plan has one sum of all groups"
            raise InputError.one("group", rule, group)
        return _noise_std(plan, round_, plan.groups)
    if group is None:
        raise InputError.one("group", "must name the sum's group", group)
    return _noise_std(plan, round_, [plan.group(group)])


def _noise_std(plan: Plan, round_: int, groups: Sequence[GroupPlan]) -> float:
    """Noise on a sum: each noise multiplier is in units of its group's norm."""
    return max(
        plan.at_round(group, round_)[1] * plan.clip_bound(group) for group in groups
    )


def planned_shares(
    plan: Plan, round_: int, groups: Sequence[GroupPlan]
) -> tuple[GroupShare, ...]:
    """The groups' shares in a release of a round, without evidence.

    Args:
        plan: of the run.
        round_: training round, from 1.
        groups: the groups in the release.
    """
    factor_of = RULES["mean" if plan.release == "joint" else "normalised"]
    shares = []
    for group in groups:
        # Ratios may change over the rounds, and the expected cohort with them.
        ratio, _ = plan.at_round(group, round_)
        law = plan.law_of(group)
        cohort = ratio * law.law.drawable(group.clients)
        group_in_round = group.model_copy(update={"expected_cohort": cohort})
        share = GroupShare(
            group=group.name,
            clients=group.clients,
            sampling=law,
            sampling_ratio=ratio,
            clip_bound=plan.clip_bound(group),
            factor=factor_of(group_in_round, plan),
        )
        shares.append(share)
    return tuple(shares)


@dataclass(frozen=True)
class PlannedSum:
    """A sum that a round releases, as planned.

    Attributes:
        plan: of the run.
        round_: training round, from 1.
        index: position of the sum among those of its round, from 0.
        groups: the groups in it: all, or one.
    """

    plan: Plan
    round_: int
    index: int
    groups: tuple[GroupPlan, ...]

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise per coordinate."""
        return _noise_std(self.plan, self.round_, self.groups)

    def line(self, noise_std: float, dimension: int, state: str) -> ReleaseRecord:
        """The line that books the sum, without evidence.

        Args:
            noise_std: of the noise that was added.
            dimension: number of coordinates that received noise (d).
            state: hash of the generator's state before the noise was drawn.
        """
        return ReleaseRecord(
            round=self.round_,
            family=GAUSSIAN,
            noise_std=noise_std,
            dimension=dimension,
            noise_state=state,
            shares=planned_shares(self.plan, self.round_, self.groups),
        )


def sums_of_round(plan: Plan, round_: int) -> list[PlannedSum]:
    """What a round releases: one sum of all groups, or one per group."""
    if plan.release == "joint":
        return [PlannedSum(plan, round_, 0, plan.groups)]
    return [
        PlannedSum(plan, round_, index, (group,))
        for index, group in enumerate(plan.groups)
    ]


class NoisySum(NamedTuple):
    """A released sum."""

    record: ReleaseRecord  # its line
    vector: np.ndarray  # [d], float64
    measurement: NoiseEvidence | None  # of its noise; None without internal evidence


def noisy_sum(
    planned: PlannedSum,
    updates: Updates,
    drawn: Drawn,
    dimension: int,
    evidence: Evidence,
    generator: SecureStream,
) -> NoisySum:
    """Release a sum with the planned noise.

    Args:
        planned: which sum it is.
        updates: the groups' sums; a group without updates may be missing.
        drawn: positions that the law drew, by group.
        dimension: number of coordinates (d).
        evidence: whether the line also records what no noise protects.
        generator: draws the noise.
    """
    # A group without an update adds nothing, and its noise is released all the same.
    exact_sum = np.zeros(dimension)
    for group in planned.groups:
        group_sum = _sum_of(updates.get(group.name))
        if group_sum is not None:
            exact_sum += np.asarray(group_sum, dtype=np.float64).ravel()

    # The state before the draw: two releases of one state would have the same noise.
    state = generator.fingerprint()
    noise_std = planned.noise_std
    noise = generator.standard_normal(dimension) * noise_std
    vector = exact_sum + noise
    record = planned.line(noise_std, dimension, state)
    if evidence == "public":
        return NoisySum(record, vector, None)

    # What rounding left of the noise: the observer sees this difference, not `noise`.
    residual = vector - exact_sum
    seen = SeenNoise(exact_sum, noise, residual)
    return NoisySum(
        seen.evidenced(record, updates, drawn),
        vector,
        seen.measurement(record, planned.index),
    )


@dataclass(frozen=True)
class SeenNoise:
    """The noise of a release as its executor sees it.

    Attributes:
        exact_sum: the sum before the noise [d].
        noise: as drawn [d].
        residual: the release minus the exact sum [d].
    """

    exact_sum: np.ndarray
    noise: np.ndarray
    residual: np.ndarray

    @property
    def _sum_norm(self) -> float:
        return float(np.linalg.norm(self.exact_sum))

    def measurement(self, record: ReleaseRecord, index: int) -> NoiseEvidence:
        """What ``noise.jsonl`` holds: functions of the noise, none of its values.

        Args:
            record: the line of the release.
            index: position of the release among those of its round, from 0.
        """
        return measure_noise(
            self.residual,
            record.noise_std,
            round_=record.round,
            index=index,
            sum_norm=self._sum_norm,
        )

    def evidenced(
        self, record: ReleaseRecord, updates: Updates, drawn: Drawn
    ) -> ReleaseRecord:
        """The line with what was seen: cohorts, norms, the noise, and what it left."""
        product = float(self.residual @ self.exact_sum)
        residual = Residual(
            sum_squares=float(np.square(self.residual).sum()),
            along_sum=along_sum(product, self._sum_norm, self.residual),
        )
        shares = tuple(
            _with_cohort(share, updates.get(share.group), drawn[share.group])
            for share in record.shares
        )
        changes = {
            "noise_sum_squares": float(np.square(self.noise).sum()),
            "residual": residual,
            "shares": shares,
        }
        return record.model_copy(update=changes)


def noised_line(
    plan: Plan, round_: int, dimension: int, noise_std: float, state: str
) -> ReleaseRecord:
    """The line of a release whose noise somebody else drew and added to the only sum.

    Args:
        plan: of the run.
        round_: training round, from 1.
        dimension: number of coordinates that received noise.
        noise_std: standard deviation of the noise that was added to the sum.
        state: hash of the generator's state before the noise was drawn.

    Raises:
        InputError: when the plan has several sums, or the noise is not the planned one:
            neither less, nor more than provides for dropouts.
    """
    planned, *further_sums = sums_of_round(plan, round_)
    if further_sums:
        raise InputError.one("plan.release", "must be joint", plan.release)
    least_std = planned.noise_std
    largest_std = least_std * math.sqrt(noise_provision(plan.spec))
    # Written so that what is no number is refused, too.
    is_number = isinstance(noise_std, Real) and not isinstance(noise_std, bool)
    lowest = least_std * (1 - _ROUNDING)
    highest = largest_std * (1 + _ROUNDING)
    if not (is_number and lowest <= noise_std <= highest):
        rule = f"must be {least_std:.9g}, as planned"
        if largest_std > least_std:
            rule += f", or up to {largest_std:.9g} to provide for dropouts"
        raise InputError.one("noise_std", rule, noise_std)
    return planned.line(float(noise_std), dimension, state)


def dimension_of(plan: Plan, updates: Updates, known_dimension: int | None) -> int:
    """Length of a round's sums (d).

    Args:
        plan: whose parameters count where nobody ever sent an update.
        updates: of the round.
        known_dimension: length of the sums of earlier rounds; None before the first.

    Raises:
        InputError: for a group that the plan does not have, or sums of different
            lengths.
    """
    sizes = set() if known_dimension is None else {known_dimension}
    for name, update in updates.items():
        plan.group(name)  # refuses a group that is not planned
        total = _sum_of(update)
        if total is not None:
            sizes.add(np.asarray(total).size)
    if not sizes:  # an empty cohort, whose noise is released all the same
        return plan.spec.model.parameters
    if len(sizes) != 1:
        rule = "must be of one and the same length"
        raise InputError.one("sums", rule, sorted(sizes))
    return int(sizes.pop())


def _sum_of(update: Update | None) -> np.ndarray | None:
    """The numbers of a group's update; None without any."""
    if isinstance(update, GroupTotal):
        return update.total
    return update


def check_sums(sums: Mapping[str, np.ndarray], added: Mapping[str, GroupTotal]) -> None:
    """Refuse sums beside added updates, and what is no array of finite numbers.

    Args:
        sums: what is to be released.
        added: totals of the groups whose updates were added.
    """
    if added:
        rule = "must be left out in a round whose updates were added"
        raise InputError.one("sums", rule, list(sums))
    if not isinstance(sums, Mapping):
        rule = 'must be arrays by group, such as {"strict": array}'
        raise InputError.one("sums", rule, type(sums).__name__)
    for name, total in sums.items():
        if isinstance(total, GroupTotal):
            rule = (
                "must be an array; updates whose clients are known are added one by one"
            )
            raise InputError.one(f"sums.{name}", rule, "GroupTotal")
        values = np.asarray(total)
        if values.dtype.kind not in "fiu":
            rule = "must be an array of real numbers"
            raise InputError.one(f"sums.{name}", rule, str(values.dtype))
        with np.errstate(over="ignore"):
            length = float(np.linalg.norm(values.astype(np.float64)))
        if not math.isfinite(length):
            rule = "must be finite, as must its norm"
            raise InputError.one(f"sums.{name}", rule, length)


def check_reports(total: GroupTotal, drawn: Sequence[int]) -> None:
    """Refuse a framework's own sum that has more updates than clients were drawn."""
    if total.reported > len(drawn):
        rule = f"must have at most one update of each of {len(drawn)} drawn clients"
        raise InputError.one("total", rule, total.reported)


def _with_cohort(
    share: GroupShare, update: Update | None, drawn: Sequence[int]
) -> GroupShare:
    """The share with what was seen of the cohort.

    Of a bare sum no norms were seen, unless it is zero: then nobody contributed.
    """
    seen: dict[str, object] = {"participants": tuple(drawn), "drawn": len(drawn)}
    if update is None or (isinstance(update, np.ndarray) and not update.any()):
        update = GroupTotal()
    if isinstance(update, GroupTotal):
        seen |= {
            "cohort": update.reported,
            "largest_norm": update.largest_norm,
            "clipped": update.clipped,
            "excluded": update.excluded,
        }
    return share.model_copy(update=seen)


def failed_lines(
    plan: Plan, round_: int, reason: str, drawn: Drawn | None
) -> list[ReleaseRecord]:
    """The lines of a round that was never released.

    Args:
        plan: of the run.
        round_: training round, from 1.
        reason: why, one line.
        drawn: positions that the law drew, by group, to be recorded; None to record
            none.
    """
    lines = []
    for planned in sums_of_round(plan, round_):
        shares = planned_shares(plan, round_, planned.groups)
        if drawn is not None:
            shares = tuple(
                _with_cohort(share, None, drawn[share.group]) for share in shares
            )
        line = ReleaseRecord(
            round=round_,
            family=SILENT,
            noise_std=0.0,
            dimension=0,
            noise_sum_squares=0.0,
            failure=reason,
            shares=shares,
        )
        lines.append(line)
    return lines
