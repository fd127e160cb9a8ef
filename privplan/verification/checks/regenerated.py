"""Checks that generate the cohorts and the noise of a seeded simulation again.

They are exact: a cohort or a noise vector that the seed does not give is a fault. They apply
where the record names the release of numpy that is installed here, because another one may draw
differently from the same stream, and where the noise is that of the seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from privplan.evidence import (
    DECIMALS,
    NoiseEvidence,
    project,
    read_noise_evidence,
)
from privplan.record import ReleaseRecord
from privplan.streams import Purpose, fingerprint, stream
from privplan.verification.checks.check import (
    Check,
    Run,
    at_round,
    first,
    lacking,
    not_shown,
    register,
)
from privplan.verification.checks.ledger import longest_sum
from privplan.verification.checks.noise import positions

COORDINATES = 50_000_000
"""Most coordinates of noise that are generated again; in longer runs every k-th release."""
LARGEST = 2**30
"""Most coordinates of one release whose noise is generated again, for memory: 8 GiB."""
SINGLE = 2.0**-23
"""Relative error of a coordinate that was rounded to single precision, with a factor of 2."""
SEEDED = (None, "seeded")
"""Values of the record's ``configuration["noise"]`` for which the seed determines the noise."""


def _other_numpy(run: Run) -> str | None:
    """Why the seed's streams cannot be generated here; None if they can."""
    recorded, here = run.record.versions.get("numpy"), np.__version__
    if recorded is None:
        return "the version of numpy in the record"
    if recorded.split(".")[:2] != here.split(".")[:2]:
        return f"streams of numpy {recorded}, here is {here}"
    return None


def _keyed(run: Run) -> bool:
    """Whether a secret key determines cohorts and noise, not the seed."""
    return run.record.noise == "secure" or run.record.configuration.get("noise") not in SEEDED


def _result(name: str, problems: Iterator[str], reason: str, missing: list[str]) -> Check:
    check = first(problems, name, reason)
    return not_shown(name, missing, required=False) if check.passed and missing else check


@register("cohorts regenerated", order=131)
def cohorts_regenerated(run: Run) -> Check:
    """The participants of each round are those that the sampling law draws from the seed."""
    name = "cohorts regenerated"
    if run.plan.spec.unit == "record":
        return first(iter(()), name, "does not apply, clients take turns; see rounds")
    seed = run.record.seed
    why = "the key of the cohorts" if _keyed(run) else _other_numpy(run)
    if why is not None or seed is None:
        return not_shown(name, [why or "the seed"], required=False)
    shares = [share for release in run.ledger.records for share in release.shares]
    unnamed = sum(share.participants is None for share in shares)

    def problems() -> Iterator[str]:
        law = run.plan.spec.sampling.law
        for index, group in enumerate(run.plan.groups):
            for release, share in run.shares(group.name):
                if share.participants is None:
                    continue
                ratio, _ = at_round(run, group, release)
                source = stream(seed, Purpose.SAMPLING, release.round, index)
                drawn = law.draw(source, group.clients, ratio, release.round).tolist()
                if list(share.participants) != drawn:
                    others = len(set(drawn) ^ set(share.participants))
                    yield (
                        f"round {release.round}, {group.name}: the seed draws another cohort "
                        f"({others} clients differ)"
                    )

    missing = [f"participants ({unnamed} of {len(shares)})"] if unnamed or not shares else []
    return _result(name, problems(), f"{len(shares)} cohorts are those of the seed", missing)


@register("noise regenerated", order=104)
def noise_regenerated(run: Run) -> Check:
    """The noise of each release is what the seed's generator gives, where it stood and drew.

    The generated noise is compared with the ledger's sum of squares, with the residual and with
    the measured projections, up to single precision.
    """
    name = "noise regenerated"
    releases = [
        (index, release)
        for index, release in positions(run)
        if release.noise.normal and release.unit == "client"
    ]
    if not releases:
        return first(iter(()), name, "does not apply, no Gaussian noise on sums")
    why, seed = _other_numpy(run), run.record.seed
    if why is not None or seed is None:
        return not_shown(name, [why or "the seed"], required=False)
    if _keyed(run):
        return _result(name, _unkeyed(releases, seed), "", ["the key of the noise"])
    measured = {} if run.folder is None else read_noise_evidence(run.folder)[0]
    every = math.ceil(sum(release.dimension for _, release in releases) / COORDINATES)
    offset = int(run.ledger.chain[:8] or "0", 16) % every
    stateless = sum(not release.noise_state for _, release in releases)
    large = [release.dimension > LARGEST for _, release in releases]

    def problems() -> Iterator[str]:
        for number, (index, release) in enumerate(releases):
            source = stream(seed, Purpose.NOISE, release.round, index)
            where = f"round {release.round}, release {index + 1}"
            if release.noise_state and release.noise_state != fingerprint(source):
                yield f"{where}: the generator did not stand where the seed puts it"
            elif number % every == offset and not large[number]:
                drawn = source.standard_normal(release.dimension) * release.noise_std
                why = _other_noise(release, measured.get((release.round, index)), drawn)
                if why is not None:
                    yield f"{where}: {why}"

    missing = [f"states of the generator ({stateless} of {len(releases)})"] if stateless else []
    missing += lacking(f"noise of at most {LARGEST} coordinates", large)
    checked = len(range(offset, len(releases), every))
    reason = f"{len(releases)} states and the noise of {checked} releases are those of the seed"
    return _result(name, problems(), reason, missing)


def _unkeyed(releases: Iterable[tuple[int, ReleaseRecord]], seed: int) -> Iterator[str]:
    """Releases whose noise the seed determines, though the record names a secret key."""
    for index, release in releases:
        if release.noise_state == fingerprint(stream(seed, Purpose.NOISE, release.round, index)):
            yield (
                f"round {release.round}, release {index + 1}: the generator stood where the seed "
                "puts it, the record names a secret key"
            )


def _other_noise(
    release: ReleaseRecord, measured: NoiseEvidence | None, drawn: np.ndarray
) -> str | None:
    """How a release's evidence differs from generated noise [n]; None where it does not."""
    squares = float(np.square(drawn).sum())
    if release.noise_sum_squares is None:
        return None
    if not math.isclose(release.noise_sum_squares, squares, rel_tol=1e-9):
        ratio = math.sqrt(release.noise_sum_squares / squares)
        return f"the recorded noise is not the seed's, its norm {ratio:.9g} times as large"
    norm = math.sqrt(squares)
    error = SINGLE * (norm + (longest_sum(release) or 0.0))
    if release.residual is not None:
        residual = math.sqrt(release.residual.sum_squares)
        if abs(residual - norm) > error:
            return f"the released noise is {residual / norm:.6g} times as large as the seed's"
    if measured is not None and measured.coordinates == len(drawn):
        expected = project(drawn / release.noise_std)
        difference = np.abs(expected - np.asarray(measured.projections)).max()
        if difference > DECIMALS + error / release.noise_std:
            return f"the released noise is not the seed's (by {difference:.2g} on a projection)"
    return None
