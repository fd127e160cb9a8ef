"""Checks that every release has fresh noise with the planned standard deviation.

Each p-value is an upper bound on the chance that an honest run looks at least as odd; it is exact
or follows from a Chernoff bound, never from a limit theorem. The same holds for cohorts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from scipy.special import bdtr, bdtrc, chdtr, chdtrc, ndtr

from privplan.accounting.families import NOISE_FAMILIES
from privplan.discrete_gaussian import discrete_gaussian
from privplan.evidence.measurement import block_lengths, projected
from privplan.evidence.noise import (
    CELLS,
    CLOSE,
    DECIMALS,
    TAILS,
    NoiseEvidence,
    read_noise_evidence,
)
from privplan.record import ReleaseRecord
from privplan.streams import Purpose, fingerprint
from privplan.verification.checks import check
from privplan.verification.checks.sums import longest_sum


@check.register("noise planned", order=70)
def noise_planned(run: check.Run) -> check.Check:
    """Each release records its planned noise multiplier, or more to provide for dropouts."""
    provision = 1 / math.sqrt(1 - run.plan.spec.planning.dropout_tolerance)

    def problems() -> Iterator[str]:
        for group in run.plan.groups:
            for release, share in run.shares(group.name):
                if release.noise.silent:
                    continue
                planned = check.at_round(run, group, release)[1]
                recorded = release.release_for(share).noise_multiplier
                if (
                    not planned * (1 - 1e-9)
                    <= recorded
                    <= planned * provision * (1 + 1e-9)
                ):
                    yield (
                        f"round {release.round}, {share.group}: noise multiplier {recorded:.6g}, "
                        f"planned {planned:.6g}"
                    )

    reason = "every release has its planned noise multiplier"
    return check.first(problems(), "noise planned", reason, check.unreleased(run))


@check.register("noise drawn", order=90, false_alarm=check.FALSE_ALARM)
def noise_drawn(run: check.Run) -> check.Check:
    """The drawn noise has the recorded standard deviation, by chi-square tests."""
    name, releases = "noise drawn", [r for r in run.ledger.records if r.noise.noisy]
    if run.ledger.records and all(r.noise.silent for r in run.ledger.records):
        return check.passed(name, check.NOTHING_LEFT)
    if not releases:
        return check.failed(name, "no noise was drawn: epsilon is infinite")
    level = check.FALSE_ALARM / (len(releases) + len({r.family for r in releases}))

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
            if (
                std == 0
                or count == 0
                or release.noise.p_value(drawn_squares, std, count) < level
            ):
                measured = math.sqrt(drawn_squares / max(count, 1))
                yield f"round {release.round}: drawn with {measured:.6g}, recorded {std:.6g}"
            squares, drawn = of_family.get(release.family, (0.0, 0))
            of_family[release.family] = squares + drawn_squares / std**2, drawn + count
        for family, (squares, drawn) in of_family.items():
            if NOISE_FAMILIES.get(family).p_value(squares, 1.0, drawn) < level:
                yield f"all rounds: {math.sqrt(squares / drawn):.6g} times the recorded deviation"

    coordinates = sum(release.dimension for release in releases)
    reason = (
        f"chi-square over {coordinates} coordinates, "
        f"false alarms at most {check.FALSE_ALARM:g}"
    )
    squares = check.lacking(
        "sums of squares", (one.noise_sum_squares is None for one in releases)
    )
    found = iter(()) if run.once(_is_of_seed) else problems()
    return check.first(found, name, reason, chain(check.unreleased(run), squares))


@check.register("noise fresh", order=100)
def noise_fresh(run: check.Run) -> check.Check:
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
    reason = (
        f"{len(sent)} states of the generator, none used twice"
        if sent
        else check.NOTHING_LEFT
    )
    states = check.lacking(
        "states of the generator", (not release.noise_state for release in sent)
    )
    return check.first(
        problems(), "noise fresh", reason, chain(check.unreleased(run), states)
    )


# --- Checks of the measured noise: its distribution, its coverage and its independence. ----------
# The measurements (``noise.jsonl``) are the training loop's, not the mechanism's. Each check
# raises a false alarm in at most ``EVIDENCE_FALSE_ALARM`` of honest runs, shared among all its
#

NO_GAUSSIAN = "does not apply, no Gaussian noise on sums"
LAGS = 8  # earlier rounds with which the noise of a group is correlated, over the run
PAIRED_RELEASES = (
    3_000  # most releases of which every pair is correlated: the first ones
)
SAME = (
    1e-6  # relative tolerance between a measurement's sum of squares and the ledger's
)

Measured = list[tuple[ReleaseRecord, NoiseEvidence]]
Problems = Callable[[Measured, float], Iterator[str]]


def _gaussian_sums(run: check.Run) -> list[tuple[int, ReleaseRecord]]:
    """Releases of sums with Gaussian noise, each with its position in its round."""
    return [
        (at, one)
        for at, one in run.numbered
        if one.noise.normal and one.unit == "client"
    ]


def _measurements(run: check.Run) -> tuple[Measured, list[str], str | None]:
    """Gaussian sums with their measurements, what is missing, and what is wrong."""
    found, fault = ({}, None) if run.folder is None else read_noise_evidence(run.folder)
    releases = run.once(_gaussian_sums)
    measured: Measured = []
    for index, release in releases:
        one = found.get((release.round, index))
        if one is None:
            continue
        measured.append((release, one))
        if fault is None and not _of_release(one, release):
            fault = (
                f"round {release.round}: the measured noise is not that of the release"
            )
    known = {(release.round, index) for index, release in run.numbered}
    # A run that was killed may have measured a release that its ledger does not have.
    whole = run.ledger.fault is None and run.record.status != "running"
    if fault is None and whole and (other := found.keys() - known):
        round_, index = min(other)
        fault = (
            f"round {round_}: release {index + 1} was measured and is not in the ledger"
        )
    absent = len(releases) - len(measured)
    missing = (
        [f"measurements of the noise ({absent} of {len(releases)})"] if absent else []
    )
    return measured, missing, fault


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
        and sum(one.cells) == one.distributed
        and (len(one.cells), len(one.tails), len(one.block_squares)) == lengths
        and sum(one.layers) in (0, one.coordinates)
        and len(one.layers) == len(one.layer_squares)
    )


def _check(run: check.Run, name: str, problems: Problems, reason: str) -> check.Check:
    """A check of measured noise; not shown where a release was not measured."""
    made_known = (
        run.record.seed is not None
    )  # the noise of a deployment nobody can draw again
    if not run.once(_gaussian_sums):
        noisy = sum(release.noise.noisy for release in run.ledger.records)
        if made_known or not noisy:
            return check.passed(name, NO_GAUSSIAN)
        return check.not_shown(
            name, [f"measurements of the noise ({noisy} of {noisy})"]
        )
    measured, missing, fault = run.once(_measurements)
    faults = problems(measured, check.EVIDENCE_FALSE_ALARM) if measured else iter(())
    reason = f"{reason}, false alarms at most {check.EVIDENCE_FALSE_ALARM:g}"
    # Without the seed these measurements are the only evidence of the noise's distribution.
    keyed = run.record.noise == "secure"
    if run.once(_is_of_seed):  # the draw is known, so how likely it was is no evidence
        faults, reason = iter(()), "the noise of every release is the seed's"
    required = keyed or run.writes_evidence or not made_known
    return check.first(
        faults if fault is None else [fault], name, reason, missing, required=required
    )


def _is_of_seed(run: check.Run) -> bool:
    """Whether the noise of every release was generated again from the seed and agrees."""
    few = (
        sum(release.dimension for _, release in run.once(_gaussian_sums)) <= COORDINATES
    )
    return few and not run.keyed and run.once(noise_regenerated).passed


@check.register("noise distribution", order=101, false_alarm=check.EVIDENCE_FALSE_ALARM)
def noise_distribution(run: check.Run) -> check.Check:
    """The noise of each release has the normal law: distance, cells, tails, lattice, energy."""
    coordinates = sum(release.dimension for _, release in run.once(_gaussian_sums))
    reason = f"{coordinates} coordinates fit the normal law"
    return _check(run, "noise distribution", _unlike_normal, reason)


def _unlike_normal(measured: Measured, rate: float) -> Iterator[str]:
    level = rate / 5
    for release, one in measured:
        where = f"round {release.round}"
        if ks_p_value(one.ks, one.distributed) < level / len(measured):
            yield f"{where}: Kolmogorov-Smirnov distance {one.ks:.3g} from the normal law"
        if close_pairs_p_value(one.close, [one.distributed]) < level / 2 / len(
            measured
        ):
            yield f"{where}: {one.close} pairs of equal noise, so it is on a grid or repeated"
    sizes = [one.distributed for _, one in measured]
    total, close = sum(sizes), sum(one.close for _, one in measured)
    if close_pairs_p_value(close, sizes) < level / 2:
        yield f"all rounds: {close} pairs of equal noise, so it is on a grid or repeated"
    cells = np.sum([one.cells for _, one in measured], axis=0)
    distance = np.abs(np.cumsum(cells) / total - np.arange(1, CELLS + 1) / CELLS).max()
    odd_cells = counts_p_values(cells, total, np.full(CELLS, 1 / CELLS))
    if (
        ks_p_value(float(distance), total) < level / 2
        or odd_cells.min() < level / 2 / CELLS
    ):
        yield f"all rounds: distance {distance:.3g} from the normal law"
    tails = np.sum([one.tails for _, one in measured], axis=0)
    chances = counts_p_values(tails, total, tail_probabilities(TAILS))
    if chances.min() < level / len(TAILS):
        worst = int(chances.argmin())
        expected = tail_probabilities(TAILS)[worst] * total
        yield (
            f"all rounds: {tails[worst]} coordinates beyond {TAILS[worst]:g} deviations, "
            f"about {expected:.3g} expected"
        )
    energy = sum(sum(one.block_squares) for _, one in measured)
    total = sum(one.coordinates for _, one in measured)
    if squares_p_values(np.array([energy]), np.array([total]))[0] < level:
        yield f"all rounds: {np.sqrt(energy / total):.6g} times the recorded deviation"


@check.register("noise coverage", order=102, false_alarm=check.EVIDENCE_FALSE_ALARM)
def noise_coverage(run: check.Run) -> check.Check:
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
            parts = (
                one.layers if kind == "layer" else tuple(block_lengths(one.coordinates))
            )
            squares += one.layer_squares if kind == "layer" else one.block_squares
            lengths += parts
            where += [(release.round, number) for number in range(1, len(parts) + 1)]
        if not squares:
            continue
        values, sizes = np.array(squares), np.array(lengths)
        chances = squares_p_values(values, sizes)
        worst = int(chances.argmin())
        if chances[worst] < level / 2 / len(values):
            ratio = np.sqrt(values[worst] / sizes[worst])
            round_, number = where[worst]
            yield f"round {round_}, {kind} {number}: {ratio:.3g} times the recorded deviation"
        numbers = np.array([number for _, number in where])
        energy, counts = (
            np.bincount(numbers, values)[1:],
            np.bincount(numbers, sizes)[1:],
        )
        chances = squares_p_values(energy, counts)
        worst = int(chances.argmin())
        if chances[worst] < level / 2 / len(chances):
            ratio = np.sqrt(energy[worst] / counts[worst])
            yield f"all rounds, {kind} {worst + 1}: {ratio:.3g} times the recorded deviation"
    for n in dict.fromkeys(
        one.coordinates for _, one in measured
    ):  # which fixes the projections
        projections = np.array(
            [one.projections for _, one in measured if one.coordinates == n]
        )
        rows, columns = projections.shape
        energy = squares_p_values(np.square(projections).sum(0), np.full(columns, rows))
        mean = normal_p_values(projections.sum(0) / np.sqrt(rows))
        share = level * rows / len(measured) / columns
        if energy.min() < share:
            yield f"all rounds: unequal noise on random projections of {n} coordinates"
        if mean.min() < share:
            yield f"all rounds: a part of the noise is the same in all {rows} releases"


@check.register("noise independence", order=103, false_alarm=check.EVIDENCE_FALSE_ALARM)
def noise_independence(run: check.Run) -> check.Check:
    """The noise is independent within a release, across groups, across rounds and of the sum."""
    reason = "no correlation within releases, across groups, rounds or with the sums"
    return _check(run, "noise independence", _dependent, reason)


def _dependent(measured: Measured, rate: float) -> Iterator[str]:
    level = rate / 4
    sizes = np.array([one.correlated for _, one in measured])
    values = np.array([one.autocorrelation for _, one in measured])
    chances = lagged_p_values(values, sizes) * np.maximum(1, sizes - 1)
    worst = int(chances.argmin())
    if chances[worst] < level / len(measured):
        release, one = measured[worst]
        yield (
            f"round {release.round}: correlation {one.autocorrelation / sizes[worst]:.2g} of "
            f"{'blocks and sums' if one.sample else 'coordinates'} {one.lag} apart"
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
        and normal_p_values(np.array([sum(along) / np.sqrt(len(along))]))[0] < level
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
    chances = product_p_values(products, vectors.shape[1])
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
        own = {
            round_: found[name] for round_, found in by_round.items() if name in found
        }
        for lag in range(1, LAGS + 1):
            pairs = [(own[r], own[r + lag]) for r in own if r + lag in own]
            product = sum(float(x @ y) for x, y in pairs)
            normals = len(own) * len(same[0][1].projections)
            if lagged_p_values(np.array([product]), normals)[0] < level / number:
                correlation = product / (len(pairs) * len(same[0][1].projections))
                yield f"{name}: correlation {correlation:.2g} with the noise {lag} rounds before"
    for position, left in enumerate(groups):
        for right in groups[position + 1 :]:
            both = [
                found for found in by_round.values() if left in found and right in found
            ]
            product = sum(float(found[left] @ found[right]) for found in both)
            normals = max(1, len(both) * len(same[0][1].projections))
            if product_p_values(np.array([product]), normals)[0] < level / number:
                yield f"{left} and {right}: correlation {product / normals:.2g} in the same round"


# --- The noise of a seeded simulation, generated again. ------------------------------------------
# This is exact: noise that the seed does not give is a fault. It applies where the record names the
# release of numpy that is installed here, because another one may draw differently from the same
# stream, and where the noise is that of the seed.

COORDINATES = 50_000_000  # most that are generated again; then every k-th release
LARGEST = (
    2**30
)  # most coordinates of one release whose noise is generated again, for memory: 8 GiB
SINGLE = 2.0**-23  # twice the relative error of a coordinate in single precision


@check.register("noise regenerated", order=104)
def noise_regenerated(run: check.Run) -> check.Check:
    """The noise of each release is what the generator of seed or key gives, where it stood.

    The generated noise is compared with the ledger's sum of squares, with the residual and with
    the measured projections, up to single precision.
    """
    name, releases = "noise regenerated", run.once(_gaussian_sums)
    if not releases:
        return check.passed(name, NO_GAUSSIAN)
    if run.other_streams is not None:
        return check.not_shown(name, [run.other_streams], required=False)
    if (
        run.keyed and run.key is None
    ):  # a state where the seed puts it is no state of a key
        faults = (
            f"round {release.round}, release {index + 1}: the generator stood where the seed puts "
            "it, the record names a secret key"
            for index, release in releases
            if release.noise_state
            == fingerprint(run.source(Purpose.NOISE, release.round, index))
        )
        return check.first(faults, name, "", ["the key of the noise"], required=False)
    measured = {} if run.folder is None else read_noise_evidence(run.folder)[0]
    every = math.ceil(sum(release.dimension for _, release in releases) / COORDINATES)
    offset = int(run.ledger.chain[:8] or "0", 16) % every
    stateless = sum(not release.noise_state for _, release in releases)
    whose = "key" if run.key else "seed"
    large = [release.dimension > LARGEST for _, release in releases]

    def problems() -> Iterator[str]:
        for number, (index, release) in enumerate(releases):
            source = run.source(Purpose.NOISE, release.round, index)
            where = f"round {release.round}, release {index + 1}"
            if release.noise_state and release.noise_state != fingerprint(source):
                yield f"{where}: the generator did not stand where the {whose} puts it"
            elif number % every == offset and not large[number]:
                drawn = _drawn(source, release)
                why = _other_noise(
                    release, measured.get((release.round, index)), drawn, whose
                )
                if why is not None:
                    yield f"{where}: {why}"

    missing = (
        [f"states of the generator ({stateless} of {len(releases)})"]
        if stateless
        else []
    )
    missing += check.lacking(f"noise of at most {LARGEST} coordinates", large)
    checked = len(range(offset, len(releases), every))
    reason = f"{len(releases)} states and the noise of {checked} releases are those of the {whose}"
    return check.first(problems(), name, reason, missing, required=False)


def _drawn(source: Any, release: ReleaseRecord) -> np.ndarray:
    """The noise of a release [n], drawn from its stream."""
    if release.grid is None:
        return np.asarray(source.standard_normal(release.dimension) * release.noise_std)
    scale = release.noise_std / release.grid
    return discrete_gaussian(source, scale, release.dimension) * release.grid


def _other_noise(
    release: ReleaseRecord,
    measured: NoiseEvidence | None,
    drawn: np.ndarray,
    whose: str,
) -> str | None:
    """How a release's evidence differs from generated noise [n]; None where it does not."""
    squares = float(np.square(drawn).sum())
    if release.noise_sum_squares is None:
        return None
    if not math.isclose(release.noise_sum_squares, squares, rel_tol=1e-9):
        ratio = math.sqrt(release.noise_sum_squares / squares)
        return f"the recorded noise is not the {whose}'s, its norm {ratio:.9g} times as large"
    norm = math.sqrt(squares)
    error = SINGLE * (norm + (longest_sum(release) or 0.0))
    if release.residual is not None:
        residual = math.sqrt(release.residual.sum_squares)
        if abs(residual - norm) > error:
            return f"the released noise is {residual / norm:.6g} times as large as the {whose}'s"
    if measured is not None and measured.coordinates == len(drawn):
        expected = projected(drawn / release.noise_std, measured.sample > 0)
        difference = np.abs(expected - np.asarray(measured.projections)).max()
        if difference > DECIMALS + error / release.noise_std:
            return f"the released noise is not the {whose}'s (by {difference:.2g} on a projection)"
    return None


