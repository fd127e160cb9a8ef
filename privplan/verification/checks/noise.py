"""Checks that every release has fresh noise with the planned standard deviation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from privplan import streams as public_mask
from privplan.accounting.families import NOISE_FAMILIES
from privplan.evidence import CELLS, TAILS, NoiseEvidence, block_lengths, read_noise_evidence
from privplan.record import Executed, GroupShare, ReleaseRecord, Residual
from privplan.verification import statistics
from privplan.verification.checks.check import (
    NOTHING_LEFT,
    Check,
    Run,
    at_round,
    evidence_fault,
    failed,
    first,
    lacking,
    not_shown,
    passed,
    register,
    unreleased,
    without_evidence,
)
from privplan.verification.statistics import EVIDENCE_FALSE_ALARM, FALSE_ALARM, noise_p_value


@register("noise planned", order=70)
def noise_planned(run: Run) -> Check:
    """Each release records its planned noise multiplier, or more to provide for dropouts."""
    provision = 1 / math.sqrt(1 - run.plan.spec.planning.dropout_tolerance)

    def problems() -> Iterator[str]:
        for release, share, recorded, planned in _multipliers(run):
            least, most = planned * (1 - 1e-9), planned * provision * (1 + 1e-9)
            if not least <= recorded <= most:
                yield (
                    f"round {release.round}, {share.group}: noise multiplier {recorded:.6g}, "
                    f"planned {planned:.6g}"
                )

    reason = "every release has its planned noise multiplier"
    return first(problems(), "noise planned", reason, unreleased(run))


@register("noise shares", order=80)
def noise_shares(run: Run) -> Check:
    """No cohort was too small to reach the planned noise.

    Noise that clients add in equal shares, 1/r of the variance each, is below the planned noise
    whenever fewer than r clients report; the noise of a release must not depend on its cohort.
    """

    def problems() -> Iterator[str]:
        expected = {group.name: group.expected_cohort for group in run.plan.groups}
        for release, share, recorded, planned in _multipliers(run):
            shares = expected[share.group] * (recorded / planned) ** 2
            short = share.cohort is None or share.cohort < expected[share.group]
            if recorded < planned * (1 - 1e-9) and short:
                yield (
                    f"round {release.round}, {share.group}: a cohort of {share.cohort} drew "
                    f"{shares:.3g} of {expected[share.group]:.3g} shares of the planned variance"
                )

    reason = "no short cohort fell short of the planned noise"
    return first(problems(), "noise shares", reason, unreleased(run))


def _multipliers(run: Run) -> Iterator[tuple[ReleaseRecord, GroupShare, float, float]]:
    """Each release that is not silent, with its recorded and its planned noise multiplier."""
    for group in run.plan.groups:
        for release, share in run.shares(group.name):
            if not release.noise.silent:
                recorded = release.release_for(share).noise_multiplier
                yield release, share, recorded, at_round(run, group, release)[1]


@register("noise drawn", order=90, false_alarm=FALSE_ALARM)
def noise_drawn(run: Run) -> Check:
    """The drawn noise has the recorded standard deviation, by chi-square tests."""
    name, releases = "noise drawn", [r for r in run.ledger.records if r.noise.noisy]
    if run.ledger.records and all(r.noise.silent for r in run.ledger.records):
        return passed(name, NOTHING_LEFT)
    if not releases:
        return failed(name, "no noise was drawn: epsilon is infinite")
    level = FALSE_ALARM / (len(releases) + len({r.family for r in releases}))

    def problems() -> Iterator[str]:
        of_family: dict[str, tuple[float, int]] = {}
        for release in releases:
            drawn_squares, std, count = (
                release.noise_sum_squares,
                release.noise_std,
                release.dimension,
            )
            if drawn_squares is None:
                continue
            if std == 0 or count == 0 or release.noise.p_value(drawn_squares, std, count) < level:
                measured = math.sqrt(drawn_squares / max(count, 1))
                yield f"round {release.round}: drawn with {measured:.6g}, recorded {std:.6g}"
            squares, drawn = of_family.get(release.family, (0.0, 0))
            of_family[release.family] = squares + drawn_squares / std**2, drawn + count
        for family, (squares, drawn) in of_family.items():
            if NOISE_FAMILIES.get(family).p_value(squares, 1.0, drawn) < level:
                yield f"all rounds: {math.sqrt(squares / drawn):.6g} times the recorded deviation"

    coordinates = sum(release.dimension for release in releases)
    reason = f"chi-square over {coordinates} coordinates, false alarms at most {FALSE_ALARM:g}"
    squares = lacking("sums of squares", (one.noise_sum_squares is None for one in releases))
    return first(problems(), name, reason, chain(unreleased(run), squares))


@register("noise fresh", order=100)
def noise_fresh(run: Run) -> Check:
    """No generator state was used twice, and no noise vector was reused, with any signs.

    Two draws with equal sums of squares (as doubles) are the same draw: two independent draws have
    equal sums with a probability below 1e-13 for up to a million coordinates.
    """

    def problems() -> Iterator[str]:
        states: dict[str, int] = {}
        draws: dict[tuple[float, float], int] = {}
        for release in run.ledger.records:
            if not release.noise.noisy:
                continue
            here, state = f"round {release.round}", release.noise_state
            if state and state in states:
                yield f"{here}: the generator stood where it did in round {states[state]}"
            states[state] = release.round
            if release.noise_sum_squares is None:
                continue
            drawn = (release.noise_std, release.noise_sum_squares)
            if drawn in draws:
                yield f"{here}: the noise is that of round {draws[drawn]} again"
            draws[drawn] = release.round

    sent = [release for release in run.ledger.records if not release.noise.silent]
    reason = f"{len(sent)} states of the generator, none used twice" if sent else NOTHING_LEFT
    states = lacking("states of the generator", (not release.noise_state for release in sent))
    return first(problems(), "noise fresh", reason, chain(unreleased(run), states))


# --- Checks of the measured noise: its distribution, its coverage and its independence. ----------
#
# The measurements (``noise.jsonl``) are the training loop's, not the mechanism's. Each check
# raises a false alarm in at most ``EVIDENCE_FALSE_ALARM`` of honest runs, shared among all its
# statistics.

LAGS = 8
"""Number of earlier rounds with which the noise of a group is correlated, over the whole run."""
PAIRED_RELEASES = 3_000
"""Most releases of which every pair is correlated; in longer runs the first ones."""
SAME = 1e-6
"""Relative tolerance between a measurement's sum of squares and the ledger's."""

Measured = list[tuple[ReleaseRecord, NoiseEvidence]]
Problems = Callable[[Measured, float], Iterator[str]]


@dataclass(frozen=True)
class _Evidence:
    """Gaussian releases on sums with their measurements, what is missing, and what is wrong."""

    measured: Measured
    missing: tuple[str, ...]
    fault: str | None


def positions(run: Run) -> Iterator[tuple[int, ReleaseRecord]]:
    """The releases of a run, each with its position among those of its round, from 0."""
    seen: dict[int, int] = {}
    for release in run.ledger.records:
        index = seen.get(release.round, 0)
        seen[release.round] = index + 1
        yield index, release


def _gaussian_sums(run: Run) -> list[tuple[int, ReleaseRecord]]:
    return [
        (index, release)
        for index, release in positions(run)
        if release.noise.normal and release.unit == "client"
    ]


def _evidence(run: Run) -> _Evidence:
    found, fault = ({}, None) if run.folder is None else read_noise_evidence(run.folder)
    releases = _gaussian_sums(run)
    measured: Measured = []
    for index, release in releases:
        one = found.get((release.round, index))
        if one is None:
            continue
        measured.append((release, one))
        if fault is None and not _of_release(one, release):
            fault = f"round {release.round}: the measured noise is not that of the release"
    known = {(release.round, index) for index, release in positions(run)}
    # A run that was killed may have measured a release that its ledger does not have.
    whole = run.ledger.fault is None and run.record.status != "running"
    if fault is None and whole and (other := found.keys() - known):
        round_, index = min(other)
        fault = f"round {round_}: release {index + 1} was measured and is not in the ledger"
    absent = len(releases) - len(measured)
    missing = (f"measurements of the noise ({absent} of {len(releases)})",) if absent else ()
    return _Evidence(measured, missing, fault)


def _of_release(one: NoiseEvidence, release: ReleaseRecord) -> bool:
    """Whether a measurement agrees with the ledger and with itself."""
    if release.residual is None or one.coordinates != release.dimension:
        return False
    squares = one.sum_squares / release.noise_std**2 if release.noise_std > 0 else 0.0
    totals = [release.residual.sum_squares / max(release.noise_std, 1e-300) ** 2]
    totals += [sum(part) for part in (one.block_squares, one.layer_squares) if part]
    lengths = (CELLS, len(TAILS), len(block_lengths(one.coordinates)))
    return (
        all(abs(total - squares) <= SAME * max(squares, 1.0) for total in totals)
        and sum(one.cells) == one.coordinates
        and (len(one.cells), len(one.tails), len(one.block_squares)) == lengths
        and sum(one.layers) in (0, one.coordinates)
        and len(one.layers) == len(one.layer_squares)
    )


def _check(run: Run, name: str, problems: Problems, reason: str) -> Check:
    """A check of measured noise; not shown where a release was not measured."""
    if not _gaussian_sums(run):
        return first(iter(()), name, "does not apply, no Gaussian noise on sums")
    evidence = _evidence(run)

    def faults() -> Iterator[str]:
        if evidence.fault is not None:
            yield evidence.fault
        elif evidence.measured:
            yield from problems(evidence.measured, EVIDENCE_FALSE_ALARM)

    check = first(faults(), name, f"{reason}, false alarms at most {EVIDENCE_FALSE_ALARM:g}")
    if check.passed and evidence.missing:
        # Without the seed these measurements are the only evidence of the noise's distribution.
        keyed = run.record.noise == "secure" and run.record.seed is not None
        return not_shown(name, evidence.missing, required=keyed)
    return check


@register("noise distribution", order=101, false_alarm=EVIDENCE_FALSE_ALARM)
def noise_distribution(run: Run) -> Check:
    """The noise of each release has the normal law: distance, cells, tails, lattice, energy."""
    coordinates = sum(release.dimension for _, release in _gaussian_sums(run))
    reason = f"{coordinates} coordinates fit the normal law"
    return _check(run, "noise distribution", _unlike_normal, reason)


def _unlike_normal(measured: Measured, rate: float) -> Iterator[str]:
    level = rate / 5
    for release, one in measured:
        where = f"round {release.round}"
        if statistics.ks_p_value(one.ks, one.coordinates) < level / len(measured):
            yield f"{where}: Kolmogorov-Smirnov distance {one.ks:.3g} from the normal law"
        if statistics.close_pairs_p_value(one.close, [one.coordinates]) < level / 2 / len(measured):
            yield f"{where}: {one.close} pairs of equal noise, so it is on a grid or repeated"
    sizes = [one.coordinates for _, one in measured]
    total, close = sum(sizes), sum(one.close for _, one in measured)
    if statistics.close_pairs_p_value(close, sizes) < level / 2:
        yield f"all rounds: {close} pairs of equal noise, so it is on a grid or repeated"
    cells = np.sum([one.cells for _, one in measured], axis=0)
    distance = np.abs(np.cumsum(cells) / total - np.arange(1, CELLS + 1) / CELLS).max()
    odd_cells = statistics.counts_p_values(cells, total, np.full(CELLS, 1 / CELLS))
    if (
        statistics.ks_p_value(float(distance), total) < level / 2
        or odd_cells.min() < level / 2 / CELLS
    ):
        yield f"all rounds: distance {distance:.3g} from the normal law"
    tails = np.sum([one.tails for _, one in measured], axis=0)
    chances = statistics.counts_p_values(tails, total, statistics.tail_probabilities(TAILS))
    if chances.min() < level / len(TAILS):
        worst = int(chances.argmin())
        expected = statistics.tail_probabilities(TAILS)[worst] * total
        yield (
            f"all rounds: {tails[worst]} coordinates beyond {TAILS[worst]:g} deviations, "
            f"about {expected:.3g} expected"
        )
    energy = sum(sum(one.block_squares) for _, one in measured)
    if statistics.squares_p_values(np.array([energy]), np.array([total]))[0] < level:
        yield f"all rounds: {np.sqrt(energy / total):.6g} times the recorded deviation"


@register("noise coverage", order=102, false_alarm=EVIDENCE_FALSE_ALARM)
def noise_coverage(run: Run) -> Check:
    """Each layer, block of coordinates and random projection has the recorded noise."""
    reason = "layers, blocks and projections have the recorded noise"
    return _check(run, "noise coverage", _uneven, reason)


def _uneven(measured: Measured, rate: float) -> Iterator[str]:
    level = rate / 4
    for kind in ("layer", "block"):
        squares: list[float] = []
        lengths: list[int] = []
        where: list[tuple[int, int]] = []
        for release, one in measured:
            parts = one.layers if kind == "layer" else tuple(block_lengths(one.coordinates))
            squares += one.layer_squares if kind == "layer" else one.block_squares
            lengths += parts
            where += [(release.round, number) for number in range(1, len(parts) + 1)]
        if not squares:
            continue
        values, sizes = np.array(squares), np.array(lengths)
        chances = statistics.squares_p_values(values, sizes)
        worst = int(chances.argmin())
        if chances[worst] < level / 2 / len(values):
            ratio = np.sqrt(values[worst] / sizes[worst])
            round_, number = where[worst]
            yield f"round {round_}, {kind} {number}: {ratio:.3g} times the recorded deviation"
        yield from _uneven_in_all(kind, values, sizes, where, level / 2)
    for n, group in _by_length(measured).items():
        projections = np.array(group)
        rows, columns = projections.shape
        energy = statistics.squares_p_values(np.square(projections).sum(0), np.full(columns, rows))
        mean = statistics.normal_p_values(projections.sum(0) / np.sqrt(rows))
        share = level * rows / len(measured) / columns
        if energy.min() < share:
            yield f"all rounds: unequal noise on random projections of {n} coordinates"
        if mean.min() < share:
            yield f"all rounds: a part of the noise is the same in all {rows} releases"


def _uneven_in_all(
    kind: str,
    values: np.ndarray,
    sizes: np.ndarray,
    where: list[tuple[int, int]],
    level: float,
) -> Iterator[str]:
    """Layers or blocks whose noise over all releases does not have the recorded deviation."""
    numbers = np.array([number for _, number in where])
    energy, counts = np.bincount(numbers, values), np.bincount(numbers, sizes)
    chances = statistics.squares_p_values(energy[1:], counts[1:])
    worst = int(chances.argmin())
    if chances[worst] < level / len(chances):
        ratio = np.sqrt(energy[worst + 1] / counts[worst + 1])
        yield f"all rounds, {kind} {worst + 1}: {ratio:.3g} times the recorded deviation"


def _by_length(measured: Measured) -> dict[int, list[tuple[float, ...]]]:
    """Projections of the releases by number of coordinates, which fixes the projections."""
    found: dict[int, list[tuple[float, ...]]] = {}
    for _, one in measured:
        found.setdefault(one.coordinates, []).append(one.projections)
    return found


@register("noise independence", order=103, false_alarm=EVIDENCE_FALSE_ALARM)
def noise_independence(run: Run) -> Check:
    """The noise is independent within a release, across groups, across rounds and of the sum."""
    reason = "no correlation within releases, across groups, rounds or with the sums"
    return _check(run, "noise independence", _dependent, reason)


def _dependent(measured: Measured, rate: float) -> Iterator[str]:
    level = rate / 4
    lags = np.array([max(1, one.coordinates - 1) for _, one in measured])
    values = np.array([one.autocorrelation for _, one in measured])
    sizes = np.array([one.coordinates for _, one in measured])
    chances = statistics.lagged_p_values(values, sizes) * lags
    worst = int(chances.argmin())
    if chances[worst] < level / len(measured):
        release, one = measured[worst]
        yield (
            f"round {release.round}: correlation {one.autocorrelation / one.coordinates:.2g} of "
            f"coordinates {one.lag} apart"
        )
    for n in sorted({one.coordinates for _, one in measured}):
        same = [(release, one) for release, one in measured if one.coordinates == n]
        yield from _dependent_pairs(same, level * len(same) / len(measured))
        yield from _dependent_lags(same, level * len(same) / len(measured))
    along = [
        release.residual.along_sum / release.noise_std
        for release, _ in measured
        if release.residual is not None and release.residual.along_sum is not None
    ]
    if (
        along
        and statistics.normal_p_values(np.array([sum(along) / np.sqrt(len(along))]))[0] < level
    ):
        yield "all rounds: the noise is correlated with the clean sum"


def _dependent_pairs(same: Measured, level: float) -> Iterator[str]:
    """Two releases whose noise is correlated, over all pairs."""
    same = same[:PAIRED_RELEASES]
    vectors = np.array([one.projections for _, one in same])
    first_, second = np.triu_indices(len(same), 1)
    if not len(first_):
        return
    products = (vectors @ vectors.T)[first_, second]
    chances = statistics.product_p_values(products, vectors.shape[1])
    worst = int(chances.argmin())
    if chances[worst] < level / len(chances):
        left, right = same[first_[worst]][0], same[second[worst]][0]
        lengths = np.linalg.norm(vectors[[first_[worst], second[worst]]], axis=1)
        yield (
            f"rounds {left.round} ({left.shares[0].group}) and {right.round} "
            f"({right.shares[0].group}): correlation {products[worst] / lengths.prod():.2g} "
            "of their noise"
        )


def _dependent_lags(same: Measured, level: float) -> Iterator[str]:
    """Correlation of a group's noise with that of earlier rounds, and of groups in a round."""
    by_round: dict[int, dict[str, np.ndarray]] = {}
    for release, one in same:
        names = ", ".join(share.group for share in release.shares)
        by_round.setdefault(release.round, {})[names] = np.array(one.projections)
    groups = sorted({name for found in by_round.values() for name in found})
    number = len(groups) * LAGS + len(groups) * (len(groups) - 1) // 2
    for name in groups:
        own = {round_: found[name] for round_, found in by_round.items() if name in found}
        for lag in range(1, LAGS + 1):
            pairs = [(own[r], own[r + lag]) for r in own if r + lag in own]
            product = sum(float(x @ y) for x, y in pairs)
            normals = len(own) * len(same[0][1].projections)
            if statistics.lagged_p_values(np.array([product]), normals)[0] < level / number:
                correlation = product / (len(pairs) * len(same[0][1].projections))
                yield f"{name}: correlation {correlation:.2g} with the noise {lag} rounds before"
    for position, left in enumerate(groups):
        for right in groups[position + 1 :]:
            both = [found for found in by_round.values() if left in found and right in found]
            product = sum(float(found[left] @ found[right]) for found in both)
            normals = max(1, len(both) * len(same[0][1].projections))
            if statistics.product_p_values(np.array([product]), normals)[0] < level / number:
                yield f"{left} and {right}: correlation {product / normals:.2g} in the same round"


