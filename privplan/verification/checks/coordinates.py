"""The check that only the coordinates that an algorithm declares left the clients."""

from __future__ import annotations

from collections.abc import Iterator

from privplan import streams as public_mask
from privplan.record import Executed, ReleaseRecord
from privplan.verification.checks import check
from privplan.verification.run import Run

# The transform whose masks can be drawn again from the seed.
PUBLIC_TRANSFORM = "random_mask"
# Longest vector whose masks are drawn again, for memory: 8 GiB.
LARGEST = 2**30


@check.register("coordinates", order=60)
def coordinates(run: Run) -> check.Check:
    """Only coordinates that the algorithm releases left the clients.

    Noise covers the coordinates of a release and no others, so a coordinate more is one
    in the clear. Masks that choose among them must depend on no data: which coordinates
    are large tells something of the clients, too.
    """
    executed = run.record.executed
    if executed is None:
        missing = ["the released coordinates in the record"]
        return check.not_shown("coordinates", missing)

    def problems() -> Iterator[str]:
        """Faults of the evidence, of the record's numbers, and of single releases."""
        yield from check.evidence_fault(run)
        yield from _faults_of_record(run, executed)
        yield from _faults_of_releases(run, executed)

    reason = f"{executed.released} may leave a client"
    if executed.masks:
        reason += f", {len(executed.masks)} random masks drawn again"
    missing = [
        *check.unreleased(run),
        *check.without_evidence(run, "the number of parameters"),
    ]
    return check.first(problems(), "coordinates", reason, missing)


def _faults_of_record(run: Run, executed: Executed) -> Iterator[str]:
    """Numbers of coordinates that contradict each other, or the evidence."""
    total = executed.coordinates
    sizes = [("shared", executed.shared)]
    sizes += [(mask.name, mask.size) for mask in executed.masks]
    for name, size in sizes:
        if size > total:
            rule = f"must be at most {total} coordinates, found {size}"
            yield f"record.executed.{name}: {rule}"
    header, _ = run.evidence
    if header is None:
        return
    # A paid quantile appends its count to the parameters, other transforms what they
    # need.
    if not header.parameters <= total <= 2 * header.parameters:
        rule = f"must be {header.parameters}, found {total}"
        yield f"record.executed.coordinates: {rule}"


def _faults_of_releases(run: Run, executed: Executed) -> Iterator[str]:
    """Releases of other coordinates than the algorithm declares.

    Without a mask the same coordinates leave the clients in every round; with one they
    follow from the seed and the round.
    """
    first_support: str | None = None
    for release in run.ledger.records:
        where = f"round {release.round}"
        # Only rounds of deployments can fail.
        failed = bool(release.failure) and run.record.seed is None
        if release.noise.silent and executed.released and not failed:
            shared = f"{executed.released} coordinates are shared"
            yield f"{where}: no release, where {shared}"
        if not release.noise.noisy:
            continue

        dimension = release.dimension / release.steps
        if dimension > executed.released:
            sent = f"{dimension:g} coordinates left the clients"
            yield f"{where}: {sent}, {executed.released} may"
        if executed.masks:
            fault = _not_public(run.record.seed, release, executed)
            if fault is not None:
                yield f"{where}: {fault}"
            continue
        if dimension < executed.released:
            covered = f"{dimension:g} of {executed.released}"
            yield f"{where}: noise on {covered} coordinates"
        if first_support is None:
            first_support = release.support
        if release.support != first_support:
            yield f"{where}: other coordinates than in the first round, without a mask"


def _not_public(
    seed: int | None, release: ReleaseRecord, executed: Executed
) -> str | None:
    """Why the mask cannot be the public one.

    None where it is, or where that is not known: in a deployment, beside personal
    coordinates, and of masks that other transforms draw.
    """
    if seed is None or executed.shared != executed.coordinates:
        return None
    if any(mask.name != PUBLIC_TRANSFORM for mask in executed.masks):
        return None
    length = executed.coordinates - executed.appended
    if length > LARGEST:
        return None
    mask = public_mask.draw_mask(seed, release.round, executed.masks, length)
    if release.dimension != len(mask) + executed.appended:
        public = f"the public mask has {len(mask)}"
        return f"noise on {release.dimension} coordinates, {public}"
    if release.support != public_mask.mask_digest(mask):
        return (
            "the coordinates are not those of the public mask, so they depend on data"
        )
    return None
