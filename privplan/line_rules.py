"""What no release can be: rules between the fields of one ledger line.

A mechanism cannot have written a line that breaks one of them, so ``read_ledger`` takes
such a line as a fault of the ledger, wherever the chain of hashes was made anew: what
was released in it and after it is unknown, and no epsilon is computed from it. Rules
that need the plan or other lines are checks of a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator

from privplan.errors import InputError
from privplan.record import GroupShare, ReleaseRecord

# Relative tolerance between two recorded sums of the same numbers.
ROUNDING = 1e-6


def line_fault(line: ReleaseRecord) -> str | None:
    """The first rule that a line breaks, with field and value found; None if sound."""
    return next(_faults(line), None)


def _faults(line: ReleaseRecord) -> Iterator[str]:
    """Faults of a line, and of each group's share in it."""
    if not line.shares:
        yield "shares: must name a group, found nothing"
    yield from _faults_of_unit(line)
    yield from _faults_of_noise(line)
    yield from _faults_of_residual(line)
    for share in line.shares:
        where = f"shares.{share.group}"
        try:
            line.release_for(share)
        except InputError as error:
            yield f"{where}.{error}"
        for fault in _faults_of_share(line, share):
            yield f"{where}.{fault}"


def _faults_of_unit(line: ReleaseRecord) -> Iterator[str]:
    """Groups and steps, by whom the release protects."""
    if line.unit == "record":
        if len(line.shares) > 1:
            groups = f"{len(line.shares)} groups"
            yield f"unit: record is of one client's release, found {groups}"
    elif line.steps != 1:
        rule = "must be 1 in a release that protects clients"
        yield f"steps: {rule}, found {line.steps}"


def _faults_of_noise(line: ReleaseRecord) -> Iterator[str]:
    """What noise there is, by its family."""
    if line.noise.noisy:
        if line.noise_std == 0:
            yield f"noise_std: must be above 0 for {line.family} noise, found 0"
        if line.dimension < line.steps:
            rule = f"must be {line.steps} or more for noise"
            yield f"dimension: {rule}, found {line.dimension}"
    else:
        for name in ("noise_std", "dimension", "noise_sum_squares"):
            value = getattr(line, name)
            if value:
                yield f"{name}: must be 0 for family {line.family}, found {value:g}"
        if line.residual is not None:
            yield f"residual: must be absent for family {line.family}, found one"
    if (line.grid is not None) != line.noise.on_grid:
        rule = "a step" if line.noise.on_grid else "absent"
        yield f"grid: must be {rule} for family {line.family}, found {line.grid}"
    if line.failure and not line.noise.silent:
        rule = "is of a round without a release"
        yield f"failure: {rule}, found family {line.family}"


def _faults_of_residual(line: ReleaseRecord) -> Iterator[str]:
    """By Cauchy and Schwarz a part of a vector is no longer than the vector."""
    residual = line.residual
    if residual is None or residual.along_sum is None:
        return
    along = abs(residual.along_sum)
    norm = residual.sum_squares**0.5
    if along > norm * (1 + ROUNDING):
        rule = f"must be at most the norm {norm:.6g}"
        yield f"residual.along_sum: {rule}, found {along:.6g}"


def _faults_of_share(line: ReleaseRecord, share: GroupShare) -> Iterator[str]:
    """Rules between the fields of a group's share."""
    if share.sampling_ratio > 1 + ROUNDING:
        yield f"sampling_ratio: must be 1 or less, found {share.sampling_ratio:g}"
    if line.noise.noisy and share.clip_bound == 0:
        yield "clip_bound: must be above 0 where noise covers it, found 0"
    if share.sampling_ratio == 0 and share.cohort:
        rule = "must be above 0 where somebody took part"
        yield f"sampling_ratio: {rule}, found {share.cohort}"
    if share.records is not None and line.unit != "record":
        yield f"records: is only for unit: record, found {share.records}"
    yield from _faults_of_participants(line, share)
    yield from _faults_of_sums(line, share)


def _faults_of_participants(line: ReleaseRecord, share: GroupShare) -> Iterator[str]:
    """Who took part: one client who protects records, or at most all of the group."""
    if share.participants is None:
        return
    number = len(share.participants)
    if line.unit == "record" and number != 1:
        yield f"participants: must be one client with unit: record, found {number}"
    if number > share.clients:
        rule = f"must be at most the {share.clients} clients"
        yield f"participants: {rule}, found {number}"


def _faults_of_sums(line: ReleaseRecord, share: GroupShare) -> Iterator[str]:
    """What was added to a sum, against how many could add to it."""
    of_record = line.unit == "record"
    largest = share.clients
    what = "clients"
    if of_record and share.records is not None:
        largest = share.records * line.steps
        what = "records in all steps"
    if share.cohort is not None and share.cohort > largest:
        yield f"cohort: must be at most the {largest} {what}, found {share.cohort}"
    if share.drawn is not None and share.drawn > share.clients:
        rule = f"must be at most the {share.clients} clients"
        yield f"drawn: {rule}, found {share.drawn}"
    canaries = share.canaries or 0
    if canaries > 0 and of_record:
        rule = "are of releases that protect clients"
        yield f"canaries: {rule}, found {canaries}"

    cohort = largest if share.cohort is None else share.cohort
    sent = cohort + canaries
    rule = f"must be at most the cohort of {sent}"
    if (share.clipped or 0) > sent:
        yield f"clipped: {rule}, found {share.clipped}"
    # A client of a release that protects records is excluded as a whole beside its
    # records.
    if share.excluded > sent + of_record:
        yield f"excluded: {rule}, found {share.excluded}"
    norm = share.largest_norm
    if norm and share.cohort == 0 and not canaries:
        yield f"largest_norm: must be 0 for an empty cohort, found {norm:g}"