# --- Checks that a release is its sum plus noise, on coordinates chosen without data. ------------

ROUNDING = 1e-3
"""Relative tolerance on a client's local steps and their noise, for single precision."""
PUBLIC_TRANSFORM = "random_mask"
"""The transform whose masks can be drawn again from the seed."""
LARGEST = 2**30
"""Longest vector whose masks are drawn again, for memory: 8 GiB."""


@register("sums", order=110, false_alarm=FALSE_ALARM)
def sums(run: Run) -> Check:
    """Each release is its clipped sum plus Gaussian noise of the recorded standard deviation.

    The residual, measured outside the mechanism, is the release minus the sum that entered the
    mechanism. Its sum of squares and its component along the sum are tested, because a sum that
    was scaled, clipped or noised differently changes one of them. The component along the sum,
    divided by the standard deviation, is standard normal for any sum. For a client that adds
    noise locally, the residual is its update minus its noise, whose norm is at most that of the
    clipped gradients of the records in its batches.
    """
    measured = [
        (release, release.residual)
        for release in run.ledger.records
        if release.residual is not None and release.noise.noisy
    ]
    summed = [(release, residual) for release, residual in measured if release.unit == "client"]
    level = FALSE_ALARM / (2 * len(summed) + 2)

    def problems() -> Iterator[str]:
        for release, residual in measured:
            if release.unit == "record":
                yield from _too_long(release, residual, run.plan.spec.local.momentum)
        squares, along, drawn, components = 0.0, 0.0, 0, 0
        for release, residual in summed:
            std, where = release.noise_std, f"round {release.round}"
            if release.noise.p_value(residual.sum_squares, std, release.dimension) < level:
                rest = math.sqrt(residual.sum_squares / max(release.dimension, 1))
                yield f"{where}: released is the sum and a rest of {rest:.6g}, recorded {std:.6g}"
            if not release.noise.normal:  # its sum of squares and projection are not chi-square
                continue
            squares, drawn = squares + residual.sum_squares / std**2, drawn + release.dimension
            if residual.along_sum is not None:
                along, components = along + (residual.along_sum / std) ** 2, components + 1
                if noise_p_value(residual.along_sum**2, std, 1) < level:
                    yield f"{where}: released is not the sum and its noise but a multiple of it"
        if noise_p_value(squares, 1.0, drawn) < level:
            yield f"all rounds: a rest of {math.sqrt(squares / drawn):.6g} times the recorded noise"
        if noise_p_value(along, 1.0, components) < level:
            yield "all rounds: released are not the sums and their noise but multiples of them"

    def missing() -> Iterator[str]:
        sent = [release for release in run.ledger.records if not release.noise.silent]
        yield from unreleased(run)
        yield from lacking("residuals", map(_unmeasured, sent))
        along = (residual.along_sum is None for release, residual in summed if _has_sum(release))
        yield from lacking("parts of residuals along the sum", along)

    reason = f"each of {len(measured)} measured releases is its sum and its noise"
    return first(problems(), "sums", reason if measured else NOTHING_LEFT, missing())


