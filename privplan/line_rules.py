"""What no release can be: rules between the fields of one ledger line.

A mechanism cannot have written a line that breaks one of them, so ``read_ledger`` takes such a line
as a fault of the ledger, wherever the chain of hashes was made anew: what was released in it and
after it is unknown, and no epsilon is computed from it. Rules that need the plan or other lines are
checks of a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator

from privplan.errors import InputError
from privplan.record import GroupShare, ReleaseRecord

ROUNDING = 1e-6
"""Relative tolerance between two recorded sums of the same numbers."""


def line_fault(line: ReleaseRecord) -> str | None:
    """The first rule that a line breaks, with field and value found; None for a sound one."""
    return next(_faults(line), None)


def _faults(line: ReleaseRecord) -> Iterator[str]:
    noise = line.noise
    if not line.shares:
        yield "shares: must name a group, found nothing"
    if line.unit == "record":
        if len(line.shares) > 1:
            yield f"unit: record is of one client's release, found {len(line.shares)} groups"
    elif line.steps != 1:
        yield f"steps: must be 1 in a release that protects clients, found {line.steps}"
    if noise.noisy:
        if line.noise_std == 0:
            yield f"noise_std: must be above 0 for {line.family} noise, found 0"
        if line.dimension < line.steps:
            yield f"dimension: must be {line.steps} or more for noise, found {line.dimension}"
    else:
        for name in ("noise_std", "dimension", "noise_sum_squares"):
            if value := getattr(line, name):
                yield f"{name}: must be 0 for family {line.family}, found {value:g}"
        if line.residual is not None:
            yield f"residual: must be absent for family {line.family}, found one"
    if line.failure and not noise.silent:
        yield f"failure: is of a round without a release, found family {line.family}"
    rest = line.residual
    if rest is not None and rest.along_sum is not None:
        along, norm = abs(rest.along_sum), rest.sum_squares**0.5
        if along > norm * (1 + ROUNDING):
            yield f"residual.along_sum: must be at most the norm {norm:.6g}, found {along:.6g}"
    for share in line.shares:
        try:
            line.release_for(share)
        except InputError as error:
            yield f"shares.{share.group}.{error}"
        for fault in _of_share(line, share):
            yield f"shares.{share.group}.{fault}"


def _of_share(line: ReleaseRecord, share: GroupShare) -> Iterator[str]:
    """Rules between the fields of a group's share."""
    of_record = line.unit == "record"
    if share.sampling_ratio > 1 + ROUNDING:
        yield f"sampling_ratio: must be 1 or less, found {share.sampling_ratio:g}"
    if line.noise.noisy and share.clip_bound == 0:
        yield "clip_bound: must be above 0 where noise covers it, found 0"
    if share.sampling_ratio == 0 and share.cohort:
        yield f"sampling_ratio: must be above 0 where somebody took part, found {share.cohort}"
    if share.records is not None and not of_record:
        yield f"records: is only for unit: record, found {share.records}"
    who, cohort, clients = share.participants, share.cohort, share.clients
    if of_record and who is not None and len(who) != 1:
        yield f"participants: must be one client with unit: record, found {len(who)}"
    if who is not None and len(who) > clients:
        yield f"participants: must be at most the {clients} clients, found {len(who)}"
    most, of = clients, "clients"
    if of_record and share.records is not None:
        most, of = share.records * line.steps, "records in all steps"
    if cohort is not None and cohort > most:
        yield f"cohort: must be at most the {most} {of}, found {cohort}"
    if share.drawn is not None and share.drawn > clients:
        yield f"drawn: must be at most the {clients} clients, found {share.drawn}"
    if (share.canaries or 0) > 0 and of_record:
        yield f"canaries: are of releases that protect clients, found {share.canaries}"
    sent = (most if cohort is None else cohort) + (share.canaries or 0)
    if (share.clipped or 0) > sent:
        yield f"clipped: must be at most the cohort of {sent}, found {share.clipped}"
    # A client of a release that protects records is excluded as a whole beside its records.
    if share.excluded > sent + of_record:
        yield f"excluded: must be at most the cohort of {sent}, found {share.excluded}"
    norm = share.largest_norm
    if norm and cohort == 0 and not share.canaries:
        yield f"largest_norm: must be 0 for an empty cohort, found {norm:g}"