# --- P-values of measured noise against independent standard normals. ----------------------------

DENSITY = 1 / math.sqrt(2 * math.pi)  # largest density of the standard normal law


def ks_p_value(distance: float, n: int) -> float:
    """P-value of a Kolmogorov-Smirnov distance (Massart 1990, the DKW inequality)."""
    return min(1.0, 2 * math.exp(-2 * n * distance**2))


def counts_p_values(
    counts: np.ndarray, n: int, probabilities: np.ndarray
) -> np.ndarray:
    """Exact two-sided binomial p-values of numbers of coordinates in cells or tails."""
    below = bdtr(counts, n, probabilities)
    above = np.where(
        counts > 0, bdtrc(np.maximum(counts - 1, 0), n, probabilities), 1.0
    )
    chances: np.ndarray = np.minimum(1.0, 2 * np.minimum(below, above))
    return chances


def tail_probabilities(limits: Sequence[float]) -> np.ndarray:
    """Probability that a standard normal exceeds each limit in absolute value."""
    probabilities: np.ndarray = 2 * ndtr(-np.asarray(limits))
    return probabilities


def squares_p_values(squares: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Exact two-sided chi-square p-values of sums of squares."""
    smaller = np.minimum(chdtr(counts, squares), chdtrc(counts, squares))
    chances: np.ndarray = np.minimum(1.0, 2 * smaller)
    return chances


def close_pairs_p_value(pairs: int, sizes: Sequence[int]) -> float:
    """P-value of the number of neighbouring sorted values that are closer than ``CLOSE``.

    With the distribution function as a transform, the values of a vector become n independent
    uniform variables, whose spacings are negatively associated and at most ``a`` with probability
    1 - (1 - a)^n. A multiplicative Chernoff bound holds for sums of negatively associated
    indicators (Dubhashi and Ranjan 1998).
    """
    mean = sum((n - 1) * -math.expm1(n * math.log1p(-CLOSE * DENSITY)) for n in sizes)
    if pairs <= mean or mean == 0:
        return 1.0
    return math.exp(min(0.0, pairs - mean - pairs * math.log(pairs / mean)))


def product_p_values(products: np.ndarray, n: int | np.ndarray) -> np.ndarray:
    """Chernoff bound on two-sided tails of sums of products x_i y_i of independent normals.

    The logarithm of the moment generating function at t is -(n / 2) log(1 - t^2).
    """
    s = np.maximum(np.abs(np.asarray(products, dtype=float)), 1e-12)
    t = 2 * s / (n + np.sqrt(np.square(np.asarray(n, dtype=float)) + 4 * s**2))
    bounds: np.ndarray = np.minimum(1.0, 2 * np.exp(-t * s - n / 2 * np.log1p(-(t**2))))
    return bounds


def lagged_p_values(products: np.ndarray, n: int | np.ndarray) -> np.ndarray:
    """As ``product_p_values`` for products z_i z_(i + lag) within one vector of n normals.

    The quadratic form has trace 0 and eigenvalues in [-1, 1] (the mean of a shift matrix
    and its transpose), so that by convexity the logarithm of its moment generating function at t is
    at most -(n / 4) log(1 - 4 t^2): half the exponent of ``product_p_values``.
    """
    chances: np.ndarray = np.minimum(
        1.0, 2 * np.sqrt(product_p_values(products, n) / 2)
    )
    return chances


def normal_p_values(values: np.ndarray) -> np.ndarray:
    """Exact two-sided p-values of standard normals."""
    chances: np.ndarray = 2 * ndtr(-np.abs(values))
    return chances
