"""The noise of a run, generated again from its seed or its key.

This is exact: noise that the seed does not give is a fault. It applies where the record
names the release of numpy that is installed here, because another one may draw
differently from the same stream, and where the noise is that of the seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from privplan.discrete_gaussian import discrete_gaussian
from privplan.evidence.measurement import projected
from privplan.evidence.noise import (
    DECIMALS,
    Measurements,
    NoiseEvidence,
    read_noise_evidence,
)
from privplan.record import ReleaseRecord
from privplan.streams import Purpose, fingerprint
from privplan.verification.checks import check
from privplan.verification.checks.clipping import longest_sum
from privplan.verification.run import Run

NO_GAUSSIAN = "does not apply, no Gaussian noise on sums"
# Most coordinates that are generated again, some seconds of work; above it the noise of
# every k-th release.
COORDINATES = 50_000_000
# Most coordinates of one release whose noise is generated again, for memory: 8 GiB.
LARGEST = 2**30
# Twice the relative error of a coordinate in single precision.
SINGLE = 2.0**-23


def gaussian_sums(run: Run) -> list[tuple[int, ReleaseRecord]]:
    """Releases of sums with Gaussian noise, each with its position in its round."""
    return [
        (index, release)
        for index, release in run.numbered
        if release.noise.normal and release.unit == "client"
    ]


def noise_is_of_seed(run: Run) -> bool:
    """Whether all noise was generated again from the seed and agrees."""
    coordinates = sum(release.dimension for _, release in run.once(gaussian_sums))
    # Above it only some releases are generated again. A key may have been chosen.
    if coordinates > COORDINATES or run.keyed:
        return False
    return run.once(noise_regenerated).passed


@check.register("noise regenerated", order=104)
def noise_regenerated(run: Run) -> check.Check:
    """The noise of each release is what the generator of seed or key gives.

    The generated noise is compared with the ledger's sum of squares, with the residual
    and with the measured projections, up to single precision.
    """
    name = "noise regenerated"
    releases = run.once(gaussian_sums)
    if not releases:
        return check.passed(name, NO_GAUSSIAN)
    if run.other_streams is not None:
        return check.not_shown(name, [run.other_streams], required=False)
    if run.keyed and run.key is None:
        missing = ["the key of the noise"]
        return check.first(_states_of_seed(run), name, "", missing, required=False)

    # Of too many coordinates, every k-th release is generated again, from an offset
    # that whoever writes the ledger cannot choose.
    coordinates = sum(release.dimension for _, release in releases)
    step = math.ceil(coordinates / COORDINATES)
    offset = int(run.ledger.chain[:8] or "0", 16) % step
    selected = range(offset, len(releases), step)

    stateless = sum(not release.noise_state for _, release in releases)
    missing = []
    if stateless:
        missing.append(f"states of the generator ({stateless} of {len(releases)})")
    too_large = (release.dimension > LARGEST for _, release in releases)
    missing += check.lacking(f"noise of at most {LARGEST} coordinates", too_large)
    reason = (
        f"{len(releases)} states and the noise of {len(selected)} releases are those of "
        f"the {_source_of(run)}"
    )
    problems = _other_draws(run, selected)
    return check.first(problems, name, reason, missing, required=False)


def _source_of(run: Run) -> str:
    """What the noise follows from, in a word for a reader."""
    if run.key:
        return "key"
    return "seed"


def _states_of_seed(run: Run) -> Iterator[str]:
    """States where the seed puts the generator, in a run that names a secret key."""
    for index, release in run.once(gaussian_sums):
        of_seed = fingerprint(run.source(Purpose.NOISE, release.round, index))
        if release.noise_state == of_seed:
            yield (
                f"round {release.round}, release {index + 1}: the generator stood where "
                "the seed puts it, the record names a secret key"
            )


def _other_draws(run: Run, selected: range) -> Iterator[str]:
    """States of releases, and the noise of the selected, that are not the seed's."""
    measurements: Measurements = {}
    if run.folder is not None:
        measurements, _ = read_noise_evidence(run.folder)
    whose = _source_of(run)
    for number, (index, release) in enumerate(run.once(gaussian_sums)):
        source = run.source(Purpose.NOISE, release.round, index)
        where = f"round {release.round}, release {index + 1}"
        if release.noise_state and release.noise_state != fingerprint(source):
            yield f"{where}: the generator did not stand where the {whose} puts it"
        elif number in selected and release.dimension <= LARGEST:
            drawn = _drawn(source, release)
            measured = measurements.get((release.round, index))
            difference = _difference(release, measured, drawn, whose)
            if difference is not None:
                yield f"{where}: {difference}"


def _drawn(source: Any, release: ReleaseRecord) -> np.ndarray:
    """The noise of a release [n], drawn from its stream."""
    if release.grid is None:
        return np.asarray(source.standard_normal(release.dimension) * release.noise_std)
    scale = release.noise_std / release.grid
    return discrete_gaussian(source, scale, release.dimension) * release.grid


def _difference(
    release: ReleaseRecord,
    measured: NoiseEvidence | None,
    drawn: np.ndarray,
    whose: str,
) -> str | None:
    """How a release's evidence differs from generated noise [n]; None if it does not.

    Args:
        release: with the sum of squares of its noise, and its residual.
        measured: its measured noise; None where nobody measured it.
        drawn: the noise that the stream gives [n].
        whose: the stream, in words: that of the seed or the key.
    """
    squares = float(np.square(drawn).sum())
    if release.noise_sum_squares is None:
        return None
    # The sum of squares was taken before the noise was rounded to single precision.
    if not math.isclose(release.noise_sum_squares, squares, rel_tol=1e-9):
        ratio = math.sqrt(release.noise_sum_squares / squares)
        return (
            f"the recorded noise is not the {whose}'s, "
            f"its norm {ratio:.9g} times as large"
        )

    norm = math.sqrt(squares)
    error = SINGLE * (norm + (longest_sum(release) or 0.0))
    if release.residual is not None:
        residual_norm = math.sqrt(release.residual.sum_squares)
        if abs(residual_norm - norm) > error:
            ratio = residual_norm / norm
            return f"the released noise is {ratio:.6g} times as large as the {whose}'s"

    if measured is not None and measured.coordinates == len(drawn):
        projections = projected(drawn / release.noise_std, measured.sample > 0)
        deviation = np.abs(projections - np.asarray(measured.projections)).max()
        if deviation > DECIMALS + error / release.noise_std:
            return (
                f"the released noise is not the {whose}'s "
                f"(by {deviation:.2g} on a projection)"
            )
    return None
