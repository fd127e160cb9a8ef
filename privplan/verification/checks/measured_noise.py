"""Checks of the measured noise: its distribution, its coverage and its independence.

The measurements (``noise.jsonl``) are the training loop's, not the mechanism's. Each
check raises a false alarm in at most ``EVIDENCE_FALSE_ALARM`` of honest runs, shared
among all its tests by the union bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np

from privplan.evidence.measurement import block_lengths
from privplan.evidence.noise import (
    CELLS,
    DECIMALS,
    TAILS,
    Measurements,
    NoiseEvidence,
    read_noise_evidence,
)
from privplan.record import ReleaseRecord
from privplan.verification.checks import check
from privplan.verification.checks.noise_p_values import (
    close_pairs_p_value,
    counts_p_values,
    ks_p_value,
    lagged_p_values,
    normal_p_values,
    product_p_values,
    squares_p_values,
    tail_probabilities,
)
from privplan.verification.checks.regenerated_noise import (
    NO_GAUSSIAN,
    gaussian_sums,
    noise_is_of_seed,
)
from privplan.verification.run import Run

# Earlier rounds with which the noise of a group is correlated, over the run.
LAGS = 8
# Most releases of which every pair is correlated: the first ones. Their products take
# 72 MB.
PAIRED_RELEASES = 3_000
# Relative tolerance between a measurement's sum of squares and the ledger's.
SAME = 1e-6

Measured = list[tuple[ReleaseRecord, NoiseEvidence]]
"""Releases of Gaussian sums that were measured, each with its measurements."""
Problems = Callable[[Measured, float], Iterator[str]]
"""What speaks against the noise, where honest noise is accused at most at a rate."""


@check.register("noise distribution", order=101, false_alarm=check.EVIDENCE_FALSE_ALARM)
def noise_distribution(run: Run) -> check.Check:
    """The noise of each release has the normal law.

    Tested are its distance from that law, the numbers in its cells and tails, a
    lattice, and its energy. Noise of the right variance and another shape, such as few
    large values among zeros, leaves most coordinates in the clear.
    """
    coordinates = sum(release.dimension for _, release in run.once(gaussian_sums))
    reason = f"{coordinates} coordinates fit the normal law"
    return _check(run, "noise distribution", unlike_normal, reason)


@check.register("noise coverage", order=102, false_alarm=check.EVIDENCE_FALSE_ALARM)
def noise_coverage(run: Run) -> check.Check:
    """Each layer, block of coordinates and projection has the recorded noise.

    The energy of a whole release does not tell a layer without any noise from one with
    more than its part.
    """
    reason = "layers, blocks and projections have the recorded noise"
    return _check(run, "noise coverage", uneven, reason)


@check.register("noise independence", order=103, false_alarm=check.EVIDENCE_FALSE_ALARM)
def noise_independence(run: Run) -> check.Check:
    """The noise is independent: in a release, of others, and of the sum.

    Noise that is repeated with another sign, shared by groups or taken from an earlier
    round cancels for whoever adds or subtracts releases.
    """
    reason = "no correlation within releases, across groups, rounds or with the sums"
    return _check(run, "noise independence", dependent, reason)


def _check(run: Run, name: str, problems: Problems, reason: str) -> check.Check:
    """A check of measured noise; not shown where a release was not measured.

    Args:
        run: the run.
        name: of the check.
        problems: what speaks against the noise.
        reason: what the check shows where nothing does.
    """
    # The noise of a deployment nobody can draw again.
    can_be_drawn_again = run.record.seed is not None
    if not run.once(gaussian_sums):
        noisy = sum(release.noise.noisy for release in run.ledger.records)
        if can_be_drawn_again or not noisy:
            return check.passed(name, NO_GAUSSIAN)
        unmeasured = f"measurements of the noise ({noisy} of {noisy})"
        return check.not_shown(name, [unmeasured])

    measured, missing, fault = run.once(_measurements)
    reason = f"{reason}, false alarms at most {check.EVIDENCE_FALSE_ALARM:g}"
    faults: Iterator[str] = iter(())
    if run.once(noise_is_of_seed):
        # The draw is known, so how likely it was is no evidence.
        reason = "the noise of every release is the seed's"
    elif measured:
        faults = problems(measured, check.EVIDENCE_FALSE_ALARM)
    if fault is not None:
        faults = iter([fault])

    # Without the seed these measurements are the only evidence of the noise's
    # distribution.
    keyed = run.record.noise == "secure"
    required = keyed or run.writes_evidence or not can_be_drawn_again
    return check.first(faults, name, reason, missing, required=required)


def _measurements(run: Run) -> tuple[Measured, list[str], str | None]:
    """Gaussian sums with their measurements, what is missing, and what is wrong.

    A run that was killed may have measured a release that its ledger does not have.
    Any other measurement without a release is a fault.
    """
    by_release: Measurements = {}
    fault: str | None = None
    if run.folder is not None:
        by_release, fault = read_noise_evidence(run.folder)
    releases = run.once(gaussian_sums)
    measured: Measured = []
    for index, release in releases:
        measurement = by_release.get((release.round, index))
        if measurement is None:
            continue
        measured.append((release, measurement))
        if fault is None and not _is_of_release(measurement, release):
            where = f"round {release.round}"
            fault = f"{where}: the measured noise is not that of the release"

    in_ledger = {(release.round, index) for index, release in run.numbered}
    unknown = by_release.keys() - in_ledger
    is_whole = run.ledger.fault is None and run.record.status != "running"
    if fault is None and is_whole and unknown:
        round_, index = min(unknown)
        which = f"round {round_}: release {index + 1}"
        fault = f"{which} was measured and is not in the ledger"

    absent = len(releases) - len(measured)
    missing = []
    if absent:
        missing.append(f"measurements of the noise ({absent} of {len(releases)})")
    return measured, missing, fault


def _is_of_release(measured: NoiseEvidence, release: ReleaseRecord) -> bool:
    """Whether a measurement agrees with the ledger and with itself.

    It has as many coordinates as the release. Its parts (blocks, layers, cells, tails)
    add up to the whole, and the sum of squares to that of the ledger.
    """
    if release.residual is None or measured.coordinates != release.dimension:
        return False
    std = release.noise_std
    # All sums of squares are of the same vector, in units of the variance. That of the
    # ledger must be 0, too, where the deviation is.
    squares = measured.sum_squares / std**2 if std > 0 else 0.0
    totals = [release.residual.sum_squares / max(std, 1e-300) ** 2]
    for squares_of_parts in (measured.block_squares, measured.layer_squares):
        if squares_of_parts:
            totals.append(sum(squares_of_parts))
    if any(abs(total - squares) > SAME * max(squares, 1.0) for total in totals):
        return False

    blocks = len(block_lengths(measured.coordinates))
    return (
        sum(measured.cells) == measured.distributed
        and len(measured.cells) == CELLS
        and len(measured.tails) == len(TAILS)
        and len(measured.block_squares) == blocks
        and sum(measured.layers) in (0, measured.coordinates)
        and len(measured.layers) == len(measured.layer_squares)
    )


def unlike_normal(measured: Measured, rate: float) -> Iterator[str]:
    """Distances, equal values, tails and energy that the normal law does not give."""
    # Five tests: distance of a release, equal pairs, distance, tails and energy of all.
    level = rate / 5
    yield from _unlike_normal_alone(measured, level)
    yield from _unlike_normal_together(measured, level)
    yield from _unlikely_tails(measured, level)
    yield from _unlikely_energy(measured, level)


def _unlike_normal_alone(measured: Measured, level: float) -> Iterator[str]:
    """Single releases whose distribution is not the normal law."""
    for release, noise in measured:
        where = f"round {release.round}"
        if ks_p_value(noise.ks, noise.distributed) < level / len(measured):
            distance = f"Kolmogorov-Smirnov distance {noise.ks:.3g}"
            yield f"{where}: {distance} from the normal law"
        chance = close_pairs_p_value(noise.close, [noise.distributed])
        if chance < level / 2 / len(measured):
            yield (
                f"{where}: {noise.close} pairs of equal noise, so it is on a grid or "
                "repeated"
            )


def _unlike_normal_together(measured: Measured, level: float) -> Iterator[str]:
    """All releases together: equal values, distance and cells."""
    sizes = [noise.distributed for _, noise in measured]
    total = sum(sizes)
    close = sum(noise.close for _, noise in measured)
    if close_pairs_p_value(close, sizes) < level / 2:
        yield (
            f"all rounds: {close} pairs of equal noise, so it is on a grid or repeated"
        )

    # The distance at the edges of the cells, and each cell.
    cells = np.sum([noise.cells for _, noise in measured], axis=0)
    below = np.cumsum(cells) / total
    distance = np.abs(below - np.arange(1, CELLS + 1) / CELLS).max()
    of_cells = counts_p_values(cells, total, np.full(CELLS, 1 / CELLS))
    is_far = ks_p_value(float(distance), total) < level / 2
    if is_far or of_cells.min() < level / 2 / CELLS:
        yield f"all rounds: distance {distance:.3g} from the normal law"


def _unlikely_tails(measured: Measured, level: float) -> Iterator[str]:
    """Numbers of large coordinates, of all releases together."""
    total = sum(noise.distributed for _, noise in measured)
    tails = np.sum([noise.tails for _, noise in measured], axis=0)
    chances = counts_p_values(tails, total, tail_probabilities(TAILS))
    if chances.min() < level / len(TAILS):
        worst = int(chances.argmin())
        expected = tail_probabilities(TAILS)[worst] * total
        yield (
            f"all rounds: {tails[worst]} coordinates beyond {TAILS[worst]:g} "
            f"deviations, about {expected:.3g} expected"
        )


def _unlikely_energy(measured: Measured, level: float) -> Iterator[str]:
    """The sum of squares of all coordinates."""
    energy = sum(sum(noise.block_squares) for _, noise in measured)
    count = sum(noise.coordinates for _, noise in measured)
    if squares_p_values(np.array([energy]), np.array([count]))[0] < level:
        ratio = np.sqrt(energy / count)
        yield f"all rounds: {ratio:.6g} times the recorded deviation"


def uneven(measured: Measured, rate: float) -> Iterator[str]:
    """Layers, blocks and projections with other noise than the recorded."""
    # Four tests: layers, blocks, energy and mean of the projections.
    level = rate / 4
    yield from _uneven_parts(_layers(measured), "layer", level)
    yield from _uneven_parts(_blocks(measured), "block", level)
    # The number of coordinates fixes the projections.
    for coordinates in dict.fromkeys(noise.coordinates for _, noise in measured):
        yield from _uneven_projections(measured, coordinates, level)


class _Part(NamedTuple):
    """A layer or a block of one release."""

    squares: float  # sum of squares of z
    length: int  # number of coordinates
    round: int  # of the release
    number: int  # among the parts of its release, from 1


def _layers(measured: Measured) -> list[_Part]:
    """The layers of all releases."""
    layers = []
    for release, noise in measured:
        pairs = zip(noise.layer_squares, noise.layers, strict=True)
        for number, (squares, length) in enumerate(pairs, start=1):
            layers.append(_Part(squares, length, release.round, number))
    return layers


def _blocks(measured: Measured) -> list[_Part]:
    """The blocks of all releases."""
    blocks = []
    for release, noise in measured:
        lengths = block_lengths(noise.coordinates)
        pairs = zip(noise.block_squares, lengths, strict=True)
        for number, (squares, length) in enumerate(pairs, start=1):
            blocks.append(_Part(squares, length, release.round, number))
    return blocks


def _uneven_parts(parts: list[_Part], kind: str, level: float) -> Iterator[str]:
    """Parts with other noise than the recorded, alone and over all rounds."""
    if not parts:
        return
    squares = np.array([part.squares for part in parts])
    lengths = np.array([part.length for part in parts])
    chances = squares_p_values(squares, lengths)
    worst = int(chances.argmin())
    if chances[worst] < level / 2 / len(parts):
        ratio = np.sqrt(squares[worst] / lengths[worst])
        where = f"round {parts[worst].round}, {kind} {parts[worst].number}"
        yield f"{where}: {ratio:.3g} times the recorded deviation"

    numbers = np.array([part.number for part in parts])
    energy = np.bincount(numbers, squares)[1:]
    counts = np.bincount(numbers, lengths)[1:]
    chances = squares_p_values(energy, counts)
    worst = int(chances.argmin())
    if chances[worst] < level / 2 / len(chances):
        ratio = np.sqrt(energy[worst] / counts[worst])
        where = f"all rounds, {kind} {worst + 1}"
        yield f"{where}: {ratio:.3g} times the recorded deviation"


def _uneven_projections(
    measured: Measured, coordinates: int, level: float
) -> Iterator[str]:
    """Projections of releases of one length that are unequal, or not around 0."""
    projections = np.array(
        [noise.projections for _, noise in measured if noise.coordinates == coordinates]
    )
    rows, columns = projections.shape
    counts = np.full(columns, rows)
    # Rounding to decimals changes much of an energy near 0: what speaks less against
    # the noise counts.
    magnitudes = np.abs(projections)
    smallest_energy = np.square(np.maximum(magnitudes - DECIMALS, 0.0)).sum(0)
    largest_energy = np.square(magnitudes + DECIMALS).sum(0)
    energy_chances = np.maximum(
        squares_p_values(smallest_energy, counts),
        squares_p_values(largest_energy, counts),
    )
    mean_chances = normal_p_values(projections.sum(0) / np.sqrt(rows))
    share = level * rows / len(measured) / columns
    if energy_chances.min() < share:
        what = f"random projections of {coordinates} coordinates"
        yield f"all rounds: unequal noise on {what}"
    if mean_chances.min() < share:
        yield f"all rounds: a part of the noise is the same in all {rows} releases"


def dependent(measured: Measured, rate: float) -> Iterator[str]:
    """Correlations within releases, between them, and with the sums."""
    # Four tests: within a release, pairs, lags, and along the sum.
    level = rate / 4
    yield from _dependent_within(measured, level)
    # Projections can be compared between vectors of one length.
    for coordinates in sorted({noise.coordinates for _, noise in measured}):
        of_length = [
            (release, noise)
            for release, noise in measured
            if noise.coordinates == coordinates
        ]
        share = level * len(of_length) / len(measured)
        yield from _dependent_pairs(of_length, share)
        yield from _dependent_lags(of_length, share)
    yield from _along_sum(measured, level)


def _dependent_within(measured: Measured, level: float) -> Iterator[str]:
    """The release whose noise is most correlated with itself, shifted."""
    sizes = np.array([noise.correlated for _, noise in measured])
    values = np.array([noise.autocorrelation for _, noise in measured])
    # The largest of all shifts was measured: a union bound over them.
    chances = lagged_p_values(values, sizes) * np.maximum(1, sizes - 1)
    worst = int(chances.argmin())
    if chances[worst] < level / len(measured):
        release, noise = measured[worst]
        correlation = noise.autocorrelation / sizes[worst]
        what = "blocks and sums" if noise.sample else "coordinates"
        yield (
            f"round {release.round}: correlation {correlation:.2g} of "
            f"{what} {noise.lag} apart"
        )


def _along_sum(measured: Measured, level: float) -> Iterator[str]:
    """Correlation of all noise with the sums that it was added to."""
    along = []
    for release, _ in measured:
        if release.residual is not None and release.residual.along_sum is not None:
            along.append(release.residual.along_sum / release.noise_std)
    if not along:
        return
    mean = np.array([sum(along) / np.sqrt(len(along))])
    if normal_p_values(mean)[0] < level:
        yield "all rounds: the noise is correlated with the clean sum"


def _dependent_pairs(measured: Measured, level: float) -> Iterator[str]:
    """The two releases of one length whose noise is most correlated, of all pairs."""
    measured = measured[:PAIRED_RELEASES]
    vectors = np.array([noise.projections for _, noise in measured])
    firsts, seconds = np.triu_indices(len(measured), 1)
    if not len(firsts):
        return
    products = (vectors @ vectors.T)[firsts, seconds]
    chances = product_p_values(products, vectors.shape[1])
    worst = int(chances.argmin())
    if chances[worst] < level / len(chances):
        earlier, _ = measured[firsts[worst]]
        later, _ = measured[seconds[worst]]
        norms = np.linalg.norm(vectors[[firsts[worst], seconds[worst]]], axis=1)
        correlation = products[worst] / norms.prod()
        yield (
            f"rounds {earlier.round} ({earlier.shares[0].group}) and {later.round} "
            f"({later.shares[0].group}): correlation {correlation:.2g} of their noise"
        )


def _dependent_lags(measured: Measured, level: float) -> Iterator[str]:
    """Correlations of a group's noise with earlier rounds, and of groups in a round.

    Args:
        measured: releases of one length.
        level: chance of an honest run to be accused, shared among all tests.
    """
    by_group = _projections_by_group(measured)
    names = sorted(by_group)
    level /= len(names) * LAGS + len(names) * (len(names) - 1) // 2
    for name in names:
        for lag in range(1, LAGS + 1):
            correlation = _lagged_correlation(by_group[name], lag, level)
            if correlation is not None:
                what = f"the noise {lag} rounds before"
                yield f"{name}: correlation {correlation:.2g} with {what}"
    for first_group, second_group in combinations(names, 2):
        correlation = _common_correlation(
            by_group[first_group], by_group[second_group], level
        )
        if correlation is not None:
            pair = f"{first_group} and {second_group}"
            yield f"{pair}: correlation {correlation:.2g} in the same round"


_ByRound = dict[int, np.ndarray]  # projections of a round's noise


def _projections_by_group(measured: Measured) -> dict[str, _ByRound]:
    """Projections by the group, or the groups, of a release, and by its round."""
    by_group: dict[str, _ByRound] = {}
    for release, noise in measured:
        groups = ", ".join(share.group for share in release.shares)
        projections = np.array(noise.projections)
        by_group.setdefault(groups, {})[release.round] = projections
    return by_group


def _lagged_correlation(by_round: _ByRound, lag: int, level: float) -> float | None:
    """Correlation of noise with that of rounds before; None where it is likely."""
    pairs = [
        (vector, by_round[round_ + lag])
        for round_, vector in by_round.items()
        if round_ + lag in by_round
    ]
    dimension = len(next(iter(by_round.values())))
    product = sum(float(earlier @ later) for earlier, later in pairs)
    chance = lagged_p_values(np.array([product]), len(by_round) * dimension)[0]
    if chance < level:
        return product / (len(pairs) * dimension)
    return None


def _common_correlation(
    lefts: _ByRound, rights: _ByRound, level: float
) -> float | None:
    """Correlation of the noise of two groups in a round; None where it is likely."""
    common = [round_ for round_ in lefts if round_ in rights]
    product = sum(float(lefts[round_] @ rights[round_]) for round_ in common)
    normals = max(1, len(common) * len(next(iter(lefts.values()))))
    chance = product_p_values(np.array([product]), normals)[0]
    if chance < level:
        return product / normals
    return None