def _unmeasured(release: ReleaseRecord) -> bool:
    """Whether a release lacks its residual.

    A client whose update was not finite sends zero instead, and is recorded as excluded.
    """
    zero = release.unit == "record" and all(share.excluded for share in release.shares)
    return release.residual is None and not zero


def _has_sum(release: ReleaseRecord) -> bool:
    """Whether a client added an update that is not zero."""
    return any(share.largest_norm is None or share.largest_norm > 0 for share in release.shares)


def _too_long(release: ReleaseRecord, residual: Residual, momentum: float) -> Iterator[str]:
    """Why a client's update without its noise is larger than its clipped records allow."""
    [share] = release.shares
    if share.cohort is None or release.noise_sum_squares is None:
        return
    reach = sum(momentum**step for step in range(release.steps))
    records, noise = share.cohort * (share.clip_bound or 0.0), math.sqrt(release.noise_sum_squares)
    allowed = reach * (records + ROUNDING * (records + noise))
    if (norm := math.sqrt(residual.sum_squares)) > allowed:
        yield (
            f"round {release.round}, {share.group}: a client sent {norm:.6g} beside its noise, "
            f"the {share.cohort} clipped records of its batches allow {allowed:.6g}"
        )


@register("coordinates", order=60)
def coordinates(run: Run) -> Check:
    """Only coordinates that the algorithm releases left the clients, by data-independent masks."""
    executed = run.record.executed
    if executed is None:
        return not_shown("coordinates", ["the released coordinates in the record"])
    header, _ = run.evidence

    def problems() -> Iterator[str]:
        yield from evidence_fault(run)
        total = executed.coordinates
        for name, part in (
            ("shared", executed.shared),
            *((m.name, m.size) for m in executed.masks),
        ):
            if part > total:
                yield f"record.executed.{name}: must be at most {total} coordinates, found {part}"
        # A paid quantile appends its count to the parameters, other transforms what they need.
        if header is not None and not header.parameters <= total <= 2 * header.parameters:
            yield f"record.executed.coordinates: must be {header.parameters}, found {total}"
        fixed: str | None = None
        for release in run.ledger.records:
            where = f"round {release.round}"
            failed = bool(release.failure) and run.record.seed is None  # only of deployments
            if release.noise.silent and executed.released and not failed:
                yield f"{where}: no release, where {executed.released} coordinates are shared"
            if not release.noise.noisy:
                continue
            dimension = release.dimension / release.steps
            if dimension > executed.released:
                left = f"{dimension:g} coordinates left the clients"
                yield f"{where}: {left}, {executed.released} may"
            if not executed.masks:
                if dimension < executed.released:
                    covered = f"{dimension:g} of {executed.released}"
                    yield f"{where}: noise on {covered} coordinates"
                fixed = release.support if fixed is None else fixed
                if release.support != fixed:
                    yield f"{where}: other coordinates than in the first round, without a mask"
            elif (why := _not_public(run.record.seed, release, executed)) is not None:
                yield f"{where}: {why}"

    masks = f", {len(executed.masks)} random masks drawn again" if executed.masks else ""
    reason = f"{executed.released} may leave a client{masks}"
    missing = [*unreleased(run), *without_evidence(run, "the number of parameters")]
    return first(problems(), "coordinates", reason, missing)


def _not_public(seed: int | None, release: ReleaseRecord, executed: Executed) -> str | None:
    """Why the mask cannot be the public one; None where it is, or where that is not known."""
    whole = executed.shared == executed.coordinates
    if seed is None or not whole or any(mask.name != PUBLIC_TRANSFORM for mask in executed.masks):
        return None
    length = executed.coordinates - executed.appended
    if length > LARGEST:
        return None
    expected = public_mask.draw_mask(seed, release.round, executed.masks, length)
    if release.dimension != len(expected) + executed.appended:
        return f"noise on {release.dimension} coordinates, the public mask has {len(expected)}"
    if release.support != public_mask.mask_digest(expected):
        return "the coordinates are not those of the public mask, so they depend on data"
    return None
